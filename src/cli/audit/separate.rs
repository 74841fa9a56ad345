//! Verifies several logs, such as those of replicas, each with a chain of its own.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::{
    ChainedLog, FoundFaults, VerifyArgs, VerifyReport, describe_report, report_unverified,
    verify_files,
};
use crate::cli::{FAILURE_EXIT, ReportForm, json_text, print_error, write_to_stdout};
use crate::telemetry::audit::LogVerifier;
use crate::text::error_chain;

/// The document of several logs.
#[derive(Debug, Serialize)]
struct SeparateReport {
    is_intact: bool,
    logs: Vec<NamedReport>,
}

#[derive(Debug, Serialize)]
struct NamedReport {
    /// The file without the number of a rotation.
    log: String,
    #[serde(flatten)]
    report: VerifyReport,
}

/// Verifies all logs, and reports each. The exit code is that of the first one that is not intact.
pub(super) fn verify_logs(log: &ChainedLog, args: &VerifyArgs) -> ExitCode {
    let form: ReportForm = args.json.into();
    let (mut failure, mut text, mut reports) = (None, String::new(), Vec::new());
    for (name, files) in group_files(&log.files) {
        let name = name.display().to_string();
        let one = ChainedLog { files, mode: log.mode.clone() };
        let mut faults = FoundFaults::new(form);
        let mut verifier = LogVerifier::new(one.mode.clone());
        if let Err(error) = verify_files(&one, args, &mut verifier, &mut faults) {
            failure = failure.or(Some(report_unverified(&error)));
            faults.count += 1;
            faults.list(None, error_chain(&error));
        }
        let (report, count) = (verifier.report().clone(), faults.count);
        match form {
            ReportForm::Json => {
                let report = VerifyReport::new(report, faults);
                reports.push(NamedReport { log: name, report });
            }
            ReportForm::Text if count == 0 => {
                text += &[&*name, ": ", &describe_report(&report)].concat();
            }
            ReportForm::Text => print_error(&format!("{name}: not intact: {count} fault(s)")),
        }
        if count > 0 {
            failure = failure.or(Some(FAILURE_EXIT.into_code()));
        }
    }
    if form == ReportForm::Json {
        let document = SeparateReport { is_intact: failure.is_none(), logs: reports };
        text = json_text(&serde_json::to_value(document).unwrap_or_default());
    }
    let written = write_to_stdout(&text);
    failure.unwrap_or(written)
}

/// Groups files by log: a file, and those with its name and the number of a rotation.
fn group_files(files: &[PathBuf]) -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut logs: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for file in files {
        logs.entry(log_of(file)).or_default().push(file.clone());
    }
    logs
}

fn log_of(file: &Path) -> PathBuf {
    let extension = file.extension().map(OsStr::as_encoded_bytes);
    let is_rotated = extension.is_some_and(|it| it.iter().all(u8::is_ascii_digit));
    if is_rotated { file.with_extension("") } else { file.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rotated_files_belong_to_the_file_that_they_were() {
        for (file, log) in [
            ("a/audit.jsonl", "a/audit.jsonl"),
            ("a/audit.jsonl.1", "a/audit.jsonl"),
            ("a/audit.jsonl.12", "a/audit.jsonl"),
            ("b/audit.jsonl.1", "b/audit.jsonl"),
            ("audit.log-1", "audit.log-1"),
            ("audit", "audit"),
        ] {
            assert_eq!(log_of(Path::new(file)), Path::new(log));
        }
    }
}
