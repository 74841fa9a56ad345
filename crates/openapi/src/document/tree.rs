//! Parsing of JSON or YAML, detected automatically, to a tree of values of limited size.
//!
//! Both parsers feed one visitor, which counts the values that it keeps. So a document of millions
//! of empty arrays, or with a few aliases that expand to a billion values, fails at the limit
//! before it is in memory, and the error names the position.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use trunkline_core::text::{clip, escape_controls, escape_pointer_step};

/// Error while parsing a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TreeFault {
    /// The document is larger than the limit.
    #[error("the document has more than {max} bytes")]
    TooLarge {
        /// The bound.
        max: usize,
    },
    /// Not text.
    #[error("the document is not UTF-8 text")]
    NotText,
    /// Neither JSON nor YAML.
    #[error("the document is not valid {format}: {message}")]
    Syntax {
        /// `JSON` or `YAML`.
        format: &'static str,
        /// The parser's message with line and column, clipped.
        message: String,
    },
    /// A bound of the tree is exceeded.
    #[error("at {place}: {bound}")]
    Bound {
        /// The JSON pointer of the place.
        place: String,
        /// The bound.
        bound: TreeSizeFault,
    },
}

/// A bound of a document's tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TreeSizeFault {
    /// Too many values.
    #[error("the document has more than {MAX_VALUES} values")]
    Values,
    /// Too many bytes of text. An alias counts each time it is used.
    #[error("the document has more than {MAX_TEXT} bytes of text")]
    Text,
    /// Nested too deeply.
    #[error("the document is nested more than {MAX_DEPTH} levels deep")]
    Depth,
    /// A duplicate key.
    #[error("the key is a duplicate")]
    Duplicate,
}

/// Amount that the files of one document may still use together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TreeBudget {
    bytes: usize,
    values: usize,
    text: usize,
}

impl Default for TreeBudget {
    fn default() -> Self {
        Self { bytes: MAX_BYTES, values: MAX_VALUES, text: MAX_TEXT }
    }
}

/// Parses a file of a document, and charges it to the document's budget.
///
/// # Errors
/// [`TreeFault`].
pub fn parse_tree(bytes: &[u8], budget: &mut TreeBudget) -> Result<Value, TreeFault> {
    let left = budget.bytes.checked_sub(bytes.len());
    budget.bytes = left.ok_or(TreeFault::TooLarge { max: MAX_BYTES })?;
    let text = std::str::from_utf8(bytes).map_err(|_| TreeFault::NotText)?;
    let text = text.trim_start_matches('\u{feff}');
    let state = TreeState::with(*budget);
    let parsed = parse_text(text, &state);
    (budget.values, budget.text) = (state.values.get(), state.text.get());
    parsed
}

fn parse_text(text: &str, state: &TreeState) -> Result<Value, TreeFault> {
    let seed = TreeSeed { state, depth: 0 };
    if text.trim_start().starts_with('{') {
        let mut reader = serde_json::Deserializer::from_str(text);
        let parsed = seed.deserialize(&mut reader).and_then(|tree| reader.end().map(|()| tree));
        parsed.map_err(|error| state.explain("JSON", &error))
    } else {
        let parsed =
            serde_saphyr::with_deserializer_from_str_with_options(text, yaml_options(), |reader| {
                seed.deserialize(reader)
            });
        parsed.map_err(|error| state.explain("YAML", &error))
    }
}

fn yaml_options() -> serde_saphyr::Options {
    let mut budget = serde_saphyr::Budget::default();
    budget.max_events = 3 * MAX_VALUES;
    budget.max_nodes = MAX_VALUES;
    budget.max_depth = MAX_DEPTH + 1;
    budget.flow_nesting_limit = MAX_DEPTH + 1;
    budget.max_documents = 1;
    // A key may have a long multi-line description.
    budget.simple_key_max_lookahead = 4096;
    let mut options = serde_saphyr::Options::default();
    options.budget = Some(budget);
    options.alias_limits.max_total_replayed_events = MAX_REPLAYED;
    // YAML 1.2: `no` is a country code, not a boolean.
    options.strict_booleans = true;
    options.with_snippet = false;
    options
}

