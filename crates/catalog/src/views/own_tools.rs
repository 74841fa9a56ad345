//! The tools of the gateway itself, as clients see them.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use trunkline_config::OwnToolConfig;

use crate::elements::tool::{HeaderRules, Tool};
use crate::lists::merge::MergeFault;
use crate::selection::Scope;

/// Compiles those that are in scope. A tool with an unusable schema is left out.
pub(crate) fn compile_own_tools(
    tools: &[OwnToolConfig],
    scope: &Scope,
    warnings: &mut Vec<MergeFault>,
) -> Vec<Arc<Tool>> {
    let shown = tools.iter().filter(|tool| scope.admits_own_tool(tool.name.as_str()));
    let compiled = shown.filter_map(|tool| {
        let compiled = Tool::parse(listed_form(tool).as_bytes(), HeaderRules::Ignore);
        let refused = |reason| MergeFault::OwnToolInvalid { name: tool.name.clone(), reason };
        compiled.map(Arc::new).map_err(|reason| warnings.push(refused(reason))).ok()
    });
    compiled.collect()
}

/// A tool as an element of `tools`.
fn listed_form(tool: &OwnToolConfig) -> String {
    let mut listed = Map::new();
    listed.insert("name".into(), tool.name.as_str().into());
    if let Some(description) = &tool.description {
        listed.insert("description".into(), description.as_str().into());
    }
    let schema = tool.input_schema.as_ref().map(|schema| schema.members().clone());
    let schema = schema.map_or_else(|| json!({ "type": "object" }), Value::Object);
    listed.insert("inputSchema".into(), schema);
    Value::Object(listed).to_string()
}
