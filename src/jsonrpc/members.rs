//! An object's members in order, each value raw.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The members of a raw object in order, including duplicates.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object.
    ///
    /// # Errors
    /// If the text is not an object.
    pub fn parse(raw: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(raw)
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
}
