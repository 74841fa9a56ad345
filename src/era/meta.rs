//! `_meta` objects written anew: some members dropped, some added, the rest
//! byte for byte.

use std::borrow::Cow;
use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::jsonrpc::string;

/// The members of a raw object in their order.
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members<'de>, A::Error> {
                let mut members = Vec::new();
                while let Some(entry) = map.next_entry::<Key<'de>, &'de RawValue>()? {
                    members.push((entry.0.0, entry.1));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}

/// A key that is borrowed where it has no escapes.
struct Key<'a>(Cow<'a, str>);

impl<'de> Deserialize<'de> for Key<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Key<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Borrowed(text)))
            }
            fn visit_str<E>(self, text: &str) -> Result<Key<'de>, E> {
                Ok(Key(Cow::Owned(text.to_owned())))
            }
        }
        deserializer.deserialize_str(Reader)
    }
}

/// The object `raw` without the members that `drop` names, and with `add` at
/// its end. What is no object counts as an empty one.
pub(super) fn rewrite(raw: Option<&[u8]>, drop: &[&str], add: &[(&str, &[u8])]) -> Bytes {
    let members = raw
        .and_then(|raw| serde_json::from_slice::<Members<'_>>(raw).ok())
        .map(|members| members.0)
        .unwrap_or_default();
    let kept = members.into_iter().filter(|(key, _)| {
        !drop.contains(&&**key) && !add.iter().any(|(added, _)| *added == key.as_ref())
    });
    let mut out = BytesMut::with_capacity(raw.map_or(0, <[u8]>::len) + 256);
    out.put_u8(b'{');
    for (key, value) in kept {
        member(&mut out, &key, value.get().as_bytes());
    }
    for (key, value) in add {
        member(&mut out, key, value);
    }
    out.put_u8(b'}');
    out.freeze()
}

fn member(out: &mut BytesMut, key: &str, value: &[u8]) {
    if out.len() > 1 {
        out.put_u8(b',');
    }
    out.put_slice(string(key).as_bytes());
    out.put_u8(b':');
    out.put_slice(value);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_dropped_and_added_and_the_rest_stays() {
        let raw = br#"{"a":1, "b" : {"x": 2},"c":3}"#;
        let out = rewrite(Some(raw), &["a"], &[("c", b"9"), ("d", b"\"z\"")]);
        assert_eq!(out, r#"{"b":{"x": 2},"c":9,"d":"z"}"#);
        assert_eq!(rewrite(None, &["a"], &[]), "{}");
    }
}
