//! The report of a check: printed line by line as faults are found, or as one document at the end.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::admin::ScanReport;
use crate::cli::running::RunningGatewayError;
use crate::cli::{
    LoadError, ReportForm, json_text, print_error, print_faults, printable, write_to_stdout,
};
use crate::config::{ConfigFault, ConfigFaults};

use super::scan::{describe_finding, describe_findings};

/// The report of a check, and its form.
#[derive(Debug)]
pub(crate) struct CheckReport {
    form: ReportForm,
    document: CheckDocument,
}

/// The document of a check.
#[derive(Debug, Serialize)]
struct CheckDocument {
    /// The file, as the command line has it.
    file: String,
    is_fine: bool,
    /// The number of servers; `None` if the file cannot be read or is not valid.
    servers: Option<usize>,
    faults: Vec<CheckFault>,
    warnings: Vec<CheckRemark>,
    notes: Vec<CheckRemark>,
    /// The matches of patterns in the rules that deny.
    denials: Vec<String>,
    /// The logins that people have to make.
    logins: Vec<String>,
    /// The document of `GET /api/v1/scan`; `None` without `--scan`.
    scan: Option<ScanReport>,
}

/// A fault. The place is `None` where it is not known.
#[derive(Debug, Serialize)]
struct CheckFault {
    file: String,
    line: Option<usize>,
    column: Option<usize>,
    setting: Option<String>,
    text: String,
    help: Option<String>,
}

/// A warning or a note.
#[derive(Debug, Serialize)]
struct CheckRemark {
    line: Option<u32>,
    setting: Option<String>,
    text: String,
}

impl CheckReport {
    /// Creates the report about a file.
    pub(crate) fn new(file: &Path, form: ReportForm) -> Self {
        let document = CheckDocument {
            file: file.display().to_string(),
            is_fine: false,
            servers: None,
            faults: Vec::new(),
            warnings: Vec::new(),
            notes: Vec::new(),
            denials: Vec::new(),
            logins: Vec::new(),
            scan: None,
        };
        Self { form, document }
    }

    /// Adds a fault without a place in the file.
    pub(crate) fn add_fault(&mut self, text: &str) {
        self.print(text);
        self.push_fault(text.to_owned());
    }

    /// Adds the reason that there is no configuration.
    pub(crate) fn add_load_error(&mut self, error: &LoadError) {
        if self.form == ReportForm::Text {
            error.print();
        }
        match error {
            LoadError::Faults(faults) => self.push_faults(faults),
            LoadError::Unreadable { .. } | LoadError::Override { .. } => {
                self.push_fault(error.to_string());
            }
        }
    }

    /// Adds the reason that the running gateway gives no answer, and returns the exit code.
    pub(crate) fn add_unanswered(&mut self, error: &RunningGatewayError) -> ExitCode {
        let text = error.describe();
        if self.form == ReportForm::Text {
            print_error(&text);
        }
        self.push_fault(text);
        error.exit().into_code()
    }

    /// Adds faults of the file.
    pub(crate) fn add_faults(&mut self, faults: &ConfigFaults) {
        if self.form == ReportForm::Text {
            print_faults(faults);
        }
        self.push_faults(faults);
    }

    /// Adds a warning.
    pub(crate) fn warn(&mut self, text: &str) {
        self.print(&format!("warning: {text}"));
        self.document.warnings.push(CheckRemark {
            line: None,
            setting: None,
            text: text.to_owned(),
        });
    }

    /// Adds a warning about a setting. `text` begins with its name.
    pub(crate) fn warn_at(&mut self, setting: &str, line: Option<u32>, text: &str) {
        let place = line.map(|line| format!(":{line}")).unwrap_or_default();
        self.print(&format!("warning: {}{place}: {text}", self.document.file));
        let setting = Some(setting.to_owned());
        self.document.warnings.push(CheckRemark { line, setting, text: text.to_owned() });
    }

    /// Adds a note about a setting.
    pub(crate) fn note(&mut self, setting: &str, text: &str) {
        self.print(&format!("note: {setting}: {text}"));
        let setting = Some(setting.to_owned());
        self.document.notes.push(CheckRemark { line: None, setting, text: text.to_owned() });
    }

    /// Adds the result of a scan. Its grave findings are faults.
    pub(crate) fn add_scan(&mut self, scan: ScanReport) {
        if self.form == ReportForm::Text {
            write_to_stdout(&describe_findings(&scan.findings));
        }
        for found in scan.findings.iter().filter(|found| found.is_grave) {
            self.push_fault(describe_finding(found));
        }
        self.document.scan = Some(scan);
    }

    /// Sets the number of servers.
    pub(crate) fn set_servers(&mut self, servers: usize) {
        self.document.servers = Some(servers);
    }

    /// Sets the remarks of a check that has passed.
    pub(crate) fn pass(&mut self, denials: Vec<String>, logins: Vec<String>) {
        self.document.denials = denials;
        self.document.logins = logins;
    }

    /// Prints the rest of the report, and returns the exit code. `failure` is that of a check that has
    /// not passed.
    pub(crate) fn finish(mut self, failure: Option<ExitCode>) -> ExitCode {
        self.document.is_fine = failure.is_none();
        let text = match self.form {
            ReportForm::Json => {
                json_text(&serde_json::to_value(&self.document).unwrap_or_default())
            }
            ReportForm::Text if failure.is_some() => return failure.unwrap_or(ExitCode::FAILURE),
            ReportForm::Text => {
                let CheckDocument { file, servers, denials, logins, .. } = &self.document;
                let lines = denials.iter().chain(logins).map(|line| printable(line) + "\n");
                let servers = servers.unwrap_or_default();
                lines.collect::<String>() + &format!("{file}: fine, with {servers} server(s)\n")
            }
        };
        let written = write_to_stdout(&text);
        failure.unwrap_or(written)
    }

    fn print(&self, text: &str) {
        if self.form == ReportForm::Text {
            print_error(&printable(text));
        }
    }

    fn push_fault(&mut self, text: String) {
        let file = self.document.file.clone();
        let (line, column, setting, help) = (None, None, None, None);
        self.document.faults.push(CheckFault { file, line, column, setting, text, help });
    }

    fn push_faults(&mut self, faults: &ConfigFaults) {
        for ConfigFault { line, column, key, problem, .. } in faults.list() {
            self.document.faults.push(CheckFault {
                file: self.document.file.clone(),
                line: Some(*line),
                column: Some(*column),
                setting: Some(key.clone()).filter(|key| !key.is_empty()),
                text: problem.to_string(),
                help: Some(problem.help_text()),
            });
        }
    }
}
