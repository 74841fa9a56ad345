//! The plain kinds of value: texts, paths, booleans, lists, and what may be absent.

use std::path::PathBuf;

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
