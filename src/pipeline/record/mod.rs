//! The record of one call: metrics, trace, access log, audit log and observers get it at its end.

pub(super) mod answered;
pub(super) mod audit;
mod observed;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use crate::call::{
    Answer, Call, Client, Endpoint, Failure, NativeName, Params, Principal, ServerName, Trace,
};
use crate::clock;
use crate::mcp::{Method, ProtocolVersion};
use crate::pipeline::Gateway;
use crate::pipeline::route::Route;
use crate::snapshot::{Snapshot, SnapshotServer};
use crate::telemetry::audit::RecordRoom;
use crate::telemetry::events::{CallFacts, CallTag, EventSender, LifecycleEvent};
use crate::telemetry::metrics::{
    CallMetrics, Entered, Metrics, Operation, ServerMetric, ToolMetrics,
};
use crate::telemetry::observation::{CallStep, CallTimer};
use crate::telemetry::otel::{CallStart, CallTrace, ClientStart, ClientTrace};
use crate::telemetry::{
    CallOutcome, CallRecord, CallSubject, Sampled, TraceIdText, TraceParent, Transport,
};

use audit::{CallAudit, CallEnd};
use observed::CallObservation;

/// The record of one call. If it is dropped before the call's end, the call is
/// recorded as cancelled.
pub(crate) struct Record {
    told: bool,
    /// The outcome to record if the call is dropped.
    left: CallOutcome,
    metrics: Arc<Metrics>,
    operation: Arc<Operation>,
    started: Instant,
    sent: Option<Instant>,
    principal: Principal,
    endpoint: Endpoint,
    counts: [Option<Arc<CallMetrics>>; 2],
    address: IpAddr,
    method: Method,
    /// As sent by the client: they name the subject.
    params: Params,
    client: Arc<Client>,
    transport: &'static str,
    routed: Option<Routed>,
    /// `None` unless events of calls are sent.
    events: Option<Box<CallEvents>>,
    /// `None` unless there is an audit log.
    audit: Option<Box<CallAudit>>,
    /// `None` unless calls are observed.
    observed: Option<Box<CallObservation>>,
    trace: Option<CallTrace>,
    client_trace: Option<ClientTrace>,
}

/// The record of a call: that of its first attempt, or a new one.
pub(super) enum RecordOrigin {
    Earlier(Box<Record>),
    /// With the room that is reserved for it in the audit log.
    New(Option<RecordRoom>),
}

impl RecordOrigin {
    /// Returns the record. A new one is that of this call.
    pub(super) fn begin(self, gateway: &Gateway, snapshot: &Snapshot, call: &Call) -> Record {
        match self {
            Self::Earlier(record) => *record,
            Self::New(room) => Record::begin(gateway, snapshot, call, room),
        }
    }
}

/// Sender and tag for the events of a call.
struct CallEvents {
    sender: EventSender,
    tag: CallTag,
}

struct Routed {
    native: Option<NativeName>,
    server: ServerName,
    version: Option<ProtocolVersion>,
    operation: Arc<Operation>,
    tool: Option<Arc<ToolMetrics>>,
    _in_flight: Entered,
}

impl Record {
    /// Begins the record of a call, with the room that is reserved for it in the audit log.
    pub(super) fn begin(
        gateway: &Gateway,
        snapshot: &Snapshot,
        call: &Call,
        room: Option<RecordRoom>,
    ) -> Self {
        let context = &call.context;
        let parse =
            |text: &Option<String>| text.as_deref().and_then(|text| TraceParent::parse(text).ok());
        let trace = gateway.tracing.load().start(&CallStart {
            method: call.method.as_str(),
            subject: subject(&call.method, requested_name(&call.params)),
            principal: context.principal.as_str(),
            profile: context.endpoint.profile(),
            request_id: None,
            protocol_version: context.client.version.as_str(),
            transport: if context.peer.is_some() { Transport::Tcp } else { Transport::Pipe },
            client: context.peer,
            parent: parse(&context.trace.parent),
            http_parent: parse(&context.trace.header),
            tracestate: context.trace.state.as_deref(),
        });
        let started = clock::real_now();
        let is_observed = gateway.calls.is_on();
        let observe = || CallObservation::begin(gateway, call, started);
        let record = Self {
            told: false,
            left: CallOutcome::Cancelled,
            metrics: Arc::clone(&gateway.metrics),
            operation: Arc::clone(gateway.operations.of(&call.method)),
            started,
            sent: None,
            principal: context.principal.clone(),
            endpoint: context.endpoint.clone(),
            counts: snapshot.counts(&context.principal, &context.endpoint),
            address: context.address,
            params: call.params.clone(),
            method: call.method.clone(),
            client: Arc::clone(&context.client),
            transport: context.transport,
            routed: None,
            events: call_events(gateway.snapshots.events()),
            audit: CallAudit::begin(&gateway.audit, context, room),
            observed: is_observed.then(observe).flatten(),
            trace: Some(trace),
            client_trace: None,
        };
        record.send_event(LifecycleEvent::CallBegun);
        record
    }

