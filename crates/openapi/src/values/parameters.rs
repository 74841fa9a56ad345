//! Encoding of parameter values: the styles of OpenAPI ("Style Values" and "Style Examples" of 3.1,
//! after RFC 6570).
//!
//! No value ever leaves its position. In a path, a query or a cookie, every character with a
//! meaning there is percent-encoded. A header value that contains such a character is refused.

use std::borrow::Cow;

use http::{HeaderName, HeaderValue};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;

use trunkline_jsonrpc::{Members, text};

/// One parameter of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiParameter {
    /// Name of the tool's argument.
    pub(crate) argument: String,
    /// Name of the parameter itself.
    pub(crate) name: String,
    pub(crate) place: ParameterPlace,
    pub(crate) style: ParameterStyle,
    /// Writes each item of a list, or member of an object, separately.
    pub(crate) explode: bool,
    /// Keeps reserved characters unencoded, as far as they cannot end the value.
    pub(crate) allow_reserved: bool,
    pub(crate) required: bool,
}

/// Position of a parameter in a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ParameterPlace {
    Path,
    Query,
    Header(HeaderName),
    Cookie,
}

/// Encoding of a value with several parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParameterStyle {
    Matrix,
    Label,
    Form,
    Simple,
    SpaceDelimited,
    PipeDelimited,
    DeepObject,
    /// Not a style: the value is written as JSON (`content` of the parameter).
    Json,
}

impl ParameterStyle {
    /// Returns the style with this name, if it is allowed at the position.
    pub(crate) fn named(name: &str, place: &ParameterPlace) -> Option<Self> {
        Some(match (name, place) {
            ("matrix", ParameterPlace::Path) => Self::Matrix,
            ("label", ParameterPlace::Path) => Self::Label,
            ("simple", ParameterPlace::Path | ParameterPlace::Header(_)) => Self::Simple,
            ("form", ParameterPlace::Query | ParameterPlace::Cookie) => Self::Form,
            ("spaceDelimited", ParameterPlace::Query) => Self::SpaceDelimited,
            ("pipeDelimited", ParameterPlace::Query) => Self::PipeDelimited,
            ("deepObject", ParameterPlace::Query) => Self::DeepObject,
            _ => return None,
        })
    }

    /// Returns the default style at a position.
    pub(crate) fn usual(place: &ParameterPlace) -> Self {
        match place {
            ParameterPlace::Path | ParameterPlace::Header(_) => Self::Simple,
            ParameterPlace::Query | ParameterPlace::Cookie => Self::Form,
        }
    }
}

/// Reason that an argument cannot be sent. The text is for the model that chose the argument.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentFault {
    /// The arguments are not an object, or have a duplicate key.
    #[error("the arguments are not an object with distinct names")]
    Unreadable,
    /// An argument that the path needs is missing.
    #[error("the argument {argument:?} is missing: it is part of the path")]
    Missing {
        /// The argument.
        argument: String,
    },
    /// A segment of the path would be empty.
    #[error("the argument {argument:?} is empty: it is part of the path")]
    Empty {
        /// The argument.
        argument: String,
    },
    /// A segment of the path would lead to another path.
    #[error("the argument {argument:?} has a path segment \".\" or \"..\", which is refused")]
    Climbing {
        /// The argument.
        argument: String,
    },
    /// The value cannot be in a header.
    #[error("the argument {argument:?} has a character that headers cannot have")]
    Header {
        /// The argument.
        argument: String,
    },
    /// The file is not in base64.
    #[error("the argument {argument:?} is not base64")]
    Base64 {
        /// The argument.
        argument: String,
    },
    /// A query, a form or the cookies are too long.
    #[error("the arguments are too long once encoded for the API")]
    TooLong,
    /// The URL with all arguments cannot be sent.
    #[error("the arguments make a URL that cannot be sent: are they too long?")]
    Url,
}

