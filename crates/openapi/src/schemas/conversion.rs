//! Conversion of a document's schemas to JSON Schema 2020-12.
//!
//! A reference stays a reference. Every component that it leads to becomes a definition, which is
//! converted once for all tools, and a tool contains those that it reaches. So cycles are kept and
//! schemas stay small. Keywords that 2020-12 does not have, or with a value of the wrong type, are
//! left out: the catalog rejects invalid schemas, and a tool without one rule is more useful than
//! no tool.

mod keywords;

use std::collections::{BTreeSet, HashMap, HashSet};

use serde_json::{Map, Value, json};

use trunkline_catalog::{MAX_SCHEMA_DEPTH, is_usable_pattern};
use trunkline_core::text::{clip, escape_pointer_step};

use super::names::TakenNames;
use super::references::{Node, ReferenceFault, SchemaPlace};
use keywords::{allow_null, plain_keyword, translate_bounds};

/// Schema dialect of a document's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SchemaDialect {
    /// OpenAPI 3.0: a dialect of its own.
    V3_0,
    /// OpenAPI 3.1: JSON Schema 2020-12.
    V3_1,
}

/// Direction in which a schema's values travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// To the server. Properties that are `readOnly` are left out.
    Request,
    /// From the server. Properties that are `writeOnly` are left out.
    Response,
}

/// A node, and its depth in the converted schema.
#[derive(Clone, Copy)]
struct DeepNode<'a> {
    node: Node<'a>,
    depth: usize,
}

/// A converted schema, and the definitions to which it refers directly.
#[derive(Debug, Clone)]
pub(crate) struct ConvertedSchema {
    pub(crate) schema: Value,
    needs: Vec<usize>,
}

impl ConvertedSchema {
    /// Creates a schema without references.
    pub(crate) fn plain(schema: Value) -> Self {
        Self { schema, needs: Vec::new() }
    }

    /// Returns the same definitions with another schema, which may contain this one.
    pub(crate) fn wrap(self, wrap: impl FnOnce(Value) -> Value) -> Self {
        Self { schema: wrap(self.schema), needs: self.needs }
    }

    /// Returns the schema alone, and adds its definitions to `needs`.
    pub(crate) fn part_into(self, needs: &mut Vec<usize>) -> Value {
        needs.extend(self.needs);
        self.schema
    }

    /// Creates a schema with these definitions.
    pub(crate) fn of_parts(schema: Value, needs: Vec<usize>) -> Self {
        Self { schema, needs }
    }
}

/// Fault that makes a schema unusable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SchemaFault {
    /// A reference cannot be resolved.
    #[error(transparent)]
    Reference(#[from] ReferenceFault),
    /// The schema with its definitions is too large for one tool.
    #[error("its schema with all references resolved has more than {max} bytes")]
    TooLarge {
        /// The bound.
        max: usize,
    },
    /// References expand the document's schemas beyond the limit.
    #[error("the document's schemas are too large with all references resolved")]
    Exhausted,
}

/// Schemas of a document that travel in one direction.
pub(crate) struct SchemaBook<'a> {
    dialect: SchemaDialect,
    direction: Direction,
    places: HashMap<SchemaPlace, usize>,
    names: TakenNames,
    definitions: Vec<Definition<'a>>,
    /// Number of bytes left for definitions.
    room: usize,
    /// Patterns so far. True for each one that can be used.
    patterns: HashMap<&'a str, bool>,
}

struct Definition<'a> {
    name: String,
    source: Node<'a>,
    /// The schema as JSON, and the definitions to which it refers. `None` until it is converted.
    converted: Option<Result<(String, Vec<usize>), SchemaFault>>,
}

impl<'a> SchemaBook<'a> {
    pub(crate) fn new(dialect: SchemaDialect, direction: Direction) -> Self {
        let (places, names, definitions, patterns) = Default::default();
        let room = MAX_DEFINITION_BYTES;
        Self { dialect, direction, places, names, definitions, room, patterns }
    }

    /// Converts a schema, and the definitions that it reaches.
    ///
    /// # Errors
    /// [`SchemaFault`] if one of its own references cannot be resolved.
    pub(crate) fn convert(&mut self, node: Node<'a>) -> Result<ConvertedSchema, SchemaFault> {
        let mut needs = Vec::new();
        let first = self.definitions.len();
        let schema = self.rewrite(node, ROOT_DEPTH, &mut needs);
        // Not recursive: a chain of components may be as long as the document.
        let mut next = first;
        while let Some(source) = self.definitions.get(next).map(|definition| definition.source) {
            let converted = self.convert_definition(source);
            if let Some(definition) = self.definitions.get_mut(next) {
                definition.converted = Some(converted);
            }
            next += 1;
        }
        Ok(ConvertedSchema { schema: schema?, needs })
    }

