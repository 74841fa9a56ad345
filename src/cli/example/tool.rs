//! What a tool is, whatever era it is called in.

use std::fmt::Display;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::stdio::ExampleCall;

/// A set of tools, and the name they go by as a server.
pub(super) trait Toolbox {
    /// The server's own name.
    const NAME: &'static str;
    /// What a model should know before it uses the tools.
    const INSTRUCTIONS: &'static str;

    /// The tools as MCP lists them; the same list for ever.
    fn tools(&self) -> Vec<Value>;

    /// Calls the tool `name`; what comes back is its structured content.
    async fn call(
        &self,
        name: &str,
        arguments: Value,
        call: &ExampleCall,
    ) -> Result<Value, ToolFault>;
}

/// Why a tool gave no result.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToolFault {
    /// There is no such tool: the client's mistake, a protocol error.
    UnknownTool,
    /// What the model did wrong and how to do it right: a result with `isError`.
    Refused(String),
}

impl ToolFault {
    pub(super) fn refused(reason: impl Display) -> Self {
        Self::Refused(reason.to_string())
    }
}

/// The name and version that a server introduces itself with.
pub(super) fn server_info<T: Toolbox>() -> Value {
    json!({ "name": format!("trunkline-{}", T::NAME), "version": env!("CARGO_PKG_VERSION") })
}

/// The `tools/call` result that both eras have in common.
pub(super) async fn call_tool<T: Toolbox>(
    toolbox: &T,
    name: &str,
    arguments: Value,
    call: &ExampleCall,
) -> Option<Value> {
    match toolbox.call(name, arguments, call).await {
        Ok(structured) => Some(json!({
            // The same as text, for clients that know no structured content.
            "content": [{ "type": "text", "text": structured.to_string() }],
            "structuredContent": structured,
        })),
        Err(ToolFault::Refused(reason)) => {
            Some(json!({ "content": [{ "type": "text", "text": reason }], "isError": true }))
        }
        Err(ToolFault::UnknownTool) => None,
    }
}

/// What calling a tool does to the world.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Adds,
    Deletes,
}

/// A tool that takes an `A` and returns an `R`: their types are its schemas,
/// so that what is declared is what is accepted.
pub(super) fn tool<A: JsonSchema, R: JsonSchema>(
    name: &str,
    title: &str,
    effect: Effect,
    description: &str,
) -> Value {
    json!({
        "name": name,
        "title": title,
        "description": description,
        "inputSchema": schema::<A>(),
        "outputSchema": schema::<R>(),
        "annotations": {
            "readOnlyHint": effect == Effect::Reads,
            "destructiveHint": effect == Effect::Deletes,
            "idempotentHint": effect != Effect::Adds,
            "openWorldHint": false,
        },
    })
}

fn schema<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>();
    schema.remove("title");
    let mut schema = schema.to_value();
    drop_formats(&mut schema);
    schema
}

/// Takes out Rust's names for number types (`uint32`): no format of JSON
/// Schema, and some clients complain about each of them.
fn drop_formats(schema: &mut Value) {
    match schema {
        Value::Object(members) => {
            let is_rusts = |format: &Value| {
                format.as_str().is_some_and(|f| f.starts_with("uint") || f.starts_with("int"))
            };
            if members.get("format").is_some_and(is_rusts) {
                members.remove("format");
            }
            members.values_mut().for_each(drop_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_formats),
        _ => {}
    }
}

/// The object with the fields of another on top.
pub(super) fn merged(object: Value, more: Value) -> Value {
    match (object, more) {
        (Value::Object(mut fields), Value::Object(more)) => {
            fields.extend(more);
            Value::Object(fields)
        }
        (object, _) => object,
    }
}

/// The arguments as their type.
pub(super) fn read<A: DeserializeOwned>(arguments: Value) -> Result<A, ToolFault> {
    serde_json::from_value(arguments)
        .map_err(|error| ToolFault::refused(format_args!("invalid arguments: {error}")))
}

/// The result as a value.
pub(super) fn written<R: Serialize>(result: R) -> Result<Value, ToolFault> {
    serde_json::to_value(result).map_err(ToolFault::refused)
}

/// Refuses a number outside of what the schema allows.
pub(super) fn within(name: &str, value: u32, range: RangeInclusive<u32>) -> Result<(), ToolFault> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(ToolFault::refused(format_args!("`{name}` must be from {least} to {most}, not {value}")))
}
