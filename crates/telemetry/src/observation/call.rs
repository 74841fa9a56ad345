//! The record of a call that observers see.

use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use trunkline_core::text::clip;

use super::steps::TimedStep;
use crate::log::read_software;
use crate::{CallRecord, CallSubject, MAX_CLIENT_TEXT_BYTES};

/// A call that has ended, as the access log and the audit log record it, with the times of its steps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedCall {
    /// The id of the call, and of its record in the audit log if there is one.
    pub id: String,
    /// Time of its start.
    pub at: SystemTime,
    /// The caller.
    pub principal: String,
    /// The client's address; `None` for a client on standard streams.
    pub address: Option<IpAddr>,
    /// The profile.
    pub profile: String,
    /// Name and version of the client's software, as the client states them.
    pub software: Option<String>,
    /// The client's era: `legacy` or `modern`.
    pub era: &'static str,
    /// The client's protocol version.
    pub client_version: String,
    /// The method.
    pub method: String,
    /// The tool, prompt or resource by its public name, as the client wrote it.
    pub name: Option<String>,
    /// The same by its native name.
    pub native_name: Option<String>,
    /// The server that the call was routed to.
    pub server: Option<String>,
    /// The label of the outcome.
    pub outcome: &'static str,
    /// The label of a refusal or failure.
    pub reason: Option<&'static str>,
    /// The JSON-RPC error code.
    pub code: Option<i64>,
    /// The limit that refused the call.
    pub limit: Option<String>,
    /// From the start to the end.
    pub duration: Duration,
    /// The part after the call was sent to its server.
    pub upstream: Option<Duration>,
    /// The call's trace.
    pub trace_id: Option<String>,
    /// The sizes of arguments and result.
    pub sizes: CallSizes,
    /// The steps, in their order. The call has ended in the last one.
    pub steps: Vec<TimedStep>,
}

/// Sizes of a call's parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallSizes {
    /// Bytes of the arguments; `None` without arguments.
    pub arguments: Option<usize>,
    /// Bytes of the result or error; `None` if there is none of the server.
    pub result: Option<u64>,
}

impl ObservedCall {
    /// Creates the owned form of a record.
    pub fn of(record: &CallRecord<'_>, id: String, at: SystemTime) -> Self {
        let text = |text: &str| clip(text, MAX_CLIENT_TEXT_BYTES).to_owned();
        Self {
            id,
            at,
            principal: text(record.principal.unwrap_or_default()),
            address: record.address,
            profile: text(record.profile),
            software: record.client_info.and_then(read_software),
            era: record.client_era,
            client_version: text(record.client_version),
            method: text(record.method),
            name: subject_text(record.public),
            native_name: subject_text(record.native),
            server: record.server.map(text),
            outcome: record.outcome.label(),
            reason: record.outcome.failure_reason(),
            code: record.outcome.code(),
            limit: record.limit.map(text),
            duration: record.duration,
            upstream: record.upstream,
            trace_id: record.trace_id.map(text),
            sizes: CallSizes::default(),
            steps: Vec::new(),
        }
    }

    /// Returns the bytes that the record occupies, roughly.
    pub(super) fn bytes(&self) -> usize {
        let texts = [&self.id, &self.principal, &self.profile, &self.client_version, &self.method];
        let more = [
            &self.software,
            &self.name,
            &self.native_name,
            &self.server,
            &self.limit,
            &self.trace_id,
        ];
        let texts = texts.into_iter().chain(more.into_iter().flatten());
        size_of::<Self>()
            + texts.map(String::len).sum::<usize>()
            + self.steps.len() * size_of::<TimedStep>()
    }
}

/// Returns the name of a subject, or its URI without parts that may be secret.
pub(super) fn subject_text(subject: CallSubject<'_>) -> Option<String> {
    let name = subject.tool().or(subject.prompt()).map(str::to_owned);
    name.or_else(|| subject.resource_uri().map(std::borrow::Cow::into_owned))
}

#[cfg(test)]
mod tests {
    use trunkline_core::clock;

    use super::*;

    #[test]
    fn the_texts_of_a_call_are_bounded_and_its_uri_shows_no_secret() {
        let long = "x".repeat(10_000);
        let uri = format!("https://ann:hunter2@example.com/{long}?key=hunter2#hunter2");
        let info = format!("{{\"name\":\"{long}\",\"version\":\"{long}\"}}");
        let record = CallRecord {
            principal: Some(&long),
            profile: &long,
            method: &long,
            public: CallSubject::Resource(&uri),
            native: CallSubject::Tool(&long),
            server: Some(&long),
            limit: Some(&long),
            trace_id: Some(&long),
            client_info: Some(info.as_bytes()),
            client_version: &long,
            ..crate::log::tests::record()
        };
        let call = ObservedCall::of(&record, "id".to_owned(), clock::wall_now());
        let text = format!("{call:?}");
        assert!(!text.contains("hunter2") && text.contains("https://example.com/"), "{text}");
        assert!(call.bytes() < 2500, "{}", call.bytes());
    }
}
