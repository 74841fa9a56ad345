//! The common case, checked without building values: arguments that a schema of
//! common keywords plainly admits.
//!
//! A glance says yes or nothing. Yes is only said where the whole check would
//! say it as well; whatever the glance does not understand, of the schema or of
//! the arguments, is left to that, and so is every refusal and its words.

use serde_json::{Map, Value};

use crate::jsonrpc::{Elements, Walk, unquoted};

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
        std::str::from_utf8(raw)
            .is_ok_and(|raw| self.admits_within(raw.trim_ascii(), MAX_ARGUMENT_DEPTH))
    }

    fn admits_within(&self, raw: &str, depth: usize) -> bool {
        match (self, raw.as_bytes().first()) {
            (Self::Any(choices), _) => choices.iter().any(|one| one.admits_within(raw, depth)),
            (Self::Scalar, Some(b'"')) => is_plain(raw),
            (Self::Scalar, Some(b'-' | b'0'..=b'9')) => number(raw).is_some(),
            (Self::Scalar, Some(b't' | b'f' | b'n'))
            | (Self::Null, Some(b'n'))
            | (Self::Boolean, Some(b't' | b'f')) => true,
            (Self::Number(range), Some(b'-' | b'0'..=b'9')) => {
                number(raw).is_some_and(|value| range.holds(value))
            }
            (Self::Integer(range), Some(b'-' | b'0'..=b'9')) => {
                integer(raw).is_some_and(|value| range.holds(value))
            }
            (Self::Text(length), Some(b'"')) => length.holds(raw),
            (Self::OneOf(texts), Some(b'"')) => {
                is_plain(raw)
                    && unquoted(raw).is_some_and(|text| texts.iter().any(|one| **one == *text))
            }
            (Self::Array(items, count), Some(b'[')) => elements(items, raw, depth)
                .is_some_and(|found| count.least <= found && found <= count.most),
            (Self::Object(members), Some(b'{')) => members.admit(raw, depth).unwrap_or(false),
            _ => false,
        }
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
    fn holds(self, raw: &str) -> bool {
        if self.least == 0 && self.most == usize::MAX {
            return is_plain(raw);
        }
        let text = raw.get(1..raw.len().saturating_sub(1)).unwrap_or_default();
        let characters = || text.chars().count();
        memchr::memchr(b'\\', raw.as_bytes()).is_none()
            && (self.least..=self.most).contains(&characters())
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
    fn admit(&self, raw: &str, depth: usize) -> Option<bool> {
        let mut walk = Walk::over(raw.as_bytes(), depth).ok()?;
        let (mut seen, mut next) = (0_u64, 0);
        let mut others: Vec<String> = Vec::new();
        while let Some((key, value)) = walk.next().ok()? {
            // Mostly they come in the order in which they were declared.
            let ahead = self.known.iter().enumerate().skip(next);
            let found = ahead
                .chain(self.known.iter().enumerate().take(next))
                .find(|(_, (name, _))| **name == *key);
            let rule = if let Some((at, (_, rule))) = found {
                if seen & 1 << at != 0 {
                    return None;
                }
                seen |= 1 << at;
                next = at + 1;
                rule
            } else {
                if others.len() == MOST_OTHERS || others.iter().any(|other| **other == *key) {
                    return None;
                }
                others.push(key.into_owned());
                &self.others
            };
            if !rule.admits_within(value, depth - 1) {
                return None;
            }
        }
        (seen & self.required == self.required).then_some(true)
    }
}

/// How many elements there are, if all of them are admitted.
fn elements(items: &Glance, raw: &str, depth: usize) -> Option<usize> {
    let mut elements = Elements::over(raw, depth)?;
    let mut found = 0;
    while let Some(element) = elements.next().ok()? {
        found += items.admits_within(element, depth - 1).then_some(1)?;
    }
    Some(found)
}

/// Whether a text has no code points by number: half of a pair is no text.
fn is_plain(raw: &str) -> bool {
    memchr::memchr(b'\\', raw.as_bytes()).is_none() || !raw.contains("\\u")
}

/// A number that is the same as a float.
fn number(raw: &str) -> Option<f64> {
    (raw.len() <= DIGITS && !raw.contains(['e', 'E'])).then(|| raw.parse().ok()).flatten()
}

/// The same of one without a fraction.
fn integer(raw: &str) -> Option<f64> {
    number(raw).filter(|_| !raw.contains('.'))
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
