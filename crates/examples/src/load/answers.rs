//! The prepared answers.

use std::borrow::Cow;
use std::collections::HashSet;

use bytes::{BufMut as _, Bytes, BytesMut};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::LoadArgs;

/// The answer to a message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LoadAnswer {
    /// A call's result, sent after the latency.
    Call(Bytes),
    /// Any other response, sent at once.
    Now(Bytes),
    /// The response that opens a session.
    Initialized(Bytes),
    /// The request needs a session, but has none.
    NoSession,
    /// No response: a notification, or a response without a request.
    Nothing,
    /// An error: not a valid message.
    Invalid(Bytes),
}

/// Session state of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoadSession {
    Open,
    None,
}

/// All prepared answers.
pub(super) struct Answers {
    tools: HashSet<String>,
    modern: EraAnswers,
    legacy: EraAnswers,
    initialized: String,
    discovered: String,
}

/// The answers that depend on the era.
struct EraAnswers {
    list: String,
    /// A call's result before and after the number.
    result: [String; 2],
}

#[derive(Deserialize)]
struct LoadMessage<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct LoadCall<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl Answers {
    pub(super) fn prepare(args: &LoadArgs) -> Self {
        let name = |n: u32| if n == 1 { "search".to_owned() } else { format!("search_{n}") };
        let names: Vec<String> = (1..=args.tools).map(name).collect();
        let schema: Value = serde_json::from_str(LOAD_SCHEMA).unwrap_or_default();
        let description = text(args.tool_bytes);
        let tool = |name: &String| {
            json!({
                "name": name,
                "description": description,
                "inputSchema": schema,
                "annotations": { "readOnlyHint": true },
            })
        };
        let tools: Vec<Value> = names.iter().map(tool).collect();
        let text = json!(text(args.bytes)).to_string();
        // Without its quotes, to follow the number.
        let text = text.trim_matches('"');
        let begin = r#""content":[{"type":"text","text":"number "#;
        let end = format!(" {text}\"}}],\"isError\":false");
        Self {
            tools: names.into_iter().collect(),
            modern: EraAnswers {
                list: json!({
                    "resultType": "complete", "tools": tools, "ttlMs": 60_000,
                    "cacheScope": "public", "_meta": { SERVER_INFO: info() },
                })
                .to_string(),
                result: [
                    format!("{{\"resultType\":\"complete\",{begin}"),
                    format!("{end},\"_meta\":{}}}", json!({ SERVER_INFO: info() })),
                ],
            },
            legacy: EraAnswers {
                list: json!({ "tools": tools }).to_string(),
                result: [format!("{{{begin}"), format!("{end}}}")],
            },
            initialized: json!({
                "protocolVersion": LEGACY_VERSION, "capabilities": { "tools": {} }, "serverInfo": info(),
            })
            .to_string(),
            discovered: json!({
                "resultType": "complete", "supportedVersions": [MODERN_VERSION],
                "capabilities": { "tools": {} }, "ttlMs": 60_000, "cacheScope": "public",
                "_meta": { SERVER_INFO: info() },
            })
            .to_string(),
        }
    }

    pub(super) fn answer(&self, message: &[u8], session: LoadSession) -> LoadAnswer {
        let Ok(read) = serde_json::from_slice::<LoadMessage<'_>>(message) else {
            return LoadAnswer::Invalid(error("null", -32700, "not a JSON-RPC message"));
        };
        let Some(id) = read.id.map(RawValue::get) else { return LoadAnswer::Nothing };
        let modern = memchr::memmem::find(message, PROTOCOL_VERSION).is_some();
        let era = if modern { &self.modern } else { &self.legacy };
        match read.method.as_deref() {
            Some("tools/call" | "tools/list") if !modern && session == LoadSession::None => {
                LoadAnswer::NoSession
            }
            Some("tools/call") => self.call(id, read.params, era),
            Some("tools/list") => LoadAnswer::Now(result(id, &[&era.list])),
            Some("server/discover") if modern => LoadAnswer::Now(result(id, &[&self.discovered])),
            Some("initialize") if !modern => {
                LoadAnswer::Initialized(result(id, &[&self.initialized]))
            }
            Some("ping") => LoadAnswer::Now(result(id, &["{}"])),
            Some(_) => LoadAnswer::Now(error(id, -32601, "unknown method")),
            None => LoadAnswer::Nothing,
        }
    }

    fn call(&self, id: &str, params: Option<&RawValue>, era: &EraAnswers) -> LoadAnswer {
        let call =
            params.and_then(|params| serde_json::from_str::<LoadCall<'_>>(params.get()).ok());
        match call {
            Some(call) if self.tools.contains(&*call.name) => {
                let number = call.arguments.and_then(number_in).unwrap_or("0");
                let [begin, end] = &era.result;
                LoadAnswer::Call(result(id, &[begin, number, end]))
            }
            _ => LoadAnswer::Now(error(id, -32602, "no such tool")),
        }
    }
}

/// Returns the digits of the argument `number`.
fn number_in(arguments: &RawValue) -> Option<&str> {
    let (_, rest) = arguments.get().split_once("\"number\":")?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end).filter(|digits| !digits.is_empty())
}

fn result(id: &str, parts: &[&str]) -> Bytes {
    let length: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = BytesMut::with_capacity(length + id.len() + 40);
    out.put_slice(b"{\"jsonrpc\":\"2.0\",\"id\":");
    out.put_slice(id.as_bytes());
    out.put_slice(b",\"result\":");
    for part in parts {
        out.put_slice(part.as_bytes());
    }
    out.put_slice(b"}");
    out.freeze()
}

pub(super) fn error(id: &str, code: i32, message: &str) -> Bytes {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
        .into()
}

/// Returns text of some length, with occasional line ends as in real text.
fn text(length: u32) -> String {
    let length = length as usize;
    ANSWER_PROSE.chars().cycle().take(length).collect()
}

fn info() -> Value {
    json!({ "name": "trunkline-load", "version": env!("CARGO_PKG_VERSION") })
}

/// A schema similar to real tools: bounds, a choice, a list, a nested object, no unknown members.
const LOAD_SCHEMA: &str = r#"{"type":"object","properties":{
  "number":{"type":"integer","minimum":0},
  "path":{"type":"string","minLength":1,"maxLength":256},
  "query":{"type":"string","description":"What to look for"},
  "limit":{"type":"integer","minimum":1,"maximum":100},
  "mode":{"enum":["fast","deep"]},
  "tags":{"type":"array","items":{"type":"string"},"maxItems":16},
  "options":{"type":"object","properties":{"case":{"type":"boolean"},"context":{"type":"integer"}},"additionalProperties":false}
 },"required":["number","path","query"],"additionalProperties":false}"#;
const ANSWER_PROSE: &str = "found it in src/listener/connection.rs, line 214:\n    match protocol {\n\
    the protocol is told by the first three bytes of the connection, and kept until its end; what \
    comes later is judged by the same rule, so that \"late\" and \"early\" mean one thing. ";
const MODERN_VERSION: &str = "2026-07-28";
const LEGACY_VERSION: &str = "2025-11-25";
const PROTOCOL_VERSION: &[u8] = b"\"io.modelcontextprotocol/protocolVersion\"";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
