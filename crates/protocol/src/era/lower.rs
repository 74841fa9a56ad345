//! Rewrites of Modern messages for Legacy peers.

use std::ops::Range;
use std::sync::LazyLock;

use bytes::Bytes;
use memchr::memmem;
use serde_json::{Map, Value, json};

use trunkline_jsonrpc::{Members, Splice, object_of, span_of, string};

use crate::call::{Abilities, Call, Context, Edits, Question, ResultBody};
use crate::mcp::question::ELICITATION;
use crate::mcp::{Era, ProtocolVersion, code, meta};

use super::lift::{new_trace, uri_in};
use super::meta::{rewrite, set};
use super::{rewritten, without_progress};

/// A call's params for a Legacy server: edited, and without the `_meta` members
/// that only Modern servers know.
pub fn request<'a>(call: &'a Call, edits: &Edits, token: Option<&[u8]>) -> Splice<'a> {
    let mut params = request_with_input(call, edits, token);
    let no_input = call.params.responses_span().is_none() && call.params.state_span().is_none();
    if no_input { params } else { without_input(&params.finish()).into() }
}

/// Params without the members that a retry adds: a Legacy server sees every
/// call as new.
pub fn without_input(params: &[u8]) -> Bytes {
    rewrite(Some(params), &RETRY_MEMBERS, &[])
}

/// Params with the members that a retry adds: raw responses, and a raw state.
pub fn with_input(params: &[u8], responses: &[u8], state: Option<&str>) -> Bytes {
    let [responses_key, state_key] = RETRY_MEMBERS;
    let mut add = vec![(responses_key, responses)];
    add.extend(state.map(|state| (state_key, state.as_bytes())));
    rewrite(Some(params), &RETRY_MEMBERS, &add)
}

fn request_with_input<'a>(call: &'a Call, edits: &Edits, token: Option<&[u8]>) -> Splice<'a> {
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

/// The capabilities of a client, for a Legacy server of this version.
///
/// Tasks that a client runs for a server are left out, because the gateway does
/// not carry the requests about them. So is the extension, which a Legacy
/// server must not take for its own form of tasks (SEP-2663, "Backward
/// Compatibility").
pub fn capabilities(abilities: &Abilities, version: ProtocolVersion) -> Bytes {
    Value::Object(lowered(abilities, version)).to_string().into()
}

/// The part of those [`capabilities`] that a server receives on an instance shared by several
/// clients: the kinds of input they can give, and their extensions. Members such as `experimental`
/// are left out: they would give clients with equal abilities a child process each.
pub fn common_capabilities(abilities: &Abilities, version: ProtocolVersion) -> Bytes {
    with_common_alone(lowered(abilities, version))
}

/// The part of a client's raw capabilities that [`common_capabilities`] keeps.
pub fn common_part(capabilities: &[u8]) -> Bytes {
    with_common_alone(serde_json::from_slice(capabilities).unwrap_or_default())
}

fn with_common_alone(mut told: Map<String, Value>) -> Bytes {
    told.retain(|name, _| SHARED_CAPABILITIES.contains(&name.as_str()));
    if let Some(Value::Object(sampling)) = told.get_mut("sampling") {
        sampling.retain(|name, _| COMMON_SAMPLING.contains(&name.as_str()));
        sampling.values_mut().for_each(|value| *value = json!({}));
    }
    Value::Object(told).to_string().into()
}

fn lowered(abilities: &Abilities, version: ProtocolVersion) -> Map<String, Value> {
    let mut told: Map<String, Value> = serde_json::from_slice(abilities.raw()).unwrap_or_default();
    told.shift_remove("tasks");
    if let Some(Value::Object(extensions)) = told.get_mut("extensions") {
        extensions.shift_remove(meta::TASKS);
        if extensions.is_empty() {
            told.shift_remove("extensions");
        }
    }
    if version < ProtocolVersion::V2025_11_25 && told.contains_key("elicitation") {
        // Elicitation has no modes before that version, only forms.
        told.insert("elicitation".into(), json!({}));
        if !abilities.form {
            told.shift_remove("elicitation");
        }
    }
    told
}

/// An input request for a Legacy client of this version: a URL elicitation has
/// an id (`id`, if it came without one), and a form elicitation has no `mode`
/// before modes existed. Tasks and progress are removed.
pub fn question(question: &Question, version: ProtocolVersion, id: &str) -> Question {
    let mut question = without_progress(question);
    if question.method != ELICITATION {
        return question;
    }
    let Some(params) = &question.params else { return question };
    let (is_url, has_id) = match Members::parse(params) {
        Ok(members) => (
            members.find("mode").is_some_and(|mode| mode.get() == "\"url\""),
            members.find(ELICITATION_ID).is_some(),
        ),
        Err(_) => return question,
    };
    let id = string(id);
    if is_url && !has_id {
        question.params = Some(rewrite(Some(params), &[], &[(ELICITATION_ID, id.as_bytes())]));
    } else if !is_url && version < ProtocolVersion::V2025_11_25 {
        question.params = Some(rewrite(Some(params), &["mode"], &[]));
    }
    question
}

