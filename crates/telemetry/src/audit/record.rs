//! The record of one decision, and its form as JSON.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use data_encoding::HEXLOWER;
use jiff::Timestamp;

use trunkline_core::crypto::{blake2b_256, sha256};
use trunkline_core::text::clip;
use trunkline_protocol::call::{AuditCredential, ConfirmationNote};

use crate::json_text::{push_address, push_digits, push_integer, push_padded, push_raw, push_text};
use crate::{CallSubject, MAX_CLIENT_TEXT_BYTES};

use super::arguments::mark_unread;
use super::{ArgumentBounds, ArgumentsDigest, AuditSettings};

/// Subject of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditKind {
    /// A call to a method that servers answer.
    Call,
    /// A list that was returned.
    List,
    /// A subscription that was granted, or omitted from the grant.
    Subscribe,
    /// A request that was refused before it became a call.
    Request,
}

/// Decision about a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditDecision {
    /// The request was served.
    Allow,
    /// The request was refused.
    Deny,
    /// The user had to confirm first.
    Confirm,
    /// The client left before a decision.
    None,
}

impl AuditKind {
    fn label(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::List => "list",
            Self::Subscribe => "subscribe",
            Self::Request => "request",
        }
    }
}

impl AuditDecision {
    fn label(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Confirm => "confirm",
            Self::None => "none",
        }
    }
}

/// The record of one decision. Texts are as the client wrote them.
#[derive(Debug, Clone, Copy)]
pub struct AuditRecord<'a> {
    /// Kind of the decision's subject.
    pub kind: AuditKind,
    /// Id that was known before ([`AuditTrail::next_id`](super::AuditTrail::next_id)).
    pub id: Option<&'a str>,
    /// Id of the parent call's record.
    pub parent: Option<&'a str>,
    /// The caller; `None` if it is unknown.
    pub principal: Option<&'a str>,
    /// Proof of the caller's identity.
    pub credential: &'a AuditCredential,
    /// Actors on behalf of the principal, the current one first.
    pub actors: &'a [String],
    /// The client's address; `None` for a client on standard streams.
    pub address: Option<IpAddr>,
    /// The requested profile.
    pub profile: &'a str,
    /// The method.
    pub method: &'a str,
    /// The subject by its public name.
    pub public: CallSubject<'a>,
    /// The subject by its native name.
    pub native: CallSubject<'a>,
    /// The server that the call was routed to.
    pub server: Option<&'a str>,
    /// The decision.
    pub decision: AuditDecision,
    /// The check that decided.
    pub check: &'a str,
    /// The rule or limit within the check, if it has several.
    pub rule: Option<&'a str>,
    /// Rule with a condition that could not be evaluated, and its fault.
    pub condition_fault: Option<&'a str>,
    /// Confirmation by the user; `None` if the user was not asked.
    pub confirmation: Option<ConfirmationNote>,
    /// Outcome of the request.
    pub outcome: &'a str,
    /// Reason of a refusal or failure.
    pub reason: Option<&'a str>,
    /// The JSON-RPC error code, if there is one.
    pub code: Option<i64>,
    /// From the request's last byte to the reply's last byte.
    pub duration: Option<Duration>,
    /// The part of the duration spent waiting for the server.
    pub upstream: Option<Duration>,
    /// Size of the request's params, or of the refused body.
    pub request_bytes: Option<usize>,
    /// Size of the result or error.
    pub response_bytes: Option<u64>,
    /// The Legacy session, by [`session_digest`].
    pub session: Option<&'a str>,
    /// The call's trace.
    pub trace_id: Option<&'a str>,
    /// The call's arguments.
    pub arguments: Option<&'a [u8]>,
    /// Size and digest of the returned list.
    pub shown: Option<(usize, &'a [u8])>,
}

