//! The common case, checked without building values: arguments that a schema of
//! common keywords plainly admits.
//!
//! A glance says yes or nothing. Yes is only said where the whole check would
//! say it as well; whatever the glance does not understand, of the schema or of
//! the arguments, is left to that, and so is every refusal and its words.

use std::borrow::Cow;

use memchr::memmem;
use serde_json::{Map, Value};

use crate::jsonrpc::{Cursor, Place, Quoted, Wrong};

use super::MAX_ARGUMENT_DEPTH;

/// What a glance understands of a schema.
#[derive(Debug)]
pub(super) enum Glance {
    /// Nothing: values that it stands for are not admitted here.
    Nothing,
    /// Any scalar. Objects and arrays could have a key twice: they are not
    /// admitted here.
    Scalar,
    Null,
    Boolean,
    Number(Range),
    Integer(Range),
    Text(Length),
    /// One of these texts.
    OneOf(Vec<String>),
    Array(Box<Glance>, Count),
    Object(Box<Members>),
    /// Any of these.
    Any(Vec<Glance>),
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Range {
    least: f64,
    most: f64,
    above: f64,
    below: f64,
}

/// In characters.
#[derive(Debug, Clone, Copy)]
pub(super) struct Length {
    least: usize,
    most: usize,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Count {
    least: usize,
    most: usize,
}

#[derive(Debug)]
pub(super) struct Members {
    /// At most [`MOST_MEMBERS`].
    known: Vec<(String, Glance)>,
    /// A bit for each of those that have to be there.
    required: u64,
    others: Glance,
}

impl Glance {
    /// What there is to see in a schema, or in a part of one.
    pub(super) fn of(schema: &Value) -> Self {
        Self::read(schema).unwrap_or(Self::Nothing)
    }

    fn read(schema: &Value) -> Option<Self> {
        let schema = match schema {
            Value::Bool(true) => return Some(Self::Scalar),
            Value::Object(schema) => schema,
            _ => return None,
        };
        let rules: Vec<&str> =
            schema.keys().map(String::as_str).filter(|key| !ANNOTATIONS.contains(key)).collect();
        let only = |known: &[&str]| rules.iter().all(|rule| known.contains(rule)).then_some(());
        if rules.is_empty() {
            return Some(Self::Scalar);
        }
        if let Some(choices) = schema.get("anyOf") {
            only(&["anyOf"])?;
            return choices
                .as_array()?
                .iter()
                .map(Self::read)
                .collect::<Option<_>>()
                .map(Self::Any);
        }
        if let Some(texts) = schema.get("enum") {
            only(&["enum", "type"])?;
            let texts = texts.as_array()?.iter().map(|text| text.as_str().map(str::to_owned));
            let is_text = schema.get("type").is_none_or(|kind| kind == "string");
            return texts.collect::<Option<_>>().filter(|_| is_text).map(Self::OneOf);
        }
        match schema.get("type")? {
            Value::String(kind) => Self::typed(kind, schema, &only),
            Value::Array(kinds) => {
                only(&["type"])?;
                let kinds = kinds.iter().map(|kind| Self::typed(kind.as_str()?, schema, &only));
                kinds.collect::<Option<_>>().map(Self::Any)
            }
            _ => None,
        }
    }

    fn typed(
        kind: &str,
        schema: &Map<String, Value>,
        only: &dyn Fn(&[&str]) -> Option<()>,
    ) -> Option<Self> {
        let count = |key: &str, or: usize| match schema.get(key) {
            None => Some(or),
            Some(count) => usize::try_from(count.as_u64()?).ok(),
        };
        Some(match kind {
            "null" => {
                only(&["type"])?;
                Self::Null
            }
            "boolean" => {
                only(&["type"])?;
                Self::Boolean
            }
            "number" | "integer" => {
                let range = Range::read(schema, only)?;
                if kind == "number" { Self::Number(range) } else { Self::Integer(range) }
            }
            "string" => {
                only(&["type", "minLength", "maxLength"])?;
                let (least, most) = (count("minLength", 0)?, count("maxLength", usize::MAX)?);
                Self::Text(Length { least, most })
            }
            "array" => {
                only(&["type", "items", "minItems", "maxItems"])?;
                let (least, most) = (count("minItems", 0)?, count("maxItems", usize::MAX)?);
                let items = schema.get("items").map_or(Self::Scalar, Self::of);
                Self::Array(Box::new(items), Count { least, most })
            }
            "object" => {
                only(&["type", "properties", "required", "additionalProperties"])?;
                Self::Object(Box::new(Members::read(schema)?))
            }
            _ => return None,
        })
    }

