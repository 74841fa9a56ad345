//! JSON text as values of conditions, without a tree of JSON between them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use cel::common::types::{
    CelBool, CelDouble, CelInt, CelList, CelMap, CelMapKey, CelNull, CelString, CelUInt,
};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::config::{ConditionValue, EvaluationFault, MemberReads};
use crate::jsonrpc::{
    MAX_SERVER_DEPTH, MemberKey, Members, OutlinePart, check_depth, has_duplicate,
};

use crate::text::clip;

use super::facts::ReadArguments;

/// Parses a JSON text into a value that borrows from it; `None` if the text is not JSON, is nested
/// too deeply, or has a duplicate key, which a server may read in another way.
pub(crate) fn parse_value(json: &str) -> Option<ConditionValue<'_>> {
    check_depth(json.as_bytes(), MAX_SERVER_DEPTH).ok()?;
    let mut reader = serde_json::Deserializer::from_str(json);
    let value = JsonValue.deserialize(&mut reader).ok()?;
    reader.end().ok().map(|()| value)
}

/// Builds the map of a call's arguments, with the values of those members that are read.
///
/// # Errors
/// The arguments have a duplicate key, or [`parse_value`] refuses the value of one that is read.
pub(crate) fn parse_members<'v>(
    arguments: &ReadArguments<'v>,
    reads: &MemberReads,
) -> Result<ConditionValue<'v>, EvaluationFault> {
    let unreadable = || EvaluationFault::Unreadable { value: "arguments".into() };
    let Some(parts) = arguments.parts.clone() else {
        let members = Members::parse(arguments.raw).map_err(|_| unreadable())?.0.into_iter();
        let members = members.map(|(name, value)| (name_bytes(name), value));
        return members_read(members, reads, |value| parse_value(value.get()));
    };
    let mut members = Vec::with_capacity(EXPECTED_MEMBERS);
    for part in parts {
        members.push((part.key().map_err(|_| unreadable())?, part));
    }
    if has_duplicate(members.iter().map(|(name, _)| &**name)) {
        return Err(unreadable());
    }
    members_read(members.into_iter(), reads, outlined_value)
}

/// Builds the map of those members that are read. Only their names become texts: most members are
/// not read.
fn members_read<'v, T>(
    members: impl ExactSizeIterator<Item = (Cow<'v, [u8]>, T)>,
    reads: &MemberReads,
    value_of: impl Fn(T) -> Option<ConditionValue<'v>>,
) -> Result<ConditionValue<'v>, EvaluationFault> {
    let mut values = HashMap::with_capacity(if reads.has_keys() { members.len() } else { 1 });
    for (name, value) in members {
        let (has_value, has_name) = (reads.has_bytes(&name), reads.has_keys());
        if !has_value && !has_name {
            continue;
        }
        let name = text_of(name);
        let value = if has_value { value_of(value) } else { Some(Box::new(CelNull) as _) };
        let (Some(name), Some(value)) = (&name, value) else { return Err(unreadable_member(name)) };
        values.insert(key(name.clone()), value);
    }
    Ok(Box::new(CelMap::from(values)))
}

fn unreadable_member(name: Option<Cow<'_, str>>) -> EvaluationFault {
    let name = name.unwrap_or_default();
    let value = format!("arguments.{}", clip(&name, MAX_NAME)).into();
    EvaluationFault::Unreadable { value }
}

/// Builds a value from its outline.
fn outlined_value(part: OutlinePart<'_>) -> Option<ConditionValue<'_>> {
    let raw = part.raw();
    match (raw.first(), part.parts()) {
        (Some(b'{'), Some(parts)) => {
            let mut map = HashMap::new();
            for part in parts {
                let value = outlined_value(part)?;
                if map.insert(key(text_of(part.key().ok()?)?), value).is_some() {
                    return None;
                }
            }
            Some(Box::new(CelMap::from(map)))
        }
        (Some(b'['), Some(parts)) => {
            let list: Option<Vec<_>> = parts.map(outlined_value).collect();
            Some(Box::new(CelList::from(list?)))
        }
        (Some(b'"'), _) if !part.is_escaped() => {
            let text = raw.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
            Some(Box::new(CelString::from(str::from_utf8(text).ok()?)))
        }
        _ => parse_value(str::from_utf8(raw).ok()?),
    }
}

fn text_of(name: Cow<'_, [u8]>) -> Option<Cow<'_, str>> {
    Some(match name {
        Cow::Borrowed(name) => str::from_utf8(name).ok()?.into(),
        Cow::Owned(name) => String::from_utf8(name).ok()?.into(),
    })
}

fn name_bytes(name: Cow<'_, str>) -> Cow<'_, [u8]> {
    match name {
        Cow::Borrowed(name) => name.as_bytes().into(),
        Cow::Owned(name) => name.into_bytes().into(),
    }
}

fn key(name: Cow<'_, str>) -> CelMapKey<'_> {
    CelMapKey::String(CelString::from(name))
}

/// Limit of an argument's name in a fault.
const MAX_NAME: usize = 128;
/// Most arguments have no more members.
const EXPECTED_MEMBERS: usize = 16;

/// Reads one value.
#[derive(Clone, Copy)]
struct JsonValue;

impl<'de> DeserializeSeed<'de> for JsonValue {
    type Value = ConditionValue<'de>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Self::Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for JsonValue {
    type Value = ConditionValue<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
        Ok(Box::new(CelNull))
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Box::new(CelBool::from(value)))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Box::new(CelInt::from(value)))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Self::Value, E> {
        Ok(match i64::try_from(value) {
            Ok(value) => Box::new(CelInt::from(value)),
            Err(_) => Box::new(CelUInt::from(value)),
        })
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Box::new(CelDouble::from(value)))
    }

    fn visit_borrowed_str<E: Error>(self, value: &'de str) -> Result<Self::Value, E> {
        Ok(Box::new(CelString::from(value)))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Box::new(CelString::from(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Box::new(CelList::from(list)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Self::Value, A::Error> {
        let mut map = HashMap::new();
        while let Some(MemberKey(name)) = members.next_key()? {
            let value = members.next_value_seed(self)?;
            if map.insert(key(name), value).is_some() {
                return Err(A::Error::custom("duplicate key"));
            }
        }
        Ok(Box::new(CelMap::from(map)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_as_they_were_written() {
        let nested = |depth: usize| format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
        for (json, printed) in [
            ("null", Some("Null")),
            ("-1", Some("Int(-1)")),
            ("9223372036854775807", Some("Int(9223372036854775807)")),
            ("18446744073709551615", Some("UInt(18446744073709551615)")),
            ("1.5", Some("Double(1.5)")),
            ("\"a\\u0062\"", Some("\"ab\"")),
            ("[true]", Some("true")),
            ("{\"a\":{\"b\":1}}", Some("\"b\"")),
            ("{\"a\":1,\"\\u0061\":2}", None),
            ("[{\"a\":{\"b\":1,\"b\":1}}]", None),
            ("1 2", None),
            ("{", None),
            ("1e999", None),
            (&nested(MAX_SERVER_DEPTH + 1), None),
        ] {
            let read = parse_value(json).map(|value| format!("{value:?}"));
            match (&read, printed) {
                (Some(read), Some(printed)) => assert!(read.contains(printed), "{json}: {read}"),
                (None, None) => {}
                _ => panic!("{json}: {read:?}"),
            }
        }
    }
}
