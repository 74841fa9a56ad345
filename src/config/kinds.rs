//! The plain kinds of value: texts, numbers, durations, sizes, paths, lists.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::problem::Problem;
use super::reader::{Node, Reader};
use super::setting::{Outline, Setting, Text};

/// A text setting reads a string, and nothing else.
impl<T: Text> Setting for T {
    type Value = T::Value;
    const OFF: bool = T::OFF;

    fn word() -> String {
        T::WORD.into()
    }

    fn example() -> String {
        T::EXAMPLE.into()
    }

    fn right() -> String {
        match T::RULE {
            "" => format!("write {}", T::EXAMPLE),
            rule => format!("write {rule}, such as {}", T::EXAMPLE),
        }
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<T::Value> {
        let text = node.plain::<T>(reader)?;
        match T::parse(text, reader) {
            Ok(Some(value)) => return Some(value),
            Ok(None) => node.refuse_text::<T>(text, reader),
            Err(problem) => node.fault(reader, problem),
        }
        None
    }

    fn schema() -> Json {
        match T::pattern() {
            Some(pattern) => json!({ "type": "string", "pattern": pattern }),
            None => json!({ "type": "string" }),
        }
    }
}

/// What may be absent; with [`Setting::OFF`], the word `"off"` says so aloud.
impl<S: Setting> Setting for Option<S> {
    type Value = Option<S::Value>;

    fn word() -> String {
        if S::OFF { format!("{}, or `\"off\"`", S::word()) } else { S::word() }
    }

    fn example() -> String {
        S::example()
    }

    fn right() -> String {
        S::right()
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self::Value> {
        match node.value {
            DeValue::String(text) if S::OFF && text == "off" => Some(None),
            _ => S::read(node, reader).map(Some),
        }
    }

    fn absent() -> Option<Self::Value> {
        Some(None)
    }

    fn schema() -> Json {
        if S::OFF { json!({ "anyOf": [S::schema(), { "const": "off" }] }) } else { S::schema() }
    }

    fn outline() -> Option<Outline> {
        S::outline()
    }
}

/// A list.
impl<S: Setting> Setting for Vec<S> {
    type Value = Vec<S::Value>;

    fn word() -> String {
        match S::word().split_once(',') {
            Some((word, more)) => format!("list of {word}s,{more}"),
            None => format!("list of {}s", S::word()),
        }
    }

    fn example() -> String {
        format!("[{}]", S::example())
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self::Value> {
        let items = node.items::<Self>(reader)?;
        // Each is read before any is given up, so that every fault is told.
        let values: Vec<_> = items.iter().map(|item| S::read(item, reader)).collect();
        values.into_iter().collect()
    }

    fn schema() -> Json {
        json!({ "type": "array", "items": S::schema() })
    }
}

impl Setting for bool {
    type Value = Self;

    fn word() -> String {
        "boolean".into()
    }

    fn example() -> String {
        "true or false".into()
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        let DeValue::Boolean(value) = node.value else {
            node.refuse_kind::<Self>(reader);
            return None;
        };
        Some(*value)
    }

    fn schema() -> Json {
        json!({ "type": "boolean" })
    }
}

impl Text for String {
    type Value = Self;
    const WORD: &'static str = "text";
    const EXAMPLE: &'static str = "\"…\"";

    fn parse(text: &str, _: &Reader<'_>) -> Result<Option<Self>, Problem> {
        Ok(Some(text.to_owned()))
    }
}

impl Text for PathBuf {
    type Value = Self;
    const WORD: &'static str = "path";
    const EXAMPLE: &'static str = "\"certs/server.pem\"";

    fn parse(text: &str, reader: &Reader<'_>) -> Result<Option<Self>, Problem> {
        let usable = !text.is_empty() && !text.contains('\0');
        Ok(usable.then(|| reader.path(text)))
    }
}

/// A whole number within bounds.
pub(super) struct Count<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Setting for Count<MIN, MAX> {
    type Value = usize;
    const OFF: bool = true;

    fn word() -> String {
        format!("integer from {MIN} to {MAX}")
    }

    fn example() -> String {
        MIN.max(1).to_string()
    }

    fn right() -> String {
        format!("write a number without quotes, from {MIN} to {MAX}")
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<usize> {
        let DeValue::Integer(digits) = node.value else {
            node.refuse_kind::<Self>(reader);
            return None;
        };
        match u32::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(value) if (MIN..=MAX).contains(&value) => usize::try_from(value).ok(),
            _ => {
                let (min, max) = (MIN.to_string(), MAX.to_string());
                node.fault(reader, Problem::Range { min, max });
                None
            }
        }
    }

