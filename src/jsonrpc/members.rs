//! An object's members in order, each value raw.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::JsonError;

/// The members of a raw object in order.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object whose members decide something: two readers of a duplicate could each use a
    /// different one.
    ///
    /// # Errors
    /// [`JsonError`] if the text is not an object, or has a duplicate key.
    pub fn parse(raw: &'a [u8]) -> Result<Self, JsonError> {
        let members = Self::parse_with_duplicates(raw).map_err(|_| JsonError::Syntax)?;
        let mut seen = HashSet::with_capacity(members.0.len());
        match members.0.iter().find(|(key, _)| !seen.insert(&**key)) {
            Some((key, _)) => Err(JsonError::duplicate(key)),
            None => Ok(members),
        }
    }

    /// Reads an object that is copied and not judged.
    ///
    /// # Errors
    /// If the text is not an object.
    pub fn parse_with_duplicates(raw: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(raw)
    }

    /// The values of all members with this name, of which a reader may use any.
    pub fn find_all(&self, key: &str) -> impl Iterator<Item = &'a RawValue> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| *value)
    }

    /// The value of the first member with this name.
    pub fn find(&self, key: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| *value)
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MembersVisitor;
        impl<'de> Visitor<'de> for MembersVisitor {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(entry) = map.next_entry::<MemberKey<'de>, &'de RawValue>()? {
                    members.push((entry.0.0, entry.1));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(MembersVisitor)
    }
}

/// A key, borrowed if it has no escapes.
struct MemberKey<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for MemberKey<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = MemberKey<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<MemberKey<'de>, E> {
                Ok(MemberKey(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<MemberKey<'de>, E> {
                Ok(MemberKey(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(KeyVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_keep_their_order_and_their_text() {
        let members = Members::parse(br#"{"b": [1, 2],"a\u0062":"x"}"#).unwrap();
        let found: Vec<_> = members.0.iter().map(|(key, raw)| (&**key, raw.get())).collect();
        assert_eq!(found, [("b", "[1, 2]"), ("ab", "\"x\"")]);
        assert_eq!(members.find("ab").map(RawValue::get), Some("\"x\""));
        assert!(Members::parse(b"[]").is_err());
    }

    #[test]
    fn a_duplicate_key_is_refused_however_it_is_written() {
        let twice = br#"{"a":1,"b":2,"\u0061":3}"#;
        let refused = Members::parse(twice).unwrap_err();
        assert_eq!(refused, JsonError::DuplicateKey { key: "a".into() });
        assert_eq!(Members::parse_with_duplicates(twice).unwrap().0.len(), 3);
    }
}
