//! Rewrites for Modern peers: of Legacy messages, and of Modern messages that
//! need a change.

use std::ops::Range;
use std::sync::LazyLock;

use bytes::{Bytes, BytesMut};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;

use trunkline_jsonrpc::{Members, Splice, object, present, string};

use crate::call::{Answer, Call, Edits, ErrorBody, Params, Question, ResultBody};
use crate::mcp::{Era, ProtocolVersion, code, meta};

use super::meta::{rewrite, set};
use super::{lower::ELICITATION_ID, rewritten, without_progress};

/// A call's params for a Modern server: with the native name or URI, the
/// version negotiated with that server, and the client's declarations.
///
/// `token` is the progress token for the server. If it and the version are the
/// client's own, only the `edits` are made. Params without `_meta` are the gateway's own.
pub fn request<'a>(
    call: &'a Call,
    edits: &Edits,
    version: ProtocolVersion,
    token: Option<&[u8]>,
) -> Splice<'a> {
    let context = &call.context;
    let same_token = token == context.progress_token.as_deref();
    let is_clients = call.params.meta_span().is_some();
    if context.client.version == version
        && same_token
        && call.context.trace.sent.is_none()
        && is_clients
    {
        return rewritten(&call.params, edits, None);
    }
    let version = string(version.as_str());
    let trace = new_trace(call);
    let mut add: Vec<(&str, &[u8])> = vec![(meta::PROTOCOL_VERSION, version.as_bytes())];
    if let Some(info) = &context.client.info {
        add.push((meta::CLIENT_INFO, info));
    }
    let capabilities: &[u8] = match context.client.version.era() {
        Era::Modern => &context.client.capabilities,
        Era::Legacy => context.client.abilities().raw(),
    };
    add.push((meta::CLIENT_CAPABILITIES, capabilities));
    add.extend(token.map(|token| (meta::PROGRESS_TOKEN, token)));
    let level = context.log.map(|level| string(level.as_str()));
    add.extend(level.as_ref().map(|level| (meta::LOG_LEVEL, level.as_bytes())));
    if let Some((parent, state)) = &trace {
        add.push((meta::TRACEPARENT, parent.as_bytes()));
        add.extend(state.as_ref().map(|state| (meta::TRACESTATE, state.as_bytes())));
    }
    let raw = call.params.meta_span().and_then(|span| call.params.raw().get(span));
    rewritten(
        &call.params,
        edits,
        Some(rewrite(raw, &[meta::PROGRESS_TOKEN, meta::LOG_LEVEL], &add)),
    )
}

/// A Modern client's params that declare other capabilities; `None` if they declare
/// nothing.
pub fn declare_capabilities(params: &Params, capabilities: &[u8]) -> Option<Bytes> {
    let span = params.meta_span()?;
    let declared = set(params.raw().get(span.clone())?, meta::CLIENT_CAPABILITIES, capabilities);
    Some(Splice::new(params.raw()).replace(span, declared).finish())
}

/// A Legacy server's input request for a Modern client: without the id that URL
/// elicitations had in Legacy, and without a task or progress.
pub fn question(question: &Question) -> Question {
    let mut question = without_progress(question);
    if let Some(params) = &question.params
        && Members::parse(params).is_ok_and(|members| members.find(ELICITATION_ID).is_some())
    {
        question.params = Some(rewrite(Some(params), &[ELICITATION_ID], &[]));
    }
    question
}

/// A result for a Modern client: with its type and, unless the server has named
/// itself, with the `serverInfo` of its sender or else of the gateway.
pub fn result<'a>(body: &'a ResultBody, gateway_info: &[u8]) -> Splice<'a> {
    let raw = body.raw();
    let server_info = body.sender().map_or(gateway_info, |info| &info[..]);
    let own_meta = body.meta_span().and_then(|span| raw.get(span));
    let says_who = own_meta.is_some_and(names_server);
    let is_text = |span: &Range<usize>| raw.get(span.start) == Some(&b'"');
    let typed = body.kind_span().is_some_and(|span| is_text(&span));
    let mut splice = Splice::new(raw);
    if typed && says_who {
        return splice;
    }
    let mut members = BytesMut::new();
    match body.kind_span() {
        None => members.extend_from_slice(b"\"resultType\":\"complete\""),
        Some(span) if !is_text(&span) => {
            splice.replace(span, "\"complete\"");
        }
        Some(_) => {}
    }
    if !says_who {
        let info = rewrite(own_meta, &[], &[(meta::SERVER_INFO, server_info)]);
        if let Some(span) = body.meta_span() {
            splice.replace(span, info);
        } else {
            if !members.is_empty() {
                members.extend_from_slice(b",");
            }
            members.extend_from_slice(b"\"_meta\":");
            members.extend_from_slice(&info);
        }
    }
    if !members.is_empty() {
        splice.prepend(&members);
    }
    splice
}

