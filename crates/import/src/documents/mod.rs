//! Text of another program's configuration, read into one form: a JSON value.
//!
//! The files belong to other programs and may have any content. They are bounded in size, nesting
//! and expansion, and duplicate keys are faults. An error names the file, the line and the rule,
//! but quotes no text, because the text may be a secret.

pub(crate) mod fields;
pub(crate) mod imported;
pub(crate) mod references;

use std::path::Path;

use jsonc_parser::ast::Value as JsoncValue;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use serde_json::Value as Json;

use trunkline_core::codec::file::FileError;

use crate::edited_file::{BYTE_ORDER_MARK, count_lines};

use fields::FieldFault;

/// The notation of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notation {
    /// JSON, with comments and trailing commas.
    Json,
    /// YAML 1.2.
    Yaml,
    /// TOML.
    Toml,
}

/// Reason that a file was not read. Each message has the name of the file.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// The file cannot be opened, or is too large.
    #[error("{file}: cannot read: {error}")]
    Unreadable {
        /// Its name.
        file: String,
        /// The reason.
        error: FileError,
    },
    /// The bytes are not UTF-8.
    #[error("{file}:{line}: expected text in UTF-8")]
    NotUtf8 {
        /// Its name.
        file: String,
        /// The line of the first invalid byte.
        line: usize,
    },
    /// A field differs from the program's documentation.
    #[error("{file}: {fault}")]
    Field {
        /// Its name.
        file: String,
        /// The fault, with the path of the field.
        fault: FieldFault,
    },
    /// The text does not parse.
    #[error("{file}:{line}: {rule}")]
    Syntax {
        /// Its name.
        file: String,
        /// The line of the fault.
        line: usize,
        /// The rule that the parser expected.
        rule: String,
    },
    /// The file has no servers in a known form.
    #[error(
        "{file}: no MCP servers in a known form; name the program of the file with --from NAME"
    )]
    Unknown {
        /// Its name.
        file: String,
    },
}

/// Maximum bytes of a file. Claude Code keeps the history of all projects in the file of its
/// servers.
pub const MAX_DOCUMENT: usize = 32 << 20;

impl Notation {
    /// Detects the notation by the extension of the file's name, or otherwise by the text.
    pub fn detect(path: &Path, text: &str) -> Self {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("json" | "jsonc") => Self::Json,
            Some("yaml" | "yml") => Self::Yaml,
            Some("toml") => Self::Toml,
            _ if text.trim_start().starts_with(['{', '/']) => Self::Json,
            _ if text.lines().any(|line| line.trim_start().starts_with("[mcp_servers")) => {
                Self::Toml
            }
            _ => Self::Yaml,
        }
    }
}

/// Parses the bytes of a file, in the notation that its text suggests.
pub(crate) fn parse_bytes(
    file: &str,
    bytes: &[u8],
    notation: impl FnOnce(&str) -> Notation,
) -> Result<Json, DocumentError> {
    let text = decode_text(file, bytes)?;
    parse_document(file, text, notation(text))
}

/// Decodes the bytes of a file, without a byte order mark.
fn decode_text<'a>(file: &str, bytes: &'a [u8]) -> Result<&'a str, DocumentError> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)),
        Err(error) => {
            let valid = bytes.get(..error.valid_up_to()).unwrap_or_default();
            Err(DocumentError::NotUtf8 { file: file.to_owned(), line: count_lines(valid) })
        }
    }
}

/// Parses the text of a file; an empty one is null.
///
/// # Errors
/// The text is not valid in this notation: the place and the reason.
pub fn parse_document(file: &str, text: &str, notation: Notation) -> Result<Json, DocumentError> {
    let parsed = match notation {
        _ if text.trim().is_empty() => Ok(Json::Null),
        Notation::Json => parse_json(text),
        Notation::Yaml => parse_yaml(text),
        Notation::Toml => parse_toml(text),
    };
    parsed.map_err(|(line, rule)| DocumentError::Syntax { file: file.to_owned(), line, rule })
}

/// The line and the violated rule.
type SyntaxFault = (usize, String);

fn parse_json(text: &str) -> Result<Json, SyntaxFault> {
    // A value takes up more memory than its text. Commas within texts count, too: few texts have
    // many.
    if memchr::memchr2_iter(b',', b'[', text.as_bytes()).count() > MAX_JSON_VALUES {
        return Err((1, format!("expected at most {MAX_JSON_VALUES} values")));
    }
    let parsed = parse_to_ast(text, &CollectOptions::default(), &jsonc_options())
        .map_err(|error| (error.line_display(), error.kind().to_string().to_lowercase()))?;
    let Some(value) = parsed.value else { return Ok(Json::Null) };
    check_duplicate_keys(text, &value)?;
    Ok(value.into())
}

