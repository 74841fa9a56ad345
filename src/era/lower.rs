//! Modern → Legacy.

use std::ops::Range;

use bytes::Bytes;
use serde_json::Value;

use crate::call::{Call, Edits, ResultBody};
use crate::jsonrpc::Splice;
use crate::mcp::{code, meta};

use super::{lift::new_trace, meta::rewrite, rewritten};

/// A call's params as a Legacy server wants them: edited, and none of
/// the `_meta` members that only Modern servers know.
pub fn request(call: &Call, edits: &Edits, token: Option<&[u8]>) -> Bytes {
    let raw = call.params.meta_span().and_then(|span| call.params.raw().get(span));
    if raw.is_none() && token.is_none() && call.context.trace.sent.is_none() {
        return rewritten(&call.params, edits, None);
    }
    let trace = new_trace(call);
    let mut add: Vec<(&str, &[u8])> = Vec::new();
    add.extend(token.map(|token| (meta::PROGRESS_TOKEN, token)));
    if let Some((parent, state)) = &trace {
        add.push((meta::TRACEPARENT, parent.as_bytes()));
        add.extend(state.as_ref().map(|state| (meta::TRACESTATE, state.as_bytes())));
    }
    rewritten(&call.params, edits, Some(rewrite(raw, &MODERN_ONLY, &add)))
}

/// A result as a Legacy client wants it: without its type.
pub fn result(body: &ResultBody) -> Bytes {
    let raw = body.raw();
    match body.kind_span().and_then(|value| member_around(raw, value)) {
        Some(member) => Splice::new(raw).replace(member, "").finish(),
        None => raw.clone(),
    }
}

/// The error of a read as the Legacy revisions have it: an unknown resource,
/// which Modern servers tell by its URI in `data`, has a code of its own. `None`
/// where nothing is to be changed.
pub fn read_error(error: &[u8]) -> Option<Vec<u8>> {
    let mut body: Value = serde_json::from_slice(error).ok()?;
    let unknown = body["code"] == code::INVALID_PARAMS && body["data"]["uri"].is_string();
    unknown.then(|| {
        body["code"] = code::RESOURCE_NOT_FOUND.into();
        body.to_string().into_bytes()
    })
}

/// The whole member, with its key and one comma, of an object whose value
/// stands at `value`.
fn member_around(object: &[u8], value: Range<usize>) -> Option<Range<usize>> {
    let before = object.get(..value.start)?;
    let colon = before.iter().rposition(|b| *b == b':')?;
    let close = before.get(..colon)?.iter().rposition(|b| *b == b'"')?;
    let open = before.get(..close)?.iter().rposition(|b| *b == b'"')?;
    let after = object.get(value.end..)?;
    let next = after.iter().position(|b| !b.is_ascii_whitespace())?;
    if after.get(next) == Some(&b',') {
        return Some(open..value.end + next + 1);
    }
    let start = before.get(..open)?.iter().rposition(|b| !b.is_ascii_whitespace())?;
    let start = if before.get(start) == Some(&b',') { start } else { open };
    Some(start..value.end)
}

const MODERN_ONLY: [&str; 5] = [
    meta::PROTOCOL_VERSION,
    meta::CLIENT_INFO,
    meta::CLIENT_CAPABILITIES,
    meta::LOG_LEVEL,
    meta::PROGRESS_TOKEN,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_resource_has_the_legacy_code() {
        let modern = br#"{"code":-32602,"message":"no","data":{"uri":"a:b"}}"#;
        let legacy = r#"{"code":-32002,"message":"no","data":{"uri":"a:b"}}"#;
        assert_eq!(read_error(modern).as_deref(), Some(legacy.as_bytes()));
        assert_eq!(read_error(br#"{"code":-32602,"message":"no"}"#), None);
    }

    #[test]
    fn the_type_leaves_a_result_with_its_comma() {
        for (from, to) in [
            (r#"{"resultType":"complete","a":1}"#, r#"{"a":1}"#),
            (r#"{"a":1, "resultType" : "complete" }"#, r#"{"a":1 }"#),
            (r#"{"resultType":"complete"}"#, "{}"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
        ] {
            let body = ResultBody::parse(Bytes::from_static(from.as_bytes())).unwrap();
            assert_eq!(result(&body), to);
        }
    }
}
