//! Calls, and the steps of one.

use std::fmt::Write as _;
use std::process::ExitCode;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::Value;

use super::{RecordKind, RecordText, time_text};
use crate::cli::running::{GatewayOption, GatewayRequest, report_other_version, report_unanswered};
use crate::cli::{json_text, write_to_stdout};

/// Calls that have ended.
pub(super) const CALL_RECORDS: RecordKind =
    RecordKind { path: "/calls", member: "calls", plural: "calls", describe };

/// The note about an empty list.
pub(super) const NO_CALLS: &str = "no recent calls: without admin.recent they are kept only while \
    an operator looks, and for a minute after (from now on; see also --follow)";

/// The part of a call that is printed.
#[derive(Debug, Deserialize)]
struct CallRecordText {
    id: String,
    at: jiff::Timestamp,
    client: String,
    software: Option<String>,
    method: String,
    name: Option<String>,
    server: Option<String>,
    outcome: String,
    reason: Option<String>,
    limit: Option<String>,
    duration_ms: f64,
}

/// The part of a call's steps that is printed.
#[derive(Debug, Deserialize)]
struct CallStepsText {
    profile: String,
    native_name: Option<String>,
    argument_bytes: Option<u64>,
    result_bytes: Option<u64>,
    steps: Vec<StepText>,
}

#[derive(Debug, Deserialize)]
struct StepText {
    step: String,
    after_ms: f64,
    duration_ms: f64,
}

/// Describes a call like the access log.
fn describe(record: &Value) -> Option<RecordText> {
    let call = CallRecordText::deserialize(record).ok()?;
    let mut body = format!("client={} {}", call.client, call.method);
    if let Some(name) = &call.name {
        let _ = write!(body, " {name}");
    }
    let _ = write!(body, ": {}", call.outcome.replace('_', " "));
    if let Some(reason) = &call.reason {
        let _ = write!(body, " ({reason})");
    }
    let _ = write!(body, " in {} ms", call.duration_ms);
    for (name, value) in [("server", &call.server), ("limit", &call.limit)] {
        if let Some(value) = value {
            let _ = write!(body, " {name}={value}");
        }
    }
    if let Some(software) = &call.software {
        let _ = write!(body, " software={software:?}");
    }
    let _ = write!(body, " id={}", call.id);
    Some(RecordText { start: format!("{} ", time_text(call.at)), body })
}

/// Shows one call with its steps.
pub(super) fn show_call(gateway: &GatewayOption, id: &str, json: bool) -> ExitCode {
    let path = format!("/calls/{}", utf8_percent_encode(id, NON_ALPHANUMERIC));
    let document = match gateway.request(&GatewayRequest::get(&path)) {
        Ok(document) => document,
        Err(error) => return report_unanswered(&error),
    };
    if json {
        return write_to_stdout(&json_text(&document));
    }
    match describe_steps(&document) {
        Some(text) => write_to_stdout(&text),
        None => report_other_version(),
    }
}

fn describe_steps(document: &Value) -> Option<String> {
    let call = CallStepsText::deserialize(document).ok()?;
    let mut text = describe(document)?.lines();
    let size = |bytes: Option<u64>| bytes.map_or_else(|| "none".to_owned(), |it| format!("{it} B"));
    let native = call.native_name.as_deref().unwrap_or("-");
    let facts = format!(
        "profile {}, native name {native}, arguments {}, result {}",
        call.profile,
        size(call.argument_bytes),
        size(call.result_bytes)
    );
    let _ =
        writeln!(text, "{}\n\n  STEP          AFTER (ms)   TOOK (ms)", super::printable(&facts));
    for StepText { step, after_ms, duration_ms } in &call.steps {
        let step = super::printable(step);
        let _ = writeln!(text, "  {step:12}  {after_ms:>10.3}  {duration_ms:>10.3}");
    }
    Some(text)
}
