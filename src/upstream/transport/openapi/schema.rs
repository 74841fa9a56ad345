//! Schemas of a document as JSON Schema 2020-12.
//!
//! A reference stays a reference: every component that it leads to becomes a definition, which is
//! converted once for all tools, and a tool carries those that it reaches. So cycles survive and
//! schemas stay small. What is no keyword of 2020-12, or has the wrong type, is left out: the
//! catalog rejects schemas that are not valid, and a tool is of more use without a rule than a
//! rule without its tool.

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value, json};

use super::references::{Node, ReferenceFault, SchemaPlace};

/// The version of a document, as far as its schemas are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SchemaDialect {
    /// OpenAPI 3.0: a dialect of its own.
    V3_0,
    /// OpenAPI 3.1: JSON Schema 2020-12.
    V3_1,
}

/// Which way values of a schema travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// To the server: properties that are `readOnly` are left out.
    Request,
    /// From the server: properties that are `writeOnly` are left out.
    Response,
}

/// A converted schema, and the definitions that it refers to by itself.
#[derive(Debug, Clone)]
pub(super) struct ConvertedSchema {
    pub(super) schema: Value,
    needs: Vec<usize>,
}

impl ConvertedSchema {
    /// A schema without references.
    pub(super) fn plain(schema: Value) -> Self {
        Self { schema, needs: Vec::new() }
    }

    /// The same definitions with another schema, which may have this one in it.
    pub(super) fn wrap(self, wrap: impl FnOnce(Value) -> Value) -> Self {
        Self { schema: wrap(self.schema), needs: self.needs }
    }

    /// Takes the schema out, and adds what it needs to `needs`.
    pub(super) fn part_into(self, needs: &mut Vec<usize>) -> Value {
        needs.extend(self.needs);
        self.schema
    }

    /// A schema whose parts need these definitions.
    pub(super) fn of_parts(schema: Value, needs: Vec<usize>) -> Self {
        Self { schema, needs }
    }
}

/// Why a schema cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SchemaFault {
    /// A reference leads nowhere.
    #[error(transparent)]
    Reference(#[from] ReferenceFault),
    /// The schema with its definitions is too large for one tool.
    #[error("its schema with all that it refers to has more than {max} bytes")]
    TooLarge {
        /// The bound.
        max: usize,
    },
}

/// The schemas of a document that travel one way.
pub(super) struct SchemaBook<'a> {
    dialect: SchemaDialect,
    direction: Direction,
    places: HashMap<SchemaPlace, usize>,
    names: HashSet<String>,
    definitions: Vec<Definition<'a>>,
}

struct Definition<'a> {
    name: String,
    source: Node<'a>,
    /// The schema as JSON, and the definitions that it refers to; `None` until it is converted.
    converted: Option<Result<(String, Vec<usize>), SchemaFault>>,
}

impl<'a> SchemaBook<'a> {
    pub(super) fn new(dialect: SchemaDialect, direction: Direction) -> Self {
        let (places, names, definitions) = Default::default();
        Self { dialect, direction, places, names, definitions }
    }

    /// Converts a schema, and what it refers to.
    ///
    /// # Errors
    /// [`SchemaFault`] if one of its own references leads nowhere.
    pub(super) fn convert(&mut self, node: Node<'a>) -> Result<ConvertedSchema, SchemaFault> {
        let mut needs = Vec::new();
        let first = self.definitions.len();
        let schema = self.rewrite(node, &mut needs);
        // Not by recursion: a chain of components may be as long as the document.
        let mut next = first;
        while let Some(source) = self.definitions.get(next).map(|definition| definition.source) {
            let mut needs = Vec::new();
            let converted =
                self.rewrite(source, &mut needs).map(|schema| (schema.to_string(), needs));
            if let Some(definition) = self.definitions.get_mut(next) {
                definition.converted = Some(converted);
            }
            next += 1;
        }
        Ok(ConvertedSchema { schema: schema?, needs })
    }

    /// The schema with the definitions that it reaches, as JSON of at most `max` bytes.
    ///
    /// # Errors
    /// [`SchemaFault`] of the schema, or of a definition.
    pub(super) fn write(
        &self,
        schema: &ConvertedSchema,
        max: usize,
    ) -> Result<String, SchemaFault> {
        let mut reached = BTreeSet::new();
        let mut open = schema.needs.clone();
        let mut json = schema.schema.to_string();
        let mut size = json.len();
        while let Some(at) = open.pop() {
            let Some(definition) = self.definitions.get(at).filter(|_| reached.insert(at)) else {
                continue;
            };
            let Some(converted) = &definition.converted else { continue };
            let (text, needs) = converted.as_ref().map_err(Clone::clone)?;
            size += text.len() + definition.name.len() + "\"\":,".len();
            if size > max {
                return Err(SchemaFault::TooLarge { max });
            }
            open.extend(needs);
        }
        if size > max {
            return Err(SchemaFault::TooLarge { max });
        }
        if reached.is_empty() {
            return Ok(json);
        }
        let reached = reached.iter().filter_map(|at| self.definitions.get(*at));
        let members: Vec<_> = reached
            .filter_map(|definition| {
                let (text, _) = definition.converted.as_ref()?.as_ref().ok()?;
                Some(format!("{}:{text}", Value::from(definition.name.as_str())))
            })
            .collect();
        json.pop();
        let comma = if json.len() > 1 { "," } else { "" };
        Ok(format!("{json}{comma}\"$defs\":{{{}}}}}", members.join(",")))
    }

