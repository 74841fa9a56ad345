//! The rewrites between the eras, on any JSON.
//!
//! For a message that both eras have, `lower(lift(x))` has the members of `x` again, byte for byte.
//! For any other JSON, the rewrites still turn valid JSON into valid JSON.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use trunkline::call::{
    Abilities, Call, Client, Context, Endpoint, ErrorBody, Notice, Params, Principal, Question,
    ResultBody, ResultType,
};
use trunkline::era::tasks::form;
use trunkline::era::tasks::rename::{TaskIdPlace, rename};
use trunkline::era::{change_notification, lift as up, lower as down};
use trunkline::jsonrpc::{Id, Members};
use trunkline::mcp::{Method, ProtocolVersion, meta};

/// Lifts Legacy parts to Modern, and lowers them again.
pub fn lift(data: &[u8]) {
    let source = Bytes::copy_from_slice(data);
    if let Ok(params) = Params::parse(Some(source.clone())) {
        request(&params);
    }
    if let Ok(body) = ResultBody::parse(source.clone()) {
        let lifted = up::result(&body, INFO).finish();
        is_object(&lifted);
        let modern = ResultBody::parse(lifted).expect("a lifted result is one");
        assert!(modern.kind_span().is_some(), "a Modern result has its type");
        let lowered = down::result(&modern).finish();
        is_object(&lowered);
        if is_plain(&source, &["resultType"]) {
            same(&lowered, &source, &[meta::SERVER_INFO]);
        }
    }
    if let Ok(error) = ErrorBody::parse(source.clone())
        && let Some(lifted) = up::read_error(&error, "a:b")
    {
        is_object(lifted.raw());
        assert_eq!(lifted.message(), error.message());
    }
    question(&source);
    tasks(&source);
}

/// Lifts Legacy tasks to Modern, and makes their ids public.
fn tasks(source: &Bytes) {
    for place in [TaskIdPlace::Task, TaskIdPlace::Created, TaskIdPlace::Meta] {
        if let Some(renamed) = rename(source, place, |native| format!("s.{native}")) {
            is_object(&renamed);
            assert!(rename(&renamed, place, str::to_owned).is_some(), "the ids are still there");
        }
    }
    if let Some(created) = form::lift_created(source) {
        is_object(&created);
        let body = ResultBody::parse(created);
        assert!(body.is_err() || body.is_ok_and(|body| *body.kind() == ResultType::Task));
    }
    if let Some(task) = form::Task::parse(source) {
        let lifted = form::lift(&task, &form::TaskOutcome::Nothing(task.status));
        is_object(&lifted);
        let back = form::Task::parse(&lifted).expect("a lifted task is one");
        assert_eq!((back.id, back.status), (task.id, task.status));
    }
    if Members::parse_with_duplicates(source).is_ok() {
        is_object(&form::as_task(source));
        assert!(!form::asks_for_task(&form::without_task(source)), "nothing asks for a task");
    }
}

/// Lowers Modern parts to Legacy.
pub fn lower(data: &[u8]) {
    let source = Bytes::copy_from_slice(data);
    if let Ok(params) = Params::parse(Some(source.clone())) {
        let call = call(params, ProtocolVersion::LATEST_MODERN);
        for token in [None, Some(&b"7"[..])] {
            let lowered = down::request(&call, &[], token).finish();
            is_object(&lowered);
            if is_plain(&source, &["inputResponses", "requestState"]) {
                let known = [
                    meta::PROTOCOL_VERSION,
                    meta::CLIENT_INFO,
                    meta::CLIENT_CAPABILITIES,
                    meta::LOG_LEVEL,
                    meta::PROGRESS_TOKEN,
                ];
                same(&lowered, &source, &known);
            }
        }
        let input = down::with_input(&source, b"{}", Some("\"s\""));
        let retry = Params::parse(Some(input.clone())).expect("a retry can be read");
        assert_eq!((retry.state(), retry.responses_span().is_some()), (Some("s"), true));
        is_object(&down::without_input(&input));
    }
    if let Ok(body) = ResultBody::parse(source.clone()) {
        let lowered = down::result(&body).finish();
        is_object(&lowered);
        let legacy = ResultBody::parse(lowered).expect("a lowered result is one");
        assert!(legacy.kind_span().is_none(), "a Legacy result has no type");
    }
    if let Some(lowered) = down::read_error(&source) {
        is_object(&lowered);
    }
    if Members::parse_with_duplicates(&source).is_ok() {
        let tagged = change_notification::params(&source, &[("uri", "a:b")], Some(&Id::number(7)));
        is_object(&tagged);
        is_object(&change_notification::params(&tagged, &[("uri", "c:d")], None));
    }
    if let Some((notice, token)) = Notice::progress("n".into(), source.clone()) {
        let (there, _) =
            Notice::progress("n".into(), notice.with_token(Some(&Bytes::from_static(b"1"))))
                .expect("it has its token");
        assert_eq!(there.with_token(Some(&token)), source);
    }
    let once = Abilities::parse(&source);
    assert_eq!(Abilities::parse(once.raw()), once);
}

