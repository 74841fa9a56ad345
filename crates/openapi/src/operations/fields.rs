//! The body of an operation as arguments of its tool. If the body is a plain object, each property
//! is an argument, because models fill those more reliably. Otherwise the whole body is one
//! argument.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::inputs::{NewArgument, ToolInputs};
use super::operation::OperationFault;
use super::outputs::is_object;
use super::reader::DocumentReader;
use crate::schemas::conversion::ConvertedSchema;
use crate::schemas::references::{Node, ReferenceFault};
use crate::values::body::{
    ApiBody, BodyField, BodyFormat, BodyShape, OCTET_STREAM_MEDIA_TYPE, PartContent,
};
use crate::values::parameters::{PairStyle, ParameterPlace, ParameterStyle};

impl<'a> DocumentReader<'a> {
    pub(crate) fn read_body(
        &mut self,
        operation: Node<'a>,
        inputs: &mut ToolInputs,
    ) -> Result<Option<ApiBody>, OperationFault> {
        let Some(body) = operation.follow("requestBody")? else { return Ok(None) };
        let contents = body.find("content").into_iter().flat_map(Node::members);
        let contents = contents.map(|(kind, media)| (BodyFormat::of_media_type(kind), kind, media));
        let preferred = contents.min_by_key(|(format, kind, _)| format.rank(kind));
        let Some((format, media_type, media)) = preferred else { return Ok(None) };
        let required = body.flag("required");
        let shape = match find_fields(media.find("schema"), format)? {
            Some(fields) => self.read_fields(&fields, media, inputs)?,
            None if matches!(format, BodyFormat::Form | BodyFormat::Multipart) => {
                return Err(OperationFault::Form);
            }
            None => {
                let schema = self.whole_schema(media.find("schema"), format)?;
                let (description, suffix) = (body.text("description"), "content");
                let argument = NewArgument { name: "body", suffix, description, schema, required };
                BodyShape::Whole { argument: inputs.add(argument) }
            }
        };
        Ok(Some(ApiBody { format, media_type: media_type.to_owned(), shape, required }))
    }

    fn whole_schema(
        &mut self,
        schema: Option<Node<'a>>,
        format: BodyFormat,
    ) -> Result<ConvertedSchema, OperationFault> {
        Ok(match (schema, format) {
            (Some(schema), BodyFormat::Json) => self.requests.convert(schema)?,
            (_, BodyFormat::Json) => ConvertedSchema::plain(json!({})),
            (_, BodyFormat::Bytes) => ConvertedSchema::plain(file_schema()),
            _ => ConvertedSchema::plain(json!({ "type": "string" })),
        })
    }

    /// Reads each property of the body as an argument.
    fn read_fields(
        &mut self,
        found: &FoundFields<'a>,
        media: Node<'a>,
        inputs: &mut ToolInputs,
    ) -> Result<BodyShape, OperationFault> {
        let mut fields = Vec::new();
        for (name, property) in &found.properties {
            let resolved = property.resolve()?;
            if property.flag("readOnly") || resolved.flag("readOnly") {
                continue;
            }
            let required = found.required.contains(name);
            let encoding = media.find("encoding").and_then(|encoding| encoding.find(name));
            let part = part_content(resolved, encoding);
            let schema = self.requests.convert(*property)?;
            let schema = match part {
                PartContent::File(_) => schema.wrap(as_upload),
                PartContent::Value(_) => schema,
            };
            let (suffix, description) = ("body", None);
            let argument = NewArgument { name, suffix, description, schema, required };
            fields.push(BodyField {
                argument: inputs.add(argument),
                name: (*name).to_owned(),
                required,
                style: encoding.and_then(form_style),
                part,
            });
        }
        Ok(BodyShape::Fields(fields))
    }
}

/// Properties of a body, including those of all parts of an `allOf`.
#[derive(Default)]
struct FoundFields<'a> {
    properties: Vec<(&'a str, Node<'a>)>,
    known: HashSet<&'a str>,
    required: HashSet<&'a str>,
}

