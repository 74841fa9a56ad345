//! The round trip between the eras: a message that is lifted and lowered again
//! is unchanged. Tested with every kind of message that both eras have, and
//! with arbitrary JSON texts: any white space, escapes, order, numbers and
//! unknown members.
//!
//! Two objects are equal here if they have the same members, each with the same
//! text to the byte. Their order does not matter, and an empty `_meta` counts
//! as none.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::sample::select;

use trunkline_jsonrpc::{Id, Members, string};

use super::{change_notification, lift, lower};
use crate::call::test_support::make_context;
use crate::call::{
    Abilities, Call, Client, Context, ErrorBody, Notice, Params, Question, ResultBody,
};
use crate::mcp::question::{ELICITATION, ROOTS, SAMPLING};
use crate::mcp::{Method, ProtocolVersion, meta};

/// The methods that both eras have, with their members.
const METHODS: [(&str, &[&str]); 13] = [
    ("tools/list", &["cursor"]),
    ("tools/call", &["name", "arguments"]),
    ("prompts/list", &["cursor"]),
    ("prompts/get", &["name", "arguments"]),
    ("resources/list", &["cursor"]),
    ("resources/templates/list", &["cursor"]),
    ("resources/read", &["uri"]),
    ("completion/complete", &["ref", "argument", "context"]),
    ("tasks/get", &["taskId"]),
    ("tasks/result", &["taskId"]),
    ("tasks/cancel", &["taskId"]),
    ("tasks/list", &["cursor"]),
    ("vendor/anything", &[]),
];

