//! Merges the faults of the TOML parser with those of the reader.
//!
//! After a fault, the parser recovers as well as it can, and the reader continues with the result.
//! That reports most of a file's faults at once, but some are only consequences of another. This
//! module drops those.

use std::collections::BTreeSet;

use toml::de::Error;

use super::problem::SettingFault;
use super::{FoundProblem, LineIndex};

/// Adds the parser's faults to the reader's, and drops consequential faults of both.
pub(crate) fn merge_syntax_errors(text: &str, errors: &[Error], found: &mut Vec<FoundProblem>) {
    if errors.is_empty() {
        return;
    }
    let lines = LineIndex::index_lines(text);
    let syntax = first_of_each_run(text, &lines, errors);
    let broken: BTreeSet<_> =
        errors.iter().map(|error| lines.line_number(error_start(error))).collect();
    let lost = errors.iter().filter(|error| loses_place(error)).map(error_start).min();
    found.retain(|fault| {
        // A missing setting may be in the part that was not parsed; text after an unclosed bracket
        // may belong elsewhere; and each line is reported once.
        !fault.problem.needs_whole_table()
            && lost.is_none_or(|lost| fault.span.start < lost)
            && !broken.contains(&lines.line_number(fault.span.start))
    });
    found.extend(syntax);
}

/// The first fault of each line, and of each run of lines after an unclosed bracket, which causes
/// all of them.
fn first_of_each_run(text: &str, lines: &LineIndex, errors: &[Error]) -> Vec<FoundProblem> {
    let mut errors: Vec<_> = errors.iter().collect();
    errors.sort_by_key(|error| error_start(error));
    let (mut kept, mut before, mut lost) = (Vec::new(), None, false);
    for error in errors {
        let at = error_start(error);
        let same_line =
            before.is_some_and(|before| lines.line_number(before) == lines.line_number(at));
        let echo =
            same_line || (lost && before.is_some_and(|before| only_comments(text, before, at)));
        lost = loses_place(error) || (lost && echo);
        before = Some(at);
        let message = error.message();
        if !echo || (!same_line && message == "duplicate key") {
            let message = message.strip_suffix(", expected nothing").unwrap_or(message).to_owned();
            let problem = SettingFault::Syntax { message };
            let span = error.span().unwrap_or(at..at);
            kept.push(FoundProblem { span, key: String::new(), problem });
        }
    }
    kept
}

/// Returns true if all lines between the lines of `from` and `to` are empty or comments.
fn only_comments(text: &str, from: usize, to: usize) -> bool {
    let lines: Vec<_> = text.get(from..to).unwrap_or("").split('\n').collect();
    let between = lines.get(1..lines.len().saturating_sub(1)).unwrap_or_default();
    between.iter().all(|line| matches!(line.trim_start().as_bytes().first(), None | Some(b'#')))
}

/// Returns true if the parser may have misread the following text. Its faults are only
/// distinguished by their messages; an unknown message costs one redundant fault.
fn loses_place(error: &Error) -> bool {
    const SYNTAX_WORDS: [&str; 5] =
        ["unclosed", "missing", "unexpected", "unquoted", "invalid multi-line"];
    SYNTAX_WORDS.iter().any(|lost| error.message().starts_with(lost))
}

fn error_start(error: &Error) -> usize {
    error.span().map_or(0, |span| span.start)
}
