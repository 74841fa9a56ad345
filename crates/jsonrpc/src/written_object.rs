//! Objects that are passed on as they were written.
//!
//! A tree of values keeps no more digits of a number than a float has.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

/// A JSON object as its sender has written it, on one line: its numbers keep all their digits.
#[derive(Debug, Clone, Serialize)]
#[serde(transparent)]
pub struct WrittenObject(Box<RawValue>);

impl WrittenObject {
    /// Returns the text.
    pub fn get(&self) -> &str {
        self.0.get()
    }

    /// Returns true if it has no members.
    pub fn is_empty(&self) -> bool {
        let inside = self.get().trim_start_matches('{').trim_end_matches('}');
        inside.trim().is_empty()
    }
}

impl Default for WrittenObject {
    fn default() -> Self {
        Self(RawValue::from_string("{}".to_owned()).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for WrittenObject {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(from)?;
        // Also limits the nesting, and refuses numbers that no reader can represent.
        serde_json::from_str::<Map<String, Value>>(raw.get()).map_err(D::Error::custom)?;
        if !raw.get().contains(['\r', '\n']) {
            return Ok(Self(raw));
        }
        // A server on standard streams gets one line. Within the texts of JSON there are no line ends.
        let line = raw.get().replace(['\r', '\n'], " ");
        RawValue::from_string(line).map(Self).map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_keeps_its_digits_and_has_one_line() {
        let read = |text: &str| serde_json::from_str::<WrittenObject>(text);
        let kept = read("{\"id\":123456789012345678901,\n\"x\":1.0}").unwrap();
        assert_eq!(kept.get(), "{\"id\":123456789012345678901, \"x\":1.0}");
        assert!(!kept.is_empty());
        for empty in ["{}", "{ \r\n }"] {
            assert!(read(empty).unwrap().is_empty(), "{empty:?}");
        }
        assert!(WrittenObject::default().is_empty());
        for wrong in ["[]", "1", "{\"a\":1E400}", &"{\"a\":".repeat(200)] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
