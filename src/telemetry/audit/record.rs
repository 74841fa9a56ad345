//! The record of one decision, and its form as JSON.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use crate::crypto::sha256;
use crate::telemetry::CLIP;
use crate::telemetry::CallSubject;
use crate::text::clip;

use super::{ArgumentRecording, AuditCredential, ConfirmationNote};

/// What a record is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditKind {
    /// A call of a method that servers answer.
    Call,
    /// A list that was shown.
    List,
    /// A subscription that was granted, or left out of what was granted.
    Subscribe,
    /// A request that was refused before it became a call.
    Request,
}

/// What was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditDecision {
    /// The request was served.
    Allow,
    /// The request was refused.
    Deny,
    /// The user was asked first.
    Confirm,
    /// The client left before a decision.
    None,
}

/// The record of one decision. Texts are as the client wrote them.
#[derive(Debug, Clone, Copy)]
pub struct AuditRecord<'a> {
    /// What it is about.
    pub kind: AuditKind,
    /// Its id, if that was known before ([`AuditTrail::next_id`](super::AuditTrail::next_id)).
    pub id: Option<&'a str>,
    /// The id of the record of the call that this one was made for.
    pub parent: Option<&'a str>,
    /// Who asked; `None` if that could not be found out.
    pub principal: Option<&'a str>,
    /// How the caller has proved that.
    pub credential: &'a AuditCredential,
    /// Who acts for the principal, the current actor first.
    pub actors: &'a [String],
    /// The client's address; `None` for a client on standard streams.
    pub address: Option<IpAddr>,
    /// The profile that was asked for.
    pub profile: &'a str,
    /// The method.
    pub method: &'a str,
    /// The subject by its public name.
    pub public: CallSubject<'a>,
    /// The subject by its native name.
    pub native: CallSubject<'a>,
    /// The server that the call was routed to.
    pub server: Option<&'a str>,
    /// What was decided.
    pub decision: AuditDecision,
    /// The check that decided.
    pub check: &'a str,
    /// The rule or limit within the check, if it has several.
    pub rule: Option<&'a str>,
    /// What the user was asked, and answered; `None` if nobody was asked.
    pub confirmation: Option<ConfirmationNote>,
    /// How it ended.
    pub outcome: &'a str,
    /// Why it was refused or failed.
    pub reason: Option<&'a str>,
    /// The JSON-RPC error code, if there is one.
    pub code: Option<i64>,
    /// From the request's last byte to the reply's last byte.
    pub duration: Option<Duration>,
    /// The part of the duration spent waiting for the server.
    pub upstream: Option<Duration>,
    /// The size of the request's params, or of the body that was refused.
    pub request_bytes: Option<usize>,
    /// The size of the result or error.
    pub response_bytes: Option<u64>,
    /// The Legacy session, by [`session_digest`].
    pub session: Option<&'a str>,
    /// The call's trace.
    pub trace_id: Option<&'a str>,
    /// The call's arguments.
    pub arguments: Option<&'a [u8]>,
    /// The size and digest of the list that was shown.
    pub shown: Option<(usize, &'a [u8])>,
}

/// The JSON of a record. The writer adds `seq` before it, and `prev` and `hash` or `hmac` after it.
#[derive(Serialize)]
struct JsonRecord<'a> {
    time: String,
    id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    parent: Option<&'a str>,
    event: AuditKind,
    principal: Option<&'a str>,
    credential: JsonCredential<'a>,
    actors: &'a [String],
    address: Option<IpAddr>,
    profile: &'a str,
    method: &'a str,
    tool: Option<&'a str>,
    native_tool: Option<&'a str>,
    prompt: Option<&'a str>,
    native_prompt: Option<&'a str>,
    resource: Option<std::borrow::Cow<'a, str>>,
    native_resource: Option<std::borrow::Cow<'a, str>>,
    server: Option<&'a str>,
    decision: AuditDecision,
    check: &'a str,
    rule: Option<&'a str>,
    confirmation: Option<ConfirmationNote>,
    outcome: &'a str,
    reason: Option<&'a str>,
    code: Option<i64>,
    duration_us: Option<u128>,
    upstream_us: Option<u128>,
    request_bytes: Option<usize>,
    response_bytes: Option<u64>,
    session: Option<&'a str>,
    trace_id: Option<&'a str>,
    arguments_sha256: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    items: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list_digest: Option<String>,
}

