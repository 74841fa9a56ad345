//! `${env:NAME}`, `${file:PATH}` and `${command:PROGRAM ARG…}` in string values.
//!
//! Substitution works on parsed strings, never on the file's text, so that no
//! value can change the file's structure. It is applied once, so that no value
//! can name another.

use http::HeaderName;
use serde_json::{Value as Json, json};

use super::header_name::HeaderSetting;
use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};
use crate::source::command_output::program_of;
use crate::source::secret::Secret;

/// A piece of a text with substitutions.
pub(crate) enum TextPiece {
    /// As written in the file.
    Written(String),
    /// The value of a substitution.
    Substituted(String),
    /// A header of the client's request.
    Header(HeaderName),
    /// A claim of the client's token.
    Claim(String),
}

impl TextPiece {
    /// The text of the piece; `None` if it comes from a request.
    pub(crate) fn into_text(self) -> Option<String> {
        match self {
            Self::Written(text) | Self::Substituted(text) => Some(text),
            Self::Header(_) | Self::Claim(_) => None,
        }
    }
}

/// The parts of a call that a text may refer to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CallReferences {
    /// None: the text is read when there is no call.
    Nothing,
    /// Headers of the client's request.
    Headers,
    /// Headers, and claims of the client's token.
    HeadersAndClaims,
}

impl ConfigNode<'_> {
    /// The value as a string, with substitutions; any other type is a fault.
    pub(crate) fn substitute_text<S: Setting>(
        &self,
        reader: &mut ConfigReader<'_>,
    ) -> Option<String> {
        let pieces = self.text_pieces::<S>(CallReferences::Nothing, reader)?;
        Some(pieces.into_iter().filter_map(TextPiece::into_text).collect())
    }

    /// The pieces of the value as a string; any other type is a fault.
    pub(crate) fn text_pieces<S: Setting>(
        &self,
        allowed: CallReferences,
        reader: &mut ConfigReader<'_>,
    ) -> Option<Vec<TextPiece>> {
        let mut rest = self.expect_string::<S>(reader)?;
        let mut pieces = Some(Vec::new());
        let written = |text: &str| Some(TextPiece::Written(text.to_owned()));
        while let Some(at) = rest.find("${") {
            let (before, from) = rest.split_at(at);
            if let Some(before) = before.strip_suffix('$') {
                append_piece(&mut pieces, written(&format!("{before}${{")));
                rest = from.get(2..).unwrap_or("");
                continue;
            }
            append_piece(&mut pieces, written(before));
            let Some(end) = from.find('}') else {
                self.report_fault(reader, SettingFault::Substitution { name: None });
                return None;
            };
            let piece = self.substituted_piece(from.get(2..end).unwrap_or(""), allowed, reader);
            append_piece(&mut pieces, piece);
            rest = from.get(end + 1..).unwrap_or("");
        }
        append_piece(&mut pieces, written(rest));
        pieces
    }

    /// The replacement of a substitution, from the text within `${…}`.
    fn substituted_piece(
        &self,
        inside: &str,
        allowed: CallReferences,
        reader: &mut ConfigReader<'_>,
    ) -> Option<TextPiece> {
        let value = match inside.split_once(':') {
            Some(("env", name)) if is_env_name(name) => from_environment(name, reader),
            Some(("file", path)) if !path.is_empty() => from_file(path, reader),
            Some(("command", line)) if !line.trim().is_empty() => from_command(line, reader),
            Some(("header", name)) if allowed >= CallReferences::Headers => {
                let name = HeaderSetting::from_text(name);
                let name = name.map_err(|problem| self.report_fault(reader, problem)).ok()?;
                return Some(TextPiece::Header(name));
            }
            Some(("claim", name))
                if allowed >= CallReferences::HeadersAndClaims && is_claim(name) =>
            {
                return Some(TextPiece::Claim(name.to_owned()));
            }
            Some(("header" | "claim", _)) if allowed < CallReferences::HeadersAndClaims => {
                Err(SettingFault::CallReference)
            }
            _ => {
                // Any other text may be a part of a secret.
                let is_set = is_env_name(inside) && reader.surroundings.variable(inside).is_some();
                let name = is_set.then(|| inside.to_owned());
                Err(SettingFault::Substitution { name })
            }
        };
        let value = value.map_err(|problem| self.report_fault(reader, problem)).ok()?;
        reader.secrets.push((self.key.clone(), Secret::new(value.clone())));
        Some(TextPiece::Substituted(value))
    }
}

impl Setting for Secret {
    type Value = Self;

    fn kind_word() -> String {
        "text, with substitution".into()
    }

    fn example_value() -> String {
        "\"${env:NAME}\"".into()
    }

    fn correction() -> String {
        "write it in quotes; ${env:NAME} and ${file:PATH} work in them".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        // Any value here may be a literal secret, even one of the wrong type.
        reader.hidden.push(node.span.clone());
        let secret = node.substitute_text::<Self>(reader).map(Self::new)?;
        reader.secrets.push((node.key.clone(), secret.clone()));
        Some(secret)
    }

    fn json_schema() -> Json {
        json!({ "type": "string" })
    }
}

/// A text with substitution that is not itself a secret: an argument.
pub(crate) struct SubstitutedText;

impl Setting for SubstitutedText {
    type Value = String;

    fn kind_word() -> String {
        Secret::kind_word()
    }

    fn example_value() -> String {
        "\"value\"".into()
    }

    fn correction() -> String {
        Secret::correction()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<String> {
        let text = node.substitute_text::<Self>(reader)?;
        if text.contains('\0') {
            node.report_fault(reader, SettingFault::Nul);
            return None;
        }
        Some(text)
    }

    fn json_schema() -> Json {
        json!({ "type": "string" })
    }
}

fn from_environment(name: &str, reader: &ConfigReader<'_>) -> Result<String, SettingFault> {
    let value = reader.surroundings.variable(name);
    let value = value.ok_or_else(|| SettingFault::EnvUnset { name: name.to_owned() })?;
    value.into_string().map_err(|_| SettingFault::EnvNotUtf8 { name: name.to_owned() })
}

/// The text of a file, without the trailing line ends that editors and `echo`
/// add.
fn from_file(path: &str, reader: &mut ConfigReader<'_>) -> Result<String, SettingFault> {
    let full = reader.resolve_path(path);
    let text = reader.surroundings.text(&full);
    reader.files.insert(full);
    let text = text.map_err(|error| SettingFault::File { path: path.to_owned(), error })?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

/// The output of a program, without the line ends at its end.
fn from_command(line: &str, reader: &mut ConfigReader<'_>) -> Result<String, SettingFault> {
    reader.commands.insert(line.to_owned());
    reader.surroundings.output(line).map_err(|fault| {
        let program = program_of(line).to_owned();
        SettingFault::Command { program, fault }
    })
}

/// Returns true if a text may be the name of a claim, or a path to it.
fn is_claim(name: &str) -> bool {
    (1..=256).contains(&name.len()) && !name.contains(char::is_control)
}

/// Appends a piece; the whole becomes `None` if a piece is missing.
fn append_piece(whole: &mut Option<Vec<TextPiece>>, piece: Option<TextPiece>) {
    match (whole.as_mut(), piece) {
        (Some(whole), Some(piece)) => whole.push(piece),
        _ => *whole = None,
    }
}

/// Returns true if a text is a valid name of an environment variable.
pub(crate) fn is_env_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}
