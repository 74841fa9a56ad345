//! One tool as its server listed it: checked and compiled once, with its original bytes.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderValue;
use serde_json::Value;

use super::definition::DefinitionCells;
use super::item::{InvalidItem, ItemFields, copy_within_bounds};
use super::param_headers::{self, ParamHeader};
use super::schema::{self, ArgumentSchema, PatternBudget, SchemaError};
use super::search::{AnalysedElement, Analyser};
use super::tool_bytes::ToolBytes;
use super::tool_transform::ToolTransform;
use crate::call::NativeName;
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
    /// Whether its calls may become tasks, if its server supports tasks.
    pub tasks: TaskSupport,
    /// The tool object.
    bytes: ToolBytes,
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
        let bytes = ToolBytes::locate(&raw, &fields)?;
        let schema =
            fields.find("inputSchema").ok_or(InvalidItem::Missing { field: "inputSchema" })?;
        let schema = schema::parse_schema(schema.as_bytes())?;
        let param_headers = match (param_headers::find_param_headers(&schema), rules) {
            (Ok(found), _) => found,
            (Err(_), HeaderRules::Ignore) => Vec::new(),
            (Err(error), HeaderRules::Enforce) => return Err(error.into()),
        };
        Ok(Self {
            native: bytes.native().clone(),
            name_header: encode_value(bytes.native().as_str()),
            arguments: ArgumentSchema::from_value(schema, budget)?,
            param_headers,
            tasks: bytes.task_support(),
            bytes,
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
        ItemFields::read(self.as_listed().raw()).ok()?.find("annotations")
    }

    /// Whether clients see an `outputSchema`, which they check `structuredContent` against.
    pub fn has_output_schema(&self) -> bool {
        ItemFields::read(self.raw()).is_ok_and(|fields| fields.find("outputSchema").is_some())
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
        self.bytes.raw()
    }

    /// The tool object, as lists write it.
    pub(super) fn bytes(&self) -> &ToolBytes {
        &self.bytes
    }

    /// Its words for search, analysed when they are first asked for.
    pub(super) fn analyse_words(&self, analyser: &mut Analyser) -> Arc<AnalysedElement> {
        let words = &self.definition.words;
        Arc::clone(words.get_or_init(|| Arc::new(analyser.analyse(self.raw()))))
    }

    /// Where what is computed of its definition is kept.
    pub(super) fn definition_cells(&self) -> &DefinitionCells {
        &self.definition
    }

    /// The native name as JSON, in the server's own spelling.
    pub fn name_json(&self) -> Bytes {
        self.bytes.name_json()
    }

    /// The resources that are its user interface (MCP Apps).
    pub(super) fn interface(&self) -> impl Iterator<Item = &str> {
        self.bytes.interface()
    }
}
