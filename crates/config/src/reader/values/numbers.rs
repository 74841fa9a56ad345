//! Bounded numbers.

use std::num::NonZeroUsize;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};

/// An integer within bounds.
pub(crate) struct CountSetting<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Setting for CountSetting<MIN, MAX> {
    type Value = usize;
    const OFF: bool = true;

    fn kind_word() -> String {
        format!("integer from {MIN} to {MAX}")
    }

    fn example_value() -> String {
        MIN.max(1).to_string()
    }

    fn correction() -> String {
        format!("write a number without quotes, from {MIN} to {MAX}")
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<usize> {
        let DeValue::Integer(digits) = node.value else {
            node.refuse_kind::<Self>(reader);
            return None;
        };
        match u32::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(value) if (MIN..=MAX).contains(&value) => usize::try_from(value).ok(),
            _ => {
                let (min, max) = (MIN.to_string(), MAX.to_string());
                node.report_fault(reader, SettingFault::Range { min, max });
                None
            }
        }
    }

    fn json_schema() -> Json {
        json!({ "type": "integer", "minimum": MIN, "maximum": MAX })
    }
}

/// A [`CountSetting`] from 1, as a non-zero type.
pub(crate) struct NonZeroSetting<const MAX: u32>;

impl<const MAX: u32> Setting for NonZeroSetting<MAX> {
    type Value = NonZeroUsize;
    const OFF: bool = true;

    fn kind_word() -> String {
        CountSetting::<1, MAX>::kind_word()
    }

    fn example_value() -> String {
        CountSetting::<1, MAX>::example_value()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<NonZeroUsize> {
        CountSetting::<1, MAX>::read_value(node, reader).and_then(NonZeroUsize::new)
    }

    fn json_schema() -> Json {
        CountSetting::<1, MAX>::json_schema()
    }
}

/// A [`CountSetting`] of 32 bits.
pub(crate) struct Count32<const MIN: u32, const MAX: u32>;

impl<const MIN: u32, const MAX: u32> Setting for Count32<MIN, MAX> {
    type Value = u32;

    fn kind_word() -> String {
        CountSetting::<MIN, MAX>::kind_word()
    }

    fn example_value() -> String {
        CountSetting::<MIN, MAX>::example_value()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<u32> {
        CountSetting::<MIN, MAX>::read_value(node, reader)
            .and_then(|value| u32::try_from(value).ok())
    }

    fn json_schema() -> Json {
        CountSetting::<MIN, MAX>::json_schema()
    }
}

/// A fraction from 0 to 1.
pub(crate) struct ShareSetting;

impl Setting for ShareSetting {
    type Value = f64;

    fn kind_word() -> String {
        "number from 0 to 1".into()
    }

    fn example_value() -> String {
        "0.01".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<f64> {
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
            node.report_fault(reader, SettingFault::Range { min: "0".into(), max: "1".into() });
        }
        share
    }

    fn json_schema() -> Json {
        json!({ "type": "number", "minimum": 0, "maximum": 1 })
    }
}
