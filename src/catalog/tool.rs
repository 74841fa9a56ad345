//! One tool as its server listed it: checked and compiled once, with its original bytes.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::definition::DefinitionCells;
use super::item::{InvalidItem, ItemFields, copy_within_bounds};
use super::kind::Kind;
use super::offers::{ServerOffers, TaskForm};
use super::param_headers::{self, ParamHeader};
use super::schema::{self, ArgumentSchema, PatternBudget, SchemaError};
use super::search::{AnalysedElement, Analyser};
use super::tool_transform::ToolTransform;
use crate::call::NativeName;
use crate::jsonrpc::{Members, Splice, span_of, string, text};
use crate::mcp::encode_value;

/// How to treat `x-mcp-header` annotations that violate the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderRules {
    /// The tool is rejected: clients over HTTP must do so (MCP 2026-07-28, "Schema Extension").
    Enforce,
    /// The annotations are ignored, as clients of other transports may.
    Ignore,
}

/// Whether calls of a tool may become tasks (2025-11-25, Tasks, "Tool-Level
/// Negotiation").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TaskSupport {
    /// Calls may not become tasks.
    #[default]
    Forbidden,
    /// The client decides.
    Optional,
    /// Calls must become tasks.
    Required,
}

/// What a server says of a tool's calls in `annotations`. Only that of a trusted server counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolHints {
    /// `readOnlyHint`.
    pub read_only: Option<bool>,
    /// `destructiveHint`.
    pub destructive: Option<bool>,
}

/// One tool of one server. Its bytes never change; a public name and an overriding description are
/// spliced in when a listing is prepared.
#[derive(Debug)]
pub struct Tool {
    /// The native name.
    pub native: NativeName,
    /// The native name as the value of `Mcp-Name`.
    pub name_header: HeaderValue,
    /// The schema of a call's arguments.
    pub arguments: ArgumentSchema,
    /// The parameters that a call mirrors into headers.
    pub param_headers: Vec<ParamHeader>,
    /// Whether its calls may become tasks, if its server supports tasks.
    pub tasks: TaskSupport,
    /// The span of `taskSupport` in `raw`, if it is present.
    tasks_at: Option<Range<usize>>,
    /// The tool object, without surrounding whitespace.
    raw: Bytes,
    /// The span of the name's value in `raw`, quotes included.
    name: Range<usize>,
    /// The span of the description's value in `raw`, if it is present.
    description: Option<Range<usize>>,
    /// The URIs of its user interface (MCP Apps), and their spans.
    interface: Vec<(Range<usize>, String)>,
    /// What was computed of its definition.
    definition: DefinitionCells,
    /// How calls and results are changed on their way, for a tool that the configuration changes.
    pub transform: Option<Box<ToolTransform>>,
}

impl Tool {
    /// What its server says of its calls.
    pub fn hints(&self) -> ToolHints {
        let annotations = self.annotations();
        let annotations = annotations.and_then(|raw| serde_json::from_str::<Value>(raw).ok());
        let hint = |name: &str| annotations.as_ref()?.get(name)?.as_bool();
        ToolHints { read_only: hint("readOnlyHint"), destructive: hint("destructiveHint") }
    }

    /// Checks and compiles one element of a server's `tools`.
    ///
    /// # Errors
    /// [`InvalidItem`] names the violated rule.
    pub fn parse(raw: &[u8], rules: HeaderRules) -> Result<Self, InvalidItem> {
        Self::parse_within(raw, rules, &mut PatternBudget::default())
    }

