//! Audit records of calls, lists and refused requests, and the refusal of requests that a required
//! audit log cannot record.

use std::net::IpAddr;
use std::sync::Arc;

use crate::call::{Answer, AuditCredential, AuditNotes, Client, Context, Failure};
use crate::catalog::Kind;
use crate::identity::Credential;
use crate::mcp::Method;
use crate::pipeline::Gateway;
use crate::telemetry::audit::{
    AuditDecision, AuditKind, AuditRecord, AuditTrail, RecordRoom, check_of_failure, session_digest,
};
use crate::telemetry::{CallOutcome, CallRecord, CallSubject};

use super::observed::answer_bytes;
use super::subject;

/// Data for a call's audit record beyond its access log record.
pub(crate) struct CallAudit {
    trail: AuditTrail,
    notes: Arc<AuditNotes>,
    session: Option<Arc<str>>,
    response_bytes: Option<u64>,
    /// The limit that the call exceeded.
    limit: Option<String>,
    /// Room for the record, if the audit log is required.
    room: Option<RecordRoom>,
}

/// Facts of a call's end that the access log does not have.
#[derive(Clone, Copy)]
pub(crate) struct CallEnd<'a> {
    pub(crate) arguments: Option<&'a [u8]>,
    pub(crate) request_bytes: usize,
    pub(super) was_sent: bool,
}

impl CallAudit {
    /// Begins the audit record of a call; `None` if there is no audit log.
    pub(crate) fn begin(
        trail: &AuditTrail,
        context: &Context,
        room: Option<RecordRoom>,
    ) -> Option<Box<Self>> {
        let notes = context.audit.as_ref()?;
        Some(Box::new(Self {
            trail: trail.clone(),
            notes: Arc::clone(notes),
            session: context.session.clone(),
            response_bytes: None,
            limit: None,
            room,
        }))
    }

    /// Notes the size of an answer, or the limit that refused the call.
    pub(super) fn note_answer(&mut self, answer: &Result<Answer, Failure>) {
        self.response_bytes = answer_bytes(answer);
        if let Err(failure) = answer {
            self.limit = failure.limit().map(str::to_owned);
        }
    }

    /// Notes the size of a result.
    pub(super) fn note_size(&mut self, bytes: u64) {
        self.response_bytes = Some(bytes);
    }

    /// Writes the record of a call that has ended.
    pub(super) fn write_record(&mut self, call: &CallRecord<'_>, end: CallEnd<'_>) {
        let decision = decision_about(&call.outcome, end.was_sent);
        let reason = call.outcome.failure_reason();
        let by_default = match decision {
            AuditDecision::Deny => check_of_failure(reason.unwrap_or_default()),
            _ => DEFAULT_CHECK,
        };
        let rule = match decision {
            AuditDecision::Deny => self.notes.rule(),
            _ => self.notes.rule().or(self.notes.change()).or(self.notes.permission()),
        };
        let named = rule.and_then(|rule| rule.rule.as_deref());
        let session = self.session.as_deref().map(session_digest);
        let room = self.room.take();
        self.trail.record_in(
            room,
            &AuditRecord {
                kind: AuditKind::Call,
                id: self.notes.id(),
                parent: self.notes.parent(),
                principal: call.principal,
                credential: self.notes.credential(),
                actors: self.notes.actors(),
                address: call.address,
                profile: call.profile,
                method: call.method,
                public: call.public,
                native: call.native,
                server: call.server,
                decision,
                check: rule.map_or(by_default, |rule| rule.check),
                rule: named.or(self.limit.as_deref()),
                condition_fault: self.notes.condition_fault(),
                confirmation: self.notes.confirmation(),
                outcome: call.outcome.label(),
                reason,
                code: call.outcome.code(),
                duration: Some(call.duration),
                upstream: call.upstream,
                request_bytes: Some(end.request_bytes),
                response_bytes: self.response_bytes,
                session: session.as_deref(),
                trace_id: call.trace_id,
                arguments: end.arguments,
                shown: None,
            },
        );
    }
}

/// Returns the decision that an outcome implies: a failure before the call is sent is a refusal.
fn decision_about(outcome: &CallOutcome, was_sent: bool) -> AuditDecision {
    match outcome {
        CallOutcome::Refused { .. } => AuditDecision::Deny,
        CallOutcome::Failed { .. } if !was_sent => AuditDecision::Deny,
        CallOutcome::Cancelled if !was_sent => AuditDecision::None,
        CallOutcome::InputRequired if !was_sent => AuditDecision::Confirm,
        _ => AuditDecision::Allow,
    }
}

/// A request that was refused before it became a call.
#[derive(Default)]
pub struct RefusedRequest<'a> {
    /// The sender, if identified.
    pub sender: Option<&'a Credential>,
    /// The sender's address; `None` for a client on standard streams.
    pub address: Option<IpAddr>,
    /// The profile that it addresses.
    pub profile: &'a str,
    /// The method of its message, if that could be read.
    pub method: Option<Method>,
    /// The name or URI that it requests, if that could be read.
    pub name: Option<&'a str>,
    /// The session that it refers to.
    pub session: Option<&'a str>,
    /// The size of its body, if that was read.
    pub bytes: Option<usize>,
    /// The client software, if known.
    pub client: Option<&'a Client>,
    /// The transport; empty if it is not HTTP or standard streams.
    pub transport: &'static str,
}

