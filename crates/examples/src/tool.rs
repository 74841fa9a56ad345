//! Tools, independent of the era.

use std::fmt::Display;
use std::ops::RangeInclusive;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::stdio::ExampleCall;

/// A set of tools, and the server name for them.
pub(super) trait Toolbox {
    /// The server's own name.
    const NAME: &'static str;
    /// Instructions for the model.
    const INSTRUCTIONS: &'static str;

    /// Returns the tools in MCP's form; the list never changes.
    fn tools(&self) -> Vec<Value>;

    /// Calls the tool `name`; returns its structured content.
    async fn call(
        &self,
        name: &str,
        arguments: Value,
        call: &ExampleCall,
    ) -> Result<Value, ToolFault>;
}

/// Failure of a tool call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToolFault {
    /// An unknown tool: a protocol error of the client.
    UnknownTool,
    /// The model's mistake and its correction: a result with `isError`.
    Refused(String),
}

impl ToolFault {
    pub(super) fn refused(reason: impl Display) -> Self {
        Self::Refused(reason.to_string())
    }
}

/// The server's name and version.
pub(super) fn server_info<T: Toolbox>() -> Value {
    json!({ "name": format!("trunkline-{}", T::NAME), "version": env!("CARGO_PKG_VERSION") })
}

/// Returns the `tools/call` result, the same in both eras.
pub(super) async fn call_tool<T: Toolbox>(
    toolbox: &T,
    name: &str,
    arguments: Value,
    call: &ExampleCall,
) -> Option<Value> {
    match toolbox.call(name, arguments, call).await {
        Ok(structured) => Some(json!({
            // The same content as text, for clients without structured content.
            "content": [{ "type": "text", "text": structured.to_string() }],
            "structuredContent": structured,
        })),
        Err(ToolFault::Refused(reason)) => {
            Some(json!({ "content": [{ "type": "text", "text": reason }], "isError": true }))
        }
        Err(ToolFault::UnknownTool) => None,
    }
}

/// The side effects of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    Reads,
    Adds,
    Deletes,
}

/// Describes a tool that takes an `A` and returns an `R`. Its schemas are generated from these
/// types, so that the declaration matches the accepted values.
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

/// Removes Rust's names for number types (`uint32`): they are not formats of
/// JSON Schema, and some clients warn about each of them.
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

/// Parses the arguments.
pub(super) fn read<A: DeserializeOwned>(arguments: Value) -> Result<A, ToolFault> {
    serde_json::from_value(arguments)
        .map_err(|error| ToolFault::refused(format_args!("invalid arguments: {error}")))
}

/// Serializes the result.
pub(super) fn written<R: Serialize>(result: R) -> Result<Value, ToolFault> {
    serde_json::to_value(result).map_err(ToolFault::refused)
}

/// Rejects a number outside the schema's bounds.
pub(super) fn within(name: &str, value: u32, range: RangeInclusive<u32>) -> Result<(), ToolFault> {
    if range.contains(&value) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    Err(ToolFault::refused(format_args!("`{name}` must be from {least} to {most}, not {value}")))
}
