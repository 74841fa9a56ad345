//! A tool as the configuration changes it: compiled from what its server listed.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use super::item::{InvalidItem, ItemFields};
use super::schema::{
    self, ArgumentEditFault, PatternBudget, declared_arguments, edit_schema, required_arguments,
};
use super::tool::{HeaderRules, Tool};
use crate::config::TransformSettings;
use crate::jsonrpc::{Splice, span_of};

/// How the calls of one tool are changed on their way to the server, and the results on their way
/// back.
#[derive(Debug)]
pub struct ToolTransform {
    /// The tool as its server listed it.
    pub listed: Arc<Tool>,
    /// What the configuration changes.
    pub settings: Arc<TransformSettings>,
    /// The arguments that the server requires.
    pub required: HashSet<Box<str>>,
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
        let mut splice = Splice::new(listed.raw());
        if !edits.is_empty() {
            let edited = Value::Object(edit_schema(&own, edits)?);
            let span = span_of(listed.raw(), raw.as_bytes()).unwrap_or_default();
            splice.replace(span, edited.to_string());
        }
        // A list's tools share a budget; those that the operator changes are few.
        let mut budget = PatternBudget::default();
        // The annotations have passed the rules of the server's transport.
        let mut tool = Self::parse_within(&splice.finish(), HeaderRules::Ignore, &mut budget)?;
        tool.transform = Some(Box::new(ToolTransform {
            listed: Arc::clone(listed),
            settings: Arc::clone(settings),
            required: required_arguments(&own),
        }));
        Ok((Arc::new(tool), unknown))
    }
}