impl<'a> FoundFields<'a> {
    fn add(&mut self, schema: Node<'a>, depth: usize) -> Result<(), ReferenceFault> {
        let required = schema.find("required").into_iter().flat_map(Node::items);
        self.required.extend(required.filter_map(|name| name.value.as_str()));
        for (name, property) in schema.find("properties").into_iter().flat_map(Node::members) {
            if self.known.insert(name) {
                self.properties.push((name, property));
            }
        }
        if depth > 0 {
            for part in schema.find("allOf").into_iter().flat_map(Node::items) {
                self.add(part.resolve()?, depth - 1)?;
            }
        }
        Ok(())
    }
}

/// Returns the properties that can be separate arguments: those of an object that allows no others.
/// The fields of a form always can.
fn find_fields(
    schema: Option<Node<'_>>,
    format: BodyFormat,
) -> Result<Option<FoundFields<'_>>, ReferenceFault> {
    let Some(schema) = schema else { return Ok(None) };
    let has_rules = has_siblings(schema);
    let schema = schema.resolve()?;
    let mut found = FoundFields::default();
    match format {
        BodyFormat::Form | BodyFormat::Multipart => found.add(schema, COMPOSED_DEPTH)?,
        BodyFormat::Json if !has_rules && is_plain_object(schema) => found.add(schema, 0)?,
        _ => return Ok(None),
    }
    let is_empty_form = format != BodyFormat::Json && is_closed_and_empty(schema);
    Ok((is_empty_form || !found.properties.is_empty()).then_some(found))
}

/// Returns true if a schema is an object that allows no properties. Some documents describe an
/// operation without input this way.
fn is_closed_and_empty(schema: Node<'_>) -> bool {
    let is_open = schema.find("additionalProperties").is_none_or(|more| *more.value != false);
    let has_rules = schema.find("properties").into_iter().flat_map(Node::members).next().is_some();
    is_object(schema) && !is_open && !has_rules
}

/// Returns true if a reference has sibling rules, which apply as well (JSON Schema 2020-12,
/// 8.2.3.1).
fn has_siblings(schema: Node<'_>) -> bool {
    const TEXT_KEYWORDS: [&str; 6] =
        ["$ref", "title", "description", "example", "examples", "deprecated"];
    let is_text = |key: &str| TEXT_KEYWORDS.contains(&key) || key.starts_with("x-");
    schema.reference().is_some() && schema.members().any(|(key, _)| !is_text(key))
}

fn is_plain_object(schema: Node<'_>) -> bool {
    let has = |key| schema.find(key).is_some();
    let is_open =
        schema.find("additionalProperties").is_some_and(|more| *more.value != json!(false));
    let is_composed = ["allOf", "anyOf", "oneOf", "not", "if"].into_iter().any(has);
    is_object(schema) && !schema.flag("nullable") && !is_open && !is_composed
}

/// Returns the style of a form's field, if the document names one.
fn form_style(encoding: Node<'_>) -> Option<PairStyle> {
    let style = encoding.text("style");
    let explode = encoding.find("explode").and_then(|explode| explode.value.as_bool());
    if style.is_none() && explode.is_none() {
        return None;
    }
    let style = ParameterStyle::named(style.unwrap_or("form"), &ParameterPlace::Query)?;
    let explode = explode.unwrap_or(style == ParameterStyle::Form);
    Some(PairStyle { style, explode })
}

/// Returns the content of a property's part in a multipart body.
fn part_content(schema: Node<'_>, encoding: Option<Node<'_>>) -> PartContent {
    let named = encoding.and_then(|encoding| encoding.text("contentType"));
    let named = named.and_then(|all| all.split(',').next()).map(str::trim);
    // The type becomes a header of the part, which no document may end.
    let is_type = |kind: &&str| kind.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    let named = named.filter(|kind| !kind.contains('*')).filter(is_type);
    let holds_bytes = |kind: &str| BodyFormat::of_media_type(kind) == BodyFormat::Bytes;
    match find_binary(schema, COMPOSED_DEPTH) {
        Some(binary) => {
            let declared = binary.text("contentMediaType").filter(|kind| !kind.contains('*'));
            let declared = declared.filter(is_type);
            PartContent::File(named.or(declared).unwrap_or(OCTET_STREAM_MEDIA_TYPE).to_owned())
        }
        None if named.is_some_and(holds_bytes) => {
            PartContent::File(named.unwrap_or(OCTET_STREAM_MEDIA_TYPE).to_owned())
        }
        None => PartContent::Value(named.map(str::to_owned)),
    }
}

