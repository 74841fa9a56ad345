//! Numbers, each within its bounds.

use std::num::NonZeroUsize;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use super::problem::Problem;
use super::reader::{Node, Reader};
use super::setting::Setting;

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
