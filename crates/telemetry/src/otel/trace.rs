//! The spans of a call: SERVER for the client's request, CLIENT for each resulting request to a
//! server.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use opentelemetry::trace::{
    Link, Span as _, SpanBuilder, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _,
    TraceFlags, TraceId, TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

use trunkline_core::text::clip;

use crate::{
    CallOutcome, CallSubject, MAX_CLIENT_TEXT_BYTES, Sampled, TraceIdText, TraceParent, Transport,
};

/// Starts traces. Cheap to clone; traces of [`Tracing::disabled`] record nothing.
#[derive(Debug, Clone)]
pub struct Tracing(Option<Arc<TracerState>>);

#[derive(Debug)]
struct TracerState {
    tracer: SdkTracer,
    sample_ratio: f64,
}

/// The attributes of a client's request.
#[derive(Debug, Clone, Copy)]
pub struct CallStart<'a> {
    /// The method; truncated when long.
    pub method: &'a str,
    /// The subject by its public name; truncated when long.
    pub subject: CallSubject<'a>,
    /// The caller's name in the configuration.
    pub principal: &'a str,
    /// The name of the profile in the configuration.
    pub profile: &'a str,
    /// The JSON-RPC id as text; truncated when long.
    pub request_id: Option<&'a str>,
    /// The client's protocol version.
    pub protocol_version: &'a str,
    /// The client's transport.
    pub transport: Transport,
    /// The client's address, if it has one.
    pub client: Option<SocketAddr>,
    /// `traceparent` in `_meta`: the parent.
    pub parent: Option<TraceParent>,
    /// `traceparent` of the HTTP request: a link, or the parent when `_meta` has none.
    pub http_parent: Option<TraceParent>,
    /// `tracestate` from the same source as the parent. It is omitted if it is malformed or exceeds
    /// the specification's 512 characters.
    pub tracestate: Option<&'a str>,
}

/// The attributes of the gateway's request to a server.
#[derive(Debug, Clone, Copy)]
pub struct ClientStart<'a> {
    /// The server's name in the configuration.
    pub server: &'a str,
    /// The method; truncated when long.
    pub method: &'a str,
    /// The subject by its native name; truncated when long.
    pub subject: CallSubject<'a>,
    /// The server's protocol version.
    pub protocol_version: &'a str,
    /// The server's transport.
    pub transport: Transport,
    /// The server's host and port, if it has them.
    pub address: Option<(&'a str, u16)>,
}

impl Tracing {
    /// Records nothing, and forwards every `traceparent`.
    pub fn disabled() -> Self {
        Self(None)
    }

    pub(super) fn with_tracer(tracer: SdkTracer, sample_ratio: f64) -> Self {
        Self(Some(Arc::new(TracerState { tracer, sample_ratio })))
    }

    /// Starts the trace of a call. A call with a parent follows the parent's sampling decision; any
    /// other call is sampled by the configured ratio. So a client may have all its calls traced;
    /// the queue of spans bounds the cost.
    pub fn start(&self, call: &CallStart<'_>) -> CallTrace {
        let parent = call.parent.or(call.http_parent);
        let recorded = self
            .0
            .as_ref()
            .filter(|inner| inner.decide_sampling(parent))
            .map(|inner| Box::new(RecordedCall::start(inner, call)));
        CallTrace { parent, recorded }
    }
}

impl TracerState {
    fn decide_sampling(&self, parent: Option<TraceParent>) -> bool {
        match parent.map(|parent| parent.sampled()) {
            Some(sampled) => sampled == Sampled::Yes,
            // `fastrand` stays below one, so a ratio of one samples all calls.
            None => fastrand::f64() < self.sample_ratio,
        }
    }
}

/// The trace of one call. If it is dropped unfinished, its span ends without an outcome.
#[derive(Debug)]
pub struct CallTrace {
    parent: Option<TraceParent>,
    recorded: Option<Box<RecordedCall>>,
}

struct RecordedCall {
    inner: Arc<TracerState>,
    span: Span,
    /// The parent of the CLIENT spans.
    context: Context,
}

impl CallTrace {
    /// Returns [`Sampled::Yes`] if spans are recorded.
    #[inline]
    pub fn sampled(&self) -> Sampled {
        if self.recorded.is_some() { Sampled::Yes } else { Sampled::No }
    }

