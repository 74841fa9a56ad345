//! A tool as the configuration changes it: compiled from its server's listing.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use serde::Deserialize;
use serde_json::{Map, Value};

use trunkline_config::{ArgumentEdit, ArgumentValue, OutputCheck, TransformSettings};
use trunkline_jsonrpc::{Members, object_of};
use trunkline_protocol::call::NativeName;

use super::item::{ItemError, ItemFields};
use super::tool::{HeaderRules, SchemaExemption, Tool};
use crate::schema::{
    self, ArgumentEditFault, ArgumentSchema, PatternBudget, SchemaError, declared_arguments,
    edit_schema, required_arguments, schema_of_argument,
};

/// The changes of the calls of one tool on their way to the server.
#[derive(Debug)]
pub struct ToolTransform {
    /// The tool as its server listed it.
    pub listed: Arc<Tool>,
    /// The configured changes.
    pub settings: Arc<TransformSettings>,
    /// The arguments that the server requires.
    pub required: HashSet<Box<str>>,
    /// The schemas of arguments with configured values that are texts of variables or headers.
    textual: HashMap<Box<str>, ArgumentSchema>,
}

impl ToolTransform {
    /// The JSON that the server expects for a configured value, which is the text of a variable or
    /// a header; `None` if the value is unchanged.
    pub fn coerce_configured(&self, argument: &str, value: &str) -> Option<String> {
        let schema = self.textual.get(argument)?;
        let alone = object_of([(argument, Cow::Borrowed(value))]);
        let coerced = schema.coerce(&alone).filter(|coerced| !coerced.paths.is_empty())?;
        let coerced = Members::parse(&coerced.raw).ok()?.find(argument)?.get().to_owned();
        Some(coerced)
    }
}

/// The schemas of the arguments with configured values that may be texts of other types.
fn textual_arguments(
    own: &Map<String, Value>,
    edits: &[(String, ArgumentEdit)],
) -> HashMap<Box<str>, ArgumentSchema> {
    let is_textual = |edit: &ArgumentEdit| {
        let configured = edit.value.as_ref().or(edit.default.as_ref());
        configured.is_some_and(|value| !matches!(value, ArgumentValue::Literal(_)))
    };
    let textual = edits.iter().filter(|(_, edit)| is_textual(edit));
    textual
        .filter_map(|(name, _)| Some((name.as_str().into(), schema_of_argument(own, name)?)))
        .collect()
}

/// The checks and changes of the results of one tool on their way to clients.
#[derive(Debug)]
pub struct ResultTransform {
    listed: Arc<Tool>,
    /// The configured changes.
    pub settings: Arc<TransformSettings>,
    /// The compiled `outputSchema`, once a result was checked.
    output: OnceLock<Result<Option<ArgumentSchema>, SchemaError>>,
    has_warned: AtomicBool,
}

impl ResultTransform {
    /// The changes of the results of a tool that its server listed.
    pub fn new(listed: &Arc<Tool>, settings: &Arc<TransformSettings>) -> Self {
        Self {
            listed: Arc::clone(listed),
            settings: Arc::clone(settings),
            output: OnceLock::new(),
            has_warned: AtomicBool::new(false),
        }
    }

    /// The tool's own name.
    #[inline]
    pub fn native(&self) -> &NativeName {
        &self.listed.native
    }

    /// Returns true if repeating a call has no further effect, as the server annotates its tool.
    pub fn is_repeatable(&self) -> bool {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Hints {
            read_only_hint: bool,
            idempotent_hint: bool,
        }
        let fields = ItemFields::read(self.listed.raw()).ok();
        let annotations = fields.and_then(|fields| fields.find("annotations"));
        let hints = annotations.and_then(|raw| serde_json::from_str::<Hints>(raw).ok());
        hints.is_some_and(|hints| hints.read_only_hint || hints.idempotent_hint)
    }

    /// The schema of the tool's `structuredContent`; `None` if it has none.
    ///
    /// # Errors
    /// [`SchemaError`] if it cannot be compiled.
    pub fn output_schema(&self) -> Result<Option<&ArgumentSchema>, &SchemaError> {
        let compiled = self.output.get_or_init(|| {
            let fields = ItemFields::read(self.listed.shown()).ok();
            let schema = fields.and_then(|fields| fields.find("outputSchema"));
            schema.map(|schema| ArgumentSchema::compile_output(schema.as_bytes())).transpose()
        });
        compiled.as_ref().map(Option::as_ref)
    }

    /// Returns true if clients see an `outputSchema` that results have to fit.
    pub fn has_output_schema(&self) -> bool {
        let fields = ItemFields::read(self.listed.shown()).ok();
        let listed = fields.and_then(|fields| fields.find("outputSchema").map(drop)).is_some();
        listed && !self.settings.drops_structured()
    }

    /// The most bytes of a result that take little time to check; `None` if it is not known yet.
    pub fn cheap_length(&self) -> Option<usize> {
        if self.settings.check_output.is_none_or(|check| check == OutputCheck::Off) {
            return Some(usize::MAX);
        }
        let compiled = self.output.get()?.as_ref().ok()?;
        Some(compiled.as_ref().map_or(usize::MAX, ArgumentSchema::cheap_length))
    }

    /// Returns true for the first warning about a result: one is enough for a list of tools.
    #[inline]
    pub fn warns_first(&self) -> bool {
        !self.has_warned.swap(true, Ordering::Relaxed)
    }
}

/// Reason why a tool cannot be changed as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransformFault {
    /// Its arguments cannot be changed.
    #[error(transparent)]
    Arguments(#[from] ArgumentEditFault),
    /// The changed tool is not valid.
    #[error(transparent)]
    Item(#[from] ItemError),
}

/// A changed tool, and the configured arguments that its schema does not declare.
type ChangedTool = (Arc<Tool>, Vec<String>);

impl Tool {
    /// The tool as clients see it with these changes.
    ///
    /// # Errors
    /// [`TransformFault`]: such a tool must not be offered, because arguments that the
    /// configuration fixes or hides might not be fixed or hidden.
    pub fn transform(
        listed: &Arc<Self>,
        settings: &Arc<TransformSettings>,
    ) -> Result<ChangedTool, TransformFault> {
        let fields = ItemFields::read(listed.shown())?;
        let field = "inputSchema";
        let raw = fields.find(field).ok_or(ItemError::Missing { field })?;
        let own = schema::parse_schema(raw.as_bytes()).map_err(ItemError::from)?;
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
        let is_excused = listed.is_excused() && settings.input_schema.is_none();
        let exemption = if is_excused { SchemaExemption::Unchecked } else { SchemaExemption::None };
        let rules = HeaderRules::Ignore;
        let mut tool = Self::parse_within(&raw, rules, &|_| exemption, &mut budget)?;
        tool.transform = Some(Box::new(ToolTransform {
            listed: Arc::clone(listed),
            settings: Arc::clone(settings),
            required: required_arguments(&own),
            textual: textual_arguments(&own, edits),
        }));
        Ok((Arc::new(tool), unknown))
    }
}