    fn convert_definition(
        &mut self,
        source: Node<'a>,
    ) -> Result<(String, Vec<usize>), SchemaFault> {
        let mut needs = Vec::new();
        if self.room == 0 || !source.count_looks(1) {
            return Err(SchemaFault::Exhausted);
        }
        let text = self.rewrite(source, ROOT_DEPTH, &mut needs)?.to_string();
        // Nested targets are converted separately, so their text counts more than once.
        let left = self.room.checked_sub(text.len());
        self.room = left.unwrap_or(0);
        left.map(|_| (text, needs)).ok_or(SchemaFault::Exhausted)
    }

    /// Returns the schema with the definitions that it reaches, as JSON of at most `max` bytes.
    ///
    /// # Errors
    /// [`SchemaFault`] of the schema, or of a definition.
    pub(crate) fn write(
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
            if !definition.source.count_looks(1) {
                return Err(SchemaFault::Exhausted);
            }
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

    /// Returns the definition for the target of a reference. Creates it on the first reference.
    fn define(&mut self, node: Node<'a>, target: &str) -> Result<usize, SchemaFault> {
        let (place, source) = node.target(target)?;
        if let Some(known) = self.places.get(&place) {
            return Ok(*known);
        }
        let name =
            clip(place.pointer.rsplit('/').next().unwrap_or_default(), MAX_DEFINITION_NAME_BYTES);
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        let name: String = name.chars().map(|c| if allowed(c) { c } else { '_' }).collect();
        let name = if name.is_empty() { "schema".to_owned() } else { name };
        let name = self.names.take(&name);
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

    /// Converts the schema at a depth in the tool's schema.
    fn rewrite(
        &mut self,
        node: Node<'a>,
        depth: usize,
        needs: &mut Vec<usize>,
    ) -> Result<Value, SchemaFault> {
        let Some(members) = node.value.as_object().filter(|_| depth < MAX_SCHEMA_DEPTH) else {
            // `false` forbids everything. A value that is not a schema, or nested too deeply,
            // allows everything.
            return Ok(if *node.value == json!(false) { json!(false) } else { json!({}) });
        };
        let is_old = self.dialect == SchemaDialect::V3_0;
        let target = node.reference();
        let mut schema = Map::new();
        if let Some(target) = target {
            schema.insert("$ref".into(), self.link(node, target, needs)?.into());
        }
        for (key, member) in node.members() {
            // In 3.0, siblings of a reference are ignored, but documents contain descriptions there
            // nevertheless.
            if target.is_none() || !is_old || key == "description" {
                let kept = if key == "discriminator" {
                    self.rewrite_discriminator(node, member)
                } else {
                    let member = DeepNode { node: member, depth };
                    self.rewrite_keyword(&mut schema, key, member, needs)?
                };
                schema.extend(kept.map(|kept| (key.to_owned(), kept)));
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
        member: DeepNode<'a>,
        needs: &mut Vec<usize>,
    ) -> Result<Option<Value>, SchemaFault> {
        let DeepNode { node, depth } = member;
        let value = node.value;
        Ok(match key {
            "properties" | "patternProperties" | "dependentSchemas" => {
                self.rewrite_members(key, member, needs)?
            }
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => self.rewrite_list(node, depth, needs)?,
            // Before 2020-12, a list of schemas for the first items.
            "items" if value.is_array() => {
                let items = self.rewrite_list(node, depth, needs)?;
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
            | "unevaluatedProperties" => Some(self.rewrite(node, depth + 1, needs)?)
                .filter(|_| value.is_object() || value.is_boolean()),
            "pattern" => {
                let text = value.as_str().filter(|text| self.can_use(text));
                text.map(Into::into)
            }
            "example" => {
                let example = node.copy_within(MAX_SCHEMA_DEPTH.saturating_sub(depth + 2));
                if let Some(example) = example {
                    schema.entry("examples").or_insert_with(|| json!([example]));
                }
                None
            }
            "format" if matches!(value.as_str(), Some("binary" | "byte")) => {
                schema.insert("contentEncoding".into(), "base64".into());
                None
            }
            _ => plain_keyword(key, node, depth),
        })
    }

    fn rewrite_members(
        &mut self,
        key: &str,
        member: DeepNode<'a>,
        needs: &mut Vec<usize>,
    ) -> Result<Option<Value>, SchemaFault> {
        let DeepNode { node, depth } = member;
        let mut all = Map::new();
        for (name, member) in node.members() {
            if key != "patternProperties" || self.can_use(name) {
                all.insert(name.to_owned(), self.rewrite(member, depth + 2, needs)?);
            }
        }
        Ok(node.value.is_object().then_some(Value::Object(all)))
    }

    fn rewrite_list(
        &mut self,
        node: Node<'a>,
        depth: usize,
        needs: &mut Vec<usize>,
    ) -> Result<Option<Value>, SchemaFault> {
        let mut all = Vec::new();
        for item in node.items() {
            all.push(self.rewrite(item, depth + 2, needs)?);
        }
        Ok((!all.is_empty()).then_some(Value::Array(all)))
    }

    /// Returns true if the catalog can compile a pattern. Documents contain patterns of other
    /// languages, too.
    fn can_use(&mut self, pattern: &'a str) -> bool {
        let has_room = self.patterns.len() < MAX_PATTERNS;
        *self.patterns.entry(pattern).or_insert_with(|| has_room && is_usable_pattern(pattern))
    }

    /// Converts a discriminator. It is not a rule of JSON Schema, but shows models which variant to
    /// choose. Its mapping keeps only the definitions of the variants, because any other would only
    /// enlarge the tool.
    fn rewrite_discriminator(&mut self, schema: Node<'a>, node: Node<'a>) -> Option<Value> {
        let mut kept = Map::new();
        kept.insert("propertyName".into(), node.text("propertyName")?.into());
        let lists = ["oneOf", "anyOf"].into_iter().filter_map(|key| schema.find(key));
        let variants = lists.flat_map(Node::items).filter_map(Node::reference);
        let variants: HashSet<_> =
            variants.filter_map(|target| self.define(node, target).ok()).collect();
        let mut mapping = Map::new();
        for (value, target) in node.find("mapping").into_iter().flat_map(Node::members) {
            let Some(target) = target.value.as_str() else { continue };
            // The name of a component, even with dots in it, or a reference.
            let component = format!("#/components/schemas/{}", escape_pointer_step(target));
            let found = [component.as_str(), target].into_iter();
            let mut found =
                found.filter_map(|target| self.places.get(&node.target(target).ok()?.0));
            let Some(at) = found.next().copied().filter(|at| variants.contains(at)) else {
                continue;
            };
            let name = self.definitions.get(at).map_or("", |definition| &definition.name);
            mapping.insert(value.to_owned(), format!("#/$defs/{name}").into());
        }
        if !mapping.is_empty() {
            kept.insert("mapping".into(), mapping.into());
        }
        Some(kept.into())
    }

    /// Removes the properties that do not travel in this direction. `required` may name those of
    /// other parts of an `allOf`.
    fn drop_hidden(&self, schema: &mut Map<String, Value>, node: Node<'a>) {
        let mut hidden = HashSet::new();
        self.find_hidden(node, COMPOSED_DEPTH, &mut hidden);
        if hidden.is_empty() {
            return;
        }
        drop_properties(schema, &hidden);
        let parts = schema.get_mut("allOf").and_then(Value::as_array_mut);
        for part in parts.into_iter().flatten().filter_map(Value::as_object_mut) {
            drop_properties(part, &hidden);
        }
    }

    fn find_hidden(&self, node: Node<'a>, depth: usize, hidden: &mut HashSet<&'a str>) {
        let hidden_by = match self.direction {
            Direction::Request => "readOnly",
            Direction::Response => "writeOnly",
        };
        let properties = node.find("properties").into_iter().flat_map(Node::members);
        let is_hidden = |member: &Node<'_>| {
            member.flag(hidden_by) || member.resolve().is_ok_and(|it| it.flag(hidden_by))
        };
        hidden.extend(properties.filter(|(_, it)| is_hidden(it)).map(|(name, _)| name));
        if depth > 0 {
            let parts = node.find("allOf").into_iter().flat_map(Node::items);
            for part in parts.filter_map(|part| part.resolve().ok()) {
                self.find_hidden(part, depth - 1, hidden);
            }
        }
    }
}

fn drop_properties(schema: &mut Map<String, Value>, hidden: &HashSet<&str>) {
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|name, _| !hidden.contains(name.as_str()));
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|name| !name.as_str().is_some_and(|name| hidden.contains(name)));
    }
}

/// Depth of an argument's root, and of a definition's, in a tool's schema: below `properties` or
/// `$defs` and a name, and perhaps within an `anyOf`.
const ROOT_DEPTH: usize = 5;
/// Maximum depth at which parts of an `allOf` are searched for hidden properties.
const COMPOSED_DEPTH: usize = 4;
/// Maximum size in bytes of all definitions that travel in one direction.
const MAX_DEFINITION_BYTES: usize = 64 * 1024 * 1024;
/// Maximum number of patterns of a document that are tried. Others are left out.
const MAX_PATTERNS: usize = 2000;
/// Maximum length in bytes of a definition's name.
const MAX_DEFINITION_NAME_BYTES: usize = 100;

#[cfg(test)]
mod tests;