impl AuditRecord<'_> {
    /// Returns true for a request of an unknown caller. Such records may not displace those of
    /// others.
    pub(super) fn is_of_stranger(&self) -> bool {
        self.principal.is_none()
    }

    /// Appends the record as one JSON object, without a line end. The writer adds `seq` before its
    /// members, and `prev` and `hash` or `hmac` after them.
    pub(super) fn write_json(
        &self,
        id: RecordId<'_>,
        time: RecordTime<'_>,
        settings: &AuditSettings,
        out: &mut Vec<u8>,
    ) {
        let mut json = RecordWriter { out };
        json.write_start(id, time);
        if let Some(parent) = self.parent {
            json.write_member(",\"parent\":", parent);
        }
        json.write_word(",\"event\":\"", self.kind.label());
        json.write_optional(",\"principal\":", self.principal);
        json.write_credential(self.credential);
        json.write_list(",\"actors\":[", self.actors);
        json.write_address(self.address);
        json.write_member(",\"profile\":", clip(self.profile, MAX_CLIENT_TEXT_BYTES));
        json.write_member(",\"method\":", clip(self.method, MAX_CLIENT_TEXT_BYTES));
        json.write_optional(",\"tool\":", self.public.tool());
        json.write_optional(",\"native_tool\":", self.native.tool());
        json.write_optional(",\"prompt\":", self.public.prompt());
        json.write_optional(",\"native_prompt\":", self.native.prompt());
        json.write_optional(",\"resource\":", self.public.resource_uri().as_deref());
        json.write_optional(",\"native_resource\":", self.native.resource_uri().as_deref());
        json.write_optional(",\"server\":", self.server);
        json.write_word(",\"decision\":\"", self.decision.label());
        json.write_member(",\"check\":", self.check);
        json.write_optional(",\"rule\":", self.rule);
        if let Some(fault) = self.condition_fault {
            json.write_member(",\"condition_fault\":", fault);
        }
        json.write_optional(",\"confirmation\":", self.confirmation.map(ConfirmationNote::label));
        json.write_member(",\"outcome\":", self.outcome);
        json.write_optional(",\"reason\":", self.reason);
        json.write_code(self.code);
        json.write_number(",\"duration_us\":", self.duration.map(whole_microseconds));
        json.write_number(",\"upstream_us\":", self.upstream.map(whole_microseconds));
        json.write_number(",\"request_bytes\":", self.request_bytes.map(|size| size as u64));
        json.write_number(",\"response_bytes\":", self.response_bytes);
        json.write_optional(",\"session\":", self.session);
        json.write_optional(",\"trace_id\":", self.trace_id);
        json.write_arguments(self.arguments, settings);
        if let Some((items, digest)) = self.shown {
            json.write_number(",\"items\":", Some(items as u64));
            json.write_hex(",\"list_digest\":", Some(digest));
        }
        push_raw(json.out, "}");
    }
}

/// The id of a record.
#[derive(Debug, Clone, Copy)]
pub(super) enum RecordId<'a> {
    /// A known id.
    Known(&'a str),
    /// Prefix of the gateway's run, and a number.
    New(&'a str, u64),
}

/// Time of a record: the text of the second, and the microseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecordTime<'a> {
    pub(super) second: &'a str,
    pub(super) micros: u32,
}

/// Writes the members of a record. Each key includes its comma and its colon.
pub(super) struct RecordWriter<'a> {
    pub(super) out: &'a mut Vec<u8>,
}