proptest! {
    #[test]
    fn a_request_survives(
        request in select(&METHODS[..]),
        seed in any::<prop::sample::Index>(),
        text in object_of_any(),
        own_meta in request_meta(),
        renamed in any::<bool>(),
    ) {
        let (method, members) = request;
        let legacy = request_text(&text, members, own_meta.as_deref(), seed.index(1000));
        let (first, token) = call(method, &legacy, ProtocolVersion::V2025_11_25);
        // The catalog's edits on the way: the client's name becomes another,
        // and is restored.
        let place = first.params.name_span().or(first.params.uri_span()).filter(|_| renamed);
        let there: Vec<_> = place.iter().cloned().map(|at| (at, Bytes::from_static(b"\"other\""))).collect();
        let lifted = lift::request(&first, &there, ProtocolVersion::LATEST_MODERN, Some(b"77")).finish();
        let (second, _) = call(method, &lifted, ProtocolVersion::LATEST_MODERN);
        let said = second.params.meta().unwrap();
        prop_assert_eq!(said.version.as_deref(), Some("2026-07-28"));
        prop_assert_eq!(said.capabilities.as_ref(), Some(first.context.client.abilities().raw()));
        prop_assert_eq!(said.progress_token.as_deref(), Some(&b"77"[..]));
        let back = second.params.name_span().or(second.params.uri_span()).filter(|_| renamed);
        let back: Vec<_> =
            back.into_iter().zip(place.map(|at| first.params.raw().slice(at))).collect();
        let lowered = lower::request(&second, &back, token.as_deref()).finish();
        same(&lowered, &legacy, &[])?;
    }

    #[test]
    fn a_request_that_needs_no_change_is_not_touched(text in object_of_any()) {
        let (legacy, _) = call("tools/call", &text, ProtocolVersion::V2025_11_25);
        prop_assert_eq!(&lower::request(&legacy, &[], None).finish(), &text);
        let modern = with_member(&text, meta::META, r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#);
        let (modern, _) = call("tools/call", &modern, ProtocolVersion::LATEST_MODERN);
        prop_assert_eq!(
            &lift::request(&modern, &[], ProtocolVersion::LATEST_MODERN, None).finish(),
            modern.params.raw()
        );
    }

    #[test]
    fn a_retry_is_the_request_and_its_input(
        text in object_of_any(), responses in object_of_any(), state in prop::option::of(".*"),
    ) {
        let state = state.map(|state| string(&state));
        let retry = lower::with_input(&text, &responses, state.as_deref());
        let params = Params::parse(Some(retry.clone())).unwrap();
        prop_assert_eq!(&retry[params.responses_span().unwrap()], &responses[..]);
        same(&lower::without_input(&retry), &text, &[])?;
    }

    #[test]
    fn a_result_survives(text in object_of_any(), own_meta in any_meta()) {
        let legacy = with_meta(&text, own_meta.as_deref());
        let body = ResultBody::parse(legacy.clone()).unwrap();
        let lifted = lift::result(&body, br#"{"name":"gateway","version":"1"}"#).finish();
        let modern = ResultBody::parse(lifted.clone()).unwrap();
        let kind = modern.kind_span().map(|span| lifted.slice(span));
        prop_assert_eq!(kind.as_deref(), Some(&b"\"complete\""[..]));
        // The sender is added for a Modern client, and harmless to a Legacy
        // one.
        same(&lower::result(&modern).finish(), &legacy, &[meta::SERVER_INFO])?;
        prop_assert_eq!(&lower::result(&body).finish(), &legacy, "what is Legacy is not touched");
    }

    #[test]
    fn a_type_leaves_the_result_that_it_was_put_into(
        text in object_of_any(), at in any::<prop::sample::Index>(), space in space(),
        key in select(&["\"resultType\"", "\"r\\u0065sultType\""][..]),
    ) {
        let typed = inserted(&text, &format!("{space}{key}{space}:{space}\"complete\"{space}"), at);
        let body = ResultBody::parse(typed).unwrap();
        same(&lower::result(&body).finish(), &text, &[])?;
    }

    #[test]
    fn an_unknown_resource_survives(
        message in string_text(), data in object_of_any(), uri in ".{0,20}",
    ) {
        let data = with_member(&data, "uri", &string(&uri));
        let data = std::str::from_utf8(&data).unwrap();
        let legacy = format!(r#"{{"code":-32002,"message":{message},"data":{data}}}"#);
        let error = ErrorBody::parse(legacy.clone().into()).unwrap();
        let lifted = lift::read_error(&error, &uri).unwrap();
        prop_assert_eq!(lifted.code(), -32602);
        let lowered = lower::read_error(lifted.raw()).unwrap();
        same(&lowered, legacy.as_bytes(), &[])?;
    }

    #[test]
    fn a_question_survives(
        kind in select(&["form", "url", SAMPLING, ROOTS][..]),
        text in object_of_any(),
        own_meta in any_meta(),
        id in "[a-z0-9]{1,8}",
    ) {
        let mut params = with_meta(&text, own_meta.as_deref());
        let method = match kind {
            "form" => ELICITATION,
            "url" => {
                params = with_member(&params, "mode", "\"url\"");
                params = with_member(&params, "elicitationId", &string(&id));
                ELICITATION
            }
            other => other,
        };
        let asked = Question { method: method.into(), params: Some(params.clone()) };
        let lifted = lift::question(&asked);
        let lowered = lower::question(&lifted, ProtocolVersion::V2025_11_25, &id);
        prop_assert_eq!(&lowered.method, method);
        same(&lowered.params.unwrap(), &params, &[])?;
    }

    #[test]
    fn a_notification_survives(text in object_of_any(), own_meta in any_meta(), uri in ".{0,20}") {
        let legacy = with_meta(&with_member(&text, "uri", &string(&uri)), own_meta.as_deref());
        let subscription = Id::number(7);
        let lifted = change_notification::params(&legacy, &[("uri", "mcp://s/x")], Some(&subscription));
        let lowered = change_notification::params(&lifted, &[("uri", &uri)], None);
        same(&respelled(&lowered, "uri"), &respelled(&legacy, "uri"), &[])?;
    }

    #[test]
    fn progress_comes_back_under_the_token_that_it_was_asked_under(
        text in object_of_any(), token in token(), at in any::<prop::sample::Index>(),
    ) {
        let legacy = inserted(&text, &format!("\"progressToken\": {token}"), at);
        let (notice, found) = Notice::progress("notifications/progress".into(), legacy.clone()).unwrap();
        prop_assert_eq!(&found, token.as_bytes());
        let there = notice.with_token(Some(&Bytes::from_static(b"\"gateway's own\"")));
        let (notice, _) = Notice::progress("notifications/progress".into(), there).unwrap();
        prop_assert_eq!(notice.with_token(Some(&found)), legacy);
    }

    #[test]
    fn the_abilities_of_a_client_survive_the_translation(
        members in prop::collection::btree_map(
            select(&["sampling", "elicitation", "roots", "extensions", "tasks", "x"][..]),
            object_of_any(), 0..5,
        ),
    ) {
        let raw = members.iter().fold(Bytes::from_static(b"{}"), |raw, (key, value)| {
            with_member(&raw, key, std::str::from_utf8(value).unwrap())
        });
        let once = Abilities::parse(&raw);
        prop_assert_eq!(&Abilities::parse(once.raw()), &once);
    }
}

/// The members that the gateway reads: another type would make another message.
const KNOWN: [&str; 18] = [
    "name",
    "uri",
    "arguments",
    "cursor",
    "taskId",
    "level",
    "requestState",
    "inputResponses",
    "ref",
    "notifications",
    "_meta",
    "resultType",
    "isError",
    "mode",
    "elicitationId",
    "task",
    "progressToken",
    "argument",
];

/// Numbers that a conversion through floating point would change.
const ODD: [&str; 7] = ["0", "-0", "1.50", "1e400", "12345678901234567890123", "1E+2", "-0.0"];

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![8 => Just(""), 1 => select(&[" ", "\n", "\r\n\t", "  "][..])]
}

/// A JSON string, with unnecessary escapes.
fn string_text() -> impl Strategy<Value = String> {
    let escaped = "[a-zA-Z/\"{}:,]{0,6}".prop_map(|text| {
        let escapes = text.chars().map(|c| format!("\\u{:04x}", u32::from(c)));
        format!("\"{}\"", escapes.collect::<String>())
    });
    prop_oneof![3 => ".{0,12}".prop_map(|text| string(&text)), 1 => escaped]
}

/// A key that no message has, in any spelling.
fn key() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[a-zA-Z_$/.-]{1,8}", 1 => ".{0,6}"]
        .prop_filter("known members have their kinds", |key| !KNOWN.contains(&key.as_str()))
}

fn number() -> impl Strategy<Value = String> {
    prop_oneof![any::<i64>().prop_map(|n| n.to_string()), select(&ODD[..]).prop_map(str::to_owned)]
}

/// Any JSON, as text.
fn value() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        select(&["null", "true", "false"][..]).prop_map(str::to_owned),
        number(),
        string_text(),
    ];
    leaf.prop_recursive(3, 24, 4, |inner| {
        let array = (prop::collection::vec(inner.clone(), 0..4), space())
            .prop_map(|(all, space)| format!("[{space}{}]", all.join(&format!("{space},"))));
        prop_oneof![
            array,
            (prop::collection::btree_map(".{0,6}", inner, 0..4), space())
                .prop_map(|(members, space)| object_text(&members, space))
        ]
    })
}