    /// Returns the id of the call's trace: the recorded one, or the client's.
    #[inline]
    pub fn trace_id(&self) -> Option<TraceIdText> {
        let recorded = self.recorded.as_ref().and_then(|r| traceparent_of(r.span.span_context()));
        recorded.or(self.parent).map(|parent| parent.trace_id_text())
    }

    /// Starts the span of a request to a server; each retry has its own.
    #[inline]
    pub fn client(&self, request: &ClientStart<'_>) -> ClientTrace {
        let span = self.recorded.as_ref().map(|recorded| Box::new(recorded.client(request)));
        ClientTrace { parent: self.parent, span }
    }

    /// Ends the call's span.
    #[inline]
    pub fn finish_call(self, outcome: &CallOutcome) {
        if let Some(mut recorded) = self.recorded {
            end_span(&mut recorded.span, outcome);
        }
    }
}

impl RecordedCall {
    fn start(inner: &Arc<TracerState>, call: &CallStart<'_>) -> Self {
        let tracestate = call.tracestate.filter(|text| text.len() <= TRACESTATE_MAX);
        let tracestate = tracestate.and_then(|text| TraceState::from_str(text).ok());
        let mut context = Context::new();
        let mut links = Vec::new();
        match (call.parent, call.http_parent) {
            (Some(parent), http) => {
                context = context.with_remote_span_context(remote_context(parent, tracestate));
                let linked = http.filter(|http| *http != parent);
                links.extend(linked.map(|http| Link::with_context(remote_context(http, None))));
            }
            (None, Some(http)) => {
                context = context.with_remote_span_context(remote_context(http, tracestate));
            }
            (None, None) => {}
        }
        let builder = SpanBuilder::from_name(span_name(call.method, call.subject))
            .with_kind(SpanKind::Server)
            .with_attributes(call_attributes(call))
            .with_links(links);
        let span = inner.tracer.build_with_context(builder, &context);
        let context = context.with_remote_span_context(span.span_context().clone());
        Self { inner: Arc::clone(inner), span, context }
    }

    fn client(&self, request: &ClientStart<'_>) -> Span {
        let builder = SpanBuilder::from_name(span_name(request.method, request.subject))
            .with_kind(SpanKind::Client)
            .with_attributes(client_attributes(request));
        self.inner.tracer.build_with_context(builder, &self.context)
    }
}

impl fmt::Debug for RecordedCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Recorded").field(self.span.span_context()).finish()
    }
}

/// The trace of one request to a server. If it is dropped unfinished, its span ends without an
/// outcome.
#[derive(Debug)]
pub struct ClientTrace {
    parent: Option<TraceParent>,
    span: Option<Box<Span>>,
}

impl ClientTrace {
    /// Returns the `traceparent` to send: this span's if it is recorded, otherwise the client's.
    /// Returns `None` without either: the gateway starts no trace that it does not record.
    #[inline]
    pub fn traceparent(&self) -> Option<TraceParent> {
        let recorded = self.span.as_ref().and_then(|span| traceparent_of(span.span_context()));
        // After the export has stopped, the SDK's spans have no ids.
        recorded.or(self.parent)
    }

    /// Returns [`Sampled::Yes`] if [`Self::traceparent`] differs from the client's, which must then
    /// be replaced; otherwise it is forwarded unchanged.
    #[inline]
    pub fn sampled(&self) -> Sampled {
        if self.span.is_some() { Sampled::Yes } else { Sampled::No }
    }

    /// Ends the request's span.
    #[inline]
    pub fn finish_request(self, outcome: &CallOutcome) {
        if let Some(mut span) = self.span {
            end_span(&mut span, outcome);
        }
    }
}

/// W3C Trace Context, "tracestate Limits".
const TRACESTATE_MAX: usize = 512;

fn remote_context(parent: TraceParent, tracestate: Option<TraceState>) -> SpanContext {
    let flags = TraceFlags::default().with_sampled(parent.sampled() == Sampled::Yes);
    let trace_id = TraceId::from(parent.trace_id());
    let span_id = SpanId::from(parent.span_id());
    SpanContext::new(trace_id, span_id, flags, true, tracestate.unwrap_or_default())
}

