//! An index of a schema's subschemas and reference targets.

use std::borrow::Cow;
use std::collections::HashMap;

use percent_encoding::percent_decode_str;
use serde_json::{Map, Value};
use url::Url;

use super::SchemaNode;
use crate::clip_foreign_text;
use crate::schema::SchemaError;

/// The index of all subschemas; every reference must resolve to one of them.
pub(super) struct SchemaIndex<'a> {
    id: &'static str,
    /// By memory address: the node, and the index of its base in `bases`.
    nodes: HashMap<usize, (SchemaNode<'a>, usize)>,
    order: Vec<SchemaNode<'a>>,
    bases: Vec<Url>,
    /// By absolute URL without fragment.
    resources: HashMap<String, &'a Value>,
    /// By absolute URL with fragment.
    anchors: HashMap<String, SchemaNode<'a>>,
    /// `$dynamicAnchor`s by name, `$recursiveAnchor`s under the empty name. The target depends on
    /// the evaluation path, so all candidates count.
    dynamic: HashMap<&'a str, Vec<SchemaNode<'a>>>,
}

impl<'a> SchemaIndex<'a> {
    /// `id` is the keyword that identifies a subschema: draft-04 has a different one.
    pub(super) fn new(schema: &'a Value, id: &'static str) -> Result<Self, SchemaError> {
        // The base URL of a schema without `$id`.
        let root = Url::parse("json-schema:///").map_err(|_| unresolved_reference("$id"))?;
        let mut index = Self {
            id,
            nodes: HashMap::new(),
            order: Vec::new(),
            resources: HashMap::from([(root.to_string(), schema)]),
            bases: vec![root],
            anchors: HashMap::new(),
            dynamic: HashMap::new(),
        };
        let mut open = vec![(schema, 0)];
        while let Some((value, base)) = open.pop() {
            match value {
                Value::Array(items) => open.extend(items.iter().map(|item| (item, base))),
                Value::Object(node) => {
                    let base = index.index_node(value, node, base)?;
                    open.extend(nested_values(node).map(|value| (value, base)));
                }
                _ => {}
            }
        }
        Ok(index)
    }

    /// All subschemas, in the order found.
    pub(super) fn all_nodes(&self) -> impl Iterator<Item = SchemaNode<'a>> + '_ {
        self.order.iter().copied()
    }

