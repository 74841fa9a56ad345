//! One element of a server's list, with the server's own bytes, checked once. This module has the
//! parts common to all kinds; [`super::tool`] adds those specific to tools.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use trunkline_jsonrpc::{JsonError, Members, Splice, check_depth, span_of, string};
use trunkline_protocol::call::NativeName;
use trunkline_protocol::mcp::Era;

use super::definition::DefinitionCells;
use crate::clip_foreign_text;
use crate::kind::{Kind, MAX_ITEM_DEPTH};
use crate::param_headers::AnnotationError;
use crate::repair::{RepairedEntry, repair_entry};
use crate::schema::SchemaError;
use crate::uri_forms::climbing::has_only_stable_characters;
use crate::uri_forms::{ResultShape, UriTemplate, rewrite_uris};

/// The most bytes of one element.
pub(crate) const MAX_ITEM_BYTES: usize = 1024 * 1024;
/// The longest native name, in bytes.
pub(crate) const MAX_NATIVE_NAME: usize = 1024;
/// The longest URI or URI template, of a server or a client, in bytes.
pub const MAX_URI: usize = 8192;
/// The most expressions of a URI template.
pub(crate) const MAX_EXPRESSIONS: usize = 16;
/// The most resource templates of one server: a URI that is not listed is
/// matched with all of them.
pub(crate) const MAX_TEMPLATES: usize = 512;

/// Reason to leave an element out of the catalog. The server's other elements are kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ItemError {
    /// The element has more bytes than the bound.
    #[error("it has {len} bytes, at most {max} are allowed")]
    TooLarge {
        /// The length found.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// The bytes are not strict JSON.
    #[error(transparent)]
    Json(#[from] JsonError),
    /// The bytes are JSON, but not an object.
    #[error("it must be a JSON object")]
    NotAnObject,
    /// A required field is missing.
    #[error("the field {field:?} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A required field has a value of the wrong kind. Strict clients reject a
    /// whole listing for that, so the element must not reach them.
    #[error("the field {field:?} must be {expected}")]
    Kind {
        /// The field.
        field: &'static str,
        /// The expected kind.
        expected: FieldKind,
    },
    /// The name or URI is empty or too long.
    #[error("the {field} has {len} bytes, 1 to {max} are allowed")]
    NameLength {
        /// The field.
        field: &'static str,
        /// The length found.
        len: usize,
        /// The bound.
        max: usize,
    },
    /// A URI has characters that parsers drop or change, so its target is ambiguous.
    #[error("the {field} has a control character or a backslash")]
    UnstableUri {
        /// The field.
        field: &'static str,
    },
    /// A URI template has so many expressions that matching it takes too long.
    #[error("the URI template has {found} expressions, at most {max} are allowed")]
    TooManyExpressions {
        /// The number found.
        found: usize,
        /// The bound.
        max: usize,
    },
    /// The server lists more resource templates than the bound: a read may be matched with each.
    #[error("the server lists more than {max} resource templates: only the first {max} are used")]
    TooManyTemplates {
        /// The bound.
        max: usize,
    },
    /// A skill's files are neither listed in full, each with its URI, digest and size, nor declared
    /// dynamic.
    #[error(
        "the field \"resources\" must be \"dynamic\" or list each file with uri, digest and size"
    )]
    SkillFiles,
    /// `inputSchema` cannot be used.
    #[error("inputSchema {0}")]
    Schema(SchemaError),
    /// An `x-mcp-header` annotation breaks a rule.
    #[error(transparent)]
    Annotation(#[from] AnnotationError),
    /// Duplicate: an earlier element of the same server has the same name or
    /// URI.
    #[error("duplicate in the server's list: the first one is used")]
    Repeated,
}

/// The kind of JSON value that a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    /// A string.
    Text,
    /// An object.
    Object,
}

impl fmt::Display for FieldKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Text => "a string",
            Self::Object => "an object",
        })
    }
}

impl From<SchemaError> for ItemError {
    fn from(error: SchemaError) -> Self {
        Self::Schema(error)
    }
}

/// One prompt, resource, template or skill of one server.
#[derive(Debug)]
pub struct CatalogItem {
    /// The native name, URI or URI template.
    pub native: NativeName,
    /// The object as the server sent it, without surrounding whitespace.
    raw: Bytes,
    /// The object as lists show it.
    shown: Bytes,
    /// The repairs of `shown`, in one sentence.
    repairs: Option<Box<str>>,
    /// The span of its key field's value in `shown`, quotes included.
    key: Range<usize>,
    /// Values computed from its definition.
    definition: DefinitionCells,
}

