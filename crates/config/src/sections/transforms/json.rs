//! Values of any kind that the configuration gives to arguments.

use std::fmt;

use http::HeaderName;
use serde_json::{Map, Number, Value as Json, json};
use toml::de::DeValue;

use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::values::substitute::{CallReferences, TextPiece};
use crate::reader::{ConfigNode, ConfigReader};
use crate::source::secret::Secret;

/// The value that an argument gets. It prints as `***`: it may be a secret, however it was written.
#[derive(Clone, PartialEq)]
pub enum ArgumentValue {
    /// A value as written in the file.
    Literal(Json),
    /// The JSON of a value that contains substitutions.
    Substituted(Secret),
    /// A text with headers of the client's request in it.
    Text(Vec<TextPart>),
}

/// A part of a text.
#[derive(Clone, PartialEq)]
pub enum TextPart {
    /// A text of the configuration.
    Fixed(Secret),
    /// The value of a header of the client's request.
    Header(HeaderName),
}

impl fmt::Debug for ArgumentValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Setting for ArgumentValue {
    type Value = Self;

    fn kind_word() -> String {
        "JSON value, with substitution and `${header:NAME}`".into()
    }

    fn example_value() -> String {
        "\"…\"".into()
    }

    fn correction() -> String {
        "write a text, a number, a boolean, an array or a table".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        // Any value here may be a secret.
        reader.hidden.push(node.span.clone());
        if let DeValue::String(_) = node.value {
            return Some(from_pieces(node.text_pieces::<Self>(CallReferences::Headers, reader)?));
        }
        let mut substitutions = 0;
        let mut substitute = |node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>| {
            let pieces = node.text_pieces::<Self>(CallReferences::Nothing, reader)?;
            let is_substituted = |piece: &&TextPiece| matches!(piece, TextPiece::Substituted(_));
            substitutions += pieces.iter().filter(is_substituted).count();
            Some(pieces.into_iter().filter_map(TextPiece::into_text).collect())
        };
        let value = read_json(node, &mut substitute, reader)?;
        Some(match substitutions {
            0 => Self::Literal(value),
            _ => Self::Substituted(Secret::new(value.to_string())),
        })
    }

    fn json_schema() -> Json {
        json!({})
    }
}

fn from_pieces(pieces: Vec<TextPiece>) -> ArgumentValue {
    let is_plain = |piece: &TextPiece| matches!(piece, TextPiece::Written(_));
    let has_headers = pieces.iter().any(|piece| matches!(piece, TextPiece::Header(_)));
    if has_headers {
        let parts = pieces.into_iter().map(|piece| match piece {
            TextPiece::Header(name) => TextPart::Header(name),
            other => TextPart::Fixed(Secret::new(other.into_text().unwrap_or_default())),
        });
        return ArgumentValue::Text(parts.collect());
    }
    let is_literal = pieces.iter().all(is_plain);
    let text: String = pieces.into_iter().filter_map(TextPiece::into_text).collect();
    if is_literal {
        ArgumentValue::Literal(text.into())
    } else {
        ArgumentValue::Substituted(Secret::new(Json::from(text).to_string()))
    }
}

/// A value of the file as JSON, without substitutions.
pub(crate) fn plain_json(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Json> {
    let mut read = |node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>| {
        node.expect_plain_string::<ArgumentValue>(reader).map(str::to_owned)
    };
    read_json(node, &mut read, reader)
}

/// Reads the texts within a value.
type TextReader<'a> = dyn FnMut(&ConfigNode<'_>, &mut ConfigReader<'_>) -> Option<String> + 'a;

/// A value of the file as JSON.
fn read_json(
    node: &ConfigNode<'_>,
    read_text: &mut TextReader<'_>,
    reader: &mut ConfigReader<'_>,
) -> Option<Json> {
    Some(match node.value {
        DeValue::String(_) => read_text(node, reader)?.into(),
        DeValue::Boolean(value) => Json::Bool(*value),
        DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(value) => value.into(),
            Err(_) => return refuse_number(node, reader),
        },
        DeValue::Float(digits) => match digits.as_str().parse().ok().and_then(Number::from_f64) {
            Some(value) => Json::Number(value),
            None => return refuse_number(node, reader),
        },
        DeValue::Array(_) => {
            let items = node.expect_items::<ArgumentValue>(reader)?;
            let items: Vec<_> =
                items.iter().map(|item| read_json(item, read_text, reader)).collect();
            Json::Array(items.into_iter().collect::<Option<_>>()?)
        }
        DeValue::Table(_) => {
            let members = node.as_table()?.all_nodes();
            let members = members.iter().map(|node| {
                Some((node.key_name().to_owned(), read_json(node, read_text, reader)?))
            });
            let members: Vec<_> = members.collect();
            Json::Object(members.into_iter().collect::<Option<Map<_, _>>>()?)
        }
        DeValue::Datetime(_) => {
            node.refuse_kind::<ArgumentValue>(reader);
            return None;
        }
    })
}

fn refuse_number(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Json> {
    node.report_fault(reader, SettingFault::NoJsonNumber);
    None
}
