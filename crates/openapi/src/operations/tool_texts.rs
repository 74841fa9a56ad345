//! Texts about an operation that models read: the name, the description and the hints of its tool.

use http::Method;
use serde_json::{Value, json};

use trunkline_core::text::clip;

use super::operation::OperationPlace;
use super::text_limits::{MAX_DESCRIPTION_BYTES, MAX_TITLE_BYTES};

/// Returns the name of the tool: the operation's id, or otherwise its method and path.
pub(crate) fn name_tool(place: OperationPlace<'_>) -> String {
    let id = place.operation.text("operationId").filter(|id| !id.trim().is_empty());
    let by_path = || format!("{}_{}", place.method.as_str().to_lowercase(), place.path);
    let name = id.map_or_else(by_path, |id| id.trim().to_owned());
    let name = clip(&name, MAX_TITLE_BYTES);
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.chars().all(allowed) {
        return name.to_owned();
    }
    let mut plain = String::with_capacity(name.len());
    for c in name.chars() {
        if allowed(c) {
            plain.push(c);
        } else if !plain.ends_with('_') {
            plain.push('_');
        }
    }
    let plain = plain.trim_matches('_');
    if plain.is_empty() { "operation".to_owned() } else { plain.to_owned() }
}

pub(crate) fn describe_tool(place: OperationPlace<'_>) -> String {
    let text = |key| place.operation.text(key).map(str::trim).filter(|text| !text.is_empty());
    let (summary, description) = (text("summary"), text("description"));
    let mut parts: Vec<_> = summary.into_iter().collect();
    parts.extend(description.filter(|text| Some(*text) != summary));
    let mut whole = parts.join("\n\n");
    if whole.is_empty() {
        whole = label(place);
    }
    if place.operation.flag("deprecated") {
        whole.insert_str(0, "Deprecated. ");
    }
    clip(&whole, MAX_DESCRIPTION_BYTES).to_owned()
}

pub(crate) fn write_annotations(place: OperationPlace<'_>) -> Value {
    let mut hints = json!({});
    let method = place.method;
    let mut hint = |key: &str, value: Value| {
        if let Value::Object(hints) = &mut hints {
            hints.insert(key.to_owned(), value);
        }
    };
    if let Some(title) = place.operation.text("summary").filter(|text| !text.is_empty()) {
        hint("title", clip(title, MAX_TITLE_BYTES).into());
    }
    if matches!(*method, Method::GET | Method::HEAD) {
        hint("readOnlyHint", true.into());
    }
    if *method == Method::DELETE {
        hint("destructiveHint", true.into());
    }
    if matches!(*method, Method::PUT | Method::DELETE) {
        hint("idempotentHint", true.into());
    }
    hints
}

/// Returns method and path of an operation.
pub(crate) fn label(place: OperationPlace<'_>) -> String {
    format!("{} {}", place.method, clip(place.path, MAX_TITLE_BYTES))
}
