//! One tool as its server listed it: checked and compiled once, with its original bytes.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::Value;

use trunkline_search::{AnalysedElement, Analyser};

use trunkline_protocol::call::NativeName;
use trunkline_protocol::mcp::{Era, encode_value};

use super::definition::DefinitionCells;
use super::item::{ItemError, ItemFields, copy_within_bounds};
use super::tool_bytes::ToolBytes;
use super::tool_transform::ToolTransform;
use crate::kind::Kind;
use crate::param_headers::{self, ParamHeader};
use crate::repair::{LegacyForm, RepairedEntry, legacy_form, repair_entry};
use crate::schema::{self, ArgumentSchema, PatternBudget, SchemaError};

/// The treatment of `x-mcp-header` annotations that violate the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeaderRules {
    /// The tool is rejected: clients over HTTP must do so (MCP 2026-07-28, "Schema Extension").
    Enforce,
    /// The annotations are ignored, as clients of other transports may.
    Ignore,
}

impl HeaderRules {
    /// The era of the servers that the rules are for. The tools of the configuration are like those
    /// of Legacy servers.
    fn source_era(self) -> Era {
        match self {
            Self::Enforce => Era::Modern,
            Self::Ignore => Era::Legacy,
        }
    }
}

/// The support of tasks by the calls of a tool (2025-11-25, Tasks, "Tool-Level Negotiation").
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

/// A server's description of a tool's calls in `annotations`. Only that of a trusted server counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToolHints {
    /// `readOnlyHint`.
    pub read_only: Option<bool>,
    /// `destructiveHint`.
    pub destructive: Option<bool>,
}

/// The part of a tool's schema that the configuration makes unnecessary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaExemption {
    /// None: the schema is listed, and calls are checked with it.
    None,
    /// Calls are not checked.
    Unchecked,
    /// Clients see a configured schema instead.
    Replaced,
}

impl SchemaExemption {
    /// Returns true if a tool is listed although its schema cannot be used.
    fn excuses(self, fault: &SchemaError) -> bool {
        match self {
            Self::None => false,
            // Clients want the type at the root.
            Self::Unchecked => *fault != SchemaError::RootType,
            Self::Replaced => true,
        }
    }
}

/// One tool of one server.
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
    /// The support of tasks by its calls, if its server supports tasks.
    pub tasks: TaskSupport,
    /// The tool object as the server sent it.
    raw: Bytes,
    /// The tool object as lists show it.
    bytes: ToolBytes,
    /// The repairs of the tool object, in one sentence.
    repairs: Option<Box<str>>,
    /// True if the schema cannot be used, and the configuration makes that unnecessary.
    is_excused: bool,
    /// The difference between the tool for Legacy clients and the tool for Modern ones.
    legacy_form: LegacyForm,
    /// Values computed from its definition.
    definition: DefinitionCells,
    /// The changes of calls and results, for a tool that the configuration changes.
    pub transform: Option<Box<ToolTransform>>,
}

impl Tool {
    /// Its server's description of its calls.
    pub fn hints(&self) -> ToolHints {
        let annotations = self.annotations();
        let annotations = annotations.and_then(|raw| serde_json::from_str::<Value>(raw).ok());
        let hint = |name: &str| annotations.as_ref()?.get(name)?.as_bool();
        ToolHints { read_only: hint("readOnlyHint"), destructive: hint("destructiveHint") }
    }

    /// Checks and compiles one element of a server's `tools`.
    ///
    /// # Errors
    /// [`ItemError`] names the violated rule.
    pub fn parse(raw: &[u8], rules: HeaderRules) -> Result<Self, ItemError> {
        Self::parse_within(raw, rules, &|_| SchemaExemption::None, &mut PatternBudget::default())
    }

