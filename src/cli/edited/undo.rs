//! `--undo`: restores files to their state before the last write of a command.

use std::path::PathBuf;
use std::process::ExitCode;

use trunkline_import::{
    EditedFileError, MAX_DOCUMENT, UndoOutcome, UndoneFile, UndoneState, undo_write,
};

use crate::cli::{FAILURE_EXIT, printable, report_error, write_to_stdout};

/// Restores each file that a command has written, and reports it. A file that cannot be restored
/// does not affect the others.
pub(crate) fn undo_writes(paths: &[PathBuf]) -> ExitCode {
    let mut lines = Vec::new();
    let mut errors = Vec::new();
    for path in paths {
        let file = path.display();
        let undone = match undo_write(path, MAX_DOCUMENT) {
            Ok(undone) => undone,
            Err(error) => {
                errors.push(error);
                continue;
            }
        };
        match undone.outcome {
            UndoOutcome::NoBackup => {}
            UndoOutcome::Restored => lines.push(format!("{file}: as it was before\n")),
            UndoOutcome::Removed => {
                lines.push(format!("{file}: removed, as it was before\n"));
            }
            UndoOutcome::Changed(backup) => {
                errors.push(EditedFileError::ChangedSince { path: path.clone(), backup });
            }
        }
        lines.extend(undone.created.iter().map(describe_created));
    }
    if lines.is_empty() && errors.is_empty() {
        lines.push("nothing to undo\n".to_owned());
    }
    let written = write_to_stdout(&lines.concat());
    for error in &errors {
        report_error(error);
    }
    if errors.is_empty() { written } else { FAILURE_EXIT.into_code() }
}

/// Describes the end of a file that was created for an undone write, such as a secret.
fn describe_created(file: &UndoneFile) -> String {
    let end = match file.state {
        UndoneState::Removed => "removed",
        UndoneState::Changed => "kept, it has changed since",
        UndoneState::Stuck => "kept, it cannot be read or removed; remove it by hand",
    };
    format!("{}: {end}\n", printable(&file.path))
}
