//! The spans of a call: SERVER for the client's request, CLIENT for what the
//! gateway asks of a server because of it.

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

use crate::telemetry::{
    CLIP, CallOutcome, CallSubject, Sampled, TraceIdText, TraceParent, Transport,
};
use crate::text::clip;

/// Starts traces. Cheap to clone; what [`Tracing::disabled`] starts records nothing.
#[derive(Debug, Clone)]
pub struct Tracing(Option<Arc<TracerState>>);

#[derive(Debug)]
struct TracerState {
    tracer: SdkTracer,
    sample_ratio: f64,
}

/// A client's request, as far as a span tells of it.
#[derive(Debug, Clone, Copy)]
pub struct CallStart<'a> {
    /// The method; cut when long.
    pub method: &'a str,
    /// What is asked for, by its public name; cut when long.
    pub subject: CallSubject<'a>,
    /// Who calls, by the name in the configuration.
    pub principal: &'a str,
    /// The profile that the call came in through, likewise.
    pub profile: &'a str,
    /// The JSON-RPC id in text; cut when long.
    pub request_id: Option<&'a str>,
    /// The protocol version the client speaks.
    pub protocol_version: &'a str,
    /// How the client's bytes come.
    pub transport: Transport,
    /// Where the client is, if it has an address.
    pub client: Option<SocketAddr>,
    /// `traceparent` in `_meta`: the parent.
    pub parent: Option<TraceParent>,
    /// `traceparent` of the HTTP request: linked, or the parent when `_meta` has none.
    pub http_parent: Option<TraceParent>,
    /// `tracestate` from the same place as the parent. Text that is none, or
    /// is longer than the specification's 512 characters, is left out.
    pub tracestate: Option<&'a str>,
}

/// A request of the gateway to a server, as far as a span tells of it.
#[derive(Debug, Clone, Copy)]
pub struct ClientStart<'a> {
    /// The server's name in the configuration.
    pub server: &'a str,
    /// The method; cut when long.
    pub method: &'a str,
    /// What is asked for, by its own name at the server; cut when long.
    pub subject: CallSubject<'a>,
    /// The protocol version spoken with the server.
    pub protocol_version: &'a str,
    /// How bytes travel to the server.
    pub transport: Transport,
    /// The server's host and port, if it has them.
    pub address: Option<(&'a str, u16)>,
}

impl Tracing {
    /// Records nothing, passes every `traceparent` on.
    pub fn disabled() -> Self {
        Self(None)
    }

    pub(super) fn with_tracer(tracer: SdkTracer, sample_ratio: f64) -> Self {
        Self(Some(Arc::new(TracerState { tracer, sample_ratio })))
    }

    /// Starts the trace of a call. A call with a parent is sampled when its
    /// parent is, another by the configured ratio. A client may so have all its
    /// calls traced; what that can cost is bounded by the queue of spans.
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
            // `fastrand` stays below one, so a ratio of one takes all.
            None => fastrand::f64() < self.sample_ratio,
        }
    }
}

/// The trace of one call. Dropped unfinished, its span ends without an outcome.
#[derive(Debug)]
pub struct CallTrace {
    parent: Option<TraceParent>,
    recorded: Option<Box<RecordedCall>>,
}

struct RecordedCall {
    inner: Arc<TracerState>,
    span: Span,
    /// What the CLIENT spans have as parent.
    context: Context,
}

impl CallTrace {
    /// Whether spans are recorded.
    pub fn sampled(&self) -> Sampled {
        if self.recorded.is_some() { Sampled::Yes } else { Sampled::No }
    }

    /// The trace this call belongs to: the one being recorded, or the client's.
    pub fn trace_id(&self) -> Option<TraceIdText> {
        let recorded = self.recorded.as_ref().and_then(|r| traceparent_of(r.span.span_context()));
        recorded.or(self.parent).map(|parent| parent.trace_id_text())
    }

    /// Starts the span of a request to a server; a retry gets one of its own.
    pub fn client(&self, request: &ClientStart<'_>) -> ClientTrace {
        let span = self.recorded.as_ref().map(|recorded| Box::new(recorded.client(request)));
        ClientTrace { parent: self.parent, span }
    }

    /// Ends the call's span.
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

/// The trace of one request to a server. Dropped unfinished, its span ends
/// without an outcome.
#[derive(Debug)]
pub struct ClientTrace {
    parent: Option<TraceParent>,
    span: Option<Box<Span>>,
}

impl ClientTrace {
    /// The `traceparent` to send: this span's where it is recorded, else the
    /// client's own. `None` where there is neither: the gateway starts no
    /// trace that it does not record.
    pub fn traceparent(&self) -> Option<TraceParent> {
        let recorded = self.span.as_ref().and_then(|span| traceparent_of(span.span_context()));
        // After the export has stopped, the SDK's spans have no ids.
        recorded.or(self.parent)
    }

    /// Whether [`Self::traceparent`] differs from what the client sent, which
    /// must then be replaced; otherwise it may pass as it stands.
    pub fn sampled(&self) -> Sampled {
        if self.span.is_some() { Sampled::Yes } else { Sampled::No }
    }

    /// Ends the request's span.
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
    // URIs are too many to be names of spans.
    match subject.tool().or(subject.prompt()) {
        Some(name) => format!("{} {name}", clip(method, CLIP)),
        None => clip(method, CLIP).to_owned(),
    }
}

/// What both kinds of span say. Never `mcp.session.id`: whoever knows a
/// session's id may use the session.
fn common_attributes(
    method: &str,
    subject: CallSubject<'_>,
    version: &str,
    transport: Transport,
) -> Vec<KeyValue> {
    let mut attributes = Vec::with_capacity(10);
    attributes.push(KeyValue::new("mcp.method.name", clip(method, CLIP).to_owned()));
    attributes.push(KeyValue::new("mcp.protocol.version", clip(version, CLIP).to_owned()));
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
        attributes.push(KeyValue::new("jsonrpc.request.id", clip(id, CLIP).to_owned()));
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
        // The client wanted it so: nothing went wrong.
        CallOutcome::Cancelled => span.set_attribute(KeyValue::new("error.type", outcome.label())),
    }
    span.end();
}
