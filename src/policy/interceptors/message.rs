//! The messages to and from interceptors, in the shape of SEP-2624: a JSON-RPC request
//! `interceptor/invoke`, and a result that is a validation or a mutation.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use crate::call::{Call, Context, InterceptorFault, Principal, ServerName};
use crate::jsonrpc::{MAX_SERVER_DEPTH, Splice, parse_strict};
use crate::mcp::{Method, meta};
use crate::policy::target::CallTarget;
use crate::text::clip;

/// A call, in the form that interceptors receive.
#[derive(Debug)]
pub(super) struct Intercepted {
    method: String,
    server: String,
    /// The server's own name or URI, and the arguments.
    params: Map<String, Value>,
    /// The arguments cannot be read, or readers could interpret them differently.
    is_ambiguous: bool,
}

/// A message of a server, in the form that interceptors receive.
#[derive(Debug)]
pub(super) struct SeenMessage {
    /// The method of a notification; `None` for the answer to the call.
    event: Option<String>,
    payload: Box<RawValue>,
}

impl SeenMessage {
    /// Creates the message for the answer to the call.
    ///
    /// # Errors
    /// [`InterceptorFault::Ambiguous`] if it is not valid JSON or has duplicate keys: the client
    /// could read another value than the interceptor.
    pub(super) fn answer(payload: &[u8]) -> Result<Self, InterceptorFault> {
        Ok(Self { event: None, payload: read_payload(payload)? })
    }

    /// Creates the message for a notification of this method.
    ///
    /// # Errors
    /// As for [`Self::answer`].
    pub(super) fn notification(method: &str, payload: &[u8]) -> Result<Self, InterceptorFault> {
        Ok(Self { event: Some(method.to_owned()), payload: read_payload(payload)? })
    }

    /// Returns the bytes of its payload.
    pub(super) fn size(&self) -> usize {
        self.payload.get().len()
    }
}

fn read_payload(payload: &[u8]) -> Result<Box<RawValue>, InterceptorFault> {
    parse_strict(payload, MAX_SERVER_DEPTH).map_err(|_| InterceptorFault::Ambiguous)?;
    serde_json::from_slice(payload).map_err(|_| InterceptorFault::Ambiguous)
}

/// The decision of an interceptor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No objection.
    Valid,
    /// A refusal.
    Refused {
        /// Its reason.
        reason: String,
    },
    /// It has changed the message.
    Changed {
        /// The raw payload.
        payload: Vec<u8>,
    },
}

/// An interceptor's answer, with the members that are used.
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
        let mut seen = Self::outside(&target.server, call.method.as_str());
        if has_other_params(&call.method) {
            seen.add_params(call, target);
            return seen;
        }
        let is_uri = call.params.uri().is_some();
        if let Some(native) = &target.native {
            let key = if is_uri { "uri" } else { "name" };
            seen.params.insert(key.into(), Value::from(native.as_str()));
        }
        if let Some(arguments) = call.params.arguments() {
            match parse_strict(arguments, MAX_SERVER_DEPTH) {
                Ok(arguments) => drop(seen.params.insert(ARGUMENTS_MEMBER.into(), arguments)),
                Err(_) => seen.is_ambiguous = true,
            }
        }
        seen
    }

    /// Creates a message outside of calls, by its method.
    pub(super) fn outside(server: &ServerName, method: &str) -> Self {
        let (method, server) = (method.to_owned(), server.to_string());
        Self { method, server, params: Map::new(), is_ambiguous: false }
    }

    /// Adds all params for the server, except `_meta` and the client's answers to its questions.
    fn add_params(&mut self, call: &Call, target: &CallTarget) {
        let mut raw = Splice::new(call.params.raw());
        for (at, with) in &target.edits {
            raw.replace(at.clone(), with.clone());
        }
        match parse_strict(&raw.finish(), MAX_SERVER_DEPTH) {
            Ok(Value::Object(mut params)) => {
                params.retain(|key, _| {
                    !matches!(&**key, meta::META | REQUEST_STATE | INPUT_RESPONSES)
                });
                self.params = params;
            }
            _ => self.is_ambiguous = true,
        }
    }

    /// Returns true if an interceptor could read other arguments than the server.
    pub(super) fn is_ambiguous(&self) -> bool {
        self.is_ambiguous
    }

    /// Returns the server of the call.
    pub(super) fn server(&self) -> &str {
        &self.server
    }

    /// Returns the raw arguments.
    pub(super) fn arguments(&self) -> Option<Vec<u8>> {
        serde_json::to_vec(self.params.get(ARGUMENTS_MEMBER)?).ok()
    }

    /// Takes the arguments of a changed request; all else in it must be unchanged.
    pub(super) fn take_arguments(&mut self, payload: &[u8]) -> Result<(), InterceptorFault> {
        let changed: RequestPayload = serde_json::from_slice(payload).map_err(|_| NOT_A_REQUEST)?;
        let without_arguments = |params: &Map<String, Value>| {
            let mut params = params.clone();
            params.remove(ARGUMENTS_MEMBER);
            params
        };
        let is_same = changed.method == self.method
            && without_arguments(&changed.params) == without_arguments(&self.params);
        if !is_same {
            return Err(OTHER_CHANGE);
        }
        match changed.params.get(ARGUMENTS_MEMBER) {
            Some(Value::Object(_)) => {
                self.params = changed.params;
                Ok(())
            }
            _ => Err(NOT_A_REQUEST),
        }
    }

    /// Builds the request to an interceptor: about the call, or about a message of the server.
    pub(super) fn request(
        &self,
        interceptor: &str,
        message: Option<&SeenMessage>,
        context: &Context,
        time: &str,
    ) -> Vec<u8> {
        let call = json!({ "method": self.method, "params": self.params });
        let (phase, payload) = match message {
            None => ("request", InvokePayload::Call(&call)),
            Some(message) => ("response", InvokePayload::Message(&message.payload)),
        };
        let event = message.and_then(|message| message.event.as_deref()).unwrap_or(&self.method);
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
        let params = InvokeParams { name: interceptor, event, phase, payload, context: about };
        let method = "interceptor/invoke";
        serde_json::to_vec(&InvokeRequest { jsonrpc: "2.0", id: REQUEST_ID, method, params })
            .unwrap_or_default()
    }
}

