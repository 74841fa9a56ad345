//! Output schema of a tool, and conversion of responses to structured content.

use http::Method;
use serde_json::{Map, Value, json};

use super::reader::DocumentReader;
use crate::schemas::conversion::ConvertedSchema;
use crate::schemas::references::Node;
use crate::values::body::BodyFormat;

/// Decides if a JSON response becomes the member `result` of the structured content. Clients of
/// older versions require structured content to be an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ResultWrapping {
    /// Always, as the output schema states.
    Always,
    /// Only if it is not an object.
    Arrays,
}

impl<'a> DocumentReader<'a> {
    /// Returns the output schema, if every successful response is JSON. Returns none if one of the
    /// schemas cannot be converted.
    pub(crate) fn read_output(
        &mut self,
        method: &Method,
        operation: Node<'a>,
    ) -> (Option<ConvertedSchema>, ResultWrapping) {
        // The response to HEAD has no body, even if the document describes one.
        let schemas = if *method == Method::HEAD { None } else { success_schemas(operation) };
        // A schema without rules would only wrap the response in an additional member.
        let schemas = schemas.filter(|all| !all.iter().any(|schema| allows_anything(*schema)));
        let Some(schemas) = schemas else { return (None, ResultWrapping::Arrays) };
        let all_objects = schemas.iter().all(|schema| is_object(*schema));
        let mut needs = Vec::new();
        let mut converted = Vec::new();
        for schema in schemas {
            match self.responses.convert(schema) {
                Ok(schema) => converted.push(schema.part_into(&mut needs)),
                Err(_) => return (None, ResultWrapping::Arrays),
            }
        }
        let one = match converted.len() {
            0 => return (None, ResultWrapping::Arrays),
            1 => converted.swap_remove(0),
            _ => json!({ "anyOf": converted }),
        };
        let one = ConvertedSchema::of_parts(one, needs);
        if all_objects {
            (Some(one.wrap(as_object)), ResultWrapping::Arrays)
        } else {
            (Some(one.wrap(as_result)), ResultWrapping::Always)
        }
    }
}

/// Returns the schemas of all successful responses, without repetitions, or `None` if one is not
/// JSON.
fn success_schemas(operation: Node<'_>) -> Option<Vec<Node<'_>>> {
    let mut schemas: Vec<Node<'_>> = Vec::new();
    let answers = operation.find("responses").into_iter().flat_map(Node::members);
    let is_success = |status: &str| status.len() == 3 && status.starts_with('2');
    for (_, answer) in answers.filter(|(status, _)| is_success(status)) {
        let schema = json_schema_of(answer)?;
        let is_same = |other: &Node<'_>| match (other.reference(), schema.reference()) {
            (Some(one), Some(another)) => one == another,
            _ => std::ptr::eq(other.value, schema.value),
        };
        if !schemas.iter().any(is_same) {
            schemas.push(schema);
        }
    }
    Some(schemas)
}

fn allows_anything(schema: Node<'_>) -> bool {
    let members = schema.value.as_object();
    members.is_some_and(|members| {
        members.keys().all(|key| matches!(key.as_str(), "title" | "description"))
    })
}

/// Returns true if a schema, or the schema to which it refers, is of an object.
pub(crate) fn is_object(schema: Node<'_>) -> bool {
    let Ok(schema) = schema.resolve() else { return false };
    match schema.text("type") {
        Some(name) => name == "object" && !schema.flag("nullable"),
        None => schema.find("type").is_none() && schema.find("properties").is_some(),
    }
}

/// Returns the schema of a response, if it is JSON.
fn json_schema_of(answer: Node<'_>) -> Option<Node<'_>> {
    let answer = answer.resolve().ok()?;
    let mut contents = answer.find("content")?.members();
    let (_, media) =
        contents.find(|(kind, _)| BodyFormat::of_media_type(kind) == BodyFormat::Json)?;
    media.find("schema")
}

/// Adds `type: object` at the root, which every output schema needs.
fn as_object(schema: Value) -> Value {
    match schema {
        Value::Object(members) if members.get("type") != Some(&json!("object")) => {
            let mut typed = Map::from_iter([("type".to_owned(), json!("object"))]);
            typed.extend(members.into_iter().filter(|(key, _)| key != "type"));
            typed.into()
        }
        schema => schema,
    }
}

fn as_result(schema: Value) -> Value {
    let properties = Map::from_iter([("result".to_owned(), schema)]);
    json!({ "type": "object", "properties": properties, "required": ["result"] })
}