impl CatalogItem {
    /// Checks one element of a server's list.
    ///
    /// # Errors
    /// [`ItemError`] names the violated rule.
    pub fn parse(kind: Kind, raw: &[u8]) -> Result<Self, ItemError> {
        let raw = copy_within_bounds(raw)?;
        // A duplicate key has no repair.
        ItemFields::read(&raw)?;
        // Only tools have members that depend on the era of their server.
        let RepairedEntry { shown, note: repairs } = repair_entry(kind, &raw, Era::Modern);
        let fields = ItemFields::read(&shown)?;
        let (native, key) = fields.check(kind)?;
        let key = span_of(&shown, key.as_bytes()).unwrap_or_default();
        Ok(Self { native, key, raw, shown, repairs, definition: DefinitionCells::default() })
    }

    /// The object as the server sent it, for pins, scans and rules.
    #[inline]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The object as lists show it, under its native name or URI.
    #[inline]
    pub fn shown(&self) -> &Bytes {
        &self.shown
    }

    /// The repairs of the object, in one sentence; `None` if there are none.
    #[inline]
    pub fn repairs(&self) -> Option<&str> {
        self.repairs.as_deref()
    }

    /// The cells for values computed from its definition.
    pub(crate) fn definition_cells(&self) -> &DefinitionCells {
        &self.definition
    }

    /// Appends the object under its public name or URI. Every other byte is unchanged.
    pub(crate) fn splice(&self, public: &str, out: &mut Vec<u8>) {
        self.splice_as(None, public, out);
    }

    /// Like [`Self::splice`], with `field` as the name of the key field: a
    /// template without free variables becomes a resource.
    pub(crate) fn splice_as(&self, field: Option<&str>, public: &str, out: &mut Vec<u8>) {
        let mut splice = Splice::new(&self.shown);
        if let Some((field, place)) = field.zip(self.field_span()) {
            splice.replace(place, string(field));
        }
        // An unchanged name keeps the server's own spelling (escapes).
        if public != self.native.as_str() {
            splice.replace(self.key.clone(), string(public));
        }
        splice.put(out);
    }

    /// Appends a skill with the public URIs of all its files. Everything else, digests included, is
    /// unchanged.
    pub(crate) fn splice_skill(&self, public: impl Fn(&str) -> Option<String>, out: &mut Vec<u8>) {
        let rewritten = rewrite_uris(&self.shown, ResultShape::SkillEntry, public);
        out.extend_from_slice(rewritten.as_ref().unwrap_or(&self.shown));
    }

    /// The span of its key field's name, quotes included. The name has no
    /// escaped quotes.
    fn field_span(&self) -> Option<Range<usize>> {
        let before = self.shown.get(..self.key.start)?;
        let close = before.iter().rposition(|byte| *byte == b'"')?;
        let open = before.get(..close)?.iter().rposition(|byte| *byte == b'"')?;
        Some(open..close + 1)
    }
}

/// Copies one element, within its bounds: a slice would keep its whole page in
/// memory, and an unchanged element outlives many pages.
pub(crate) fn copy_within_bounds(raw: &[u8]) -> Result<Bytes, ItemError> {
    if raw.len() > MAX_ITEM_BYTES {
        return Err(ItemError::TooLarge { len: raw.len(), max: MAX_ITEM_BYTES });
    }
    check_depth(raw, MAX_ITEM_DEPTH)?;
    Ok(Bytes::copy_from_slice(raw.trim_ascii()))
}

/// The name of a rejected element in a warning; its position if it has no name.
pub(crate) fn element_label(kind: Kind, raw: &[u8], position: usize) -> String {
    let bounded = raw.get(..raw.len().min(MAX_ITEM_BYTES)).unwrap_or_default();
    let name = ItemFields::read(bounded).ok().and_then(|fields| {
        let key = fields.find(kind.key())?;
        serde_json::from_str::<String>(key).ok().filter(|name| !name.is_empty())
    });
    match name {
        Some(name) => clip_foreign_text(&name),
        None => format!("#{}", position + 1),
    }
}

/// The fields of an object, none of them duplicated.
pub(crate) struct ItemFields<'a>(Members<'a>);

impl<'a> ItemFields<'a> {
    pub(crate) fn read(raw: &'a [u8]) -> Result<Self, ItemError> {
        if !raw.trim_ascii_start().starts_with(b"{") {
            return Err(ItemError::NotAnObject);
        }
        let fields = Members::parse(raw)?;
        if fields.0.len() > MAX_FIELDS {
            return Err(JsonError::Syntax.into());
        }
        Ok(Self(fields))
    }

    /// The names and raw values, in order.
    pub(crate) fn members(&self) -> impl Iterator<Item = (&str, &'a str)> {
        self.0.0.iter().map(|(name, value)| (&**name, value.get()))
    }

