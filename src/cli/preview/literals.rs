//! Positions of a document's literals in its text.

use std::ops::Range;

use jsonc_parser::ast::Value as JsoncValue;
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, parse_to_ast};
use toml_edit::{Document, Item, TableLike, Value};

use trunkline_import::{Notation, jsonc_options};

/// Positions of a document's literals, in the shape of the document.
#[derive(Debug)]
pub(super) enum LiteralTree {
    Scalar(Range<usize>),
    List(Vec<Self>),
    Table(Vec<Literal>),
}

/// One entry of a table.
#[derive(Debug)]
pub(super) struct Literal {
    pub(super) name: String,
    key: Range<usize>,
    pub(super) tree: LiteralTree,
}

impl LiteralTree {
    /// Collects the ranges of all keys and scalars.
    pub(super) fn collect_ranges(&self, ranges: &mut Vec<Range<usize>>) {
        match self {
            Self::Scalar(range) => ranges.push(range.clone()),
            Self::List(items) => items.iter().for_each(|item| item.collect_ranges(ranges)),
            Self::Table(entries) => {
                for entry in entries {
                    ranges.push(entry.key.clone());
                    entry.tree.collect_ranges(ranges);
                }
            }
        }
    }
}

/// Reads the literals of a text in JSON or TOML; `None` if it does not parse.
pub(super) fn read_literals(text: &str, notation: Notation) -> Option<LiteralTree> {
    match notation {
        Notation::Json => {
            let parsed = parse_to_ast(text, &CollectOptions::default(), &jsonc_options()).ok()?;
            Some(parsed.value.as_ref().map_or(LiteralTree::List(Vec::new()), read_json))
        }
        Notation::Toml => {
            let document = Document::parse(text).ok()?;
            Some(read_table(document.as_table()))
        }
        Notation::Yaml => None,
    }
}

fn read_json(value: &JsoncValue<'_>) -> LiteralTree {
    match value {
        JsoncValue::Object(object) => {
            let entries = object.properties.iter().map(|property| Literal {
                name: property.name.as_str().to_owned(),
                key: property.name.start()..property.name.end(),
                tree: read_json(&property.value),
            });
            LiteralTree::Table(entries.collect())
        }
        JsoncValue::Array(array) => {
            LiteralTree::List(array.elements.iter().map(read_json).collect())
        }
        scalar => LiteralTree::Scalar(scalar.start()..scalar.end()),
    }
}

fn read_table(table: &dyn TableLike) -> LiteralTree {
    let entries = table.iter().map(|(name, item)| Literal {
        name: name.to_owned(),
        key: table.key(name).and_then(toml_edit::Key::span).unwrap_or_default(),
        tree: read_item(item),
    });
    LiteralTree::Table(entries.collect())
}

fn read_item(item: &Item) -> LiteralTree {
    match item {
        Item::None => LiteralTree::List(Vec::new()),
        Item::Value(value) => read_value(value),
        Item::Table(table) => read_table(table),
        Item::ArrayOfTables(tables) => {
            LiteralTree::List(tables.iter().map(|table| read_table(table)).collect())
        }
    }
}

fn read_value(value: &Value) -> LiteralTree {
    match value {
        Value::Array(items) => LiteralTree::List(items.iter().map(read_value).collect()),
        Value::InlineTable(table) => read_table(table),
        scalar => LiteralTree::Scalar(scalar.span().unwrap_or_default()),
    }
}