    /// Whether these arguments are admitted for certain.
    pub(super) fn admits(&self, raw: &[u8]) -> bool {
        Cursor::over(raw, MAX_ARGUMENT_DEPTH).is_ok_and(|mut cursor| {
            self.admits_next(&mut cursor, 0) == Some(true) && cursor.ends().is_ok()
        })
    }

    /// Whether the value that comes next, `outside` levels deep, is admitted;
    /// steps over it. None where it cannot be told.
    fn admits_next(&self, cursor: &mut Cursor<'_>, outside: usize) -> Option<bool> {
        let begin = *cursor;
        Some(match (self, cursor.peek()) {
            (Self::Any(choices), _) => choices.iter().any(|one| {
                *cursor = begin;
                one.admits_next(cursor, outside) == Some(true)
            }),
            (Self::Scalar, Some(b'"')) => is_plain(cursor.quoted().ok()?),
            (Self::Scalar, Some(b'-' | b'0'..=b'9')) => number(scalar(cursor)?).is_some(),
            (Self::Scalar | Self::Null, Some(b'n'))
            | (Self::Scalar | Self::Boolean, Some(b't' | b'f')) => cursor.scalar().is_ok(),
            (Self::Number(range), Some(b'-' | b'0'..=b'9')) => {
                number(scalar(cursor)?).is_some_and(|value| range.holds(value))
            }
            (Self::Integer(range), Some(b'-' | b'0'..=b'9')) => {
                integer(scalar(cursor)?).is_some_and(|value| range.holds(value))
            }
            (Self::Text(length), Some(b'"')) => length.holds(cursor.quoted().ok()?),
            (Self::OneOf(texts), Some(b'"')) => {
                let text = cursor.quoted().ok().filter(|text| is_plain(*text))?.text()?;
                texts.iter().any(|one| one.as_bytes() == &*text)
            }
            (Self::Array(items, count), Some(b'[')) => {
                let found = elements(items, cursor, outside)?;
                count.least <= found && found <= count.most
            }
            (Self::Object(members), Some(b'{')) => members.admit(cursor, outside)?,
            _ => false,
        })
    }
}

impl Range {
    fn read(schema: &Map<String, Value>, only: &dyn Fn(&[&str]) -> Option<()>) -> Option<Self> {
        only(&["type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"])?;
        let bound = |key: &str, or: f64| match schema.get(key) {
            None => Some(or),
            // Beyond that a bound would not be the same as a float.
            Some(bound) => bound.as_f64().filter(|bound| bound.abs() < EXACT),
        };
        Some(Self {
            least: bound("minimum", f64::NEG_INFINITY)?,
            most: bound("maximum", f64::INFINITY)?,
            above: bound("exclusiveMinimum", f64::NEG_INFINITY)?,
            below: bound("exclusiveMaximum", f64::INFINITY)?,
        })
    }

    fn holds(self, value: f64) -> bool {
        self.least <= value && value <= self.most && self.above < value && value < self.below
    }
}

impl Length {
    fn holds(self, text: Quoted<'_>) -> bool {
        if self.least == 0 && self.most == usize::MAX {
            return is_plain(text);
        }
        let bytes = text.raw.len();
        // A character has at most four bytes.
        let surely = bytes <= self.most && bytes / 4 >= self.least;
        !text.escaped && (surely || (self.least..=self.most).contains(&characters(text.raw)))
    }
}

impl Members {
    fn read(schema: &Map<String, Value>) -> Option<Self> {
        let known: Vec<_> = match schema.get("properties") {
            None => Vec::new(),
            Some(all) => {
                all.as_object()?.iter().map(|(key, rule)| (key.clone(), Glance::of(rule))).collect()
            }
        };
        if known.len() > MOST_MEMBERS {
            return None;
        }
        let mut required = 0;
        for key in schema.get("required").map_or(Some(&Vec::new()), Value::as_array)? {
            let at = known.iter().position(|(name, _)| Some(name.as_str()) == key.as_str())?;
            required |= 1 << at;
        }
        let others = match schema.get("additionalProperties") {
            None => Glance::Scalar,
            Some(rule) => Glance::of(rule),
        };
        Some(Self { known, required, others })
    }

