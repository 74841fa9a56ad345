//! A tool as the configuration changes it: compiled from what its server listed.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::item::{InvalidItem, ItemFields};
use super::schema::{
    self, ArgumentEditFault, ArgumentSchema, PatternBudget, SchemaError, declared_arguments,
    edit_schema, required_arguments,
};
use super::tool::{HeaderRules, Tool};
use crate::call::NativeName;
use crate::config::TransformSettings;
use crate::jsonrpc::object_of;

/// How the calls of one tool are changed on their way to the server.
#[derive(Debug)]
pub struct ToolTransform {
    /// The tool as its server listed it.
    pub listed: Arc<Tool>,
    /// What the configuration changes.
    pub settings: Arc<TransformSettings>,
    /// The arguments that the server requires.
    pub required: HashSet<Box<str>>,
}

/// How the results of one tool are checked and changed on their way to clients.
#[derive(Debug)]
pub struct ResultTransform {
    listed: Arc<Tool>,
    /// What the configuration says.
    pub settings: Arc<TransformSettings>,
    /// The compiled `outputSchema`, once a result was checked.
    output: OnceLock<Result<Option<ArgumentSchema>, SchemaError>>,
    has_warned: AtomicBool,
}

impl ResultTransform {
    pub(super) fn new(listed: &Arc<Tool>, settings: &Arc<TransformSettings>) -> Self {
        Self {
            listed: Arc::clone(listed),
            settings: Arc::clone(settings),
            output: OnceLock::new(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// The tool's own name.
    pub fn native(&self) -> &NativeName {
        &self.listed.native
    }

    /// The schema of the tool's `structuredContent`; `None` if it has none.
    ///
    /// # Errors
    /// [`SchemaError`] if it cannot be compiled.
    pub fn output_schema(&self) -> Result<Option<&ArgumentSchema>, &SchemaError> {
        let compiled = self.output.get_or_init(|| {
            let fields = ItemFields::read(self.listed.raw()).ok();
            let schema = fields.and_then(|fields| fields.find("outputSchema"));
            schema.map(|schema| ArgumentSchema::compile(schema.as_bytes())).transpose()
        });
        compiled.as_ref().map(Option::as_ref)
    }

    /// Whether this is the first warning about a result: one is enough for a list of tools.
    pub fn warns_first(&self) -> bool {
        !self.has_warned.swap(true, Ordering::Relaxed)
    }
}

/// Why a tool cannot be changed as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransformFault {
    /// Its arguments cannot be.
    #[error(transparent)]
    Arguments(#[from] ArgumentEditFault),
    /// What came out is not a valid tool.
    #[error(transparent)]
    Item(#[from] InvalidItem),
}

/// A changed tool, and the configured arguments that its schema does not declare.
type ChangedTool = (Arc<Tool>, Vec<String>);

impl Tool {
    /// The tool as clients see it with these changes.
    ///
    /// # Errors
    /// [`TransformFault`]: such a tool must not be offered, because what the configuration fixes or
    /// hides might not be.
    pub fn transform(
        listed: &Arc<Self>,
        settings: &Arc<TransformSettings>,
    ) -> Result<ChangedTool, TransformFault> {
        let fields = ItemFields::read(listed.raw())?;
        let field = "inputSchema";
        let raw = fields.find(field).ok_or(InvalidItem::Missing { field })?;
        let own = schema::parse_schema(raw.as_bytes()).map_err(InvalidItem::from)?;
        let edits = &settings.arguments.edits;
        let declared = declared_arguments(&own);
        let unknown = edits.iter().map(|(name, _)| name);
        let unknown = unknown.filter(|name| !declared.contains(name.as_str())).cloned().collect();
        let shown = match &settings.input_schema {
            Some(schema) => schema.members().clone(),
            None => edit_schema(&own, edits)?,
        };
        let shown = Value::Object(shown).to_string();
        let members = fields.members().filter_map(|(name, value)| match name {
            "inputSchema" => Some((name, Cow::Borrowed(shown.as_str()))),
            "outputSchema" if settings.drops_structured() => None,
            name => Some((name, Cow::Borrowed(value))),
        });
        let raw = object_of(members);
        // A list's tools share a budget; those that the operator changes are few.
        let mut budget = PatternBudget::default();
        // The annotations have passed the rules of the server's transport.
        let mut tool = Self::parse_within(&raw, HeaderRules::Ignore, &mut budget)?;
        tool.transform = Some(Box::new(ToolTransform {
            listed: Arc::clone(listed),
            settings: Arc::clone(settings),
            required: required_arguments(&own),
        }));
        Ok((Arc::new(tool), unknown))
    }
}