    /// The definition of the place that a reference leads to, new if it is the first one there.
    fn define(&mut self, node: Node<'a>, target: &str) -> Result<usize, SchemaFault> {
        let (place, source) = node.target(target)?;
        if let Some(known) = self.places.get(&place) {
            return Ok(*known);
        }
        let name = place.pointer.rsplit('/').next().unwrap_or_default();
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let name: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
        let name = if name.is_empty() { "schema".to_owned() } else { name };
        let name = unused_name(&name, &mut self.names);
        let at = self.definitions.len();
        self.places.insert(place, at);
        self.definitions.push(Definition { name, source, converted: None });
        Ok(at)
    }

    fn link(
        &mut self,
        node: Node<'a>,
        target: &str,
        needs: &mut Vec<usize>,
    ) -> Result<String, SchemaFault> {
        let at = self.define(node, target)?;
        needs.push(at);
        let name = self.definitions.get(at).map_or("", |definition| &definition.name);
        Ok(format!("#/$defs/{name}"))
    }

    fn rewrite(&mut self, node: Node<'a>, needs: &mut Vec<usize>) -> Result<Value, SchemaFault> {
        let Some(members) = node.value.as_object() else {
            // `false` forbids; anything that is no schema allows everything.
            return Ok(if *node.value == json!(false) { json!(false) } else { json!({}) });
        };
        let is_old = self.dialect == SchemaDialect::V3_0;
        let target = node.reference();
        let mut schema = Map::new();
        if let Some(target) = target {
            schema.insert("$ref".into(), self.link(node, target, needs)?.into());
        }
        for (key, value) in members {
            // In 3.0, nothing beside a reference counts; people write descriptions all the same.
            if target.is_none() || !is_old || key == "description" {
                self.rewrite_keyword(&mut schema, key, node.with(value), needs)?;
            }
        }
        self.drop_hidden(&mut schema, node);
        if is_old {
            translate_bounds(&mut schema, members);
            if node.flag("nullable") {
                return Ok(allow_null(schema));
            }
        }
        Ok(Value::Object(schema))
    }

    fn rewrite_keyword(
        &mut self,
        schema: &mut Map<String, Value>,
        key: &str,
        node: Node<'a>,
        needs: &mut Vec<usize>,
    ) -> Result<(), SchemaFault> {
        let value = node.value;
        let kept = match key {
            "properties" | "patternProperties" | "dependentSchemas" => {
                let mut all = Map::new();
                for (name, member) in node.members() {
                    all.insert(name.to_owned(), self.rewrite(member, needs)?);
                }
                value.is_object().then_some(Value::Object(all))
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.rewrite_list(node, needs)?,
            // Before 2020-12, a list of schemas for the first items.
            "items" if value.is_array() => {
                let items = self.rewrite_list(node, needs)?;
                schema.extend(items.map(|items| ("prefixItems".to_owned(), items)));
                None
            }
            "items"
            | "additionalProperties"
            | "not"
            | "contains"
            | "if"
            | "then"
            | "else"
            | "propertyNames"
            | "unevaluatedItems"
            | "unevaluatedProperties" => {
                Some(self.rewrite(node, needs)?).filter(|_| value.is_object() || value.is_boolean())
            }
            "discriminator" => self.rewrite_discriminator(node, needs),
            "example" => {
                schema.entry("examples").or_insert_with(|| json!([value]));
                None
            }
            "format" if matches!(value.as_str(), Some("binary" | "byte")) => {
                schema.insert("contentEncoding".into(), "base64".into());
                None
            }
            _ => plain_keyword(key, value),
        };
        schema.extend(kept.map(|kept| (key.to_owned(), kept)));
        Ok(())
    }

    fn rewrite_list(
        &mut self,
        node: Node<'a>,
        needs: &mut Vec<usize>,
    ) -> Result<Option<Value>, SchemaFault> {
        let mut all = Vec::new();
        for item in node.items() {
            all.push(self.rewrite(item, needs)?);
        }
        Ok((!all.is_empty()).then_some(Value::Array(all)))
    }

    /// A discriminator is no rule of JSON Schema, but tells models which variant to take. Its
    /// mapping names definitions; entries that lead nowhere are left out.
    fn rewrite_discriminator(&mut self, node: Node<'a>, needs: &mut Vec<usize>) -> Option<Value> {
        let mut kept = node.value.as_object()?.clone();
        let mut mapping = Map::new();
        for (value, target) in node.find("mapping").into_iter().flat_map(Node::members) {
            let Some(target) = target.value.as_str() else { continue };
            let is_pointer = target.contains(['#', '/', '.']);
            let target =
                if is_pointer { target } else { &format!("#/components/schemas/{target}") };
            if let Ok(link) = self.link(node, target, needs) {
                mapping.insert(value.to_owned(), link.into());
            }
        }
        kept.retain(|key, _| key == "propertyName");
        if !mapping.is_empty() {
            kept.insert("mapping".into(), mapping.into());
        }
        Some(kept.into())
    }

    /// Removes the properties that do not travel this way.
    fn drop_hidden(&self, schema: &mut Map<String, Value>, node: Node<'a>) {
        let hidden_by = match self.direction {
            Direction::Request => "readOnly",
            Direction::Response => "writeOnly",
        };
        let properties = node.find("properties").into_iter().flat_map(Node::members);
        let is_hidden = |member: &Node<'_>| {
            member.flag(hidden_by) || member.resolve().is_ok_and(|it| it.flag(hidden_by))
        };
        let hidden: HashSet<_> =
            properties.filter(|(_, member)| is_hidden(member)).map(|(name, _)| name).collect();
        if hidden.is_empty() {
            return;
        }
        if let Some(Value::Object(properties)) = schema.get_mut("properties") {
            properties.retain(|name, _| !hidden.contains(name.as_str()));
        }
        if let Some(Value::Array(required)) = schema.get_mut("required") {
            required.retain(|name| !name.as_str().is_some_and(|name| hidden.contains(name)));
        }
    }
}

