//! Arguments as a tree that preserves the notation of numbers.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::json_text::{push_raw, push_text};

use super::{MAX_VALUES, RenderFault};

/// A value of arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArgumentTree<'a> {
    /// A boolean or `null`.
    Word(&'static str),
    /// A number in its original notation.
    Number(&'a str),
    Text(Cow<'a, str>),
    List(Vec<Self>),
    Map(Vec<(Cow<'a, str>, Self)>),
}

impl<'a> ArgumentTree<'a> {
    pub(super) fn parse_tree(raw: &'a [u8]) -> Result<Self, RenderFault> {
        let json = str::from_utf8(raw).map_err(|_| RenderFault::Unreadable)?;
        let mut source = TreeSource { numbers: NumberTokens { rest: json }, left: MAX_VALUES };
        let mut reader = serde_json::Deserializer::from_str(json);
        let tree = ArgumentSeed(&mut source).deserialize(&mut reader);
        let tree = tree.and_then(|tree| reader.end().map(|()| tree));
        tree.map_err(|_| match source.left {
            0 => RenderFault::TooMany,
            _ => RenderFault::Unreadable,
        })
    }

    /// Appends the value as compact JSON.
    pub(super) fn write_compact(&self, out: &mut Vec<u8>) {
        match self {
            Self::Word(word) => push_raw(out, word),
            Self::Number(number) => push_raw(out, number),
            Self::Text(text) => push_text(out, text),
            Self::List(items) => {
                push_raw(out, "[");
                for (place, item) in items.iter().enumerate() {
                    push_raw(out, if place == 0 { "" } else { "," });
                    item.write_compact(out);
                }
                push_raw(out, "]");
            }
            Self::Map(members) => {
                push_raw(out, "{");
                for (place, (name, value)) in members.iter().enumerate() {
                    push_raw(out, if place == 0 { "" } else { "," });
                    push_text(out, name);
                    push_raw(out, ":");
                    value.write_compact(out);
                }
                push_raw(out, "}");
            }
        }
    }
}

/// Number tokens of a JSON text, in order.
struct NumberTokens<'a> {
    rest: &'a str,
}

impl<'a> NumberTokens<'a> {
    /// Returns the next number. A parser reads the text at the same time, and has found it correct
    /// so far.
    fn take_next(&mut self) -> Option<&'a str> {
        let (mut in_text, mut is_escaped) = (false, false);
        let start = self.rest.bytes().position(|byte| {
            if !in_text {
                in_text = byte == b'"';
                return byte == b'-' || byte.is_ascii_digit();
            }
            let ends = byte == b'"' && !is_escaped;
            is_escaped = byte == b'\\' && !is_escaped;
            in_text = !ends;
            false
        })?;
        let found = self.rest.get(start..)?;
        let is_part = |byte: u8| byte.is_ascii_digit() || b"+-.eE".contains(&byte);
        let end = found.bytes().position(|byte| !is_part(byte)).unwrap_or(found.len());
        let (number, rest) = found.split_at_checked(end)?;
        self.rest = rest;
        Some(number)
    }
}

struct TreeSource<'a> {
    numbers: NumberTokens<'a>,
    /// Values that the limit still allows.
    left: usize,
}

impl<'a> TreeSource<'a> {
    fn take_number<E: Error>(&mut self) -> Result<ArgumentTree<'a>, E> {
        let number = self.numbers.take_next().map(ArgumentTree::Number);
        number.ok_or_else(|| E::custom("no number"))
    }
}

/// Reads one value.
struct ArgumentSeed<'s, 'a>(&'s mut TreeSource<'a>);

impl<'de> DeserializeSeed<'de> for ArgumentSeed<'_, 'de> {
    type Value = ArgumentTree<'de>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        self.0.left = self.0.left.saturating_sub(1);
        if self.0.left == 0 {
            return Err(D::Error::custom("too many values"));
        }
        reader.deserialize_any(self)
    }
}

/// A name in an object.
#[derive(Deserialize)]
struct ArgumentName<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Visitor<'de> for ArgumentSeed<'_, 'de> {
    type Value = ArgumentTree<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(ArgumentTree::Word("null"))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(ArgumentTree::Word(if value { "true" } else { "false" }))
    }

    fn visit_i64<E: Error>(self, _: i64) -> Result<Self::Value, E> {
        self.0.take_number()
    }

    fn visit_u64<E: Error>(self, _: u64) -> Result<Self::Value, E> {
        self.0.take_number()
    }

    fn visit_f64<E: Error>(self, _: f64) -> Result<Self::Value, E> {
        self.0.take_number()
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(ArgumentTree::Text(value.into()))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(ArgumentTree::Text(value.to_owned().into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(ArgumentSeed(&mut *self.0))? {
            list.push(item);
        }
        Ok(ArgumentTree::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut map = Vec::new();
        while let Some(ArgumentName(name)) = members.next_key()? {
            map.push((name, members.next_value_seed(ArgumentSeed(&mut *self.0))?));
        }
        let mut names = HashSet::with_capacity(map.len());
        if !map.iter().all(|(name, _)| names.insert(&**name)) {
            return Err(A::Error::custom("duplicate key"));
        }
        Ok(ArgumentTree::Map(map))
    }
}
