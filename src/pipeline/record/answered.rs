//! Access log lines of requests that are no calls: lists, introductions, and requests that a rate
//! refuses before they are read.

use std::time::{Duration, Instant};

use crate::call::{Context, Failure, Principal};
use crate::catalog::Kind;
use crate::clock;
use crate::mcp::Method;
use crate::telemetry::{CallOutcome, CallRecord, CallSubject};

use super::audit::RefusedRequest;
use super::failed_outcome;
use super::subject;

/// Writes the line of a list request that began at `started`: with the number of elements, or with
/// the failure.
pub(crate) fn log_list(
    kind: Kind,
    context: &Context,
    started: Instant,
    listed: Result<u64, &Failure>,
) {
    let outcome = listed.map_or_else(failed_outcome, |_| CallOutcome::Ok);
    let method = kind.method();
    let record = answered_record(&method, context, started, outcome);
    CallRecord { items: listed.ok(), ..record }.write_to_log();
}

/// Writes the line of an introduction that began at `started`.
pub(crate) fn log_introduction(method: &Method, context: &Context, started: Instant) {
    answered_record(method, context, started, CallOutcome::Ok).write_to_log();
}

/// Returns the record of a request that the gateway answers by itself.
fn answered_record<'a>(
    method: &'a Method,
    context: &'a Context,
    started: Instant,
    outcome: CallOutcome,
) -> CallRecord<'a> {
    let Context { principal, address, endpoint, client, transport, .. } = context;
    CallRecord {
        principal: Some(principal.as_str()),
        address: Some(*address),
        profile: endpoint.profile(),
        method: method.as_str(),
        outcome,
        duration: clock::real_now().duration_since(started),
        client_info: client.info.as_deref(),
        client_era: client.version.era().as_str(),
        client_version: client.version.as_str(),
        transport,
        ..UNREAD_REQUEST
    }
}

/// Writes the line of a request that was refused before it became a call.
pub(crate) fn log_refused_request(
    who: Option<&Principal>,
    request: &RefusedRequest<'_>,
    failure: &Failure,
) {
    let method = request.method.as_ref();
    let client = request.client;
    CallRecord {
        principal: who.map(Principal::as_str),
        address: request.address,
        profile: request.profile,
        method: method.map_or("", Method::as_str),
        public: method.map_or(CallSubject::Nothing, |it| subject(it, request.name)),
        outcome: CallOutcome::Refused { reason: failure.wire().label },
        limit: failure.limit(),
        client_info: client.and_then(|client| client.info.as_deref()),
        client_era: client.map_or("", |client| client.version.era().as_str()),
        client_version: client.map_or("", |client| client.version.as_str()),
        transport: request.transport,
        ..UNREAD_REQUEST
    }
    .write_to_log();
}

/// Writes the line of a request that opens a stream or subscribes, if a limit refuses it. Other
/// failures of such requests have no line.
pub(crate) fn log_refused_stream(method: Option<Method>, context: &Context, failure: &Failure) {
    if failure.limit().is_none() {
        return;
    }
    let Context { principal, address, endpoint, client, transport, .. } = context;
    let request = RefusedRequest {
        address: Some(*address),
        profile: endpoint.profile(),
        method,
        client: Some(&**client),
        transport,
        ..RefusedRequest::default()
    };
    log_refused_request(Some(principal), &request, failure);
}

/// The record of a request with nothing known.
const UNREAD_REQUEST: CallRecord<'static> = CallRecord {
    principal: None,
    address: None,
    profile: "",
    method: "",
    public: CallSubject::Nothing,
    native: CallSubject::Nothing,
    server: None,
    items: None,
    outcome: CallOutcome::Ok,
    limit: None,
    duration: Duration::ZERO,
    upstream: None,
    trace_id: None,
    client_info: None,
    client_era: "",
    client_version: "",
    server_version: None,
    transport: "",
};
