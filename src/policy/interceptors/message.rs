//! The messages to and from interceptors, in the shape of SEP-2624: a JSON-RPC request
//! `interceptor/invoke`, and a result that is a validation or a mutation.

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::call::{Call, Context, InterceptorFault, Principal};
use crate::text::clip;

use super::super::permit::CallTarget;

/// What an interceptor sees of a call.
#[derive(Debug)]
pub(super) struct Intercepted {
    method: String,
    server: String,
    /// The server's own name or URI, and the arguments.
    params: Map<String, Value>,
}

/// What an interceptor decides.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It has no objection.
    Valid,
    /// It refuses.
    Refused {
        /// What it says.
        reason: String,
    },
    /// It has changed the message.
    Changed {
        /// The raw payload.
        payload: Vec<u8>,
    },
}

/// An answer, with those members that count.
#[derive(Deserialize)]
struct InvokeResponse<'a> {
    jsonrpc: Option<String>,
    id: Option<Value>,
    #[serde(borrow)]
    result: Option<InvokeResult<'a>>,
    error: Option<InvokeError>,
}

#[derive(Deserialize)]
struct InvokeError {
    code: i64,
    message: String,
}

#[derive(Deserialize)]
struct InvokeResult<'a> {
    #[serde(rename = "type")]
    kind: Option<String>,
    valid: Option<bool>,
    severity: Option<String>,
    #[serde(default)]
    messages: Vec<InvokeMessage>,
    modified: Option<bool>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct InvokeMessage {
    path: Option<String>,
    message: String,
}

/// The payload of a request.
#[derive(Deserialize)]
struct RequestPayload {
    method: String,
    params: Map<String, Value>,
}

impl Intercepted {
    pub(super) fn of_call(call: &Call, target: &CallTarget) -> Self {
        let mut params = Map::new();
        let is_uri = call.params.uri().is_some();
        if let Some(native) = &target.native {
            let key = if is_uri { "uri" } else { "name" };
            params.insert(key.into(), Value::from(native.as_str()));
        }
        let arguments = call.params.arguments();
        if let Some(arguments) = arguments.and_then(|raw| serde_json::from_slice(raw).ok()) {
            params.insert(ARGUMENTS.into(), arguments);
        }
        let (method, server) = (call.method.as_str().to_owned(), target.server.to_string());
        Self { method, server, params }
    }

    /// The server that the call is for.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// The raw arguments.
    pub(super) fn arguments(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self.params.get(ARGUMENTS)?).ok()
    }

    /// Takes the arguments of a changed request, in which nothing else may differ.
    pub(super) fn take_arguments(&mut self, payload: &[u8]) -> Result<(), InterceptorFault> {
        let changed: RequestPayload = serde_json::from_slice(payload).map_err(|_| NOT_A_REQUEST)?;
        let without_arguments = |params: &Map<String, Value>| {
            let mut params = params.clone();
            params.remove(ARGUMENTS);
            params
        };
        let is_same = changed.method == self.method
            && without_arguments(&changed.params) == without_arguments(&self.params);
        if !is_same {
            return Err(OTHER_CHANGE);
        }
        match changed.params.get(ARGUMENTS) {
            Some(Value::Object(_)) => {
                self.params = changed.params;
                Ok(())
            }
            _ => Err(NOT_A_REQUEST),
        }
    }

    /// The request to an interceptor: about the call, or about its result.
    pub(super) fn request(
        &self,
        interceptor: &str,
        result: Option<&[u8]>,
        (context, time): (&Context, &str),
    ) -> Vec<u8> {
        let (phase, payload) = match result {
            None => ("request", json!({ "method": self.method, "params": self.params })),
            Some(raw) => ("response", serde_json::from_slice(raw).unwrap_or_default()),
        };
        let kind = if context.principal == Principal::Anonymous { "anonymous" } else { "user" };
        let mut about = json!({
            "principal": { "type": kind, "id": context.principal.as_str() },
            "timestamp": time,
            "server": self.server,
            "profile": context.endpoint.profile(),
        });
        if let (Some(trace), Some(about)) = (trace_id(context), about.as_object_mut()) {
            about.insert("traceId".into(), Value::from(trace));
        }
        json!({
            "jsonrpc": "2.0",
            "id": REQUEST_ID,
            "method": "interceptor/invoke",
            "params": {
                "name": interceptor,
                "event": self.method,
                "phase": phase,
                "payload": payload,
                "context": about,
            },
        })
        .to_string()
        .into_bytes()
    }
}

/// The trace id of the client's `traceparent`.
fn trace_id(context: &Context) -> Option<&str> {
    let parent = context.trace.parent.as_deref().or(context.trace.header.as_deref())?;
    parent.split('-').nth(1).filter(|id| id.len() == 32)
}

/// Reads the answer of an interceptor.
pub(super) fn read_verdict(body: &[u8]) -> Result<Verdict, InterceptorFault> {
    let response: InvokeResponse<'_> =
        serde_json::from_slice(body).map_err(|_| InterceptorFault::NotJson)?;
    if let Some(InvokeError { code, message }) = response.error {
        let message = clip(&message, LONGEST).to_owned();
        return Err(InterceptorFault::Error { code, message });
    }
    let result = response.result.ok_or(InterceptorFault::NotJson)?;
    // The answer to another request decides nothing.
    if response.jsonrpc.as_deref() != Some("2.0") || response.id != Some(REQUEST_ID.into()) {
        return Err(InterceptorFault::OtherId);
    }
    match (result.kind.as_deref(), result.valid, result.modified) {
        (Some("validation") | None, Some(true), _)
        | (Some("mutation") | None, None, Some(false)) => Ok(Verdict::Valid),
        // A validation blocks with the severity `error`, which is the default.
        (Some("validation") | None, Some(false), _) => match result.severity.as_deref() {
            Some("info" | "warn") => Ok(Verdict::Valid),
            _ => Ok(Verdict::Refused { reason: reason(&result.messages) }),
        },
        (Some("mutation") | None, None, Some(true)) => {
            let payload = result.payload.ok_or(InterceptorFault::Mutation("has no payload"))?;
            Ok(Verdict::Changed { payload: payload.get().as_bytes().to_vec() })
        }
        _ => Err(InterceptorFault::Kind),
    }
}

