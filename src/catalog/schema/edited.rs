//! The schema that clients see of a tool whose arguments the configuration changes.
//!
//! Names are changed wherever a schema applies to the arguments themselves: at its root, in
//! `allOf` and the like, and behind references there. A rule that no longer says anything about what
//! clients send, such as an `if` about a fixed value, is left out: the arguments are checked against
//! the server's own schema as well, once they are complete.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use serde_json::{Map, Value, json};

use crate::config::{ArgumentEdit, ArgumentValue};

/// Why the arguments of a tool cannot be changed as configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentEditFault {
    /// The new name of an argument is that of another one.
    #[error("argument {argument:?} cannot be called {name:?}: the tool has another of this name")]
    NameTaken {
        /// The argument, by the server's own name.
        argument: String,
        /// The configured name.
        name: String,
    },
}

/// The schema for clients, as `edits` change the server's own.
///
/// # Errors
/// [`ArgumentEditFault`] if two arguments would have the same name.
pub(in crate::catalog) fn edit_schema(
    schema: &Map<String, Value>,
    edits: &[(String, ArgumentEdit)],
) -> Result<Map<String, Value>, ArgumentEditFault> {
    let changes = SchemaChanges::new(schema, edits);
    let declared = declared_arguments(schema);
    for (argument, edit) in edits {
        let Some(name) = &edit.rename else { continue };
        let stays = !changes.hidden.contains(&**name) && !changes.renamed.contains_key(&**name);
        if stays && declared.contains(&**name) && name != argument {
            let (argument, name) = (argument.clone(), name.clone());
            return Err(ArgumentEditFault::NameTaken { argument, name });
        }
    }
    let mut edited = changes.edit_level(schema, 0).0;
    let properties = edited.entry("properties").or_insert_with(|| json!({}));
    if let Value::Object(properties) = properties {
        for (argument, edit) in edits.iter().filter(|(_, edit)| !edit.is_hidden()) {
            describe_argument(properties, argument, edit);
        }
    }
    Ok(edited)
}

/// The names that a schema declares for the arguments themselves.
pub(in crate::catalog) fn declared_arguments(schema: &Map<String, Value>) -> HashSet<&str> {
    let mut names = HashSet::new();
    let mut levels = vec![(schema, 0)];
    let mut visits = 0;
    while let Some((level, depth)) = levels.pop().filter(|_| visits < MAX_VISITS) {
        visits += 1;
        if let Some(Value::Object(properties)) = level.get("properties") {
            names.extend(properties.keys().map(String::as_str));
        }
        if depth < MAX_LEVELS {
            let inner = inner_levels(schema, level).into_iter();
            levels.extend(inner.map(|inner| (inner, depth + 1)));
        }
    }
    names
}

/// The names that a schema requires.
pub(in crate::catalog) fn required_arguments(schema: &Map<String, Value>) -> HashSet<Box<str>> {
    let required = schema.get("required").and_then(Value::as_array);
    required.into_iter().flatten().filter_map(Value::as_str).map(Box::from).collect()
}

/// Adds what the configuration says about an argument that clients see.
fn describe_argument(properties: &mut Map<String, Value>, argument: &str, edit: &ArgumentEdit) {
    let name = edit.rename.as_deref().unwrap_or(argument);
    let property = properties.entry(name).or_insert_with(|| json!({}));
    if *property == Value::Bool(true) {
        *property = json!({});
    }
    let Value::Object(property) = property else { return };
    if let Some(description) = &edit.description {
        property.insert("description".into(), description.as_str().into());
    }
    match &edit.default {
        Some(ArgumentValue::Literal(value)) => {
            property.insert("default".into(), value.clone());
        }
        // Substituted values are secrets. The server's own default is not what clients get.
        Some(_) => {
            property.shift_remove("default");
        }
        None => {}
    }
}

/// The subschemas of a level that apply to the same value.
fn inner_levels<'a>(
    root: &'a Map<String, Value>,
    level: &'a Map<String, Value>,
) -> Vec<&'a Map<String, Value>> {
    let lists =
        ["allOf", "anyOf", "oneOf"].into_iter().filter_map(|key| level.get(key)?.as_array());
    let single = ["if", "then", "else", "not"].into_iter().filter_map(|key| level.get(key));
    let target = level.get("$ref").and_then(|target| resolve_reference(root, target));
    let dependent = level.get("dependentSchemas").and_then(Value::as_object);
    let all = lists.flatten().chain(single).chain(dependent.into_iter().flat_map(Map::values));
    all.filter_map(Value::as_object).chain(target).collect()
}