    /// None where it cannot be told.
    fn admit(&self, cursor: &mut Cursor<'_>, outside: usize) -> Option<bool> {
        cursor.open(outside).ok()?;
        let (mut seen, mut next, mut place) = (0_u64, 0, Place::First);
        let mut others: Vec<Cow<'_, [u8]>> = Vec::new();
        while cursor.has_next(&mut place, b'}', Wrong::Member).ok()? {
            let key = cursor.key().ok()?.text()?;
            let rule = if let Some(at) = self.find(&key, next) {
                if seen & 1 << at != 0 {
                    return None;
                }
                seen |= 1 << at;
                next = at + 1;
                &self.known.get(at)?.1
            } else {
                if others.len() == MOST_OTHERS || others.contains(&key) {
                    return None;
                }
                others.push(key);
                &self.others
            };
            if !rule.admits_next(cursor, outside + 1)? {
                return None;
            }
        }
        Some(seen & self.required == self.required)
    }

    /// The place of a known member. Mostly they come in the order in which they
    /// were declared.
    fn find(&self, key: &[u8], next: usize) -> Option<usize> {
        let is = |(name, _): &(String, Glance)| name.as_bytes() == key;
        if self.known.get(next).is_some_and(is) {
            Some(next)
        } else {
            self.known.iter().position(is)
        }
    }
}

/// How many elements there are, if all of them are admitted.
fn elements(items: &Glance, cursor: &mut Cursor<'_>, outside: usize) -> Option<usize> {
    cursor.open(outside).ok()?;
    let (mut found, mut place) = (0, Place::First);
    while cursor.has_next(&mut place, b']', Wrong::Element).ok()? {
        found += items.admits_next(cursor, outside + 1)?.then_some(1)?;
    }
    Some(found)
}

/// The number that comes next, as it stands in the text.
fn scalar<'a>(cursor: &mut Cursor<'a>) -> Option<&'a [u8]> {
    let start = cursor.at();
    cursor.scalar().ok()?;
    Some(cursor.since(start))
}

/// Whether a text has no code points by number: half of a pair is no text.
fn is_plain(text: Quoted<'_>) -> bool {
    !text.escaped || memmem::find(text.raw, b"\\u").is_none()
}

/// How many characters a text has: as many as there are bytes that begin one.
fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| **byte & 0xc0 != 0x80).count()
}

/// A number that is the same as a float.
fn number(raw: &[u8]) -> Option<f64> {
    if raw.len() > DIGITS || raw.iter().any(|byte| matches!(byte, b'e' | b'E')) {
        return None;
    }
    std::str::from_utf8(raw).ok()?.parse().ok()
}

/// The same of one without a fraction.
fn integer(raw: &[u8]) -> Option<f64> {
    let (sign, digits) = raw.strip_prefix(b"-").map_or((1, raw), |digits| (-1, digits));
    if raw.len() > DIGITS || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let value = digits.iter().fold(0_i64, |value, digit| value * 10 + i64::from(digit - b'0'));
    #[expect(clippy::cast_precision_loss, reason = "so few digits are a float to the last of them")]
    Some((sign * value) as f64)
}

/// Keywords that admit whatever comes.
const ANNOTATIONS: [&str; 10] = [
    "$schema",
    "$comment",
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "format",
];
/// The most members that are told apart.
const MOST_MEMBERS: usize = 64;
/// The most members that a schema does not name.
const MOST_OTHERS: usize = 16;
/// The longest number that is looked at, with its sign and point.
const DIGITS: usize = 15;
/// Below this every integer is a float.
const EXACT: f64 = 9_007_199_254_740_992.0;

#[cfg(test)]
mod tests;