fn request(params: &Params) {
    let Ok(said) = params.meta() else { return };
    let legacy = call(params.clone(), ProtocolVersion::V2025_11_25);
    let lifted = up::request(&legacy, &[], ProtocolVersion::LATEST_MODERN, Some(b"7")).finish();
    is_object(&lifted);
    let modern = Params::parse(Some(lifted)).expect("lifted params can be read");
    let now = modern.meta().expect("so can their metadata");
    assert_eq!(now.version.as_deref(), Some("2026-07-28"));
    assert_eq!(now.progress_token.as_deref(), Some(&b"7"[..]));
    let own = params.raw();
    let modern = call(modern, ProtocolVersion::LATEST_MODERN);
    let lowered = down::request(&modern, &[], said.progress_token.as_deref()).finish();
    if is_plain(own, &["inputResponses", "requestState"]) && !names_modern(own) {
        same(&lowered, own, &[]);
    }
}

fn question(source: &Bytes) {
    for method in ["elicitation/create", "sampling/createMessage", "roots/list"] {
        let asked = Question { method: method.into(), params: Some(source.clone()) };
        let lifted = up::question(&asked);
        for version in ProtocolVersion::ALL {
            let lowered = down::question(&lifted, version, "id");
            assert_eq!(lowered.method, method);
            if Members::parse_with_duplicates(source).is_ok() {
                is_object(&lowered.params.unwrap_or(Bytes::from_static(b"{}")));
            }
        }
    }
}

fn call(params: Params, version: ProtocolVersion) -> Call {
    let capabilities = Bytes::from_static(br#"{"roots":{}}"#);
    let client = Client::new(version, Some(Bytes::from_static(INFO)), capabilities);
    let token = params.meta().ok().and_then(|meta| meta.progress_token);
    let assumed = Context::assumed(Principal::Anonymous, None, Endpoint::default());
    let context = Context { client: Arc::new(client), progress_token: token, ..assumed };
    Call { method: Method::ToolsCall, params, context, input: None }
}

/// Returns true if the law applies to an object: no member is duplicated or belongs to the other
/// era, and `_meta` is an object.
fn is_plain(raw: &[u8], not: &[&str]) -> bool {
    let once = |raw: &[u8]| {
        let Ok(Members(members)) = Members::parse_with_duplicates(raw) else { return false };
        let keys: BTreeSet<_> = members.iter().map(|(key, _)| key.clone()).collect();
        keys.len() == members.len() && !not.iter().any(|key| keys.contains(*key))
    };
    let own = Members::parse_with_duplicates(raw).ok().and_then(|members| members.find(meta::META));
    once(raw) && own.is_none_or(|own| own.get() == "null" || once(own.get().as_bytes()))
}

/// Returns true if the metadata has members that only Modern clients send.
fn names_modern(raw: &[u8]) -> bool {
    let keys =
        [meta::PROTOCOL_VERSION, meta::CLIENT_INFO, meta::CLIENT_CAPABILITIES, meta::LOG_LEVEL];
    let own = Members::parse_with_duplicates(raw).ok().and_then(|members| members.find(meta::META));
    let own = own.and_then(|own| Members::parse_with_duplicates(own.get().as_bytes()).ok());
    own.is_some_and(|own| keys.iter().any(|key| own.find(key).is_some()))
}

type Parts<'a> = (BTreeMap<String, &'a str>, BTreeMap<String, &'a str>);

fn parts<'a>(raw: &'a [u8], but: &[&str]) -> Parts<'a> {
    let texts = |raw: &'a [u8]| -> BTreeMap<String, &'a str> {
        let Ok(Members(members)) = Members::parse_with_duplicates(raw) else {
            return BTreeMap::new();
        };
        members.into_iter().map(|(key, value)| (key.into_owned(), value.get())).collect()
    };
    let mut members = texts(raw);
    let own = members.remove(meta::META).map(|own| texts(own.as_bytes()));
    let mut own = own.unwrap_or_default();
    own.retain(|key, _| !but.contains(&key.as_str()));
    (members, own)
}

fn same(one: &[u8], other: &[u8], but: &[&str]) {
    assert_eq!(parts(one, but), parts(other, but));
}

fn is_object(raw: &[u8]) {
    let text = String::from_utf8_lossy(raw);
    assert!(Members::parse_with_duplicates(raw).is_ok(), "no object: {text}");
}

const INFO: &[u8] = br#"{"name":"gateway","version":"1"}"#;