/// The subschema that a local `$ref` points to.
fn resolve_reference<'a>(
    root: &'a Map<String, Value>,
    target: &Value,
) -> Option<&'a Map<String, Value>> {
    let pointer = target.as_str()?.strip_prefix("#/")?;
    let mut steps = pointer.split('/').map(|step| step.replace("~1", "/").replace("~0", "~"));
    let first = root.get(&steps.next()?)?;
    steps.try_fold(first, |value, step| value.get(&step))?.as_object()
}

/// The changes of one tool's arguments.
struct SchemaChanges<'a> {
    root: &'a Map<String, Value>,
    /// Arguments that clients do not see.
    hidden: HashSet<&'a str>,
    /// Arguments that clients need not send.
    supplied: HashSet<&'a str>,
    renamed: HashMap<&'a str, &'a str>,
    /// How many more members of levels are looked at: references can multiply them.
    patience: Cell<usize>,
}

/// Whether a rule about hidden arguments had to be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LevelExtent {
    Whole,
    Relaxed,
}

impl LevelExtent {
    fn join(&mut self, other: Self) {
        if other == Self::Relaxed {
            *self = other;
        }
    }
}

impl<'a> SchemaChanges<'a> {
    fn new(root: &'a Map<String, Value>, edits: &'a [(String, ArgumentEdit)]) -> Self {
        let named = |test: fn(&ArgumentEdit) -> bool| {
            let found = edits.iter().filter(move |(_, edit)| test(edit));
            found.map(|(name, _)| name.as_str()).collect()
        };
        Self {
            root,
            hidden: named(ArgumentEdit::is_hidden),
            supplied: named(|edit| edit.is_hidden() || edit.default.is_some()),
            renamed: edits
                .iter()
                .filter_map(|(name, edit)| Some((name.as_str(), edit.rename.as_deref()?)))
                .collect(),
            patience: Cell::new(MAX_MEMBERS),
        }
    }

    /// Whether a level may still be looked at.
    fn may_visit(&self, level: &Map<String, Value>) -> bool {
        let members = level.get("properties").and_then(Value::as_object).map_or(0, Map::len);
        let left = self.patience.get().checked_sub(1 + level.len() + members);
        self.patience.set(left.unwrap_or(0));
        left.is_some()
    }

    fn public_name<'b>(&'b self, name: &'b str) -> &'b str {
        self.renamed.get(name).copied().unwrap_or(name)
    }

    /// One level of the schema that applies to the arguments themselves.
    fn edit_level(
        &self,
        level: &Map<String, Value>,
        depth: usize,
    ) -> (Map<String, Value>, LevelExtent) {
        let (mut edited, mut extent) = (Map::new(), LevelExtent::Whole);
        let mut applied = Vec::new();
        let has_condition =
            ["if", "then", "else"].into_iter().any(|key| self.concerns(level.get(key), depth));
        for (key, value) in level {
            let kept = match (key.as_str(), value) {
                ("properties", Value::Object(members)) => Some(self.rename_members(members)),
                ("required", Value::Array(names)) => Some(self.required_names(names)),
                (
                    "dependentRequired" | "dependencies" | "dependentSchemas",
                    Value::Object(members),
                ) => Some(self.edit_dependents(members, depth, &mut extent)),
                ("allOf" | "anyOf", Value::Array(all)) => {
                    Some(self.edit_all(all, depth, &mut extent))
                }
                // Without its hidden arguments, more than one of the alternatives may fit.
                ("oneOf", Value::Array(all)) if self.concerns(Some(value), depth) => {
                    let any = self.edit_all(all, depth, &mut extent);
                    applied.push(json!({ "anyOf": any }));
                    None
                }
                ("oneOf", Value::Array(all)) => Some(self.edit_all(all, depth, &mut extent)),
                ("if" | "then" | "else", _) if has_condition => None,
                ("not", _) if self.concerns(Some(value), depth) => None,
                ("if" | "then" | "else" | "not", Value::Object(inner)) => {
                    Some(self.edit_inner(inner, depth, &mut extent))
                }
                ("$ref", target) => {
                    let inner = resolve_reference(self.root, target);
                    let inner = inner.filter(|inner| depth < MAX_LEVELS && self.may_visit(inner));
                    applied.extend(inner.map(|inner| self.edit_inner(inner, depth, &mut extent)));
                    extent.join(if inner.is_some() {
                        LevelExtent::Whole
                    } else {
                        LevelExtent::Relaxed
                    });
                    continue;
                }
                ("minProperties", _) if !self.supplied.is_empty() => None,
                ("propertyNames", _) if !self.renamed.is_empty() => None,
                // Examples of all arguments, hidden ones included.
                ("default" | "examples" | "example" | "$dynamicRef" | "$recursiveRef", _) => None,
                _ => Some(value.clone()),
            };
            match kept {
                Some(value) => {
                    edited.insert(key.clone(), value);
                }
                None => extent = LevelExtent::Relaxed,
            }
        }
        if !applied.is_empty()
            && let Value::Array(all) = edited.entry("allOf").or_insert_with(|| json!([]))
        {
            all.extend(applied);
        }
        if extent == LevelExtent::Relaxed {
            edited.shift_remove("unevaluatedProperties");
        }
        (edited, extent)
    }

