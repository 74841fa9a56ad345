//! Texts with parts from a call: headers of the client's request, and claims of its token.

use std::fmt;

use http::HeaderName;
use http::header::{AUTHORIZATION, COOKIE};
use serde_json::{Value as Json, json};

use super::named_tables::NameKey;
use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::values::header_name::HeaderSetting;
use crate::reader::values::substitute::{CallReferences, TextPiece};
use crate::reader::{ConfigNode, ConfigReader};
use crate::sections::server::ServerConfig;
use crate::source::secret::Secret;

/// The value of a header of each call. It prints as `***`: parts of it may be secret.
#[derive(Clone, PartialEq)]
pub struct CallText(pub Vec<CallTextPart>);

/// A part of the value of a header.
#[derive(Clone, PartialEq)]
pub enum CallTextPart {
    /// A text of the configuration.
    Fixed(Secret),
    /// The value of a header of the client's request.
    Header(HeaderName),
    /// A claim of the client's token: its name, or a path of names with dots.
    Claim(String),
}

/// The client headers that a server receives and that may be credentials: cookies, and an
/// `Authorization` that is no key or token of the gateway.
pub fn forwarded_credentials(config: &ServerConfig) -> impl Iterator<Item = &HeaderName> {
    let parts = config.call_headers.iter().flat_map(|(_, CallText(parts))| parts);
    let mapped = parts.filter_map(|part| match part {
        CallTextPart::Header(name) => Some(name),
        CallTextPart::Fixed(_) | CallTextPart::Claim(_) => None,
    });
    let all = config.forward_headers.iter().chain(mapped);
    all.filter(|name| [AUTHORIZATION, COOKIE].contains(name))
}

impl From<TextPiece> for CallTextPart {
    fn from(piece: TextPiece) -> Self {
        match piece {
            TextPiece::Written(text) | TextPiece::Substituted(text) => {
                Self::Fixed(Secret::new(text))
            }
            TextPiece::Header(name) => Self::Header(name),
            TextPiece::Claim(name) => Self::Claim(name),
        }
    }
}

impl NameKey<CallText> for HeaderName {
    const WORD: &'static str = "header";

    fn parse_name(text: &str) -> Result<Self, SettingFault> {
        HeaderSetting::from_text(text)
    }

    fn check_value(CallText(parts): &CallText) -> Result<(), SettingFault> {
        parts.iter().try_for_each(|part| match part {
            CallTextPart::Fixed(text) => <Self as NameKey<Secret>>::check_value(text),
            CallTextPart::Header(name) if name == "x-api-key" => Err(SettingFault::KeyForwarded),
            CallTextPart::Header(_) | CallTextPart::Claim(_) => Ok(()),
        })
    }
}

impl fmt::Debug for CallText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Setting for CallText {
    type Value = Self;

    fn kind_word() -> String {
        "text, with substitution, `${header:NAME}` and `${claim:NAME}`".into()
    }

    fn example_value() -> String {
        "\"${claim:sub}\"".into()
    }

    fn correction() -> String {
        "write it in quotes; ${header:NAME} and ${claim:NAME} work in them".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        // Any value here may be a secret.
        reader.hidden.push(node.span.clone());
        let pieces = node.text_pieces::<Self>(CallReferences::HeadersAndClaims, reader)?;
        let parts: Vec<_> = pieces.into_iter().map(CallTextPart::from).collect();
        let is_of_call = |part: &CallTextPart| !matches!(part, CallTextPart::Fixed(_));
        if !parts.iter().any(is_of_call) {
            node.report_fault(reader, SettingFault::FixedCallText);
            return None;
        }
        Some(Self(parts))
    }

    fn json_schema() -> Json {
        json!({ "type": "string" })
    }
}
