//! Merges the faults of the TOML parser with those of the reader.
//!
//! After a fault, the parser recovers as well as it can, and the reader continues with the result.
//! That reports most of a file's faults at once, but some are only consequences of another. This
//! module drops those.

use std::collections::BTreeSet;

use toml::de::Error;

use trunkline_core::text::clip;

use super::problem::SettingFault;
use super::syntax_texts::{explain_message, find_other_language};
use super::{FoundProblem, LineIndex};

/// Adds the parser's faults to the reader's, and drops consequential faults of both.
pub(crate) fn merge_syntax_errors(text: &str, errors: &[Error], found: &mut Vec<FoundProblem>) {
    if errors.is_empty() {
        return;
    }
    if let Some(problem) = find_other_language(text) {
        let start = text.len() - text.trim_start().len();
        *found = vec![FoundProblem::located(start..start + 1, String::new(), problem)];
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
    let mut duplicate_table = 0..0;
    for error in errors {
        let at = error_start(error);
        // The keys of a duplicate table are duplicates of the first one's.
        if duplicate_table.contains(&at) {
            continue;
        }
        let same_line =
            before.is_some_and(|before| lines.line_number(before) == lines.line_number(at));
        let echo =
            same_line || (lost && before.is_some_and(|before| only_comments(text, before, at)));
        lost = loses_place(error) || (lost && echo);
        before = Some(at);
        let message = error.message();
        if !echo || (!same_line && message == "duplicate key") {
            let span = error.span().unwrap_or(at..at);
            // Each search reads the text from its begin.
            let is_searched = message == "duplicate key" && kept.len() < MAX_FIRST_PLACES;
            let duplicate = is_searched.then(|| find_first(text, at)).flatten();
            if duplicate.as_ref().is_some_and(|it| it.name.starts_with('[')) {
                duplicate_table = at..end_of_table(text, at);
            }
            let problem = match duplicate {
                Some(FirstPlace { name, line }) => SettingFault::Duplicate { name, first: line },
                None => explain_message(text, message, &span),
            };
            kept.push(FoundProblem::located(span, String::new(), problem));
        }
    }
    kept
}

/// The first place of a name that is there twice.
struct FirstPlace {
    /// The table with its brackets, or the key.
    name: String,
    line: usize,
}

/// Finds the first place of the table or key at this byte. Returns `None` for keys of inline tables,
/// and for those in another notation.
fn find_first(text: &str, at: usize) -> Option<FirstPlace> {
    let start = text.get(..at)?.rfind('\n').map_or(0, |end| end + 1);
    let name = name_of_line(text.get(start..)?.lines().next()?)?;
    let earlier: Vec<_> = text.get(..start)?.lines().collect();
    // A key is in the same table, which begins at the last header.
    let header = |line: &&str| line.trim_start().starts_with('[');
    let is_table = name.starts_with('[');
    let from = if is_table { 0 } else { earlier.iter().rposition(header).map_or(0, |at| at + 1) };
    let place = earlier.iter().skip(from).position(|line| name_of_line(line) == Some(name))?;
    Some(FirstPlace { name: clip(name, MAX_SHOWN_NAME).to_owned(), line: from + place + 1 })
}

/// Returns `[table]` of a header, or the key of a setting.
fn name_of_line(line: &str) -> Option<&str> {
    let line = line.trim_start();
    if line.starts_with('[') {
        return line.get(..=line.rfind(']')?);
    }
    line.split_once('=').map(|(key, _)| key.trim_end())
}

/// Returns the begin of the table after the one whose header is at this byte.
fn end_of_table(text: &str, at: usize) -> usize {
    let next = text.get(at..).and_then(|rest| rest.find("\n["));
    next.map_or(text.len(), |next| at + next)
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

/// The longest part of a name in a message, in bytes.
const MAX_SHOWN_NAME: usize = 100;
/// The most faults whose first place is searched.
const MAX_FIRST_PLACES: usize = 16;