    /// Sends an event of this call, if events are enabled.
    fn send_event<'a>(&'a self, write: impl FnOnce(CallFacts<'a>) -> LifecycleEvent<'a>) {
        let Some(events) = &self.events else { return };
        events.sender.send(&write(CallFacts {
            call: events.tag.as_str(),
            client: self.principal.as_str(),
            profile: self.endpoint.profile(),
            method: self.method.as_str(),
            subject: subject(&self.method, requested_name(&self.params)),
        }));
    }

    pub(super) fn set_route(&mut self, route: &Route<'_>) {
        if self.routed.is_some() {
            return;
        }
        let SnapshotServer { server, metrics, operations, .. } = route.member;
        let version = server.version_for(self.client.version.era());
        let native = route.native.as_ref();
        let trace = self.trace.as_ref();
        self.client_trace = trace.map(|trace| {
            trace.client(&ClientStart {
                server: route.server().as_str(),
                method: self.method.as_str(),
                subject: subject(&self.method, native.map(NativeName::as_str)),
                protocol_version: version.map_or("", ProtocolVersion::as_str),
                transport: if server.is_child() { Transport::Pipe } else { Transport::Tcp },
                address: None,
            })
        });
        route.note_use(&self.method, self.started);
        self.routed = Some(Routed {
            native: native.cloned(),
            server: route.server().clone(),
            version,
            operation: Arc::clone(operations.of(&self.method)),
            tool: route.tool_metrics.map(Arc::clone),
            _in_flight: metrics.level(ServerMetric::CallsInFlight).enter(),
        });
    }

    /// Returns the trace to send to the server, if it differs from the one in the client's `_meta`.
    pub(super) fn trace_to_send(&self, trace: &Trace) -> Option<(String, Option<String>)> {
        let client = self.client_trace.as_ref()?;
        let parent = client.traceparent()?;
        let from_header = trace.parent.is_none();
        (client.sampled() == Sampled::Yes || from_header)
            .then(|| (parent.to_string(), trace.state.clone()))
    }

    pub(super) fn mark_sent(&mut self) {
        self.sent.get_or_insert_with(clock::real_now);
    }

    /// Notes that a step of an observed call begins.
    #[inline]
    pub(super) fn begin_step(&self, step: CallStep) {
        if let Some(observed) = &self.observed {
            observed.timer.begin(step, clock::real_now());
        }
    }

    /// Returns the timer of an observed call; `None` for any other.
    #[inline]
    pub(super) fn timer(&self) -> Option<&Arc<CallTimer>> {
        self.observed.as_ref().map(|observed| &observed.timer)
    }

    /// Records that the server requires input: the client is expected to retry.
    pub(super) fn mark_suspended(&mut self) {
        self.left = CallOutcome::InputRequired;
    }

    /// Records that the call continues, or is cancelled: from now on, dropping
    /// it means cancelled.
    pub(super) fn mark_resumed(mut self) -> Self {
        self.left = CallOutcome::Cancelled;
        self
    }

    pub(super) fn finish(&mut self, answer: &Result<Answer, Failure>) {
        let outcome = outcome_of(answer);
        if let Some(audit) = &mut self.audit {
            audit.note_answer(answer);
        }
        if let Some(observed) = &mut self.observed {
            observed.note_answer(answer);
        }
        let failure = answer.as_ref().err();
        if let Some(failure) = failure {
            count_limit(&self.metrics, failure);
        }
        self.write_record(outcome, failure.and_then(Failure::limit));
    }

    /// Records the end of a result that was streamed. It is not parsed, so a
    /// tool error in it is not noticed.
    pub(super) fn finish_passing(&mut self, ended: Result<(), &Failure>, bytes: u64) {
        if let Some(audit) = &mut self.audit {
            audit.note_size(bytes);
        }
        if let Some(observed) = &mut self.observed {
            observed.note_size(bytes);
        }
        let outcome = match ended {
            Ok(()) => CallOutcome::Ok,
            Err(failure) => failed_outcome(failure),
        };
        self.write_record(outcome, None);
    }