fn traceparent_of(context: &SpanContext) -> Option<TraceParent> {
    let trace_id = u128::from_be_bytes(context.trace_id().to_bytes());
    let span_id = u64::from_be_bytes(context.span_id().to_bytes());
    TraceParent::new(trace_id, span_id, Sampled::Yes)
}

fn span_name(method: &str, subject: CallSubject<'_>) -> String {
    // URIs have too many values for span names.
    match subject.tool().or(subject.prompt()) {
        Some(name) => format!("{} {name}", clip(method, MAX_CLIENT_TEXT_BYTES)),
        None => clip(method, MAX_CLIENT_TEXT_BYTES).to_owned(),
    }
}

/// Returns the attributes of both kinds of span. Never `mcp.session.id`: a session's id grants
/// access to the session.
fn common_attributes(
    method: &str,
    subject: CallSubject<'_>,
    version: &str,
    transport: Transport,
) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(10);
    attributes
        .push(KeyValue::new("mcp.method.name", clip(method, MAX_CLIENT_TEXT_BYTES).to_owned()));
    attributes.push(KeyValue::new(
        "mcp.protocol.version",
        clip(version, MAX_CLIENT_TEXT_BYTES).to_owned(),
    ));
    attributes.push(KeyValue::new("network.transport", transport.as_str()));
    if transport == Transport::Tcp {
        attributes.push(KeyValue::new("network.protocol.name", "http"));
    }
    if let Some(tool) = subject.tool() {
        attributes.push(KeyValue::new("gen_ai.tool.name", tool.to_owned()));
    }
    if let Some(prompt) = subject.prompt() {
        attributes.push(KeyValue::new("gen_ai.prompt.name", prompt.to_owned()));
    }
    if let Some(uri) = subject.resource_uri() {
        attributes.push(KeyValue::new("mcp.resource.uri", uri.into_owned()));
    }
    if method == "tools/call" {
        attributes.push(KeyValue::new("gen_ai.operation.name", "execute_tool"));
    }
    attributes
}

fn call_attributes(call: &CallStart<'_>) -> Vec<KeyValue> {
    let mut attributes =
        common_attributes(call.method, call.subject, call.protocol_version, call.transport);
    attributes.push(KeyValue::new("enduser.id", call.principal.to_owned()));
    attributes.push(KeyValue::new("trunkline.profile", call.profile.to_owned()));
    if let Some(id) = call.request_id {
        attributes
            .push(KeyValue::new("jsonrpc.request.id", clip(id, MAX_CLIENT_TEXT_BYTES).to_owned()));
    }
    if let Some(client) = call.client {
        attributes.push(KeyValue::new("client.address", client.ip().to_string()));
        attributes.push(KeyValue::new("client.port", i64::from(client.port())));
    }
    attributes
}

fn client_attributes(request: &ClientStart<'_>) -> Vec<KeyValue> {
    let ClientStart { method, subject, protocol_version, transport, .. } = *request;
    let mut attributes = common_attributes(method, subject, protocol_version, transport);
    attributes.push(KeyValue::new("trunkline.server", request.server.to_owned()));
    if let Some((host, port)) = request.address {
        attributes.push(KeyValue::new("server.address", host.to_owned()));
        attributes.push(KeyValue::new("server.port", i64::from(port)));
    }
    attributes
}

fn end_span(span: &mut Span, outcome: &CallOutcome) {
    match outcome {
        CallOutcome::Ok | CallOutcome::InputRequired => {}
        CallOutcome::ToolError => {
            span.set_attribute(KeyValue::new("error.type", outcome.label()));
            span.set_status(Status::error(""));
        }
        CallOutcome::Refused { reason } => {
            span.set_attribute(KeyValue::new("error.type", *reason));
            span.set_status(Status::error("refused"));
        }
        CallOutcome::Failed { code, label } => {
            span.set_attribute(KeyValue::new("error.type", code.to_string()));
            span.set_attribute(KeyValue::new("rpc.response.status_code", code.to_string()));
            span.set_status(Status::error(*label));
        }
        // The client requested it, so this is not an error.
        CallOutcome::Cancelled => span.set_attribute(KeyValue::new("error.type", outcome.label())),
    }
    span.end();
}
