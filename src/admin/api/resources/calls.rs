//! Recent calls: a ring of them, one with its steps, and new ones as they end.

use std::time::SystemTime;

use async_stream::stream;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

use crate::admin::api::event_stream::{
    answer_events, missed_event, record_event, too_many_observers,
};
use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::telemetry::observation::{CallInFlight, ObservedCall, TimedStep};
use crate::telemetry::{CallOutcome, LiveItem, Numbered};

use super::servers::known_server;

/// Recent calls.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CallsPage {
    /// The observed calls that have not ended, the oldest first, at most 1000: only with the first
    /// page, and without the filters `server` and `outcome`. Calls are observed from the first look
    /// on, or always with `admin.recent`.
    in_flight: Vec<InFlightDocument>,
    /// The calls that have ended, the newest first.
    calls: Vec<CallDocument>,
    /// `before` for the next page; `null` on the last one.
    next: Option<u64>,
}

/// A call that has not ended.
#[derive(Serialize, JsonSchema)]
pub(crate) struct InFlightDocument {
    /// Its id, and that of its record in the audit log if there will be one.
    id: String,
    /// Time of its start.
    since: Timestamp,
    /// The client of the configuration, the user of an issuer, or `anonymous`.
    client: String,
    /// The profile.
    profile: String,
    /// The method.
    method: String,
    /// The tool, prompt or resource by its public name, as the client wrote it.
    name: Option<String>,
    /// The current step: see the steps of a call that has ended.
    step: &'static str,
}

/// A call that has ended. It has the facts of the access log, and neither arguments nor result.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CallDocument {
    /// Its id, and that of its record in the audit log if there is one.
    id: String,
    /// Its number among the recent calls: later ones have larger numbers.
    number: u64,
    /// Time of its start.
    at: Timestamp,
    /// The client of the configuration, the user of an issuer, or `anonymous`.
    client: String,
    /// The client's address; `null` for a client on standard streams.
    address: Option<String>,
    /// Name and version of the client's software, as the client states them.
    software: Option<String>,
    /// The client's era: `legacy` or `modern`.
    era: &'static str,
    /// The client's protocol version.
    protocol_version: String,
    /// The profile.
    profile: String,
    /// The method.
    method: String,
    /// The tool, prompt or resource by its public name, as the client wrote it.
    name: Option<String>,
    /// The server that the call was routed to.
    server: Option<String>,
    /// The tool, prompt or resource by its native name.
    native_name: Option<String>,
    /// `ok`, `tool_error`, `refused`, `failed`, `cancelled` or `input_required`.
    outcome: &'static str,
    /// The kind of refusal or failure.
    reason: Option<&'static str>,
    /// The JSON-RPC error code.
    code: Option<i64>,
    /// The limit that refused the call.
    limit: Option<String>,
    /// Milliseconds from the start to the end.
    duration_ms: f64,
    /// Milliseconds after the call was sent to its server.
    upstream_ms: Option<f64>,
    /// Bytes of the arguments.
    argument_bytes: Option<usize>,
    /// Bytes of the result or error.
    result_bytes: Option<u64>,
    /// The trace of the call.
    trace_id: Option<String>,
}

/// A call with its steps.
#[derive(Serialize, JsonSchema)]
pub(crate) struct CallDetail {
    /// The call.
    #[serde(flatten)]
    call: CallDocument,
    /// Its steps, in the order in which they took place. The call has ended in the last one.
    steps: Vec<StepDocument>,
}

/// A step of a call.
#[derive(Serialize, JsonSchema)]
pub(crate) struct StepDocument {
    /// `client` (the name is searched in the client's view), `rules` (and scopes), `limits` (breaker,
    /// rates, quotas), `arguments`, `interceptors`, `queue`, `server` or `shaping`.
    step: &'static str,
    /// Milliseconds from the start of the call.
    after_ms: f64,
    /// Milliseconds that the step took.
    duration_ms: f64,
}

/// Selects calls by the parameters of a request.
struct CallFilter {
    server: Option<String>,
    client: Option<String>,
    outcome: Option<&'static str>,
    since: Option<Timestamp>,
}

impl CallFilter {
    fn of(request: &EndpointRequest) -> Result<Self, ApiProblem> {
        Ok(Self {
            server: known_server(request)?,
            client: request.argument("client").map(str::to_owned),
            outcome: request.word_argument("outcome", &CallOutcome::LABELS)?,
            since: request.time_argument("since")?,
        })
    }

    /// Returns true for a call in flight. Its server and its outcome are not known.
    fn matches_in_flight(&self, call: &CallInFlight) -> bool {
        self.server.is_none()
            && self.outcome.is_none()
            && self.client.as_ref().is_none_or(|client| *client == call.principal)
            && self.since.is_none_or(|since| wall_time_of(call.at) >= since)
    }

