//! `_meta` objects written anew: some members dropped, some added, the rest
//! byte for byte.

use bytes::{BufMut, Bytes, BytesMut};

use crate::jsonrpc::{Members, string};

/// The object `raw` without the members that `drop` names, and with `add` at
/// its end. What is no object counts as an empty one.
pub(super) fn rewrite(raw: Option<&[u8]>, drop: &[&str], add: &[(&str, &[u8])]) -> Bytes {
    let members =
        raw.and_then(|raw| Members::parse(raw).ok()).map(|members| members.0).unwrap_or_default();
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
