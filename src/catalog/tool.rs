//! One tool as its server listed it: checked and compiled once, its bytes kept.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::de::{Deserializer as _, Error, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::cut;
use super::param_headers::{self, AnnotationError, ParamHeader};
use super::schema::{self, ArgumentSchema, SchemaError};
use super::strict_json::{self, JsonError};
use crate::call::NativeName;

/// The most bytes in one tool.
pub const MAX_TOOL_BYTES: usize = 1024 * 1024;
/// The most levels that a tool nests: the schema's, and two around it.
pub const MAX_TOOL_DEPTH: usize = schema::MAX_SCHEMA_DEPTH + 2;
/// The longest native name, in bytes.
pub const MAX_NATIVE_NAME: usize = 1024;

/// What to make of `x-mcp-header` annotations that break the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderRules {
    /// The tool is refused: clients over HTTP must (MCP 2026-07-28, "Schema
    /// Extension").
    Enforce,
    /// The annotations are ignored, as clients of other transports may.
    Ignore,
}

/// Why a tool is left out of the catalog. The server's other tools stay.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTool {
    /// The tool has more bytes than the bound.
    #[error("the tool has {len} bytes, at most {max} are allowed")]
    TooLarge {
        /// How many bytes it has.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The bytes are no strict JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The bytes are JSON, but no object.
    #[error("a tool must be a JSON object")]
    NotAnObject,
    /// A field that every tool has is not there.
    #[error("the field {field:?} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A field of the specification holds another kind of value. Strict clients
    /// reject a whole listing for that, so the tool must not reach them.
    #[error("the field {field:?} must be {expected}")]
    Kind {
        /// The field.
        field: &'static str,
        /// The kind it must be.
        expected: FieldKind,
    },
    /// The name is empty or too long.
    #[error("the name has {len} bytes, 1 to {max} are allowed")]
    NameLength {
        /// How many bytes it has.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// `inputSchema` cannot be used.
    #[error(transparent)]
    Schema(#[from] SchemaError),
    /// An `x-mcp-header` annotation breaks a rule.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// An earlier tool of the same server has the same name.
    #[error("the server lists the name twice, the first one counts")]
    Repeated,
}

/// The kind of JSON value that a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A string.
    Text,
    /// An object.
    Object,
    /// An array.
    Array,
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "a string",
            Self::Object => "an object",
            Self::Array => "an array",
        })
    }
}

/// One tool of one server. Its bytes never change; a public name and a
/// description of our own are spliced in when a listing is prepared.
#[derive(Debug)]
pub struct Tool {
    /// The name the server knows it by.
    pub native: NativeName,
    /// What a call's arguments are checked against.
    pub arguments: ArgumentSchema,
    /// The parameters that a call mirrors into headers.
    pub param_headers: Vec<ParamHeader>,
    /// The tool object, without space around it.
    raw: Bytes,
    /// Where the name's value stands in `raw`, quotes included.
    name: Range<usize>,
    /// Where the description's value stands in `raw`, if there is one.
    description: Option<Range<usize>>,
}

impl Tool {
    /// Checks and compiles one element of a server's `tools`.
    ///
    /// # Errors
    /// [`InvalidTool`] names the rule that the tool breaks.
    pub fn parse(raw: &[u8], rules: HeaderRules) -> Result<Self, InvalidTool> {
        if raw.len() > MAX_TOOL_BYTES {
            return Err(InvalidTool::TooLarge { len: raw.len(), max: MAX_TOOL_BYTES });
        }
        strict_json::bound_depth(raw, MAX_TOOL_DEPTH)?;
        // A copy: a slice would keep the whole page that it came in, and one
        // unchanged tool outlives many pages.
        let raw = Bytes::copy_from_slice(raw.trim_ascii());
        let fields = Fields::read(&raw)?;
        for (field, expected) in KINDS {
            fields.expect_kind(field, expected)?;
        }
        let name = fields.find("name").ok_or(InvalidTool::Missing { field: "name" })?;
        let native: String = serde_json::from_str(name).map_err(|_| JsonError::Syntax)?;
        if native.is_empty() || native.len() > MAX_NATIVE_NAME {
            return Err(InvalidTool::NameLength { len: native.len(), max: MAX_NATIVE_NAME });
        }
        let schema =
            fields.find("inputSchema").ok_or(InvalidTool::Missing { field: "inputSchema" })?;
        let schema = schema::parse(schema.as_bytes())?;
        let param_headers = match (param_headers::find(&schema), rules) {
            (Ok(found), _) => found,
            (Err(_), HeaderRules::Ignore) => Vec::new(),
            (Err(error), HeaderRules::Enforce) => return Err(error.into()),
        };
        Ok(Self {
            native: NativeName::new(&native),
            arguments: ArgumentSchema::from_value(schema)?,
            param_headers,
            name: span(&raw, name),
            description: fields.find("description").map(|text| span(&raw, text)),
            raw,
        })
    }

