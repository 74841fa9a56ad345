//! An object's members in order, each value raw.

use std::borrow::Cow;
use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::JsonError;

/// The members of a raw object in order.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Reads an object for a decision. Duplicate keys are rejected: two readers could each use a
    /// different one.
    ///
    /// # Errors
    /// [`JsonError`] if the text is not an object, or has a duplicate key.
    pub fn parse(raw: &'a [u8]) -> Result<Self, JsonError> {
        let members = Self::parse_with_duplicates(raw).map_err(|_| JsonError::Syntax)?;
        match find_duplicate(members.0.iter().map(|(key, _)| &**key)) {
            Some(key) => Err(JsonError::duplicate(key)),
            None => Ok(members),
        }
    }

    /// Reads an object that is only copied.
    ///
    /// # Errors
    /// If the text is not an object.
    pub fn parse_with_duplicates(raw: &'a [u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(raw)
    }

    /// The values of all members with this name, of which a reader may use any.
    #[inline]
    pub fn find_all(&self, key: &str) -> impl Iterator<Item = &'a RawValue> {
        self.0.iter().filter(move |(name, _)| name == key).map(|(_, value)| *value)
    }

    /// The value of the first member with this name.
    #[inline]
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
pub struct MemberKey<'a>(pub Cow<'a, str>);

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

/// Returns true if one of these keys is a duplicate.
pub fn has_duplicate<K: Copy + Eq + Hash>(keys: impl ExactSizeIterator<Item = K> + Clone) -> bool {
    find_duplicate(keys).is_some()
}

fn find_duplicate<K: Copy + Eq + Hash>(
    mut keys: impl ExactSizeIterator<Item = K> + Clone,
) -> Option<K> {
    if keys.len() > FEW_KEYS {
        let mut seen = HashSet::with_capacity(keys.len());
        return keys.find(|key| !seen.insert(*key));
    }
    // Cheaper than hashing them.
    let all = keys.clone();
    keys.zip(0..)
        .find(|(key, place)| all.clone().take(*place).any(|it| it == *key))
        .map(|(key, _)| key)
}

/// Up to this many keys are compared with one another.
const FEW_KEYS: usize = 16;

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
        for keys in [2, FEW_KEYS, FEW_KEYS + 1, 100] {
            let members = |last: usize| {
                let each: Vec<_> = (1..keys).map(|key| format!("\"k{key}\":1")).collect();
                format!("{{{},\"k{last}\":1}}", each.join(","))
            };
            assert!(Members::parse(members(keys).as_bytes()).is_ok(), "{keys}");
            assert!(Members::parse(members(1).as_bytes()).is_err(), "{keys}");
        }
    }
}
