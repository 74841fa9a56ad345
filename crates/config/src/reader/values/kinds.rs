//! Basic kinds of values: texts, paths, booleans, lists and optional values.

use std::path::PathBuf;

use jiff::Timestamp;
use serde_json::{Value as Json, json};
use toml::de::DeValue;

use crate::faults::problem::SettingFault;
use crate::reader::setting::{SectionOutline, Setting, TextSetting};
use crate::reader::{ConfigNode, ConfigReader};

/// A text setting reads a string, without substitution.
impl<T: TextSetting> Setting for T {
    type Value = T::Value;
    const OFF: bool = T::OFF;

    fn kind_word() -> String {
        T::WORD.into()
    }

    fn example_value() -> String {
        T::EXAMPLE.into()
    }

    fn correction() -> String {
        match T::RULE {
            "" => format!("write {}", T::EXAMPLE),
            rule => format!("write {rule}, such as {}", T::EXAMPLE),
        }
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<T::Value> {
        if let DeValue::Integer(number) = node.value
            && let Some(right) = corrected_text::<T>(number.as_str(), reader)
        {
            node.report_kind::<T>(right, reader);
            return None;
        }
        let text = node.expect_plain_string::<T>(reader)?;
        match T::parse_text(text, reader) {
            Ok(Some(value)) => return Some(value),
            Ok(None) => {
                let right = corrected_text::<T>(text, reader).unwrap_or_else(T::correction);
                node.report_text::<T>(text, right, reader);
            }
            Err(problem) => node.report_fault(reader, problem),
        }
        None
    }

    fn json_schema() -> Json {
        match T::schema_pattern() {
            Some(pattern) => json!({ "type": "string", "pattern": pattern }),
            None => json!({ "type": "string" }),
        }
    }
}

/// The correction that shows the likely meaning of a text, if it has one.
fn corrected_text<T: TextSetting>(text: &str, reader: &ConfigReader<'_>) -> Option<String> {
    let right = T::correct_text(text)?;
    matches!(T::parse_text(&right, reader), Ok(Some(_))).then(|| format!("write {right:?}"))
}

/// An optional value; with [`Setting::OFF`], `"off"` sets it to `None` explicitly.
impl<S: Setting> Setting for Option<S> {
    type Value = Option<S::Value>;

    fn kind_word() -> String {
        if S::OFF { format!("{}, or `\"off\"`", S::kind_word()) } else { S::kind_word() }
    }

    fn example_value() -> String {
        S::example_value()
    }

    fn correction() -> String {
        S::correction()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self::Value> {
        match node.value {
            DeValue::String(text) if S::OFF && text == "off" => Some(None),
            _ => S::read_value(node, reader).map(Some),
        }
    }

    fn absent_value() -> Option<Self::Value> {
        Some(None)
    }

    fn json_schema() -> Json {
        if S::OFF {
            json!({ "anyOf": [S::json_schema(), { "const": "off" }] })
        } else {
            S::json_schema()
        }
    }

    fn section_outline() -> Option<SectionOutline> {
        S::section_outline()
    }
}

/// A list.
impl<S: Setting> Setting for Vec<S> {
    type Value = Vec<S::Value>;

    fn kind_word() -> String {
        let word = S::kind_word();
        match (word.strip_prefix("list of "), word.split_once(',')) {
            (Some(items), _) => format!("list of lists of {items}"),
            (None, Some((word, more))) => format!("list of {word}s,{more}"),
            (None, None) => format!("list of {word}s"),
        }
    }

    fn example_value() -> String {
        format!("[{}]", S::example_value())
    }

    fn correction() -> String {
        format!("write a list, such as {}", Self::example_value())
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self::Value> {
        let items = node.expect_items::<Self>(reader)?;
        // All items are read before any error returns, so that every fault is reported.
        let values: Vec<_> = items.iter().map(|item| S::read_value(item, reader)).collect();
        values.into_iter().collect()
    }

    fn json_schema() -> Json {
        json!({ "type": "array", "items": S::json_schema() })
    }
}

impl Setting for bool {
    type Value = Self;

    fn kind_word() -> String {
        "boolean".into()
    }

    fn example_value() -> String {
        "true or false".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let DeValue::Boolean(value) = node.value else {
            node.refuse_kind::<Self>(reader);
            return None;
        };
        Some(*value)
    }

    fn json_schema() -> Json {
        json!({ "type": "boolean" })
    }
}

/// A point in time: a date, which begins at midnight UTC, or a date with time and offset.
impl Setting for Timestamp {
    type Value = Self;

    fn kind_word() -> String {
        "date".into()
    }

    fn example_value() -> String {
        "2027-01-31 or 2027-01-31T18:00:00Z".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let DeValue::Datetime(date) = node.value else {
            node.refuse_kind::<Self>(reader);
            return None;
        };
        let text = date.to_string();
        let moment = match (date.date, date.time, date.offset) {
            (Some(_), None, None) => format!("{text}T00:00:00Z").parse().ok(),
            _ => text.parse().ok(),
        };
        if moment.is_none() {
            node.refuse_text::<Self>(&text, reader);
        }
        moment
    }

    fn json_schema() -> Json {
        json!({ "type": "string", "format": "date-time" })
    }
}

impl TextSetting for String {
    type Value = Self;
    const WORD: &'static str = "text";
    const EXAMPLE: &'static str = "\"…\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        Ok(Some(text.to_owned()))
    }
}

impl TextSetting for PathBuf {
    type Value = Self;
    const WORD: &'static str = "path";
    const EXAMPLE: &'static str = "\"certs/server.pem\"";

    fn parse_text(text: &str, reader: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        let usable = !text.is_empty() && !text.contains('\0');
        Ok(usable.then(|| reader.resolve_path(text)))
    }
}
