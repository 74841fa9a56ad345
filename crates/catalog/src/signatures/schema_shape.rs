//! The shape of a JSON Schema: the part of it that signatures and TypeScript declarations print.
//!
//! A shape is one schema deep; its parts are schemas, which a printer reads in turn while it has
//! room. The depth that a reader accepts bounds schemas that refer to themselves. Definitions are
//! untrusted and may be no valid schemas.

use serde_json::{Map, Value};

/// The shape of a schema.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SchemaShape<'a> {
    /// Any value: `true`, or no schema.
    Any,
    /// No value: `false`.
    Never,
    /// A schema beyond the depth of the reader.
    TooDeep,
    /// A reference to a schema of the same document; `None` if it leads elsewhere.
    Reference(Option<&'a Value>),
    /// One of these values.
    Values(&'a [Value]),
    /// Any value that follows the rules.
    Rules(SchemaRules<'a>),
}

/// A schema with neither a reference nor fixed values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaRules<'a>(&'a Map<String, Value>);

/// The kinds of values that a schema allows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SchemaKinds<'a> {
    /// The kind in `type`.
    One(&'a str),
    /// The kinds in `type`.
    Listed(&'a [Value]),
    /// The kind that the other rules are for, in a schema without `type`.
    Implied(&'static str),
    All,
}

/// Further members of an object, beside its properties.
#[derive(Debug, Clone, Copy)]
pub(crate) enum FurtherMembers<'a> {
    Forbidden,
    Any,
    Typed(&'a Value),
}

/// A property of an object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaMember<'a> {
    pub(crate) name: &'a str,
    pub(crate) schema: &'a Value,
    pub(crate) is_required: bool,
}

/// Bounds of the properties of one object.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MemberBounds {
    /// The most properties that are returned.
    pub(crate) shown: usize,
    /// The most properties that are searched for required ones.
    pub(crate) searched: usize,
}

/// Reads the schemas of one document.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchemaReader<'a> {
    /// The target of local references.
    pub(crate) root: &'a Map<String, Value>,
    pub(crate) max_depth: usize,
}

impl<'a> SchemaReader<'a> {
    pub(crate) fn read(&self, schema: &'a Value, depth: usize) -> SchemaShape<'a> {
        match schema {
            Value::Object(rules) => self.read_rules(rules, depth),
            Value::Bool(false) => SchemaShape::Never,
            _ => SchemaShape::Any,
        }
    }

    /// Reads a schema that is an object. A reference hides its other rules, fixed values those for
    /// kinds.
    pub(crate) fn read_rules(
        &self,
        rules: &'a Map<String, Value>,
        depth: usize,
    ) -> SchemaShape<'a> {
        if depth > self.max_depth {
            return SchemaShape::TooDeep;
        }
        if let Some(target) = rules.get("$ref").and_then(Value::as_str) {
            return SchemaShape::Reference(resolve_reference(self.root, target));
        }
        let one = || rules.get("const").map(std::slice::from_ref);
        let values = find_array(rules, "enum").or_else(one);
        values.map_or(SchemaShape::Rules(SchemaRules(rules)), SchemaShape::Values)
    }
}

impl<'a> SchemaRules<'a> {
    /// The schemas of `anyOf`, then those of `oneOf`.
    pub(crate) fn unions(self) -> impl Iterator<Item = &'a [Value]> {
        ["anyOf", "oneOf"].into_iter().filter_map(move |keyword| find_array(self.0, keyword))
    }

    pub(crate) fn all_of(self) -> Option<&'a [Value]> {
        find_array(self.0, "allOf")
    }

    pub(crate) fn kinds(self) -> SchemaKinds<'a> {
        let has = |keyword| self.0.contains_key(keyword);
        match self.0.get("type") {
            Some(Value::String(kind)) => SchemaKinds::One(kind),
            Some(Value::Array(kinds)) => SchemaKinds::Listed(kinds),
            _ if has("properties") => SchemaKinds::Implied("object"),
            _ if has("items") || has("prefixItems") => SchemaKinds::Implied("array"),
            _ => SchemaKinds::All,
        }
    }

    /// Returns true if there are rules for the members or items of a value.
    pub(crate) fn has_parts(self) -> bool {
        let keywords = ["properties", "additionalProperties", "items", "prefixItems"];
        keywords.iter().any(|keyword| self.0.contains_key(*keyword))
    }

    /// The schema of all items of an array.
    pub(crate) fn items(self) -> Option<&'a Value> {
        self.0.get("items")
    }

    /// The schemas of the first items of an array.
    pub(crate) fn first_items(self) -> Option<&'a [Value]> {
        find_array(self.0, "prefixItems")
    }

    pub(crate) fn further_members(self) -> FurtherMembers<'a> {
        match self.0.get("additionalProperties") {
            Some(Value::Bool(false)) => FurtherMembers::Forbidden,
            Some(schema @ Value::Object(_)) => FurtherMembers::Typed(schema),
            _ => FurtherMembers::Any,
        }
    }

    /// The properties of an object ([`read_members`]).
    pub(crate) fn members(self, bounds: MemberBounds) -> (Vec<SchemaMember<'a>>, bool) {
        read_members(self.0, bounds)
    }

    /// Returns true if the value may also be null, as `OpenAPI` states it.
    pub(crate) fn is_nullable(self) -> bool {
        self.0.get("nullable") == Some(&Value::Bool(true))
    }
}

/// Returns the properties of an object, required ones first, and true if some are omitted.
pub(crate) fn read_members(
    rules: &Map<String, Value>,
    bounds: MemberBounds,
) -> (Vec<SchemaMember<'_>>, bool) {
    let Some(properties) = rules.get("properties").and_then(Value::as_object) else {
        return (Vec::new(), false);
    };
    let required = find_array(rules, "required").unwrap_or_default().iter();
    let required: Vec<_> = required.filter_map(Value::as_str).take(bounds.shown).collect();
    let members = properties.iter().take(bounds.searched).map(|(name, schema)| {
        let is_required = required.contains(&name.as_str());
        SchemaMember { name, schema, is_required }
    });
    let (first, last): (Vec<_>, Vec<_>) = members.partition(|member| member.is_required);
    let shown = first.into_iter().chain(last).take(bounds.shown).collect();
    (shown, properties.len() > bounds.shown)
}

/// Finds the target of a local reference: a JSON pointer of two steps.
fn resolve_reference<'a>(root: &'a Map<String, Value>, target: &str) -> Option<&'a Value> {
    let (folder, name) = target.strip_prefix("#/")?.split_once('/')?;
    let is_definition = matches!(folder, "$defs" | "definitions") && !name.contains('/');
    is_definition.then(|| root.get(folder)?.get(name)).flatten()
}

fn find_array<'a>(rules: &'a Map<String, Value>, keyword: &str) -> Option<&'a [Value]> {
    rules.get(keyword)?.as_array().map(Vec::as_slice)
}
