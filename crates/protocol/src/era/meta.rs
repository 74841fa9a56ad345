//! Rewrites `_meta` objects: members are removed or added; all other bytes are
//! unchanged.

use bytes::{BufMut, Bytes, BytesMut};

use trunkline_jsonrpc::{Members, Splice, span_of, string};

/// The object `raw` without the members named in `drop`, and with `add` at its
/// end. A text that is not an object counts as an empty one.
pub(super) fn rewrite(raw: Option<&[u8]>, drop: &[&str], add: &[(&str, &[u8])]) -> Bytes {
    let members = raw.and_then(|raw| Members::parse_with_duplicates(raw).ok());
    let members = members.map(|members| members.0).unwrap_or_default();
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

/// The object `raw` with a member set to a value: replaced in place, or added
/// at the end. Duplicates of it are removed. A text that is not an object
/// counts as an empty one.
pub(super) fn set(raw: &[u8], key: &str, value: &[u8]) -> Bytes {
    let members = Members::parse(raw);
    let found = members.as_ref().ok().and_then(|members| members.find(key));
    match found.and_then(|found| span_of(raw, found.get().as_bytes())) {
        Some(span) => Splice::new(raw).replace(span, Bytes::copy_from_slice(value)).finish(),
        None => rewrite(Some(raw), &[], &[(key, value)]),
    }
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

    #[test]
    fn a_member_is_set_where_it_stands_or_at_the_end() {
        assert_eq!(set(br#"{ "a" :1,"b":1.50}"#, "a", b"7"), r#"{ "a" :7,"b":1.50}"#);
        assert_eq!(set(br#"{ "a" :1}"#, "b", b"7"), r#"{"a":1,"b":7}"#);
        assert_eq!(set(b"null", "b", b"7"), r#"{"b":7}"#);
        assert_eq!(set(br#"{"a":1,"b":2,"a":3}"#, "a", b"7"), r#"{"b":2,"a":7}"#);
    }
}