struct TreeState {
    /// The values and the bytes of text that are left.
    values: Cell<usize>,
    text: Cell<usize>,
    exceeded: Cell<Option<TreeSizeFault>>,
    /// Keys from the position of a fault up to the root.
    trail: RefCell<Vec<String>>,
}

impl TreeState {
    fn with(budget: TreeBudget) -> Self {
        let (values, text) = (Cell::new(budget.values), Cell::new(budget.text));
        Self { values, text, exceeded: Cell::default(), trail: RefCell::default() }
    }

    /// Returns the fault, with its position if a limit was exceeded.
    fn explain(&self, format: &'static str, error: &dyn fmt::Display) -> TreeFault {
        let Some(bound) = self.exceeded.get() else {
            let message = error.to_string();
            let message = escape_controls(clip(message.trim(), MAX_SHOWN_MESSAGE_BYTES));
            return TreeFault::Syntax { format, message };
        };
        let trail = self.trail.borrow();
        let place: String = trail.iter().rev().map(|key| pointer_segment(key)).collect();
        let place = if place.is_empty() { "the root" } else { clip(&place, MAX_SHOWN_PLACE_BYTES) };
        TreeFault::Bound { place: escape_controls(place), bound }
    }

    fn exceed<E: Error>(&self, bound: TreeSizeFault) -> E {
        self.exceeded.set(Some(bound));
        E::custom(bound)
    }

    /// Counts a value with its text.
    fn charge<E: Error>(&self, text: usize) -> Result<(), E> {
        let left = |have: &Cell<usize>, wanted: usize, bound| {
            let left = have.get().checked_sub(wanted);
            left.map(|left| have.set(left)).ok_or_else(|| self.exceed(bound))
        };
        left(&self.values, 1, TreeSizeFault::Values)?;
        left(&self.text, text, TreeSizeFault::Text)
    }

    /// Records the key of a fault on the way up.
    fn note(&self, key: impl FnOnce() -> String) {
        let mut trail = self.trail.borrow_mut();
        if trail.len() <= MAX_DEPTH {
            trail.push(key());
        }
    }
}

/// Returns a segment of a JSON pointer with its slash.
pub(crate) fn pointer_segment(key: &str) -> String {
    format!("/{}", escape_pointer_step(key))
}

#[derive(Clone, Copy)]
struct TreeSeed<'a> {
    state: &'a TreeState,
    depth: usize,
}

impl TreeSeed<'_> {
    fn descend<E: Error>(self) -> Result<Self, E> {
        self.state.charge(0)?;
        if self.depth == MAX_DEPTH {
            return Err(self.state.exceed(TreeSizeFault::Depth));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }

    fn keep<E: Error>(self, value: impl Into<Value>) -> Result<Value, E> {
        self.state.charge(0)?;
        Ok(value.into())
    }
}