/// Returns the schema of bytes in a schema: the schema itself, its items, or an alternative besides
/// another type such as `null`.
fn find_binary(schema: Node<'_>, depth: usize) -> Option<Node<'_>> {
    let is_binary = schema.text("format") == Some("binary")
        || schema.text("type") == Some("file")
        || schema.find("contentMediaType").is_some() && schema.find("contentEncoding").is_none();
    if is_binary {
        return Some(schema);
    }
    let inner = ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|key| schema.find(key));
    let mut inner = inner.flat_map(Node::items).chain(schema.find("items"));
    let depth = depth.checked_sub(1)?;
    inner.find_map(|schema| find_binary(schema.resolve().ok()?, depth))
}

/// Returns the schema of a file argument. The argument is in base64, independent of the body's
/// encoding.
fn as_upload(schema: Value) -> Value {
    let Value::Object(mut members) = schema else { return schema };
    if members.is_empty() {
        return file_schema();
    }
    for key in ["anyOf", "oneOf", "allOf"] {
        if let Some(Value::Array(all)) = members.get_mut(key) {
            for one in all {
                *one = as_upload(one.take());
            }
        }
    }
    if let Some(items) = members.get_mut("items") {
        *items = as_upload(items.take());
    }
    if allows_text(&members) {
        members.remove("contentMediaType");
        members.insert("contentEncoding".into(), "base64".into());
    }
    Value::Object(members)
}

fn allows_text(members: &Map<String, Value>) -> bool {
    match members.get("type") {
        Some(Value::Array(names)) => names.iter().any(|name| name == "string"),
        Some(name) => name == "string",
        None => members.contains_key("contentMediaType"),
    }
}

fn file_schema() -> Value {
    json!({ "type": "string", "contentEncoding": "base64" })
}

/// Maximum depth at which the parts of a composed schema are searched.
const COMPOSED_DEPTH: usize = 4;

#[cfg(test)]
mod tests {
    use url::Url;

    use super::*;
    use crate::schemas::references::DocumentSet;

    #[test]
    fn files_are_separated_from_values_and_no_document_ends_the_header_of_a_part() {
        let file = |kind: &str| PartContent::File(kind.into());
        let value = |kind: Option<&str>| PartContent::Value(kind.map(Into::into));
        let binary = json!({ "type": "string", "format": "binary" });
        let typed = json!({ "type": "string", "contentMediaType": "image/png" });
        for (schema, content_type, expected) in [
            (binary.clone(), None, file(OCTET_STREAM_MEDIA_TYPE)),
            (json!({ "type": "array", "items": binary }), None, file(OCTET_STREAM_MEDIA_TYPE)),
            (json!({ "anyOf": [typed, { "type": "null" }] }), None, file("image/png")),
            (binary.clone(), Some("image/png, image/jpeg"), file("image/png")),
            (binary.clone(), Some("image/*"), file(OCTET_STREAM_MEDIA_TYPE)),
            (binary.clone(), Some("image/png\r\nX-Evil: 1"), file(OCTET_STREAM_MEDIA_TYPE)),
            (json!({}), Some("application/pdf"), file("application/pdf")),
            (json!({ "type": "string" }), None, value(None)),
            (json!({ "type": "string" }), Some("text/csv"), value(Some("text/csv"))),
            (json!({ "type": "string" }), Some("text/csv\r\nX-Evil: 1"), value(None)),
        ] {
            let tree = json!({ "schema": schema, "encoding": { "contentType": content_type } });
            let set = DocumentSet::new(Url::parse("http://a.test/").unwrap(), tree);
            let found = |key| set.root().find(key).unwrap();
            let part = part_content(found("schema"), Some(found("encoding")));
            assert_eq!(part, expected, "{schema} {content_type:?}");
        }
    }
}