#[derive(Serialize)]
struct JsonCredential<'a> {
    kind: &'static str,
    id: Option<&'a str>,
}

impl AuditRecord<'_> {
    /// Whether it is about a request of a caller that nobody knows: such records may not displace
    /// those of others.
    pub(super) fn is_of_stranger(&self) -> bool {
        self.principal.is_none()
    }

    /// Writes the record as one JSON object, without a line end.
    pub(super) fn write_json(
        &self,
        id: &str,
        at: SystemTime,
        arguments: Option<&ArgumentRecording>,
    ) -> serde_json::Result<Vec<u8>> {
        serde_json::to_vec(&JsonRecord {
            time: format_time(at),
            id,
            parent: self.parent,
            event: self.kind,
            principal: self.principal,
            credential: JsonCredential {
                kind: self.credential.kind,
                id: self.credential.id.as_deref(),
            },
            actors: self.actors,
            address: self.address,
            profile: clip(self.profile, CLIP),
            method: clip(self.method, CLIP),
            tool: self.public.tool(),
            native_tool: self.native.tool(),
            prompt: self.public.prompt(),
            native_prompt: self.native.prompt(),
            resource: self.public.resource_uri(),
            native_resource: self.native.resource_uri(),
            server: self.server,
            decision: self.decision,
            check: self.check,
            rule: self.rule,
            confirmation: self.confirmation,
            outcome: self.outcome,
            reason: self.reason,
            code: self.code,
            duration_us: self.duration.map(|it| it.as_micros()),
            upstream_us: self.upstream.map(|it| it.as_micros()),
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            session: self.session,
            trace_id: self.trace_id,
            arguments_sha256: self.arguments.map(|raw| HEXLOWER.encode(&sha256(raw))),
            arguments: self
                .arguments
                .zip(arguments)
                .map(|(raw, recording)| recording.redaction.redact_arguments(raw, recording.size)),
            items: self.shown.map(|(items, _)| items),
            list_digest: self.shown.map(|(_, digest)| HEXLOWER.encode(digest)),
        })
    }
}

/// RFC 3339 in UTC, with microseconds.
pub(super) fn format_time(at: SystemTime) -> String {
    format!("{:.6}", Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// What tells one Legacy session from another: a reader of the log cannot enter the session.
pub fn session_digest(id: &str) -> String {
    let digest = sha256(id.as_bytes());
    let head: [u8; 8] = digest.first_chunk().copied().unwrap_or_default();
    HEXLOWER.encode(&head)
}

/// The check that refuses with this failure, by the failure's label.
pub fn check_of_failure(label: &str) -> &'static str {
    match label {
        "key_missing" | "key_unknown" | "key_expired" => "key",
        "token_missing" | "token_refused" | "token_expired" | "issuer_unavailable" => "token",
        "insufficient_scope" => "scope",
        "unknown_endpoint" => "profile",
        "over_limit" | "too_many_sessions" | "too_many_streams" | "too_many_subscriptions" => {
            "limit"
        }
        "unknown_tool" | "departed_tool" | "unknown_prompt" | "unknown_resource" => "catalog",
        "unknown_task" => "task",
        "call_denied" => "rule",
        "not_confirmed" => "confirm",
        "invalid_arguments" => "arguments",
        "breaker_open" => "breaker",
        "intercepted" | "interceptor_down" => "interceptor",
        "header_mismatch" => "headers",
        "session_required" | "session_lost" => "session",
        "body_too_large" | "media_type" => "body",
        _ => "protocol",
    }
}