    /// The tool object as the server sent it.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Appends the tool under its public name, and with another description
    /// where there is one. Every other byte stays as the server sent it.
    pub(super) fn splice(&self, public: &str, description: Option<&str>, out: &mut Vec<u8>) {
        // The name keeps the server's own spelling (escapes) when it is the same.
        let name = (public != self.native.as_str()).then(|| json_text(public));
        let mut edits = vec![(self.name.clone(), name)];
        if let Some(text) = description {
            edits.push(match &self.description {
                Some(span) => (span.clone(), Some(json_text(text))),
                None => (self.name.end..self.name.end, Some(new_description(text))),
            });
        }
        edits.sort_by_key(|(span, _)| span.start);
        let mut from = 0;
        for (span, text) in edits {
            let Some(text) = text else { continue };
            out.extend_from_slice(self.raw.get(from..span.start).unwrap_or_default());
            out.extend_from_slice(text.as_bytes());
            from = span.end;
        }
        out.extend_from_slice(self.raw.get(from..).unwrap_or_default());
    }
}

/// The name that a refused tool goes by in a warning, as far as it has one.
pub(super) fn label(raw: &[u8], position: usize) -> String {
    let bounded = raw.get(..raw.len().min(MAX_TOOL_BYTES)).unwrap_or_default();
    let name = Fields::read(bounded).ok().and_then(|fields| {
        serde_json::from_str::<String>(fields.find("name")?).ok().filter(|name| !name.is_empty())
    });
    match name {
        Some(name) => cut(&name),
        None => format!("#{}", position + 1),
    }
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn new_description(text: &str) -> String {
    format!(",\"description\":{}", json_text(text))
}

/// Where `part` stands in `whole`, of which it is a slice.
fn span(whole: &[u8], part: &str) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    start..start + part.len()
}

/// The fields of an object, by name, each value as it stands.
struct Fields<'a>(Vec<(String, &'a str)>);

impl<'a> Fields<'a> {
    fn read(raw: &'a [u8]) -> Result<Self, InvalidTool> {
        let text = std::str::from_utf8(raw).map_err(|_| JsonError::Syntax)?;
        if !text.trim_ascii_start().starts_with('{') {
            return Err(InvalidTool::NotAnObject);
        }
        let mut reader = serde_json::Deserializer::from_str(text);
        let fields = reader.deserialize_map(FieldsVisitor).map_err(|_| JsonError::Syntax)?;
        reader.end().map_err(|_| JsonError::Syntax)?;
        let mut seen = HashSet::with_capacity(fields.len());
        match fields.iter().find(|(key, _)| !seen.insert(key.as_str())) {
            Some((key, _)) => Err(JsonError::DuplicateKey { key: cut(key) }.into()),
            None => Ok(Self(fields)),
        }
    }

    fn find(&self, name: &str) -> Option<&'a str> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, value)| *value)
    }

    fn expect_kind(&self, field: &'static str, expected: FieldKind) -> Result<(), InvalidTool> {
        let first = self.find(field).and_then(|value| value.bytes().next());
        let found = match first {
            None => return Ok(()),
            Some(b'"') => Some(FieldKind::Text),
            Some(b'{') => Some(FieldKind::Object),
            Some(b'[') => Some(FieldKind::Array),
            Some(_) => None,
        };
        if found == Some(expected) { Ok(()) } else { Err(InvalidTool::Kind { field, expected }) }
    }
}

struct FieldsVisitor;

impl<'de> Visitor<'de> for FieldsVisitor {
    type Value = Vec<(String, &'de str)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut fields = Vec::new();
        while let Some(key) = members.next_key::<String>()? {
            if fields.len() == MAX_FIELDS {
                return Err(A::Error::custom("too many fields"));
            }
            fields.push((key, members.next_value::<&RawValue>()?.get()));
        }
        Ok(fields)
    }
}

/// The most fields in a tool object; the specification names eight.
const MAX_FIELDS: usize = 256;
/// The fields of the specification and what they hold.
const KINDS: [(&str, FieldKind); 8] = [
    ("name", FieldKind::Text),
    ("title", FieldKind::Text),
    ("description", FieldKind::Text),
    ("inputSchema", FieldKind::Object),
    ("outputSchema", FieldKind::Object),
    ("annotations", FieldKind::Object),
    ("_meta", FieldKind::Object),
    ("icons", FieldKind::Array),
];