/// A value as parameters can carry it. Deeper nested values are written as JSON.
pub(crate) enum ParameterValue<'a> {
    Single(Cow<'a, str>),
    List(Vec<Cow<'a, str>>),
    Pairs(Vec<(Cow<'a, str>, Cow<'a, str>)>),
}

impl<'a> ParameterValue<'a> {
    pub(crate) fn read(raw: &'a RawValue) -> Self {
        match raw.get().as_bytes().first() {
            Some(b'[') => Self::List(list_items(raw).into_iter().map(plain_text).collect()),
            Some(b'{') => Self::Pairs(
                object_members(raw)
                    .into_iter()
                    .map(|(key, value)| (key, plain_text(value)))
                    .collect(),
            ),
            _ => Self::Single(plain_text(raw)),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Single(text) => text.is_empty(),
            Self::List(items) => items.iter().all(|item| item.is_empty()),
            Self::Pairs(pairs) => pairs.is_empty(),
        }
    }

    /// Returns the single texts of the value.
    fn texts(&self) -> Vec<&str> {
        match self {
            Self::Single(text) => vec![text],
            Self::List(items) => items.iter().map(|item| &**item).collect(),
            Self::Pairs(pairs) => pairs.iter().flat_map(|(key, text)| [&**key, text]).collect(),
        }
    }
}

/// Returns the text of a string, and the JSON of any other value.
pub(crate) fn plain_text(raw: &RawValue) -> Cow<'_, str> {
    text(raw).unwrap_or_else(|| raw.get().into())
}

pub(crate) fn list_items(raw: &RawValue) -> Vec<&RawValue> {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

pub(crate) fn object_members(raw: &RawValue) -> Vec<(Cow<'_, str>, &RawValue)> {
    Members::parse_with_duplicates(raw.get().as_bytes()).map(|all| all.0).unwrap_or_default()
}

impl ApiParameter {
    /// Writes the parameter's part of the path.
    ///
    /// # Errors
    /// [`ArgumentFault`] if the path would lead elsewhere.
    pub(crate) fn write_path(&self, raw: &RawValue) -> Result<String, ArgumentFault> {
        let value = ParameterValue::read(raw);
        let argument = || self.argument.clone();
        if value.is_empty() {
            return Err(ArgumentFault::Empty { argument: argument() });
        }
        // Servers may decode `%2F` before they resolve dots.
        let climbs = |text: &str| text.split(['/', '\\']).any(|it| matches!(it, "." | ".."));
        if value.texts().into_iter().any(climbs) {
            return Err(ArgumentFault::Climbing { argument: argument() });
        }
        let name = encode(&self.name);
        Ok(match self.style {
            ParameterStyle::Json => encode(raw.get()),
            ParameterStyle::Label => format!(".{}", join(&value, self.explode, [",", "."], encode)),
            ParameterStyle::Matrix => match (&value, self.explode) {
                (ParameterValue::List(items), true) => {
                    let pairs = items.iter().map(|item| [";", &name, "=", &encode(item)].concat());
                    pairs.collect()
                }
                (ParameterValue::Pairs(_), true) => {
                    format!(";{}", join(&value, true, [",", ";"], encode))
                }
                _ => format!(";{name}={}", join(&value, false, [","; 2], encode)),
            },
            _ => join(&value, self.explode, [","; 2], encode),
        })
    }

    /// Writes the value of a header.
    ///
    /// # Errors
    /// [`ArgumentFault`] if it would end the header.
    pub(crate) fn write_header(&self, raw: &RawValue) -> Result<HeaderValue, ArgumentFault> {
        let text = match self.style {
            ParameterStyle::Json => raw.get().to_owned(),
            _ => join(&ParameterValue::read(raw), self.explode, [","; 2], str::to_owned),
        };
        HeaderValue::from_bytes(text.as_bytes())
            .map_err(|_| ArgumentFault::Header { argument: self.argument.clone() })
    }

    /// Adds the pairs `name=value` of a query or of cookies.
    ///
    /// # Errors
    /// [`ArgumentFault::TooLong`].
    pub(crate) fn write_pairs(
        &self,
        raw: &RawValue,
        pairs: &mut EncodedPairs,
    ) -> Result<(), ArgumentFault> {
        let keep = if self.allow_reserved { encode_some } else { encode };
        let style = PairStyle { style: self.style, explode: self.explode };
        pairs.add(&self.name, raw, style, keep)
    }
}

/// The way to write the values of a parameter or a form's field as pairs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PairStyle {
    pub(crate) style: ParameterStyle,
    /// Writes one pair for each item or member.
    pub(crate) explode: bool,
}

/// Pairs `name=value` of a query, of cookies or of a form: encoded, and of limited size, because a
/// short argument can have a long encoding.
#[derive(Debug)]
pub(crate) struct EncodedPairs {
    pairs: Vec<(String, String)>,
    /// Number of bytes left.
    room: usize,
}

impl EncodedPairs {
    /// Creates an empty set of pairs with a limit in bytes.
    pub(crate) fn within(room: usize) -> Self {
        Self { pairs: Vec::new(), room }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }

    /// Joins all pairs with a separator.
    pub(crate) fn join(&self, between: &str) -> String {
        let pairs = self.pairs.iter().map(|(name, value)| format!("{name}={value}"));
        pairs.collect::<Vec<_>>().join(between)
    }