    /// Like [`Tool::parse`], within the budget of its list.
    pub(super) fn parse_within(
        raw: &[u8],
        rules: HeaderRules,
        budget: &mut PatternBudget,
    ) -> Result<Self, InvalidItem> {
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
            name_header: encode_value(native.as_str()),
            native,
            arguments: ArgumentSchema::from_value(schema, budget)?,
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
            definition: DefinitionCells::default(),
            transform: None,
        })
    }

    /// The tool as its server listed it, whatever the configuration changes.
    pub fn as_listed(&self) -> &Self {
        self.transform.as_ref().map_or(self, |transform| &transform.listed)
    }

    /// The raw annotations that the server gives the tool.
    pub fn annotations(&self) -> Option<&str> {
        ItemFields::read(&self.as_listed().raw).ok()?.find("annotations")
    }

    /// Its description, if it has one.
    pub(super) fn description(&self) -> Option<String> {
        let span = self.description.clone()?;
        serde_json::from_slice(self.raw.get(span)?).ok()
    }

    /// Whether clients see an `outputSchema`, which they check `structuredContent` against.
    pub fn has_output_schema(&self) -> bool {
        ItemFields::read(&self.raw).is_ok_and(|fields| fields.find("outputSchema").is_some())
    }

    /// The parameters that a call mirrors into headers for the server.
    pub fn sent_param_headers(&self) -> &[ParamHeader] {
        let listed = self.transform.as_ref().map_or(self, |transform| &transform.listed);
        &listed.param_headers
    }

    /// Charges a tool that is reused for what it took when it was compiled.
    pub(super) fn charge(&self, budget: &mut PatternBudget) -> Result<(), SchemaError> {
        budget.spend(self.arguments.pattern_bytes())
    }

    /// The tool object as the server sent it.
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// Its words for search, analysed when they are first asked for.
    pub(super) fn analyse_words(&self, analyser: &mut Analyser) -> Arc<AnalysedElement> {
        let words = &self.definition.words;
        Arc::clone(words.get_or_init(|| Arc::new(analyser.analyse(&self.raw))))
    }

    /// Where what is computed of its definition is kept.
    pub(super) fn definition_cells(&self) -> &DefinitionCells {
        &self.definition
    }

    /// The native name as JSON, in the server's own spelling.
    pub fn name_json(&self) -> Bytes {
        self.raw.slice(self.name.clone())
    }

    /// The resources that are its user interface (MCP Apps).
    pub(super) fn interface(&self) -> impl Iterator<Item = &str> {
        self.interface.iter().map(|(_, uri)| uri.as_str())
    }

    /// Appends the tool under its public name, with an overriding description if there is one, and
    /// with public URIs. If its server does not support the tasks of 2025-11-25, the listing does
    /// not offer them. Every other byte stays as the server sent it.
    pub(super) fn splice<'a>(
        &'a self,
        public: &str,
        description: Option<&str>,
        public_uri: impl Fn(&'a str) -> Cow<'a, str>,
        offers: &ServerOffers,
        out: &mut Vec<u8>,
    ) {
        let mut splice = Splice::new(&self.raw);
        // An unchanged name keeps the server's own spelling (escapes).
        if public != self.native.as_str() {
            splice.replace(self.name.clone(), string(public));
        }
        if let Some(text) = description {
            match &self.description {
                Some(span) => splice.replace(span.clone(), string(text)),
                None => splice.replace(self.name.end..self.name.end, description_member(text)),
            };
        }
        for (place, uri) in &self.interface {
            if let Cow::Owned(public) = public_uri(uri) {
                splice.replace(place.clone(), string(&public));
            }
        }
        if let Some(place) = self.tasks_at.clone()
            && self.tasks != TaskSupport::Forbidden
            && offers.task_form() != Some(TaskForm::Legacy)
        {
            splice.replace(place, string("forbidden"));
        }
        splice.put(out);
    }
}

/// The raw value of `taskSupport` in an `execution`, and its meaning.
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

/// The raw values in a `_meta` that name a user interface, with their text. The extension has two
/// spellings of the key; servers often send both.
pub(super) fn interface(meta: &str) -> Vec<(&str, String)> {
    let Ok(meta) = Members::parse_with_duplicates(meta.as_bytes()) else { return Vec::new() };
    let nested = meta.find_all("ui").filter_map(|ui| {
        let ui = Members::parse_with_duplicates(ui.get().as_bytes()).ok()?;
        Some(ui.find_all("resourceUri").collect::<Vec<_>>())
    });
    let nested = nested.flatten();
    let found = nested.chain(meta.find_all("ui/resourceUri"));
    found.filter_map(|raw| Some((raw.get(), text(raw)?.into_owned()))).collect()
}