    fn write_record(&mut self, outcome: CallOutcome, limit: Option<&str>) {
        if std::mem::replace(&mut self.told, true) {
            return;
        }
        let now = clock::real_now();
        let duration = now.duration_since(self.started);
        let upstream = self.sent.map(|sent| now.duration_since(sent));
        let routed = self.routed.as_ref();
        let native = routed.and_then(|to| to.native.as_ref());
        let trace_id = self.trace.as_ref().and_then(CallTrace::trace_id);
        let call = CallRecord {
            principal: Some(self.principal.as_str()),
            address: Some(self.address),
            profile: self.endpoint.profile(),
            method: self.method.as_str(),
            public: subject(&self.method, requested_name(&self.params)),
            native: subject(&self.method, native.map(NativeName::as_str)),
            server: routed.map(|to| to.server.as_str()),
            items: None,
            outcome,
            limit,
            duration,
            upstream,
            trace_id: trace_id.as_ref().map(TraceIdText::as_str),
            client_info: self.client.info.as_deref(),
            client_era: self.client.version.era().as_str(),
            client_version: self.client.version.as_str(),
            server_version: routed.and_then(|to| to.version).map(ProtocolVersion::as_str),
            transport: self.transport,
        };
        call.write_to_log();
        if let Some(audit) = &mut self.audit {
            let end = CallEnd {
                arguments: self.params.arguments(),
                request_bytes: self.params.raw().len(),
                was_sent: self.sent.is_some(),
            };
            audit.write_record(&call, end);
        }
        if let Some(observed) = self.observed.take() {
            observed.end(&call, self.params.arguments().map(<[u8]>::len), now);
        }
        let server = routed.map(|to| to.server.as_str());
        self.send_event(|call| LifecycleEvent::CallEnded { call, server, outcome, duration });
        self.operation.record_duration(&outcome, duration);
        self.metrics.count_error(&outcome);
        for counts in self.counts.iter().flatten() {
            counts.record_call(&outcome);
        }
        if let Some(routed) = routed {
            if let Some(tool) = &routed.tool {
                tool.record_call(&outcome);
            }
            if let Some(upstream) = upstream {
                routed.operation.record_duration(&outcome, upstream);
            }
        }
        if let Some(client) = self.client_trace.take() {
            client.finish_request(&outcome);
        }
        if let Some(trace) = self.trace.take() {
            trace.finish_call(&outcome);
        }
        // No longer in flight, though the record may be held for a while.
        self.routed = None;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.write_record(self.left, None);
    }
}

fn outcome_of(answer: &Result<Answer, Failure>) -> CallOutcome {
    match answer {
        Ok(Answer::Result(result)) if result.is_error() => CallOutcome::ToolError,
        Ok(Answer::Result(_)) => CallOutcome::Ok,
        Ok(Answer::Error(error)) => {
            CallOutcome::Failed { code: error.code(), label: "server_error" }
        }
        Err(Failure::Cancelled) => CallOutcome::Cancelled,
        Err(failure) => failed_outcome(failure),
    }
}

fn failed_outcome(failure: &Failure) -> CallOutcome {
    let wire = failure.wire();
    match failure {
        Failure::OverLimit { .. }
        | Failure::BreakerOpen { .. }
        | Failure::Intercepted(_)
        | Failure::UnknownTool { .. }
        | Failure::MetaCallRefused(_)
        | Failure::DepartedTool { .. }
        | Failure::UnknownPrompt { .. }
        | Failure::UnknownResource { .. }
        | Failure::CallDenied
        | Failure::NotConfirmed(_)
        | Failure::CredentialsWithheld { .. }
        | Failure::InvalidArguments(_)
        | Failure::HeaderMismatch(_)
        | Failure::AuditUnavailable
        | Failure::StoreUnavailable => CallOutcome::Refused { reason: wire.label },
        _ => CallOutcome::Failed { code: wire.code, label: wire.label },
    }
}

/// Counts a request that was refused before it became a call. Returns its outcome.
pub(super) fn count_refusal(metrics: &Metrics, failure: &Failure) -> CallOutcome {
    let refused = CallOutcome::Refused { reason: failure.wire().label };
    metrics.count_error(&refused);
    count_limit(metrics, failure);
    refused
}

fn count_limit(metrics: &Metrics, failure: &Failure) {
    if let Failure::OverLimit { limit, .. } = failure {
        metrics.count_limit_refused(limit);
    }
}

/// Prepares the sending of events for the next call; `None` if events are disabled.
fn call_events(sender: &EventSender) -> Option<Box<CallEvents>> {
    let tag = sender.tag_call()?;
    Some(Box::new(CallEvents { sender: sender.clone(), tag }))
}

/// Returns the name or URI of a call, as the client wrote it.
fn requested_name(params: &Params) -> Option<&str> {
    params.name().or_else(|| params.uri())
}

/// Returns the typed subject of a call, from its method and its name or URI.
pub(super) fn subject<'a>(method: &Method, name: Option<&'a str>) -> CallSubject<'a> {
    match (method, name) {
        (Method::ToolsCall, Some(name)) => CallSubject::Tool(name),
        (Method::PromptsGet, Some(name)) => CallSubject::Prompt(name),
        (
            Method::ResourcesRead
            | Method::ResourcesSubscribe
            | Method::ResourcesUnsubscribe
            | Method::DirectoryRead
            | Method::SkillsGet,
            Some(uri),
        ) => CallSubject::Resource(uri),
        _ => CallSubject::Nothing,
    }
}