/// What an interceptor says, in one line.
fn reason(messages: &[InvokeMessage]) -> String {
    let lines = messages.iter().map(|InvokeMessage { path, message }| match path {
        Some(path) => format!("{path}: {message}"),
        None => message.clone(),
    });
    let lines = lines.collect::<Vec<_>>().join("; ");
    match lines.as_str() {
        "" => "it gives no reason".into(),
        lines => clip(lines, LONGEST).to_owned(),
    }
}

const ARGUMENTS: &str = "arguments";
/// The most bytes of what an interceptor says.
const LONGEST: usize = 512;
const NOT_A_REQUEST: InterceptorFault =
    InterceptorFault::Mutation("is not a request with an object of arguments");
const OTHER_CHANGE: InterceptorFault =
    InterceptorFault::Mutation("changes more than the arguments");

/// The id of each request: a connection carries one at a time.
const REQUEST_ID: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Intercepted {
        let params = json!({ "name": "echo", "arguments": { "a": 1 } });
        let params = params.as_object().unwrap().clone();
        Intercepted { method: "tools/call".into(), server: "s".into(), params }
    }

    #[test]
    fn an_answer_is_a_validation_or_a_mutation_or_a_fault() {
        let refused = |reason: &str| Ok(Verdict::Refused { reason: reason.into() });
        for (result, verdict) in [
            (json!({ "type": "validation", "valid": true }), Ok(Verdict::Valid)),
            (json!({ "valid": true }), Ok(Verdict::Valid)),
            (
                json!({ "type": "validation", "valid": false, "severity": "warn" }),
                Ok(Verdict::Valid),
            ),
            (json!({ "type": "validation", "valid": false }), refused("it gives no reason")),
            (
                json!({ "valid": false, "severity": "error", "messages": [
                    { "path": "params.arguments.a", "message": "too much" }, { "message": "no" },
                ] }),
                refused("params.arguments.a: too much; no"),
            ),
            (json!({ "type": "mutation", "modified": false }), Ok(Verdict::Valid)),
            (
                json!({ "type": "mutation", "modified": true, "payload": { "x": 1 } }),
                Ok(Verdict::Changed { payload: br#"{"x":1}"#.to_vec() }),
            ),
            (
                json!({ "type": "mutation", "modified": true }),
                Err(InterceptorFault::Mutation("has no payload")),
            ),
            (json!({ "type": "mutation", "valid": true }), Err(InterceptorFault::Kind)),
            (json!({ "type": "poem" }), Err(InterceptorFault::Kind)),
            (json!({}), Err(InterceptorFault::Kind)),
        ] {
            let body = json!({ "jsonrpc": "2.0", "id": 1, "result": result }).to_string();
            assert_eq!(read_verdict(body.as_bytes()), verdict, "{body}");
        }
        for body in ["", "[]", "{}", "{\"result\":1}", "no"] {
            assert_eq!(read_verdict(body.as_bytes()), Err(InterceptorFault::NotJson), "{body}");
        }
        for head in [
            r#""jsonrpc":"2.0","id":2"#,
            r#""jsonrpc":"2.0","id":"1""#,
            r#""jsonrpc":"2.0","id":null"#,
            r#""jsonrpc":"2.0""#,
            r#""jsonrpc":"1.0","id":1"#,
            r#""id":1"#,
        ] {
            let body = format!("{{{head},\"result\":{{\"valid\":true}}}}");
            assert_eq!(read_verdict(body.as_bytes()), Err(InterceptorFault::OtherId), "{body}");
        }
        let error = br#"{"error":{"code":-32602,"message":"unknown interceptor"}}"#;
        assert!(matches!(read_verdict(error), Err(InterceptorFault::Error { code: -32602, .. })));
    }

    #[test]
    fn a_mutation_of_a_call_changes_its_arguments_alone() {
        let arguments = json!({ "a": 2 });
        for (payload, expected) in [
            (
                json!({ "method": "tools/call", "params": { "name": "echo", "arguments": arguments } }),
                Ok(()),
            ),
            (
                json!({ "method": "tools/list", "params": { "name": "echo", "arguments": arguments } }),
                Err(OTHER_CHANGE),
            ),
            (
                json!({ "method": "tools/call", "params": { "name": "other", "arguments": arguments } }),
                Err(OTHER_CHANGE),
            ),
            (
                json!({ "method": "tools/call", "params": { "name": "echo", "arguments": [1] } }),
                Err(NOT_A_REQUEST),
            ),
            (json!({ "method": "tools/call", "params": { "name": "echo" } }), Err(NOT_A_REQUEST)),
            (json!(7), Err(NOT_A_REQUEST)),
        ] {
            let mut seen = seen();
            assert_eq!(seen.take_arguments(payload.to_string().as_bytes()), expected, "{payload}");
            let is_changed = seen.arguments().unwrap() == br#"{"a":2}"#;
            assert_eq!(is_changed, expected.is_ok(), "{payload}");
        }
    }
}