    /// Sets a pair, and removes all others with its name: an argument must not replace a
    /// credential.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.pairs.retain(|(other, _)| other != name);
        self.pairs.push((name.to_owned(), value.to_owned()));
    }

    /// Adds the pairs of a value.
    ///
    /// # Errors
    /// [`ArgumentFault::TooLong`].
    pub(crate) fn add(
        &mut self,
        name: &str,
        raw: &RawValue,
        style: PairStyle,
        encode_value: fn(&str) -> String,
    ) -> Result<(), ArgumentFault> {
        let PairStyle { style, explode } = style;
        let name = encode(name);
        if style == ParameterStyle::Json {
            return self.push(&name, encode_value(raw.get()));
        }
        if style == ParameterStyle::DeepObject {
            return self.add_deep(&name, raw, encode_value);
        }
        let value = ParameterValue::read(raw);
        match (&value, explode) {
            (ParameterValue::List(items), true) => {
                items.iter().try_for_each(|item| self.push(&name, encode_value(item)))
            }
            (ParameterValue::Pairs(pairs), true) => {
                pairs.iter().try_for_each(|(key, text)| self.push(&encode(key), encode_value(text)))
            }
            (ParameterValue::List(items), false) if items.is_empty() => Ok(()),
            _ => {
                let between = match style {
                    ParameterStyle::SpaceDelimited => "%20",
                    ParameterStyle::PipeDelimited => "%7C",
                    _ => ",",
                };
                self.push(&name, join(&value, false, [between; 2], encode_value))
            }
        }
    }

    /// Adds `name[key]=value` for each member, at any depth.
    fn add_deep(
        &mut self,
        name: &str,
        raw: &RawValue,
        encode_value: fn(&str) -> String,
    ) -> Result<(), ArgumentFault> {
        match raw.get().as_bytes().first() {
            Some(b'{') => object_members(raw).into_iter().try_for_each(|(key, value)| {
                // Charged before it is built, because members without a value are charged for
                // nothing else.
                self.charge(name.len())?;
                self.add_deep(&format!("{name}%5B{}%5D", encode(&key)), value, encode_value)
            }),
            Some(b'[') => list_items(raw)
                .into_iter()
                .try_for_each(|item| self.add_deep(name, item, encode_value)),
            _ => self.push(name, encode_value(&plain_text(raw))),
        }
    }

    fn push(&mut self, name: &str, value: String) -> Result<(), ArgumentFault> {
        self.charge(name.len() + value.len() + 2)?;
        self.pairs.push((name.to_owned(), value));
        Ok(())
    }

    fn charge(&mut self, bytes: usize) -> Result<(), ArgumentFault> {
        self.room = self.room.checked_sub(bytes).ok_or(ArgumentFault::TooLong)?;
        Ok(())
    }
}

/// Joins the parts of a value with the first of `between`, or with the second if exploded.
fn join(
    value: &ParameterValue<'_>,
    explode: bool,
    between: [&str; 2],
    encode: fn(&str) -> String,
) -> String {
    let [together, apart] = between;
    let separator = if explode { apart } else { together };
    match value {
        ParameterValue::Single(text) => encode(text),
        ParameterValue::List(items) => {
            items.iter().map(|item| encode(item)).collect::<Vec<_>>().join(separator)
        }
        ParameterValue::Pairs(pairs) => {
            let equals = if explode { "=" } else { separator };
            let pairs = pairs.iter().map(|(key, text)| [encode(key), encode(text)].join(equals));
            pairs.collect::<Vec<_>>().join(separator)
        }
    }
}

/// Percent-encodes everything except unreserved characters (RFC 3986, 2.3).
pub(crate) fn encode(text: &str) -> String {
    utf8_percent_encode(text, RESERVED_CHARACTERS).to_string()
}

/// Like [`encode`], but keeps the reserved characters that do not end a value in a query.
pub(crate) fn encode_some(text: &str) -> String {
    utf8_percent_encode(text, ENDS_VALUE).to_string()
}

const RESERVED_CHARACTERS: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// `&`, `;`, `#` and `+` stay encoded: they would end the value, or become a space.
const ENDS_VALUE: &AsciiSet = &RESERVED_CHARACTERS
    .remove(b':')
    .remove(b'/')
    .remove(b'?')
    .remove(b'[')
    .remove(b']')
    .remove(b'@')
    .remove(b'!')
    .remove(b'$')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b',')
    .remove(b'=');

#[cfg(test)]
mod tests;