/// A result that names only this sender: replaces the server's own `serverInfo`, if there is one.
pub fn name_sender(body: &ResultBody, info: &Bytes) -> Answer {
    let own_meta = body.meta_span().and_then(|span| Some((span.clone(), body.raw().get(span)?)));
    let renamed = own_meta.and_then(|(span, own)| {
        let renamed = rewrite(Some(own), &[], &[(meta::SERVER_INFO, &info[..])]);
        body.with(Splice::new(body.raw()).replace(span, renamed).finish()).ok()
    });
    Answer::Result(renamed.unwrap_or_else(|| body.clone())).sent_by(info)
}

/// The result of a read with the caching hints that its server omitted: fresh
/// for zero time, and private (2026-07-28, Caching, requires both hints).
/// `None` if the server sent both.
pub fn uncacheable(result: &[u8]) -> Option<Bytes> {
    #[derive(Deserialize)]
    struct CacheMembers<'a> {
        #[serde(borrow, default, deserialize_with = "present", rename = "ttlMs")]
        ttl: Option<&'a RawValue>,
        #[serde(borrow, default, deserialize_with = "present", rename = "cacheScope")]
        scope: Option<&'a RawValue>,
    }
    let said: CacheMembers<'_> = object(result).ok()?;
    let missing = match (said.ttl, said.scope) {
        (Some(_), Some(_)) => return None,
        (None, Some(_)) => "\"ttlMs\":0",
        (Some(_), None) => "\"cacheScope\":\"private\"",
        (None, None) => "\"ttlMs\":0,\"cacheScope\":\"private\"",
    };
    Some(Splice::new(result).prepend(missing.as_bytes()).finish())
}

/// The error of a read in the Modern form (2026-07-28, Resources, "Error
/// Handling"): an unknown resource has another code than in Legacy, and `data`
/// contains the URI, here the client's. `None` if nothing has to change.
pub fn read_error(error: &ErrorBody, asked: &str) -> Option<ErrorBody> {
    let members = Members::parse(error.raw()).ok()?;
    let data = members.find("data").map_or(&b"null"[..], |data| data.get().as_bytes());
    let is_unknown = error.code() == code::RESOURCE_NOT_FOUND;
    if !is_unknown && uri_in(data).is_none() {
        return None;
    }
    let mut raw = error.raw().clone();
    if matches!(data.first(), Some(b'{' | b'n')) {
        let data = set(data, "uri", string(asked).as_bytes());
        raw = set(&raw, "data", &data);
    }
    if is_unknown {
        raw = set(&raw, "code", code::INVALID_PARAMS.to_string().as_bytes());
    }
    ErrorBody::parse(raw).ok()
}

/// The raw URI in an error's raw `data`.
pub(super) fn uri_in(data: &[u8]) -> Option<&RawValue> {
    Members::parse(data).ok()?.find("uri").filter(|uri| uri.get().starts_with('"'))
}

/// The raw values of `traceparent` and `tracestate`, if they differ from those
/// in the client's `_meta`.
pub(super) fn new_trace(call: &Call) -> Option<(String, Option<String>)> {
    let (parent, state) = call.context.trace.sent.as_ref()?;
    Some((string(parent), state.as_deref().map(string)))
}