    fn edit_inner(
        &self,
        level: &Map<String, Value>,
        depth: usize,
        extent: &mut LevelExtent,
    ) -> Value {
        if depth >= MAX_LEVELS {
            extent.join(LevelExtent::Relaxed);
            return json!({});
        }
        let (edited, inner) = self.edit_level(level, depth + 1);
        extent.join(inner);
        Value::Object(edited)
    }

    fn edit_all(&self, all: &[Value], depth: usize, extent: &mut LevelExtent) -> Value {
        let edited = all.iter().map(|one| match one {
            Value::Object(level) => self.edit_inner(level, depth, extent),
            other => other.clone(),
        });
        edited.collect()
    }

    fn rename_members(&self, members: &Map<String, Value>) -> Value {
        let shown = members.iter().filter(|(name, _)| !self.hidden.contains(name.as_str()));
        let renamed = shown.map(|(name, value)| (self.public_name(name).to_owned(), value.clone()));
        Value::Object(renamed.collect())
    }

    fn required_names(&self, names: &[Value]) -> Value {
        let names = names.iter().filter_map(Value::as_str);
        let required = names.filter(|name| !self.supplied.contains(name));
        required.map(|name| Value::from(self.public_name(name))).collect()
    }

    fn edit_dependents(
        &self,
        members: &Map<String, Value>,
        depth: usize,
        extent: &mut LevelExtent,
    ) -> Value {
        let mut edited = Map::new();
        for (name, value) in members {
            if self.supplied.contains(name.as_str()) {
                extent.join(LevelExtent::Relaxed);
                continue;
            }
            let value = match value {
                Value::Array(names) => self.required_names(names),
                Value::Object(level) => self.edit_inner(level, depth, extent),
                other => other.clone(),
            };
            edited.insert(self.public_name(name).to_owned(), value);
        }
        Value::Object(edited)
    }

    /// Whether a subschema, or one of several, says anything about arguments that clients need not
    /// send.
    fn concerns(&self, subschema: Option<&Value>, depth: usize) -> bool {
        match subschema {
            Some(Value::Array(all)) => all.iter().any(|one| self.concerns(Some(one), depth)),
            Some(Value::Object(level)) => self.level_concerns(level, depth),
            _ => false,
        }
    }

    fn level_concerns(&self, level: &Map<String, Value>, depth: usize) -> bool {
        let is_supplied = |name: &str| self.supplied.contains(name);
        let properties = level.get("properties").and_then(Value::as_object);
        let required = level.get("required").and_then(Value::as_array);
        let mut required = required.into_iter().flatten().filter_map(Value::as_str);
        let inner = || inner_levels(self.root, level).into_iter();
        depth >= MAX_LEVELS
            || !self.may_visit(level)
            || properties.is_some_and(|all| all.keys().any(|name| is_supplied(name)))
            || required.any(is_supplied)
            || inner().any(|inner| self.level_concerns(inner, depth + 1))
    }
}

/// How deep levels that apply to the arguments themselves may be nested in one another.
const MAX_LEVELS: usize = 8;
/// How many levels are searched for the names of arguments.
const MAX_VISITS: usize = 256;
/// How many members of levels are looked at, those behind references as often as they are reached.
const MAX_MEMBERS: usize = 50_000;