/// Allows comments and trailing commas, as editors do in these files; the rest is strict JSON.
pub fn jsonc_options() -> ParseOptions {
    ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

/// Rejects duplicate keys, because it is unknown which of them the other program reads.
fn check_duplicate_keys(text: &str, value: &JsoncValue<'_>) -> Result<(), SyntaxFault> {
    match value {
        JsoncValue::Object(object) => {
            let mut seen = std::collections::HashSet::new();
            for property in &object.properties {
                let key = property.name.as_str();
                if !seen.insert(key) {
                    let before = text.get(..property.start()).unwrap_or_default();
                    return Err((
                        count_lines(before.as_bytes()),
                        format!("duplicate key {:?}", trunkline_core::text::clip(key, 64)),
                    ));
                }
                check_duplicate_keys(text, &property.value)?;
            }
            Ok(())
        }
        JsoncValue::Array(array) => {
            array.elements.iter().try_for_each(|element| check_duplicate_keys(text, element))
        }
        _ => Ok(()),
    }
}

fn parse_yaml(text: &str) -> Result<Json, SyntaxFault> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_YAML_DEPTH,
            max_nodes: MAX_YAML_NODES,
            max_documents: 1,
        },
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, |location| location.line());
        // One line, without the excerpt that follows.
        let rule = error.without_snippet().to_string();
        let rule = rule.lines().next().unwrap_or_default().to_owned();
        (usize::try_from(line).unwrap_or(1), rule)
    })
}

fn parse_toml(text: &str) -> Result<Json, SyntaxFault> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
        (count_lines(before.as_bytes()), error.message().lines().next().unwrap_or("").to_owned())
    })?;
    serde_json::to_value(table).map_err(|error| (1, error.to_string()))
}

/// Maximum number of values in a JSON file, counted by their separators.
const MAX_JSON_VALUES: usize = 2_000_000;
/// Maximum nesting of a YAML file.
const MAX_YAML_DEPTH: usize = 64;
/// Maximum number of nodes in a YAML file, including those of its aliases.
const MAX_YAML_NODES: usize = 200_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn fault_of(text: &str, notation: Notation) -> String {
        parse_document("f", text, notation).unwrap_err().to_string()
    }

    #[test]
    fn json_may_have_comments_and_trailing_commas_and_no_duplicate_keys() {
        let parsed = parse_document("f", "{ // c\n \"a\": [1, ], }", Notation::Json).unwrap();
        assert_eq!(parsed, serde_json::json!({ "a": [1] }));
        assert_eq!(fault_of("{\n\"a\": 1,\n\"a\": 2}", Notation::Json), "f:3: duplicate key \"a\"");
        assert!(fault_of("{'a': 1}", Notation::Json).starts_with("f:1: "));
    }

    #[test]
    fn deep_nesting_and_yaml_bombs_are_faults_with_a_line() {
        let deep = fault_of(&"[".repeat(100_000), Notation::Json);
        assert!(deep.contains("nesting depth"), "{deep}");
        assert!(fault_of(&"[".repeat(100_000), Notation::Yaml).starts_with("f:1: "));
        let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x]\n");
        for (next, last) in "bcdefghi".chars().zip("abcdefgh".chars()) {
            let aliases = vec![format!("*{last}"); 9].join(", ");
            bomb.extend([format!("{next}: &{next} [{aliases}]\n")]);
        }
        let fault = fault_of(&bomb, Notation::Yaml);
        assert!(fault.starts_with("f:"), "{fault}");
        assert!(fault_of("a: 1\na: 2\n", Notation::Yaml).starts_with("f:2: "));
        assert!(fault_of("[a]\nx = 1\nx = 2\n", Notation::Toml).starts_with("f:3: "));
    }

    #[test]
    fn a_fault_quotes_nothing_of_the_text() {
        for (text, notation) in [
            ("{\"k\": \"hunter2\" \"x\"}", Notation::Json),
            ("{\"k\": hunter2}", Notation::Json),
            ("k: \"hunter2\n", Notation::Yaml),
            ("k: [hunter2", Notation::Yaml),
            ("k: hunter2\n  a: b: c\n", Notation::Yaml),
            ("k = \"hunter2", Notation::Toml),
            ("k = hunter2", Notation::Toml),
        ] {
            let fault = fault_of(text, notation);
            assert!(!fault.contains("hunter2"), "{fault}");
        }
    }

    #[test]
    fn bytes_that_are_not_utf_8_are_a_fault_with_a_line() {
        let fault = decode_text("f", b"{\n\"a\": \"\xff\"}").unwrap_err();
        assert_eq!(fault.to_string(), "f:2: expected text in UTF-8");
    }
}