fn object_text(members: &BTreeMap<String, String>, space: &str) -> String {
    let members: Vec<_> = members
        .iter()
        .map(|(key, value)| format!("{space}{}{space}:{space}{value}{space}", string(key)))
        .collect();
    format!("{{{space}{}}}", members.join(","))
}

/// An object with unknown members.
fn object_of_any() -> impl Strategy<Value = Bytes> {
    (prop::collection::btree_map(key(), value(), 0..5), space())
        .prop_map(|(members, space)| Bytes::from(object_text(&members, space)))
}

fn any_meta() -> impl Strategy<Value = Option<String>> {
    let object = object_of_any().prop_map(|raw| String::from_utf8(raw.to_vec()).unwrap());
    prop::option::of(object)
}

/// A request's `_meta`, with a token or without.
fn request_meta() -> impl Strategy<Value = Option<String>> {
    (any_meta(), prop::option::of(token())).prop_map(|(raw, token)| match (raw, token) {
        (Some(raw), Some(token)) => {
            let with = with_member(&Bytes::from(raw), meta::PROGRESS_TOKEN, &token);
            Some(String::from_utf8(with.to_vec()).unwrap())
        }
        (raw, _) => raw,
    })
}

fn token() -> impl Strategy<Value = String> {
    prop_oneof![any::<i64>().prop_map(|n| n.to_string()), string_text()]
}

