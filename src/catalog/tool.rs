//! One tool as its server listed it: checked and compiled once, its bytes kept.

use std::borrow::Cow;
use std::ops::Range;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::item::{InvalidItem, ItemFields, copy_within_bounds, splice_edits};
use super::kind::Kind;
use super::offers::{ServerOffers, TaskForm};
use super::param_headers::{self, ParamHeader};
use super::schema::{self, ArgumentSchema};
use crate::call::NativeName;
use crate::jsonrpc::{span_of, string, text};

/// What to make of `x-mcp-header` annotations that break the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderRules {
    /// The tool is refused: clients over HTTP must (MCP 2026-07-28, "Schema
    /// Extension").
    Enforce,
    /// The annotations are ignored, as clients of other transports may.
    Ignore,
}

/// Whether calls of a tool may become tasks (2025-11-25, Tasks, "Tool-Level
/// Negotiation").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskSupport {
    /// They may not.
    #[default]
    Forbidden,
    /// As the client wishes.
    Optional,
    /// They have to.
    Required,
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
    /// Whether its calls may become tasks, as far as its server has any.
    pub tasks: TaskSupport,
    /// Where that stands in `raw`, if there is something.
    tasks_at: Option<Range<usize>>,
    /// The tool object, without space around it.
    raw: Bytes,
    /// Where the name's value stands in `raw`, quotes included.
    name: Range<usize>,
    /// Where the description's value stands in `raw`, if there is one.
    description: Option<Range<usize>>,
    /// The URIs of its user interface (MCP Apps) and where they stand.
    interface: Vec<(Range<usize>, String)>,
}

impl Tool {
    /// Checks and compiles one element of a server's `tools`.
    ///
    /// # Errors
    /// [`InvalidItem`] names the rule that the tool breaks.
    pub fn parse(raw: &[u8], rules: HeaderRules) -> Result<Self, InvalidItem> {
        let raw = copy_within_bounds(raw)?;
        let fields = ItemFields::read(&raw)?;
        let (native, name) = fields.check(Kind::Tools)?;
        let schema =
            fields.find("inputSchema").ok_or(InvalidItem::Missing { field: "inputSchema" })?;
        let schema = schema::parse_schema(schema.as_bytes())?;
        let param_headers = match (param_headers::find_param_headers(&schema), rules) {
            (Ok(found), _) => found,
            (Err(_), HeaderRules::Ignore) => Vec::new(),
            (Err(error), HeaderRules::Enforce) => return Err(error.into()),
        };
        let interface = fields.find("_meta").map(interface).unwrap_or_default();
        let (tasks_at, tasks) = fields.find("execution").and_then(parse_task_support).unzip();
        Ok(Self {
            tasks: tasks.unwrap_or_default(),
            tasks_at: tasks_at.map(|at| span_of(&raw, at.as_bytes()).unwrap_or_default()),
            native,
            arguments: ArgumentSchema::from_value(schema)?,
            param_headers,
            name: span_of(&raw, name.as_bytes()).unwrap_or_default(),
            description: fields
                .find("description")
                .map(|text| span_of(&raw, text.as_bytes()).unwrap_or_default()),
            interface: interface
                .into_iter()
                .map(|(at, uri)| (span_of(&raw, at.as_bytes()).unwrap_or_default(), uri))
                .collect(),
            raw,
        })
    }

    /// The tool object as the server sent it.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The resources that are its user interface (MCP Apps).
    pub(super) fn interface(&self) -> impl Iterator<Item = &str> {
        self.interface.iter().map(|(_, uri)| uri.as_str())
    }

    /// Appends the tool under its public name, with another description where
    /// there is one, and with the URIs that clients know. Where its server has
    /// no tasks of the form of 2025-11-25, clients are not led to ask for one.
    /// Every other byte stays as the server sent it.
    pub(super) fn splice<'a>(
        &'a self,
        public: &str,
        description: Option<&str>,
        public_uri: impl Fn(&'a str) -> Cow<'a, str>,
        offers: &ServerOffers,
        out: &mut Vec<u8>,
    ) {
        let mut edits = Vec::new();
        // The name keeps the server's own spelling (escapes) when it is the same.
        if public != self.native.as_str() {
            edits.push((self.name.clone(), string(public)));
        }
        if let Some(text) = description {
            edits.push(match &self.description {
                Some(span) => (span.clone(), string(text)),
                None => (self.name.end..self.name.end, description_member(text)),
            });
        }
        for (place, uri) in &self.interface {
            if let Cow::Owned(public) = public_uri(uri) {
                edits.push((place.clone(), string(&public)));
            }
        }
        if let Some(place) = self.tasks_at.clone()
            && self.tasks != TaskSupport::Forbidden
            && offers.task_form() != Some(TaskForm::Legacy)
        {
            edits.push((place, string("forbidden")));
        }
        edits.sort_by_key(|(span, _)| span.start);
        splice_edits(&self.raw, edits, out);
    }
}

/// The raw value in an `execution` that says whether calls may become tasks,
/// and what it means.
fn parse_task_support(execution: &str) -> Option<(&str, TaskSupport)> {
    #[derive(Deserialize)]
    struct Execution<'a> {
        #[serde(borrow, rename = "taskSupport")]
        support: &'a RawValue,
    }
    let raw = serde_json::from_str::<Execution<'_>>(execution).ok()?.support;
    let support = match text(raw).as_deref() {
        Some("optional") => TaskSupport::Optional,
        Some("required") => TaskSupport::Required,
        _ => TaskSupport::Forbidden,
    };
    Some((raw.get(), support))
}

fn description_member(text: &str) -> String {
    format!(",\"description\":{}", string(text))
}

/// The raw values in a `_meta` that name a user interface, with their text. The
/// extension spells the key in two ways; servers often send both.
pub(super) fn interface(meta: &str) -> Vec<(&str, String)> {
    #[derive(Deserialize)]
    struct InterfaceMeta<'a> {
        #[serde(borrow, default)]
        ui: Option<&'a RawValue>,
        #[serde(borrow, default, rename = "ui/resourceUri")]
        flat: Option<&'a RawValue>,
    }
    #[derive(Deserialize)]
    struct Ui<'a> {
        #[serde(borrow, default, rename = "resourceUri")]
        uri: Option<&'a RawValue>,
    }
    let Ok(meta) = serde_json::from_str::<InterfaceMeta<'_>>(meta) else { return Vec::new() };
    let nested = meta.ui.and_then(|ui| serde_json::from_str::<Ui<'_>>(ui.get()).ok()?.uri);
    let found = nested.into_iter().chain(meta.flat);
    found.filter_map(|raw| Some((raw.get(), text(raw)?.into_owned()))).collect()
}