    pub(crate) fn find(&self, name: &str) -> Option<&'a str> {
        self.0.find(name).map(RawValue::get)
    }

    /// Checks the required fields of this kind. Returns the native name, and
    /// its raw text.
    pub(crate) fn check(&self, kind: Kind) -> Result<(NativeName, &'a str), ItemError> {
        let (common, own) = match kind {
            Kind::Tools => (COMMON_FIELDS, TOOL_FIELDS),
            Kind::Prompts => (COMMON_FIELDS, &[][..]),
            Kind::Resources => (COMMON_FIELDS, RESOURCE_FIELDS),
            Kind::Templates => (COMMON_FIELDS, TEMPLATE_FIELDS),
            Kind::Skills => (SKILL_FIELDS, &[][..]),
        };
        for (field, expected) in common.iter().chain(own) {
            self.expect_kind(field, *expected)?;
        }
        let field = kind.key();
        let key = self.find(field).ok_or(ItemError::Missing { field })?;
        match kind {
            Kind::Skills => self.check_skill()?,
            _ => self.find("name").map(|_| ()).ok_or(ItemError::Missing { field: "name" })?,
        }
        let native: String = serde_json::from_str(key).map_err(|_| JsonError::Syntax)?;
        let max = if field == "name" { MAX_NATIVE_NAME } else { MAX_URI };
        if native.is_empty() || native.len() > max {
            return Err(ItemError::NameLength { field, len: native.len(), max });
        }
        if field != "name" && !has_only_stable_characters(&native) {
            return Err(ItemError::UnstableUri { field });
        }
        if kind == Kind::Templates {
            let (found, max) = (UriTemplate::parse(&native).count_expressions(), MAX_EXPRESSIONS);
            if found > max {
                return Err(ItemError::TooManyExpressions { found, max });
            }
        }
        Ok((NativeName::new(&native), key))
    }

    /// Checks a skill's frontmatter and files (`io.modelcontextprotocol/skills`, "Skill Entries"):
    /// hosts must not load an entry without them.
    fn check_skill(&self) -> Result<(), ItemError> {
        #[derive(Deserialize)]
        struct SkillFile<'a> {
            #[serde(borrow)]
            uri: Cow<'a, str>,
            #[serde(rename = "digest", borrow)]
            _digest: Cow<'a, str>,
            #[serde(rename = "size")]
            _size: u64,
        }
        let field = "frontmatter";
        let frontmatter = self.find(field).ok_or(ItemError::Missing { field })?;
        let frontmatter = ItemFields::read(frontmatter.as_bytes())?;
        for field in ["name", "description"] {
            frontmatter.expect_kind(field, FieldKind::Text)?;
            frontmatter.find(field).ok_or(ItemError::Missing { field })?;
        }
        let files = self.find("resources").ok_or(ItemError::SkillFiles)?;
        if serde_json::from_str::<Cow<'_, str>>(files).is_ok_and(|files| files == "dynamic") {
            return Ok(());
        }
        let files: Vec<SkillFile<'_>> =
            serde_json::from_str(files).map_err(|_| ItemError::SkillFiles)?;
        let is_stable = |file: &SkillFile<'_>| has_only_stable_characters(&file.uri);
        if files.iter().all(is_stable) {
            Ok(())
        } else {
            Err(ItemError::UnstableUri { field: "resources" })
        }
    }

    fn expect_kind(&self, field: &'static str, expected: FieldKind) -> Result<(), ItemError> {
        let first = self.find(field).and_then(|value| value.bytes().next());
        let found = match first {
            None => return Ok(()),
            Some(b'"') => Some(FieldKind::Text),
            Some(b'{') => Some(FieldKind::Object),
            Some(_) => None,
        };
        if found == Some(expected) { Ok(()) } else { Err(ItemError::Kind { field, expected }) }
    }
}

/// The most fields of one object; the specification defines at most eight.
const MAX_FIELDS: usize = 256;

/// Required fields, and the kinds of their values. Optional ones were repaired before.
type Fieldset = &'static [(&'static str, FieldKind)];
const COMMON_FIELDS: Fieldset = &[("name", FieldKind::Text)];
const TOOL_FIELDS: Fieldset = &[("inputSchema", FieldKind::Object)];
const RESOURCE_FIELDS: Fieldset = &[("uri", FieldKind::Text)];
const SKILL_FIELDS: Fieldset = &[("uri", FieldKind::Text), ("frontmatter", FieldKind::Object)];
const TEMPLATE_FIELDS: Fieldset = &[("uriTemplate", FieldKind::Text)];
