//! Calls of the audit log: the recorded decision, and the query that explains the call as it would be
//! decided now.

use std::ops::ControlFlow;
use std::process::ExitCode;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::cli::audit::pages::request_pages;
use crate::cli::columns::wrap_text;
use crate::cli::running::GatewayOption;
use crate::cli::{escape_json, printable, report_error};
use crate::snapshot::RecordedCall;

/// The record of a request.
#[derive(Debug)]
pub(super) struct LoggedRequest {
    record: Box<RawValue>,
    outcome: LoggedOutcome,
}

/// The members of a record about the decision.
#[derive(Debug, Deserialize)]
struct LoggedOutcome {
    time: String,
    decision: Option<String>,
    check: Option<String>,
    rule: Option<String>,
    outcome: Option<String>,
    reason: Option<String>,
    event: Option<String>,
    method: Option<String>,
    operation: Option<String>,
}

/// The query that explains a recorded call. Its arguments are as they are recorded: a tree of values
/// would round long numbers.
#[derive(Serialize)]
struct RecordedQuery<'a> {
    client: &'a str,
    tool: Option<&'a str>,
    profile: Option<&'a str>,
    arguments: Option<&'a RawValue>,
}

/// Reason that no call can be explained.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoggedRequestError {
    #[error("the audit log of the gateway has no record with the id {id}")]
    UnknownId { id: String },
    #[error("the record {id} cannot be read: expected one of an audit log")]
    Unreadable { id: String, source: serde_json::Error },
    #[error("{subject} is not a call of a tool: only these are explained")]
    OtherSubject { subject: String },
    #[error("the caller is not known: no valid key or token was sent")]
    UnknownCaller,
}

impl LoggedRequest {
    /// Finds a record in the log of the running gateway. Prints the reason that there is none.
    ///
    /// # Errors
    /// The exit code.
    pub(super) fn find(gateway: &GatewayOption, id: &str) -> Result<Self, ExitCode> {
        let mut found = None;
        request_pages(gateway, ("id", id.to_owned()), |page| {
            found = page.records.into_iter().next();
            if found.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        let id = id.to_owned();
        let Some(record) = found else {
            return Err(report_error(&LoggedRequestError::UnknownId { id }));
        };
        match serde_json::from_str(record.get()) {
            Ok(outcome) => Ok(Self { record, outcome }),
            Err(source) => Err(report_error(&LoggedRequestError::Unreadable { id, source })),
        }
    }

    /// Returns the query that explains the call. Arguments that are not recorded in full are not
    /// known.
    ///
    /// # Errors
    /// The request was not a call of a tool by a known caller.
    pub(super) fn to_query(&self) -> Result<String, LoggedRequestError> {
        let call: Option<RecordedCall> = serde_json::from_str(self.record.get()).ok();
        let Some(call) = call.filter(RecordedCall::is_of_tool) else {
            let LoggedOutcome { method, operation, event, .. } = &self.outcome;
            let method = method.as_ref().filter(|method| !method.is_empty());
            let subject = method.or(operation.as_ref()).or(event.as_ref());
            let subject = subject.map_or("the record", String::as_str).to_owned();
            return Err(LoggedRequestError::OtherSubject { subject });
        };
        let query = RecordedQuery {
            client: call.principal.as_deref().ok_or(LoggedRequestError::UnknownCaller)?,
            tool: call.tool.as_deref(),
            profile: call.profile.as_deref(),
            arguments: call.known_arguments().and(call.arguments.as_deref()),
        };
        Ok(serde_json::to_string(&query).unwrap_or_default())
    }

    /// Returns true if the request was refused.
    pub(super) fn is_refused(&self) -> bool {
        self.outcome.decision.as_deref() == Some("deny")
    }

    /// Describes the recorded decision for a terminal of 80 columns.
    pub(super) fn describe(&self) -> String {
        let LoggedOutcome { time, decision, check, rule, outcome, reason, .. } = &self.outcome;
        let verb = match decision.as_deref() {
            Some("deny") => "refused by",
            Some("allow") => "allowed by",
            Some("confirm") => "the user was asked first, by",
            Some("none") => "the client left before a decision,",
            _ => "decided by",
        };
        let end = if self.is_refused() { reason } else { outcome };
        let end = end.as_ref().map(|end| format!("({end})"));
        let deciding = [check, rule].into_iter().flatten().map(String::as_str);
        let words = [verb].into_iter().chain(deciding).chain(end.as_deref());
        let text = format!("{} at {time}", words.collect::<Vec<_>>().join(" "));
        wrap_text("Recorded: ", &printable(&text))
    }

    /// Returns the document of an explanation with the record as it is written.
    pub(super) fn to_json(&self, document: &Value) -> String {
        let explanation = RecordedExplanation { document, record: &self.record };
        escape_json(&(serde_json::to_string_pretty(&explanation).unwrap_or_default() + "\n"))
    }
}

/// The document of an explanation, and the record.
struct RecordedExplanation<'a> {
    document: &'a Value,
    record: &'a RawValue,
}

impl Serialize for RecordedExplanation<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let members = self.document.as_object().into_iter().flatten();
        let members = members.map(|(name, value)| (name.as_str(), ExplanationMember::Own(value)));
        let recorded = ("recorded", ExplanationMember::Recorded(self.record));
        serializer.collect_map(members.chain([recorded]))
    }
}

/// A member of the document with the record.
#[derive(Serialize)]
#[serde(untagged)]
enum ExplanationMember<'a> {
    Own(&'a Value),
    Recorded(&'a RawValue),
}
