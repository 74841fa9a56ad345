//! Errors of authorization servers (RFC 6749, 4.1.2.1 and 5.2), as far as messages repeat them.

use std::fmt;

use http::StatusCode;
use serde::Deserialize;

use trunkline_core::text::{clip, one_line};

/// An error of an authorization server: its code or the HTTP status, and its description.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProviderError {
    /// The error code, or the HTTP status.
    pub(crate) code: String,
    description: Option<String>,
}

impl ProviderError {
    /// Creates an error from the members of a response.
    pub(crate) fn new(code: &str, description: Option<&str>) -> Self {
        let description = description.map(|text| one_line(text, MAX_DESCRIPTION_CHARACTERS));
        let description = description.filter(|text| !text.is_empty());
        Self { code: shown_code(code), description }
    }

    /// Reads the body of an unsuccessful response.
    pub(crate) fn read(status: StatusCode, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct ErrorDocument {
            error: String,
            #[serde(default)]
            error_description: serde_json::Value,
        }
        match serde_json::from_slice::<ErrorDocument>(body) {
            Ok(found) => Self::new(&found.error, found.error_description.as_str()),
            Err(_) => Self { code: status.to_string(), description: None },
        }
    }
}

impl fmt::Display for ProviderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.description {
            Some(description) => write!(f, "{} ({description})", self.code),
            None => f.write_str(&self.code),
        }
    }
}

/// Returns the printable part of an error code.
pub(crate) fn shown_code(text: &str) -> String {
    let plain = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    clip(text, 64).chars().filter(plain).collect()
}

/// Maximum number of characters of a description in messages.
const MAX_DESCRIPTION_CHARACTERS: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_code_is_shown_without_markup() {
        assert_eq!(shown_code("<b>access_denied</b>\n\"x\""), "baccess_deniedbx");
    }

    #[test]
    fn a_description_is_one_bounded_line_of_visible_characters() {
        let long = "ä".repeat(300);
        for (description, shown) in [
            (Some("The code has expired."), "invalid_grant (The code has expired.)"),
            (Some("a\r\nb\tc\u{1b}[31m\u{0}\u{202e}d\u{200b}"), "invalid_grant (a  b c[31md)"),
            (Some(" \n\u{7} "), "invalid_grant"),
            (Some(""), "invalid_grant"),
            (None, "invalid_grant"),
            (Some(&long), &format!("invalid_grant ({})", "ä".repeat(200))),
        ] {
            assert_eq!(ProviderError::new("invalid_grant", description).to_string(), shown);
        }
    }

    #[test]
    fn an_answer_without_an_error_code_shows_its_status() {
        for (body, shown) in [
            (r#"{"error":"e","error_description":"d"}"#, "e (d)"),
            (r#"{"error":"e","error_description":null}"#, "e"),
            (r#"{"error":"e","error_description":["d"]}"#, "e"),
            (r#"{"error":{"code":1}}"#, "400 Bad Request"),
            ("<html>secret</html>", "400 Bad Request"),
            ("", "400 Bad Request"),
        ] {
            let error = ProviderError::read(StatusCode::BAD_REQUEST, body.as_bytes());
            assert_eq!(error.to_string(), shown, "{body}");
        }
    }
}