impl Gateway {
    /// Reserves room for the record of a request, before anything is done for it. Returns `None` if
    /// the audit log is off or not required.
    ///
    /// # Errors
    /// [`Failure::AuditUnavailable`] if the audit log is required and cannot record the request.
    #[inline]
    pub fn reserve_record(&self) -> Result<Option<RecordRoom>, Failure> {
        self.audit.reserve_room().map_err(|_| Failure::AuditUnavailable)
    }

    /// Records that a request was refused before it became a call. A request that cannot be
    /// recorded is counted by the metrics alone.
    pub fn audit_refusal(&self, request: &RefusedRequest<'_>, failure: &Failure) {
        if !self.audit.is_on() {
            return;
        }
        let notes = if let Some(sender) = request.sender {
            audit_notes(sender)
        } else {
            let credential = AuditCredential { kind: kind_of_refused(failure), id: None };
            AuditNotes::new(credential, Arc::default())
        };
        let principal = request.sender.map(|sender| sender.principal().as_str());
        self.audit_refusal_of((principal, &notes), request, failure);
    }

    /// Like [`Gateway::audit_refusal`], for a request of this principal with these notes.
    pub(crate) fn audit_refusal_of(
        &self,
        who: (Option<&str>, &AuditNotes),
        request: &RefusedRequest<'_>,
        failure: &Failure,
    ) {
        if !self.audit.is_on() || *failure == Failure::AuditUnavailable {
            return;
        }
        let (principal, notes) = who;
        let wire = failure.wire();
        let session = request.session.map(session_digest);
        let method = request.method.as_ref();
        self.audit.record(&AuditRecord {
            kind: AuditKind::Request,
            id: None,
            parent: None,
            principal,
            credential: notes.credential(),
            actors: notes.actors(),
            address: request.address,
            profile: request.profile,
            method: method.map_or("", Method::as_str),
            public: method.map_or(CallSubject::Nothing, |it| subject(it, request.name)),
            native: CallSubject::Nothing,
            server: None,
            decision: AuditDecision::Deny,
            check: check_of_failure(wire.label),
            rule: failure.limit(),
            condition_fault: None,
            confirmation: None,
            outcome: "refused",
            reason: Some(wire.label),
            code: Some(wire.code),
            duration: None,
            upstream: None,
            request_bytes: request.bytes,
            response_bytes: None,
            session: session.as_deref(),
            trace_id: None,
            arguments: None,
            shown: None,
        });
    }

    /// Records the list that a client received, into the room that was reserved for the record.
    pub(crate) fn audit_list(
        &self,
        kind: Kind,
        context: &Context,
        shown: (usize, &[u8]),
        room: Option<RecordRoom>,
    ) {
        let Some(notes) = context.audit.as_ref().filter(|_| self.audit.is_on()) else { return };
        let session = context.session.as_deref().map(session_digest);
        let decided = notes.rule().or(notes.permission());
        self.audit.record_in(
            room,
            &AuditRecord {
                method: kind.method().as_str(),
                check: decided.map_or("profile", |rule| rule.check),
                rule: decided.and_then(|rule| rule.rule.as_deref()),
                session: session.as_deref(),
                shown: Some(shown),
                ..allowed_request(AuditKind::List, context, notes)
            },
        );
    }
}

/// Returns the record of an allowed request without a subject, from the client of a context.
pub(crate) fn allowed_request<'a>(
    kind: AuditKind,
    context: &'a Context,
    notes: &'a AuditNotes,
) -> AuditRecord<'a> {
    AuditRecord {
        kind,
        id: None,
        parent: None,
        principal: Some(context.principal.as_str()),
        credential: notes.credential(),
        actors: notes.actors(),
        address: context.peer.map(|_| context.address),
        profile: context.endpoint.profile(),
        method: "",
        public: CallSubject::Nothing,
        native: CallSubject::Nothing,
        server: None,
        decision: AuditDecision::Allow,
        check: DEFAULT_CHECK,
        rule: None,
        condition_fault: None,
        confirmation: None,
        outcome: CallOutcome::Ok.label(),
        reason: None,
        code: None,
        duration: None,
        upstream: None,
        request_bytes: None,
        response_bytes: None,
        session: None,
        trace_id: None,
        arguments: None,
        shown: None,
    }
}

/// Creates the audit notes for the context of a request from this sender.
pub fn audit_notes(sender: &Credential) -> Arc<AuditNotes> {
    AuditNotes::new(describe_credential(sender), actors_of(sender))
}

fn actors_of(sender: &Credential) -> Arc<[String]> {
    let mut actors = sender.grants().into_iter().flat_map(|grants| grants.actors()).peekable();
    if actors.peek().is_none() {
        // An empty list needs no memory.
        return Arc::default();
    }
    actors.map(str::to_owned).collect()
}

fn describe_credential(sender: &Credential) -> AuditCredential {
    let (kind, id) = sender.describe();
    AuditCredential { kind, id }
}

/// Returns the kind of credential of a refused caller.
fn kind_of_refused(failure: &Failure) -> &'static str {
    match failure {
        Failure::KeyUnknown | Failure::KeyExpired => "key",
        Failure::TokenRefused(_) | Failure::IssuerUnavailable => "token",
        _ => "none",
    }
}

/// The audit record's check if no check refused the call.
pub(crate) const DEFAULT_CHECK: &str = "default";
