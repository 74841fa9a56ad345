//! Texts in the columns of a terminal.

use std::fmt::Write as _;

/// Wraps a text behind its start, so that no line is longer than [`TERMINAL_COLUMNS`], as far as its
/// words allow.
pub(crate) fn wrap_text(start: &str, body: &str) -> String {
    let indent = " ".repeat(start.chars().count());
    let room = TERMINAL_COLUMNS.saturating_sub(indent.len());
    let mut lines = Vec::new();
    for paragraph in body.split('\n') {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let length = line.chars().count() + 1 + word.chars().count();
            if !line.is_empty() && length > room {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    let mut text = String::new();
    for (place, line) in lines.iter().enumerate() {
        let before = if place == 0 { start } else { &indent };
        let _ = writeln!(text, "{}", format!("{before}{line}").trim_end());
    }
    text
}

/// Width of a usual terminal.
pub(crate) const TERMINAL_COLUMNS: usize = 80;
