//! Calls of the audit log: the recorded decision, and the query that explains the call as it would be
//! decided now.

use std::ops::ControlFlow;
use std::process::ExitCode;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::cli::audit::pages::request_pages;
use crate::cli::columns::wrap_text;
use crate::cli::running::GatewayOption;
use crate::cli::{printable, report_error};
use crate::snapshot::RecordedCall;

/// The record of a request.
#[derive(Debug)]
pub(super) struct LoggedRequest {
    record: Value,
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
        let read = serde_json::from_str(record.get()).and_then(|record: Value| {
            Ok(Self { outcome: LoggedOutcome::deserialize(&record)?, record })
        });
        match read {
            Ok(logged) => Ok(logged),
            Err(source) => Err(report_error(&LoggedRequestError::Unreadable { id, source })),
        }
    }

    /// Returns the query that explains the call. Arguments that are not recorded in full are not
    /// known.
    ///
    /// # Errors
    /// The request was not a call of a tool by a known caller.
    pub(super) fn to_query(&self) -> Result<Value, LoggedRequestError> {
        let text = |name: &str| self.record.get(name).and_then(Value::as_str);
        let call = RecordedCall::deserialize(&self.record).ok().filter(RecordedCall::is_of_tool);
        let Some(call) = call else {
            let subject = text("method").filter(|method| !method.is_empty());
            let subject = subject.or_else(|| text("operation")).or_else(|| text("event"));
            let subject = subject.unwrap_or("the record").to_owned();
            return Err(LoggedRequestError::OtherSubject { subject });
        };
        let client = call.principal.as_ref().ok_or(LoggedRequestError::UnknownCaller)?;
        let arguments = call.known_arguments();
        let (tool, profile) = (&call.tool, &call.profile);
        Ok(json!({ "client": client, "tool": tool, "profile": profile, "arguments": arguments }))
    }

    /// Returns true if the request was refused.
    pub(super) fn is_refused(&self) -> bool {
        self.outcome.decision.as_deref() == Some("deny")
    }

    /// Describes the recorded decision for a terminal of 80 columns.
    pub(super) fn describe(&self) -> String {
        let LoggedOutcome { time, decision, check, rule, outcome, reason } = &self.outcome;
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

    /// Adds the record to the document of an explanation.
    pub(super) fn add_to(self, document: &mut Value) {
        if let Some(members) = document.as_object_mut() {
            members.insert("recorded".into(), self.record);
        }
    }
}
