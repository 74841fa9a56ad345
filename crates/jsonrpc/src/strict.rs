//! Parses JSON that policy reads. Duplicate keys are rejected, because the
//! gateway and the server could each use a different one.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use trunkline_core::text::clip;

use super::within_depth;

/// Reason why bytes are not strict JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonError {
    /// The bytes are not one JSON value.
    #[error("not valid JSON")]
    Syntax,
    /// Arrays and objects nest deeper than the bound.
    #[error("nested more than {max} levels deep")]
    TooDeep {
        /// The bound.
        max: usize,
    },
    /// An object has a duplicate key.
    #[error("duplicate key {key:?}")]
    DuplicateKey {
        /// The key, truncated.
        key: String,
    },
}

impl JsonError {
    pub(super) fn duplicate(key: &str) -> Self {
        Self::DuplicateKey { key: clip(key, MAX_SHOWN_KEY_BYTES).to_owned() }
    }
}

/// Parses one JSON value with at most `max_depth` levels and no duplicate keys.
///
/// # Errors
/// [`JsonError`] names the violated rule.
pub fn parse_strict(json: &[u8], max_depth: usize) -> Result<Value, JsonError> {
    check_depth(json, max_depth)?;
    let duplicate = RefCell::new(None);
    let mut reader = serde_json::Deserializer::from_slice(json);
    let parsed = StrictValue { duplicate: &duplicate }
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    parsed.map_err(|_| match duplicate.take() {
        Some(key) => JsonError::duplicate(&key),
        None => JsonError::Syntax,
    })
}

/// Rejects JSON nested deeper than `max`, before anything recurses into it.
///
/// # Errors
/// [`JsonError::TooDeep`].
pub fn check_depth(json: &[u8], max: usize) -> Result<(), JsonError> {
    within_depth(json, max).map_err(|_| JsonError::TooDeep { max })
}

#[derive(Clone, Copy)]
struct StrictValue<'a> {
    /// Receives a duplicate key: serde's errors carry only text.
    duplicate: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for StrictValue<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictValue<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                self.duplicate.replace(Some(key));
                return Err(A::Error::custom("duplicate key"));
            }
            let value = members.next_value_seed(self)?;
            object.insert(key, value);
        }
        Ok(Value::Object(object))
    }
}

/// The most bytes of a duplicate key that an error repeats.
const MAX_SHOWN_KEY_BYTES: usize = 120;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_stands_twice_is_refused_however_it_is_written() {
        for json in [r#"{"a":1,"a":2}"#, r#"{"x":[{"a":1,"b":0,"\u0061":2}]}"#] {
            assert_eq!(
                parse_strict(json.as_bytes(), 8),
                Err(JsonError::DuplicateKey { key: "a".into() }),
                "{json}"
            );
        }
    }

    #[test]
    fn depth_counts_brackets_outside_strings_only() {
        assert!(parse_strict(br#"{"a":["[[[[\"{{{{"]}"#, 2).is_ok());
        assert_eq!(parse_strict(br#"{"a":[[]]}"#, 2), Err(JsonError::TooDeep { max: 2 }));
    }

    #[test]
    fn anything_but_one_json_value_is_a_syntax_error() {
        for json in ["", "{", "{} {}", "{'a':1}", "1e999", "nul", "\u{feff}{}"] {
            assert_eq!(parse_strict(json.as_bytes(), 8), Err(JsonError::Syntax), "{json:?}");
        }
    }
}