/// A keyword whose value is no schema, if it is one of 2020-12 and its value is allowed.
fn plain_keyword(key: &str, value: &Value) -> Option<Value> {
    let is_kept = match key {
        "type" => return allowed_type(value),
        "required" => return distinct_texts(value),
        "enum" => value.as_array().is_some_and(|values| !values.is_empty()),
        "examples" => value.is_array(),
        "const" | "default" => true,
        "title" | "description" | "format" | "pattern" | "contentEncoding" | "contentMediaType" => {
            value.is_string()
        }
        "multipleOf" => value.as_f64().is_some_and(|number| number > 0.0),
        "maximum" | "minimum" | "exclusiveMaximum" | "exclusiveMinimum" => value.is_number(),
        "maxLength" | "minLength" | "maxItems" | "minItems" | "maxProperties" | "minProperties"
        | "maxContains" | "minContains" => value.is_u64(),
        "uniqueItems" | "deprecated" => value.is_boolean(),
        _ => false,
    };
    is_kept.then(|| value.clone())
}

fn allowed_type(value: &Value) -> Option<Value> {
    const TYPES: [&str; 7] = ["null", "boolean", "object", "array", "number", "string", "integer"];
    let is_type = |value: &Value| value.as_str().is_some_and(|name| TYPES.contains(&name));
    match value {
        Value::Array(all) => {
            let mut kept: Vec<_> = all.iter().filter(|value| is_type(value)).cloned().collect();
            kept.dedup();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        // The files of older versions are texts in base64.
        Value::String(name) if name == "file" => Some("string".into()),
        value => is_type(value).then(|| value.clone()),
    }
}

fn distinct_texts(value: &Value) -> Option<Value> {
    let mut seen = HashSet::new();
    let texts = value.as_array()?.iter().filter_map(Value::as_str);
    let texts: Vec<_> = texts.filter(|text| seen.insert(*text)).collect();
    Some(texts.into())
}

/// In 3.0, `exclusiveMinimum: true` makes `minimum` exclusive; likewise the maximum.
fn translate_bounds(schema: &mut Map<String, Value>, members: &Map<String, Value>) {
    for (exclusive, bound) in [("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")] {
        if members.get(exclusive) == Some(&Value::Bool(true))
            && let Some(value) = schema.remove(bound)
        {
            schema.insert(exclusive.into(), value);
        }
    }
}

/// In 3.0, `nullable: true` allows `null` besides the type.
fn allow_null(mut schema: Map<String, Value>) -> Value {
    if schema.is_empty() {
        return Value::Object(schema);
    }
    let Some(Value::String(name)) = schema.get("type") else {
        return json!({ "anyOf": [schema, { "type": "null" }] });
    };
    let both = json!([name, "null"]);
    schema.insert("type".into(), both);
    if let Some(Value::Array(values)) = schema.get_mut("enum")
        && !values.contains(&Value::Null)
    {
        values.push(Value::Null);
    }
    Value::Object(schema)
}

/// The name, or with the first free number after it.
pub(super) fn unused_name(name: &str, taken: &mut HashSet<String>) -> String {
    let numbered = (2..).map(|number: u32| format!("{name}_{number}"));
    let mut names = std::iter::once(name.to_owned()).chain(numbered);
    let free = names.find(|name| !taken.contains(name)).unwrap_or_default();
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests;