impl RecordWriter<'_> {
    pub(super) fn write_start(&mut self, id: RecordId<'_>, time: RecordTime<'_>) {
        self.out.reserve(USUAL_SIZE);
        push_raw(self.out, "{\"time\":\"");
        push_raw(self.out, time.second);
        push_raw(self.out, ".");
        push_padded(self.out, "000000", time.micros.into());
        push_raw(self.out, "Z\",\"id\":\"");
        match id {
            RecordId::Known(id) => push_raw(self.out, id),
            RecordId::New(run, number) => {
                push_raw(self.out, run);
                push_raw(self.out, "-");
                push_digits(self.out, number);
            }
        }
        push_raw(self.out, "\"");
    }

    #[inline]
    pub(super) fn write_member(&mut self, key: &str, value: &str) {
        push_raw(self.out, key);
        push_text(self.out, value);
    }

    #[inline]
    pub(super) fn write_optional(&mut self, key: &str, value: Option<&str>) {
        push_raw(self.out, key);
        match value {
            Some(value) => push_text(self.out, value),
            None => push_raw(self.out, JSON_NULL),
        }
    }

    /// Writes a part of the syntax.
    pub(super) fn write_raw(&mut self, part: &'static str) {
        push_raw(self.out, part);
    }

    /// Writes a constant; the key includes the first quote.
    pub(super) fn write_word(&mut self, key: &str, word: &'static str) {
        push_raw(self.out, key);
        push_raw(self.out, word);
        push_raw(self.out, "\"");
    }

    pub(super) fn write_number(&mut self, key: &str, value: Option<u64>) {
        push_raw(self.out, key);
        match value {
            Some(value) => push_digits(self.out, value),
            None => push_raw(self.out, JSON_NULL),
        }
    }

    fn write_code(&mut self, code: Option<i64>) {
        push_raw(self.out, ",\"code\":");
        match code {
            Some(code) => push_integer(self.out, code),
            None => push_raw(self.out, JSON_NULL),
        }
    }

    fn write_credential(&mut self, credential: &AuditCredential) {
        self.write_word(",\"credential\":{\"kind\":\"", credential.kind);
        self.write_optional(",\"id\":", credential.id.as_deref());
        push_raw(self.out, "}");
    }

    /// Writes a list; the key includes the bracket.
    pub(super) fn write_list(&mut self, key: &str, texts: &[String]) {
        push_raw(self.out, key);
        for (place, text) in texts.iter().enumerate() {
            push_raw(self.out, if place == 0 { "" } else { "," });
            push_text(self.out, text);
        }
        push_raw(self.out, "]");
    }

    pub(super) fn write_address(&mut self, address: Option<IpAddr>) {
        push_raw(self.out, ",\"address\":");
        match address {
            Some(address) => {
                push_raw(self.out, "\"");
                push_address(self.out, address);
                push_raw(self.out, "\"");
            }
            None => push_raw(self.out, JSON_NULL),
        }
    }

    fn write_hex(&mut self, key: &str, bytes: Option<&[u8]>) {
        push_raw(self.out, key);
        let Some(bytes) = bytes else { return push_raw(self.out, JSON_NULL) };
        push_raw(self.out, "\"");
        let begin = self.out.len();
        self.out.resize(begin + HEXLOWER.encode_len(bytes.len()), 0);
        HEXLOWER.encode_mut(bytes, self.out.get_mut(begin..).unwrap_or_default());
        push_raw(self.out, "\"");
    }

    fn write_arguments(&mut self, arguments: Option<&[u8]>, settings: &AuditSettings) {
        match settings.digest {
            ArgumentsDigest::Off => {}
            ArgumentsDigest::Sha256 => {
                let digest = arguments.map(sha256);
                self.write_hex(",\"arguments_sha256\":", digest.as_ref().map(<[u8; 32]>::as_slice));
            }
            ArgumentsDigest::Blake2b => {
                let digest = arguments.map(blake2b_256);
                self.write_hex(
                    ",\"arguments_blake2b\":",
                    digest.as_ref().map(<[u8; 32]>::as_slice),
                );
            }
        }
        let (Some(raw), Some(recording)) = (arguments, &settings.arguments) else { return };
        push_raw(self.out, ",\"arguments\":");
        if raw.len() > MAX_READ {
            return push_text(self.out, &mark_unread(raw, "too large"));
        }
        let bounds = ArgumentBounds { usual: recording.size, most: recording.size };
        match recording.redaction.show_arguments(raw, bounds) {
            Ok(shown) => push_raw(self.out, &shown.json),
            Err(fault) => push_text(self.out, &mark_unread(raw, fault)),
        }
    }
}

fn whole_microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Formats a time as RFC 3339 in UTC, with microseconds.
pub(super) fn format_time(at: SystemTime) -> String {
    format!("{:.6}", Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Returns a digest that distinguishes Legacy sessions. A reader of the log cannot enter a session
/// with it.
pub fn session_digest(id: &str) -> String {
    let digest = sha256(id.as_bytes());
    let head: [u8; 8] = digest.first_chunk().copied().unwrap_or_default();
    HEXLOWER.encode(&head)
}

/// Returns the check that refuses with this failure, by the failure's label.
pub fn check_of_failure(label: &str) -> &'static str {
    match label {
        "key_missing" | "key_unknown" | "key_expired" => "key",
        "token_missing" | "token_refused" | "token_expired" | "issuer_unavailable" => "token",
        "insufficient_scope" => "scope",
        "credentials_withheld" => "credentials",
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

/// Maximum bytes of arguments that are parsed for a record: a call waits for that.
const MAX_READ: usize = 256 << 10;
const JSON_NULL: &str = "null";
/// Size of most records, without their hashes.
const USUAL_SIZE: usize = 1024;