    /// The subschemas that `node` applies to the value it is applied to.
    pub(super) fn schemas_on_same_value(
        &self,
        node: SchemaNode<'a>,
    ) -> Result<Vec<SchemaNode<'a>>, SchemaError> {
        let mut found: Vec<_> = SAME_VALUE.iter().filter_map(|key| node.get(*key)).collect();
        let maps = ["dependentSchemas", "dependencies"];
        let maps = maps.iter().filter_map(|key| node.get(*key)?.as_object());
        found.extend(maps.flat_map(Map::values));
        let mut next: Vec<_> = found.into_iter().flat_map(nested_objects).collect();
        for key in REFERENCE_KEYWORDS {
            if let Some(Value::String(target)) = node.get(key) {
                next.extend(self.resolve_reference(node, target)?);
                let name = target.rsplit_once('#').map_or("", |(_, name)| name);
                if key != "$ref" {
                    next.extend(self.dynamic.get(name).into_iter().flatten());
                }
            }
        }
        Ok(next)
    }

    /// The keywords of `node` with references that lead to nothing within the schema.
    pub(super) fn dangling_references(
        &self,
        node: SchemaNode<'a>,
    ) -> impl Iterator<Item = &'static str> {
        REFERENCE_KEYWORDS.into_iter().filter(move |key| match node.get(*key) {
            Some(Value::String(target)) => self.resolve_reference(node, target).is_err(),
            _ => false,
        })
    }

    /// The subschemas that `node` applies to parts of the value.
    pub(super) fn child_schemas(node: SchemaNode<'a>) -> impl Iterator<Item = SchemaNode<'a>> {
        let maps = ["properties", "patternProperties"];
        let maps = maps.into_iter().filter_map(|key| node.get(key)?.as_object());
        let singles = PART_KEYWORDS.iter().filter_map(|key| node.get(*key));
        maps.flat_map(Map::values).chain(singles).flat_map(nested_objects)
    }

    /// Adds one subschema to the index; returns the base URL within it.
    fn index_node(
        &mut self,
        value: &'a Value,
        node: SchemaNode<'a>,
        outer: usize,
    ) -> Result<usize, SchemaError> {
        let is_root = self.order.is_empty();
        let mut base = outer;
        if let Some(Value::String(id)) = node.get(self.id) {
            if !is_root && node.contains_key("$ref") {
                // Drafts disagree on which of the two applies.
                return Err(unresolved_reference(id));
            }
            let absolute = self.resolve_url(outer, id)?;
            match absolute.fragment() {
                // Some generators write the subschema's own path: that identifies nothing.
                Some(name) if name.starts_with('/') => {}
                Some(name) if !name.is_empty() => self.index_anchor(absolute.as_str(), node)?,
                _ => base = self.index_resource(absolute, value, is_root)?,
            }
        }
        for key in ["$anchor", "$dynamicAnchor"] {
            if let Some(Value::String(name)) = node.get(key) {
                let absolute = self.resolve_url(base, &format!("#{name}"))?;
                self.index_anchor(absolute.as_str(), node)?;
            }
        }
        if let Some(Value::String(name)) = node.get("$dynamicAnchor") {
            self.dynamic.entry(name).or_default().push(node);
        }
        if node.get("$recursiveAnchor") == Some(&Value::Bool(true)) {
            self.dynamic.entry("").or_default().push(node);
        }
        if !is_root && let Some(dialect @ Value::String(_)) = node.get("$schema") {
            // A second dialect within one schema would have its own rules.
            return Err(SchemaError::UnsupportedDialect {
                dialect: clip_foreign_text(&dialect.to_string()),
            });
        }
        self.nodes.insert(node_address(node), (node, base));
        self.order.push(node);
        Ok(base)
    }

    fn index_resource(
        &mut self,
        mut id: Url,
        at: &'a Value,
        is_root: bool,
    ) -> Result<usize, SchemaError> {
        id.set_fragment(None);
        let clash = self.resources.insert(id.to_string(), at).is_some();
        if clash && !is_root {
            return Err(SchemaError::Redefined { target: clip_foreign_text(id.as_str()) });
        }
        self.bases.push(id);
        Ok(self.bases.len() - 1)
    }

    fn index_anchor(&mut self, absolute: &str, node: SchemaNode<'a>) -> Result<(), SchemaError> {
        match self.anchors.insert(absolute.to_owned(), node) {
            Some(other) if node_address(other) != node_address(node) => {
                Err(SchemaError::Redefined { target: clip_foreign_text(absolute) })
            }
            _ => Ok(()),
        }
    }

    fn resolve_url(&self, base: usize, target: &str) -> Result<Url, SchemaError> {
        let base = self.bases.get(base).ok_or_else(|| unresolved_reference(target))?;
        base.join(target).map_err(|_| unresolved_reference(target))
    }

    /// Resolves a reference: to a subschema, or to nothing for `true` and `false`.
    fn resolve_reference(
        &self,
        from: SchemaNode<'a>,
        target: &str,
    ) -> Result<Option<SchemaNode<'a>>, SchemaError> {
        let base = self.nodes.get(&node_address(from)).map_or(0, |(_, base)| *base);
        let mut absolute = self.resolve_url(base, target)?;
        let fragment = absolute.fragment().unwrap_or_default();
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let anchored = self.anchors.get(absolute.as_str()).copied();
            return anchored.map(Some).ok_or_else(|| unresolved_reference(target));
        }
        let pointer = decode_fragment(fragment);
        absolute.set_fragment(None);
        let found = self.resources.get(absolute.as_str()).zip(pointer);
        match found.and_then(|(resource, pointer)| resource.pointer(&pointer)) {
            Some(Value::Object(node)) if self.nodes.contains_key(&node_address(node)) => {
                Ok(Some(node))
            }
            Some(Value::Bool(_)) => Ok(None),
            _ => Err(unresolved_reference(target)),
        }
    }
}

/// A subschema's memory address: its identity while the schema is borrowed.
pub(super) fn node_address(node: SchemaNode<'_>) -> usize {
    std::ptr::from_ref(node).addr()
}

/// The values below a subschema that are or may be subschemas: the value of an unknown keyword
/// could be the target of a reference.
fn nested_values(node: SchemaNode<'_>) -> impl Iterator<Item = &Value> {
    node.iter().flat_map(|(key, value)| {
        let map = MAP_KEYWORDS.contains(&key.as_str()).then(|| value.as_object()).flatten();
        let single = (!MAP_KEYWORDS.contains(&key.as_str())
            && !DATA_KEYWORDS.contains(&key.as_str()))
        .then_some(value);
        map.into_iter().flat_map(Map::values).chain(single)
    })
}

/// The objects of a keyword's value: the value itself, or its items.
fn nested_objects(value: &Value) -> impl Iterator<Item = SchemaNode<'_>> {
    let items = value.as_array().into_iter().flatten().filter_map(Value::as_object);
    value.as_object().into_iter().chain(items)
}

/// A percent-decoded fragment.
fn decode_fragment(fragment: &str) -> Option<String> {
    percent_decode_str(fragment).decode_utf8().ok().map(Cow::into_owned)
}

fn unresolved_reference(target: &str) -> SchemaError {
    SchemaError::Reference { target: clip_foreign_text(target) }
}

/// Keywords with a value that maps names to subschemas.
const MAP_KEYWORDS: [&str; 6] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"];
/// Keywords with a value that is data, of any shape.
const DATA_KEYWORDS: [&str; 5] = ["const", "enum", "default", "examples", "example"];
/// Keywords that refer to another subschema.
pub(crate) const REFERENCE_KEYWORDS: [&str; 3] = ["$ref", "$dynamicRef", "$recursiveRef"];
/// Keywords that apply subschemas to the same value.
const SAME_VALUE: [&str; 7] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else"];
/// Keywords that apply subschemas to parts of the value.
const PART_KEYWORDS: [&str; 8] = [
    "items",
    "prefixItems",
    "additionalItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
];