/// A result for a Legacy client: without its type, and with structured content that is an object.
pub fn result(body: &ResultBody) -> Splice<'_> {
    let raw = body.raw();
    let mut splice = Splice::new(raw);
    if let Some(member) = body.kind_span().and_then(|value| member_around(raw, value)) {
        splice.replace(member, "");
    }
    if has_bare_structured(raw)
        && let Some((place, wrapped)) = structured_in_object(raw)
    {
        splice.replace(place, wrapped);
    }
    splice
}

/// Returns true if structured content in a result may be something else than an object, which Legacy
/// clients do not know. A look at the bytes only: results are not parsed for it.
fn has_bare_structured(result: &[u8]) -> bool {
    // Prepared once: for a short text, preparing a search takes longer than the search.
    static KEY_FINDER: LazyLock<memmem::Finder<'static>> =
        LazyLock::new(|| memmem::Finder::new(STRUCTURED_KEY));
    let is_bare = |key: usize| {
        let value = result.get(key + STRUCTURED_KEY.len()..).unwrap_or_default();
        let value = value.trim_ascii_start().strip_prefix(b":").map(<[u8]>::trim_ascii_start);
        value.is_some_and(|value| !value.starts_with(b"{"))
    };
    KEY_FINDER.find_iter(result).any(is_bare)
}

/// The span of structured content that is no object, and the object that has it as `result`.
fn structured_in_object(result: &[u8]) -> Option<(Range<usize>, Vec<u8>)> {
    let members = Members::parse_with_duplicates(result).ok()?;
    let structured =
        members.find(STRUCTURED_CONTENT).filter(|value| !value.get().starts_with('{'))?;
    let place = span_of(result, structured.get().as_bytes())?;
    Some((place, object_of([("result", structured.get().into())])))
}

/// Returns true if a Legacy client sees the result of a call, and not code or a tool of the gateway.
#[inline]
pub fn sees_legacy_results(context: &Context) -> bool {
    context.client.version.era() == Era::Legacy && context.sent.is_some()
}

/// A tool's result with its structured content as the member `result` of an object, which is the
/// Legacy form of its tool; `None` if it has none.
pub fn wrap_structured(result: &[u8]) -> Option<Bytes> {
    let members = Members::parse_with_duplicates(result).ok()?;
    let structured = members.find(STRUCTURED_CONTENT)?;
    let place = span_of(result, structured.get().as_bytes())?;
    let mut splice = Splice::new(result);
    splice.replace(place, object_of([("result", structured.get().into())]));
    Some(splice.finish())
}

/// The error of a read in the Legacy form: an unknown resource, which Modern
/// servers mark by its URI in `data`, has a code of its own. `None` if nothing
/// has to change.
pub fn read_error(error: &[u8]) -> Option<Bytes> {
    let members = Members::parse(error).ok()?;
    let invalid = members.find("code")?.get() == code::INVALID_PARAMS.to_string();
    let unknown = invalid && uri_in(members.find("data")?.get().as_bytes()).is_some();
    unknown.then(|| set(error, "code", code::RESOURCE_NOT_FOUND.to_string().as_bytes()))
}

/// The span of the whole member around a value of an object, with its key and
/// one comma.
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

/// The member of a tool's result for programs.
const STRUCTURED_CONTENT: &str = "structuredContent";
const STRUCTURED_KEY: &[u8] = b"\"structuredContent\"";
/// The capabilities that a server receives on an instance shared by several clients.
const SHARED_CAPABILITIES: [&str; 4] = ["elicitation", "extensions", "roots", "sampling"];
/// The members of `sampling` among them (2025-11-25, Sampling, "Capabilities").
const COMMON_SAMPLING: [&str; 2] = ["context", "tools"];
/// The members of params that only a retry has.
const RETRY_MEMBERS: [&str; 2] = ["inputResponses", "requestState"];
/// Legacy only: the id of a URL elicitation.
pub(super) const ELICITATION_ID: &str = "elicitationId";
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
    fn a_legacy_server_receives_the_fields_of_its_version() {
        let told = |raw: &str, version| {
            let told = capabilities(&Abilities::parse(raw.as_bytes()), version);
            String::from_utf8(told.to_vec()).unwrap()
        };
        let (old, new) = (ProtocolVersion::V2025_06_18, ProtocolVersion::V2025_11_25);
        for (raw, to_old, to_new) in [
            ("{}", "{}", "{}"),
            (r#"{"tasks":{"list":{}}}"#, "{}", "{}"),
            (r#"{"elicitation":{"url":{}}}"#, "{}", r#"{"elicitation":{"url":{}}}"#),
            (r#"{"elicitation":{}}"#, r#"{"elicitation":{}}"#, r#"{"elicitation":{"form":{}}}"#),
            (
                r#"{"sampling":{"tools":{}},"extensions":{"a/b":{}}}"#,
                r#"{"extensions":{"a/b":{}},"sampling":{"tools":{}}}"#,
                r#"{"extensions":{"a/b":{}},"sampling":{"tools":{}}}"#,
            ),
        ] {
            assert_eq!((told(raw, old), told(raw, new)), (to_old.into(), to_new.into()), "{raw}");
        }
    }

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
            assert_eq!(result(&body).finish(), to);
        }
    }
}
