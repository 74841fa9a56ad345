//! The report of `trunkline doctor`.

use std::fmt::Write as _;

use serde::Serialize;

use crate::cli::columns::wrap_text;
use crate::cli::{json_text, printable};
use crate::config::ConfigPlaces;

/// The results of all checks.
#[derive(Debug, Default, Serialize)]
pub(super) struct DoctorReport {
    /// Number of findings.
    findings: usize,
    checks: Vec<DoctorCheck>,
    #[serde(skip)]
    places: ConfigPlaces,
}

/// The subject of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum CheckArea {
    Configuration,
    Descriptors,
    Clock,
    Sandbox,
    Runtimes,
    Certificates,
    Clients,
    Ports,
    Servers,
    Providers,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct DoctorCheck {
    area: CheckArea,
    verdict: CheckVerdict,
    text: String,
    setting: Option<String>,
    line: Option<u32>,
    cure: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum CheckVerdict {
    Fine,
    Finding,
    /// It cannot be made, or was not wanted.
    Skipped,
}

impl CheckArea {
    fn as_str(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::Descriptors => "descriptors",
            Self::Clock => "clock",
            Self::Sandbox => "sandbox",
            Self::Runtimes => "runtimes",
            Self::Certificates => "certificates",
            Self::Clients => "clients",
            Self::Ports => "ports",
            Self::Servers => "servers",
            Self::Providers => "providers",
        }
    }
}

impl DoctorReport {
    /// Sets the lines of settings for findings from now on.
    pub(super) fn set_places(&mut self, places: ConfigPlaces) {
        self.places = places;
    }

    pub(super) fn pass(&mut self, area: CheckArea, text: String) {
        self.add(area, CheckVerdict::Fine, text);
    }

    pub(super) fn skip(&mut self, area: CheckArea, text: &str) {
        self.add(area, CheckVerdict::Skipped, text.to_owned());
    }

    /// Adds a finding with its cure.
    pub(super) fn find(&mut self, area: CheckArea, text: String, cure: &str) {
        self.add_finding(area, None, text, cure);
    }

    /// Adds a finding about a setting.
    pub(super) fn find_at(&mut self, area: CheckArea, setting: &str, text: String, cure: &str) {
        self.add_finding(area, Some(setting), text, cure);
    }

    fn add_finding(&mut self, area: CheckArea, setting: Option<&str>, text: String, cure: &str) {
        self.findings += 1;
        let line = setting.and_then(|setting| self.places.line_of(setting));
        let (setting, cure) = (setting.map(str::to_owned), Some(cure.to_owned()));
        let verdict = CheckVerdict::Finding;
        self.checks.push(DoctorCheck { area, verdict, text, setting, line, cure });
    }

    fn add(&mut self, area: CheckArea, verdict: CheckVerdict, text: String) {
        let (setting, line, cure) = (None, None, None);
        self.checks.push(DoctorCheck { area, verdict, text, setting, line, cure });
    }

    pub(super) fn has_findings(&self) -> bool {
        self.findings > 0
    }

    pub(super) fn to_json(&self) -> String {
        json_text(&serde_json::to_value(self).unwrap_or_default())
    }

    /// Returns the report for a terminal of 80 columns.
    pub(super) fn to_text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let verdict = match check.verdict {
                CheckVerdict::Fine => "ok",
                CheckVerdict::Finding => "FINDING",
                CheckVerdict::Skipped => "skipped",
            };
            let place = match (&check.setting, check.line) {
                (Some(setting), Some(line)) => format!("line {line}: {setting}: "),
                (Some(setting), None) => format!("{setting}: "),
                (None, _) => String::new(),
            };
            let start = format!("{verdict:<8} {:<14} ", check.area.as_str());
            let mut body = printable(&format!("{place}{}", check.text));
            if let Some(cure) = &check.cure {
                let _ = write!(body, "\n→ {}", printable(cure));
            }
            text.push_str(&wrap_text(&start, &body));
        }
        let _ = match self.findings {
            0 => writeln!(text, "\nNo findings."),
            1 => writeln!(text, "\n1 finding."),
            more => writeln!(text, "\n{more} findings."),
        };
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_fits_a_usual_terminal_and_names_place_and_cure() {
        let mut report = DoctorReport::default();
        report.pass(CheckArea::Clock, "fine".into());
        let long = "a long sentence with many words that goes on ".repeat(4);
        report.find_at(CheckArea::Ports, "gateway.listen", long, "choose another address");
        let text = report.to_text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.starts_with("ok       clock          fine\n"), "{text}");
        assert!(text.contains("gateway.listen: a long"), "{text}");
        assert!(text.contains("→ choose another address"), "{text}");
        assert!(text.ends_with("\n1 finding.\n"), "{text}");
        assert!(report.has_findings());
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).unwrap();
        assert_eq!(json["findings"], 1);
        assert_eq!(json["checks"][1]["setting"], "gateway.listen");
        assert_eq!(json["checks"][1]["verdict"], "finding");
    }
}