    fn schema() -> Json {
        json!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A [`Count`] from one up, as a type that holds no zero.
pub(super) struct NonZero<const MAX: u32>;

impl<const MAX: u32> Setting for NonZero<MAX> {
    type Value = NonZeroUsize;
    const OFF: bool = true;

    fn word() -> String {
        Count::<1, MAX>::word()
    }

    fn example() -> String {
        Count::<1, MAX>::example()
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<NonZeroUsize> {
        Count::<1, MAX>::read(node, reader).and_then(NonZeroUsize::new)
    }

    fn schema() -> Json {
        Count::<1, MAX>::schema()
    }
}

/// A [`Count`] that is held as 32 bits.
pub(super) struct Count32<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Setting for Count32<MIN, MAX> {
    type Value = u32;

    fn word() -> String {
        Count::<MIN, MAX>::word()
    }

    fn example() -> String {
        Count::<MIN, MAX>::example()
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<u32> {
        Count::<MIN, MAX>::read(node, reader).and_then(|value| u32::try_from(value).ok())
    }

    fn schema() -> Json {
        Count::<MIN, MAX>::schema()
    }
}

/// A share of a whole: 0 to 1.
pub(super) struct Share;

impl Setting for Share {
    type Value = f64;

    fn word() -> String {
        "number from 0 to 1".into()
    }

    fn example() -> String {
        "0.01".into()
    }

    fn read(node: &Node<'_>, reader: &mut Reader<'_>) -> Option<f64> {
        let value = match node.value {
            DeValue::Float(float) => float.as_str().parse().ok(),
            DeValue::Integer(digits) => digits.as_str().parse().ok(),
            _ => {
                node.refuse_kind::<Self>(reader);
                return None;
            }
        };
        let share = value.filter(|value| (0.0..=1.0).contains(value));
        if share.is_none() {
            node.fault(reader, Problem::Range { min: "0".into(), max: "1".into() });
        }
        share
    }

    fn schema() -> Json {
        json!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}

/// A duration that may be nothing: a whole number and a unit.
impl Text for Duration {
    type Value = Self;
    const OFF: bool = true;
    const WORD: &'static str = "duration";
    const EXAMPLE: &'static str = "\"30s\"";
    const RULE: &'static str = "a whole number with ms, s, m, h or d";

    fn parse(text: &str, _: &Reader<'_>) -> Result<Option<Self>, Problem> {
        const UNITS: [(&str, u64); 5] =
            [("ms", 1), ("s", 1000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
        let Some(millis) = scaled(text, &UNITS) else { return Ok(None) };
        let duration = Self::from_millis(millis);
        // An instant plus a duration must not overflow, on any system.
        if duration > LONGEST { Err(range("0s", "366d")) } else { Ok(Some(duration)) }
    }

    fn pattern() -> Option<&'static str> {
        Some("^[0-9]+(ms|s|m|h|d)$")
    }
}

/// A duration that is longer than nothing.
pub(super) struct Lasting;

impl Text for Lasting {
    type Value = Duration;
    const OFF: bool = true;
    const WORD: &'static str = <Duration as Text>::WORD;
    const EXAMPLE: &'static str = <Duration as Text>::EXAMPLE;
    const RULE: &'static str = <Duration as Text>::RULE;

    fn parse(text: &str, reader: &Reader<'_>) -> Result<Option<Duration>, Problem> {
        match <Duration as Text>::parse(text, reader)? {
            Some(Duration::ZERO) => Err(range("1ms", "366d")),
            other => Ok(other),
        }
    }

    fn pattern() -> Option<&'static str> {
        <Duration as Text>::pattern()
    }
}

/// A number of bytes: a whole number and a unit, at least one byte.
pub(super) struct Size;

impl Text for Size {
    type Value = usize;
    const WORD: &'static str = "size";
    const EXAMPLE: &'static str = "\"4MiB\"";
    const RULE: &'static str = "a whole number with B, KiB, MiB or GiB";

    fn parse(text: &str, _: &Reader<'_>) -> Result<Option<usize>, Problem> {
        const UNITS: [(&str, u64); 4] =
            [("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("B", 1)];
        let Some(bytes) = scaled(text, &UNITS) else { return Ok(None) };
        match usize::try_from(bytes) {
            Ok(bytes @ 1..=LARGEST) => Ok(Some(bytes)),
            _ => Err(range("1B", "2GiB")),
        }
    }

    fn pattern() -> Option<&'static str> {
        Some("^[0-9]+(B|KiB|MiB|GiB)$")
    }
}

/// Digits and a unit, such as `30s`, times the unit's worth. Too large a number
/// is the largest there is, so that the bounds refuse it.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (digits, unit) = text.split_at_checked(end)?;
    let (_, worth) = units.iter().find(|(name, _)| *name == unit)?;
    if digits.is_empty() {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX).saturating_mul(*worth))
}

fn range(min: &str, max: &str) -> Problem {
    Problem::Range { min: min.into(), max: max.into() }
}

const LONGEST: Duration = Duration::from_hours(366 * 24);
const LARGEST: usize = 2 << 30;