    fn matches(&self, call: &ObservedCall) -> bool {
        let is_server = |name: &String| call.server.as_ref() == Some(name);
        self.server.as_ref().is_none_or(is_server)
            && self.client.as_ref().is_none_or(|client| *client == call.principal)
            && self.outcome.is_none_or(|outcome| outcome == call.outcome)
            && self.since.is_none_or(|since| time_of(call) >= since)
    }
}

/// Lists recent calls.
pub(crate) fn list_calls(request: &EndpointRequest) -> EndpointAnswer {
    let filter = CallFilter::of(request)?;
    let before = request.count_argument("before", u64::MAX)?;
    let limit = past_limit(request, DEFAULT_LIMIT)?;
    // One more tells that there is another page.
    let calls = &request.report.gateway.calls;
    let mut found = calls.list(before, limit + 1, |call| filter.matches(call));
    let has_more = found.len() > limit;
    found.truncate(limit);
    let next = found.last().filter(|_| has_more).map(|call| call.number);
    let flying = if before.is_none() { calls.in_flight() } else { Vec::new() };
    let flying = flying.iter().filter(|call| filter.matches_in_flight(call));
    answer(&CallsPage {
        in_flight: flying.map(|call| in_flight_document(call)).collect(),
        calls: found.iter().map(|call| call_document(call)).collect(),
        next,
    })
}

fn in_flight_document(call: &CallInFlight) -> InFlightDocument {
    InFlightDocument {
        id: call.id.clone(),
        since: wall_time_of(call.at),
        client: call.principal.clone(),
        profile: call.profile.clone(),
        method: call.method.clone(),
        name: call.name.clone(),
        step: call.step().as_str(),
    }
}

/// Answers with one call, and its steps.
pub(crate) fn show_call(request: &EndpointRequest) -> EndpointAnswer {
    let id = request.argument("id").unwrap_or_default();
    let missing = || {
        let detail = format!("no recent call has the id {id:?}: set admin.recent to keep more");
        ApiProblem::new(ProblemCode::UnknownCall, detail)
    };
    let found = request.report.gateway.calls.find(id).ok_or_else(missing)?;
    answer(&call_detail(&found))
}

/// Answers with new calls as they end.
pub(crate) fn watch_calls(request: &EndpointRequest) -> EndpointAnswer {
    let filter = CallFilter::of(request)?;
    let past = past_limit(request, 0)?;
    let live = request.report.gateway.calls.observe(past, |call| filter.matches(call));
    let mut live = live.map_err(too_many_observers)?;
    let events = stream! {
        while let Some(item) = live.next().await {
            match item {
                LiveItem::Item(call) if filter.matches(&call.item) => {
                    yield record_event(&call_detail(&call));
                }
                LiveItem::Item(_) => {}
                LiveItem::Missed(missed) => yield missed_event(missed),
            }
        }
    };
    Ok(answer_events(request, events))
}

/// Returns the wanted number of past records.
pub(super) fn past_limit(request: &EndpointRequest, usual: usize) -> Result<usize, ApiProblem> {
    let wanted = request.count_argument("limit", MAX_LIMIT)?;
    Ok(wanted.and_then(|limit| limit.try_into().ok()).unwrap_or(usual))
}

fn call_detail(call: &Numbered<ObservedCall>) -> CallDetail {
    let step = |timed: &TimedStep| StepDocument {
        step: timed.step.as_str(),
        after_ms: milliseconds(timed.after),
        duration_ms: milliseconds(timed.duration),
    };
    let steps = call.item.steps.iter().map(step).collect();
    CallDetail { call: call_document(call), steps }
}

fn call_document(numbered: &Numbered<ObservedCall>) -> CallDocument {
    let call = numbered.item.clone();
    let at = time_of(&call);
    CallDocument {
        id: call.id,
        number: numbered.number,
        at,
        client: call.principal,
        address: call.address.map(|address| address.to_string()),
        software: call.software,
        era: call.era,
        protocol_version: call.client_version,
        profile: call.profile,
        method: call.method,
        name: call.name,
        server: call.server,
        native_name: call.native_name,
        outcome: call.outcome,
        reason: call.reason,
        code: call.code,
        limit: call.limit,
        duration_ms: milliseconds(call.duration),
        upstream_ms: call.upstream.map(milliseconds),
        argument_bytes: call.sizes.arguments,
        result_bytes: call.sizes.result,
        trace_id: call.trace_id,
    }
}

fn time_of(call: &ObservedCall) -> Timestamp {
    wall_time_of(call.at)
}

fn wall_time_of(at: SystemTime) -> Timestamp {
    Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// Milliseconds with three decimals, as in the access log.
fn milliseconds(duration: std::time::Duration) -> f64 {
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}

/// Records of a page without `limit`.
pub(super) const DEFAULT_LIMIT: usize = 100;
/// Limit of the records of a page.
const MAX_LIMIT: u64 = 1000;