#[derive(Serialize)]
struct InvokeRequest<'a> {
    jsonrpc: &'static str,
    id: u64,
    method: &'static str,
    params: InvokeParams<'a>,
}

#[derive(Serialize)]
struct InvokeParams<'a> {
    name: &'a str,
    event: &'a str,
    phase: &'static str,
    payload: InvokePayload<'a>,
    context: Value,
}

#[derive(Serialize)]
#[serde(untagged)]
enum InvokePayload<'a> {
    Call(&'a Value),
    /// The server's own bytes.
    Message(&'a RawValue),
}

/// Returns true if a call has other params besides a name or URI, and arguments.
fn has_other_params(method: &Method) -> bool {
    let is_known = matches!(method, Method::ToolsCall | Method::PromptsGet | Method::ResourcesRead);
    !is_known && !method.is_task_request()
}

/// Returns the trace id of the client's `traceparent`.
fn trace_id(context: &Context) -> Option<&str> {
    let parent = context.trace.parent.as_deref().or(context.trace.header.as_deref())?;
    parent.split('-').nth(1).filter(|id| id.len() == 32)
}

/// Reads the answer of an interceptor.
pub(super) fn read_verdict(body: &[u8]) -> Result<Verdict, InterceptorFault> {
    let response: InvokeResponse<'_> =
        serde_json::from_slice(body).map_err(|_| InterceptorFault::NotJson)?;
    if let Some(InvokeError { code, message }) = response.error {
        let message = clip(&message, MAX_INTERCEPTOR_MESSAGE_BYTES).to_owned();
        return Err(InterceptorFault::Error { code, message });
    }
    let result = response.result.ok_or(InterceptorFault::NotJson)?;
    // The answer to another request is ignored.
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

/// Joins the messages of an interceptor into one line.
fn reason(messages: &[InvokeMessage]) -> String {
    let lines = messages.iter().map(|InvokeMessage { path, message }| match path {
        Some(path) => format!("{path}: {message}"),
        None => message.clone(),
    });
    let lines = lines.collect::<Vec<_>>().join("; ");
    match lines.as_str() {
        "" => "it gives no reason".into(),
        lines => clip(lines, MAX_INTERCEPTOR_MESSAGE_BYTES).to_owned(),
    }
}

const ARGUMENTS_MEMBER: &str = "arguments";
pub(super) const REQUEST_STATE: &str = "requestState";
const INPUT_RESPONSES: &str = "inputResponses";
/// Limit of the bytes of an interceptor's messages.
const MAX_INTERCEPTOR_MESSAGE_BYTES: usize = 512;
const NOT_A_REQUEST: InterceptorFault =
    InterceptorFault::Mutation("is not a request with an object of arguments");
const OTHER_CHANGE: InterceptorFault =
    InterceptorFault::Mutation("changes more than the arguments");

/// Id of each request: a connection carries one at a time.
const REQUEST_ID: u64 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    fn seen() -> Intercepted {
        let params = json!({ "name": "echo", "arguments": { "a": 1 } });
        let params = params.as_object().unwrap().clone();
        let (method, server) = ("tools/call".into(), "s".into());
        Intercepted { method, server, params, is_ambiguous: false }
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
