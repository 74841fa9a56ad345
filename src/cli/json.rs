//! JSON documents on standard output.

use std::fmt::Write as _;

use serde_json::value::RawValue;

use crate::text::is_invisible;

/// The form of a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReportForm {
    /// Lines for people: faults and warnings on standard error.
    Text,
    /// One JSON document on standard output.
    Json,
}

impl From<bool> for ReportForm {
    /// Reads the option `--json`.
    fn from(is_json: bool) -> Self {
        if is_json { Self::Json } else { Self::Text }
    }
}

/// Returns a document for standard output.
pub(super) fn json_text(document: &serde_json::Value) -> String {
    escape_json(&format!("{document:#}\n"))
}

/// Returns a document as it is written, on one line: numbers keep all their digits.
pub(super) fn json_line(document: &RawValue) -> String {
    // Between the strings, these are white space; within them they are escaped.
    escape_json(&document.get().replace(['\n', '\r', '\t'], " ")) + "\n"
}

/// Escapes the characters of a JSON text that a terminal obeys or hides. They are within strings:
/// the rest of a JSON text has none.
pub(super) fn escape_json(json: &str) -> String {
    let mut text = String::new();
    for c in json.chars() {
        if c != '\n' && (c.is_control() || is_invisible(c) || matches!(c, '\u{2028}' | '\u{2029}'))
        {
            for unit in c.encode_utf16(&mut [0; 2]) {
                let _ = write!(text, "\\u{unit:04x}");
            }
        } else {
            text.push(c);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_has_no_character_that_a_terminal_obeys() {
        let text = "a\u{9b}31m\u{7f}\u{202e}\u{2028}\u{e0041}ü\n";
        let document = serde_json::json!({ "text": text });
        let shown = json_text(&document);
        assert!(shown.contains(r"a\u009b31m\u007f\u202e\u2028\udb40\udc41ü\n"), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), document);
    }

    #[test]
    fn a_document_on_one_line_keeps_its_digits_and_stays_json() {
        let written = "{\r\n\t\"n\": 123456789012345678901, \"s\": \"\u{202e}\"}".to_owned();
        let line = json_line(&RawValue::from_string(written).unwrap());
        assert_eq!(line, "{   \"n\": 123456789012345678901, \"s\": \"\\u202e\"}\n");
    }
}