    /// Like [`Tool::parse`], within the budget of its list. `exemption` returns the exemption of a
    /// native name.
    pub(crate) fn parse_within(
        raw: &[u8],
        rules: HeaderRules,
        exemption: &dyn Fn(&str) -> SchemaExemption,
        budget: &mut PatternBudget,
    ) -> Result<Self, ItemError> {
        let raw = copy_within_bounds(raw)?;
        // A duplicate key has no repair.
        ItemFields::read(&raw)?;
        let RepairedEntry { shown, note: repairs } =
            repair_entry(Kind::Tools, &raw, rules.source_era());
        let fields = ItemFields::read(&shown)?;
        let bytes = ToolBytes::locate(&shown, &fields)?;
        let schema =
            fields.find("inputSchema").ok_or(ItemError::Missing { field: "inputSchema" })?;
        let schema = schema::parse_schema(schema.as_bytes())?;
        let param_headers = match (param_headers::find_param_headers(&schema), rules) {
            (Ok(found), _) => found,
            (Err(_), HeaderRules::Ignore) => Vec::new(),
            (Err(error), HeaderRules::Enforce) => return Err(error.into()),
        };
        let compiled = ArgumentSchema::from_value(schema, budget);
        let is_excused =
            compiled.as_ref().is_err_and(|fault| exemption(bytes.native().as_str()).excuses(fault));
        let arguments = if is_excused { ArgumentSchema::unchecked() } else { compiled? };
        Ok(Self {
            native: bytes.native().clone(),
            name_header: encode_value(bytes.native().as_str()),
            arguments,
            is_excused,
            param_headers,
            tasks: bytes.task_support(),
            legacy_form: legacy_form(&shown),
            bytes,
            raw,
            repairs,
            definition: DefinitionCells::default(),
            transform: None,
        })
    }

    /// The tool as its server listed it, without the configuration's changes.
    #[inline]
    pub fn as_listed(&self) -> &Self {
        self.transform.as_ref().map_or(self, |transform| &transform.listed)
    }

    /// The raw annotations from the server, without the configuration's changes.
    #[inline]
    pub fn annotations(&self) -> Option<&str> {
        ItemFields::read(self.as_listed().raw()).ok()?.find("annotations")
    }

    /// Returns true if clients see an `outputSchema`, which they check `structuredContent` against.
    #[inline]
    pub fn has_output_schema(&self) -> bool {
        ItemFields::read(self.shown()).is_ok_and(|fields| fields.find("outputSchema").is_some())
    }

    /// The parameters that a call mirrors into headers for the server.
    #[inline]
    pub fn sent_param_headers(&self) -> &[ParamHeader] {
        let listed = self.transform.as_ref().map_or(self, |transform| &transform.listed);
        &listed.param_headers
    }

    /// Charges a reused tool with the cost of its compilation.
    pub(crate) fn charge(&self, budget: &mut PatternBudget) -> Result<(), SchemaError> {
        budget.spend(self.arguments.pattern_bytes())
    }

    /// The tool object as the server sent it, for pins, scans and rules.
    #[inline]
    pub fn raw(&self) -> &Bytes {
        &self.raw
    }

    /// The tool object as lists show it, under its native name.
    #[inline]
    pub fn shown(&self) -> &Bytes {
        self.bytes.raw()
    }

    /// The repairs of the tool object, in one sentence; `None` if there are none.
    #[inline]
    pub fn repairs(&self) -> Option<&str> {
        self.repairs.as_deref()
    }

    /// Returns true if the schema cannot be used, and the configuration made that unnecessary.
    pub(crate) fn is_excused(&self) -> bool {
        self.is_excused
    }

    /// Returns true if lists for Legacy clients show the tool in another form.
    pub(crate) fn has_legacy_form(&self) -> bool {
        self.legacy_form != LegacyForm::Same
    }

    /// True if Legacy clients get the structured content of its results within an object.
    #[inline]
    pub fn wraps_results(&self) -> bool {
        self.legacy_form == LegacyForm::Wrapped
    }

    /// The tool object, as lists write it.
    pub(crate) fn bytes(&self) -> &ToolBytes {
        &self.bytes
    }

    /// Its words for search, analysed when they are first needed.
    pub(crate) fn analyse_words(&self, analyser: &mut Analyser) -> Arc<AnalysedElement> {
        let words = &self.definition.words;
        Arc::clone(words.get_or_init(|| Arc::new(analyser.analyse(self.shown()))))
    }

    /// The cells for values computed from its definition.
    pub(crate) fn definition_cells(&self) -> &DefinitionCells {
        &self.definition
    }

    /// The native name as JSON, in the server's own spelling.
    #[inline]
    pub fn name_json(&self) -> Bytes {
        self.bytes.name_json()
    }

    /// The resources that are its user interface (MCP Apps).
    pub(crate) fn interface(&self) -> impl Iterator<Item = &str> {
        self.bytes.interface()
    }
}