/// Returns true if a result's raw `_meta` contains the key `serverInfo`.
fn names_server(own_meta: &[u8]) -> bool {
    // Prepared once: for a short text, preparing a search takes longer than the search. The key is
    // searched without its first label, because memchr compares up to 32 bytes with vectors, and
    // longer texts byte by byte.
    static REST_FINDER: LazyLock<memmem::Finder<'static>> =
        LazyLock::new(|| memmem::Finder::new(split_key().1));
    let (label, _) = split_key();
    REST_FINDER
        .find_iter(own_meta)
        .any(|at| own_meta.get(..at).is_some_and(|it| it.ends_with(label)))
}

/// The key of `serverInfo`: `io.`, and the rest.
fn split_key() -> (&'static [u8], &'static [u8]) {
    meta::SERVER_INFO.as_bytes().split_at(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &'static str) -> ResultBody {
        ResultBody::parse(Bytes::from_static(text.as_bytes())).unwrap()
    }

    #[test]
    fn a_legacy_result_gets_its_type_and_its_sender() {
        for (from, to) in [
            (
                r#"{"content":[]}"#,
                r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}},"content":[]}"#,
            ),
            (
                "{}",
                r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
            ),
            (
                r#"{"_meta":{"a":1}}"#,
                r#"{"resultType":"complete","_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"s"}}}"#,
            ),
            (
                r#"{"_meta":null,"resultType":null}"#,
                r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}},"resultType":"complete"}"#,
            ),
            (
                r#"{"resultType":"input_required"}"#,
                r#"{"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}},"resultType":"input_required"}"#,
            ),
        ] {
            assert_eq!(result(&body(from), br#"{"name":"s"}"#).finish(), to);
        }
    }

    #[test]
    fn a_server_that_names_itself_keeps_its_name() {
        for (own_meta, is_named) in [
            (r#"{"io.modelcontextprotocol/serverInfo":{"name":"own"}}"#, true),
            (
                r#"{"o.modelcontextprotocol/serverInfo":1,"a":"io.modelcontextprotocol/serverInfo"}"#,
                true,
            ),
            (r#"{"com.modelcontextprotocol/serverInfo":{"name":"other"}}"#, false),
            (r#"{"modelcontextprotocol/serverInfo":{"name":"other"}}"#, false),
        ] {
            assert_eq!(names_server(own_meta.as_bytes()), is_named, "{own_meta}");
        }
    }

    #[test]
    fn a_read_says_how_long_and_for_whom() {
        for (from, to) in [
            ("{}", Some(r#"{"ttlMs":0,"cacheScope":"private"}"#)),
            (r#"{"ttlMs":9}"#, Some(r#"{"cacheScope":"private","ttlMs":9}"#)),
            (r#"{"cacheScope":"public"}"#, Some(r#"{"ttlMs":0,"cacheScope":"public"}"#)),
            (r#"{"ttlMs":9,"cacheScope":"public"}"#, None),
        ] {
            assert_eq!(uncacheable(from.as_bytes()).as_deref(), to.map(str::as_bytes), "{from}");
        }
    }

    #[test]
    fn an_unknown_resource_has_the_modern_code_and_the_clients_uri() {
        for (from, to) in [
            (
                r#"{"code":-32002,"message":"no","data":{"uri":"a:b","x":1}}"#,
                Some(r#"{"code":-32602,"message":"no","data":{"uri":"p:a:b","x":1}}"#),
            ),
            (
                r#"{"code":-32002,"message":"no"}"#,
                Some(r#"{"code":-32602,"message":"no","data":{"uri":"p:a:b"}}"#),
            ),
            (
                r#"{"code":-32602,"message":"no","data":{"uri":"a:b"}}"#,
                Some(r#"{"code":-32602,"message":"no","data":{"uri":"p:a:b"}}"#),
            ),
            (r#"{"code":-32602,"message":"no"}"#, None),
        ] {
            let error = ErrorBody::parse(Bytes::from_static(from.as_bytes())).unwrap();
            let lifted = read_error(&error, "p:a:b").map(|error| error.raw().clone());
            assert_eq!(lifted.as_deref(), to.map(str::as_bytes));
        }
    }

    #[test]
    fn a_modern_result_that_names_its_sender_stays_as_it_is() {
        let text = r#"{"resultType":"complete","_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x"}}}"#;
        assert_eq!(result(&body(text), b"{}").finish(), text);
    }
}