/// An object with another member added at its end.
fn with_member(raw: &Bytes, key: &str, value: &str) -> Bytes {
    let text = std::str::from_utf8(raw).unwrap();
    let open = text.trim_end().strip_suffix('}').unwrap();
    let comma = if open.trim_end().ends_with('{') { "" } else { "," };
    format!("{open}{comma}{}:{value}}}", string(key)).into()
}

fn with_meta(raw: &Bytes, own: Option<&str>) -> Bytes {
    own.map_or_else(|| raw.clone(), |own| with_member(raw, meta::META, own))
}

/// An object with another raw member added at any position.
fn inserted(raw: &Bytes, member: &str, at: prop::sample::Index) -> Bytes {
    let members = Members::parse(raw).unwrap().0;
    let mut texts: Vec<_> =
        members.iter().map(|(key, value)| format!("{}: {}", string(key), value.get())).collect();
    texts.insert(at.index(texts.len() + 1), member.to_owned());
    format!("{{{}}}", texts.join(" ,")).into()
}

/// An object with the value of one string member in its canonical spelling,
/// moved to the end.
fn respelled(raw: &Bytes, member: &str) -> Bytes {
    let members = Members::parse(raw).unwrap();
    let value: String = serde_json::from_str(members.find(member).unwrap().get()).unwrap();
    let rest = members.0.iter().filter(|(key, _)| key != member);
    let rest = rest.map(|(key, value)| format!("{}:{},", string(key), value.get()));
    format!("{{{}{}:{}}}", rest.collect::<String>(), string(member), string(&value)).into()
}

/// A request's params with the members that its method has.
fn request_text(any: &Bytes, members: &[&str], own_meta: Option<&str>, seed: usize) -> Bytes {
    let text = members.iter().fold(any.clone(), |raw, member| {
        let value = match *member {
            "arguments" | "argument" | "context" => format!(r#"{{"n": {seed}.50,"a":["\u0041"]}}"#),
            "ref" => r#"{ "type":"ref/prompt","name":"p" }"#.to_owned(),
            _ => format!("\"n\\u0061me {seed}\""),
        };
        with_member(&raw, member, &value)
    });
    with_meta(&text, own_meta)
}

/// A call with these params, and the raw progress token in them.
fn call(method: &str, params: &Bytes, version: ProtocolVersion) -> (Call, Option<Bytes>) {
    let params = Params::parse(Some(params.clone())).unwrap();
    let token = params.meta().unwrap().progress_token;
    let capabilities = Bytes::from_static(br#"{"roots":{"listChanged":true},"sampling":{}}"#);
    let info = Bytes::from_static(br#"{"name":"c","version":"1"}"#);
    let client = Client::new(version, Some(info), capabilities);
    let context = Context { progress_token: token.clone(), ..make_context(client) };
    (Call { method: Method::parse(method), params, context, input: None }, token)
}

type Parts = (BTreeMap<String, String>, BTreeMap<String, String>);

/// The members of an object and those of its `_meta`, except for those in
/// `but`.
fn parts(raw: &[u8], but: &[&str]) -> Parts {
    let texts = |raw: &[u8]| -> BTreeMap<String, String> {
        let members = Members::parse(raw).unwrap_or_else(|e| panic!("{e}: {raw:?}"));
        let count = members.0.len();
        let texts: BTreeMap<_, _> =
            members.0.into_iter().map(|(k, v)| (k.into_owned(), v.get().to_owned())).collect();
        assert_eq!(texts.len(), count, "no member is duplicated");
        texts
    };
    let mut members = texts(raw);
    let own = members.remove(meta::META).filter(|own| own != "null");
    let mut own = own.map(|own| texts(own.as_bytes())).unwrap_or_default();
    own.retain(|key, _| !but.contains(&key.as_str()));
    (members, own)
}

fn same(one: &[u8], other: &[u8], but: &[&str]) -> Result<(), TestCaseError> {
    prop_assert_eq!(parts(one, but), parts(other, but));
    Ok(())
}