impl<'de> DeserializeSeed<'de> for TreeSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.keep(Value::Null)
    }

    fn visit_none<E: Error>(self) -> Result<Value, E> {
        self.keep(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.keep(value)
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.keep(value)
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.keep(value)
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.keep(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        self.state.charge(value.len())?;
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        self.state.charge(value.len())?;
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut array = Vec::new();
        loop {
            let item = items.next_element_seed(inner);
            match item.inspect_err(|_| self.state.note(|| array.len().to_string()))? {
                Some(item) => array.push(item),
                None => return Ok(Value::Array(array)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            self.state.charge(key.len())?;
            if object.contains_key(&key) {
                self.state.note(|| key);
                return Err(self.state.exceed(TreeSizeFault::Duplicate));
            }
            let value = members.next_value_seed(inner);
            let value = value.inspect_err(|_| self.state.note(|| key.clone()))?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// Maximum size in bytes of a document with all files to which it refers. The largest in common use
/// have a third of it.
pub const MAX_BYTES: usize = 32 * 1024 * 1024;
/// Maximum number of values. Each key and each use of an alias counts.
const MAX_VALUES: usize = 3_000_000;
/// Maximum number of values that YAML aliases expand to. Documents written by people have a few.
const MAX_REPLAYED: usize = 200_000;
/// Maximum number of bytes of text. Each use of an alias counts.
const MAX_TEXT: usize = 64 * 1024 * 1024;
/// Maximum nesting.
const MAX_DEPTH: usize = 120;
/// Maximum length in bytes of a position or a message in an error.
const MAX_SHOWN_PLACE_BYTES: usize = 300;
const MAX_SHOWN_MESSAGE_BYTES: usize = 300;

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use serde_json::json;

    use super::*;

    fn parse(bytes: &[u8]) -> Result<Value, TreeFault> {
        parse_tree(bytes, &mut TreeBudget::default())
    }

    #[test]
    fn json_and_yaml_become_the_same_tree() {
        let tree = json!({ "openapi": "3.1.0", "paths": { "/a": { "get": { "responses": { "200": [1, true, null, "no", -2, 1.5] } } } } });
        let yaml = "openapi: 3.1.0\npaths:\n  /a:\n    get:\n      responses:\n        200: [1, true, null, no, -2, 1.5]\n";
        assert_eq!(parse(yaml.as_bytes()).unwrap(), tree);
        assert_eq!(parse(tree.to_string().as_bytes()).unwrap(), tree);
    }

    #[test]
    fn a_fault_names_its_place() {
        let deep = format!("{{\"a/b\":{}{}}}", "[".repeat(200), "]".repeat(200));
        let fault = parse(deep.as_bytes()).unwrap_err().to_string();
        assert!(fault.starts_with("at /a~1b/0/0/"), "{fault}");
        let fault = parse(br#"{"a":{"b":[{"c":1,"c":2}]}}"#).unwrap_err().to_string();
        assert_eq!(fault, "at /a/b/0/c: the key is a duplicate");
        let fault = parse(br#"{"a":1,}"#).unwrap_err().to_string();
        assert!(fault.contains("line 1 column 8"), "{fault}");
        let fault = parse(b"a: [1\nb: 2").unwrap_err().to_string();
        assert!(fault.contains("not valid YAML") && fault.contains("line"), "{fault}");
    }

    #[test]
    fn a_document_of_too_many_values_or_too_much_text_ends_at_its_bound() {
        let many = format!("{{\"a\":[{}0]}}", "0,".repeat(MAX_VALUES));
        let fault = parse(many.as_bytes()).unwrap_err();
        assert!(matches!(fault, TreeFault::Bound { bound: TreeSizeFault::Values, .. }), "{fault}");
        let large = vec![b' '; MAX_BYTES + 1];
        assert!(matches!(parse(&large), Err(TreeFault::TooLarge { .. })));
    }

    #[test]
    fn the_files_of_a_document_share_its_bounds() {
        let mut budget = TreeBudget { values: 150, ..TreeBudget::default() };
        let part = format!("[{}0]", "0,".repeat(99));
        assert!(parse_tree(part.as_bytes(), &mut budget).is_ok());
        let fault = parse_tree(part.as_bytes(), &mut budget).unwrap_err();
        assert!(matches!(fault, TreeFault::Bound { bound: TreeSizeFault::Values, .. }), "{fault}");
        let mut budget = TreeBudget { bytes: 300, ..TreeBudget::default() };
        assert!(parse_tree(part.as_bytes(), &mut budget).is_ok());
        let fault = parse_tree(part.as_bytes(), &mut budget);
        assert_eq!(fault, Err(TreeFault::TooLarge { max: MAX_BYTES }));
        let mut budget = TreeBudget::default();
        let part = format!("[\"{}\"]", "x".repeat(1000));
        budget.text = part.len() * 3 / 2;
        assert!(parse_tree(part.as_bytes(), &mut budget).is_ok());
        let fault = parse_tree(part.as_bytes(), &mut budget).unwrap_err();
        assert!(matches!(fault, TreeFault::Bound { bound: TreeSizeFault::Text, .. }), "{fault}");
    }

    #[test]
    fn an_alias_bomb_ends_at_its_bound() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n");
        for at in 1..12 {
            let one = format!("*a{}", at - 1);
            let _ = writeln!(bomb, "a{at}: &a{at} [{}]", [one.as_str(); 10].join(", "));
        }
        let fault = parse(bomb.as_bytes()).unwrap_err().to_string();
        assert!(fault.contains("alias"), "{fault}");
        let text = format!("a: &a {}\nb: [{}]\n", "x".repeat(1 << 20), ["*a"; 90].join(", "));
        let fault = parse(text.as_bytes()).unwrap_err();
        assert!(fault.to_string().contains("ScalarBytes"), "{fault}");
    }
}
