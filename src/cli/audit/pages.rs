//! Pages of the running gateway's audit log, which it searches from its end.

use std::ops::ControlFlow;
use std::process::ExitCode;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;
use url::form_urlencoded::Serializer;

use crate::cli::print_error;
use crate::cli::running::{
    ANSWER_TIMEOUT, GatewayOption, GatewayRequest, RunningGatewayError, report_other_version,
    report_unanswered,
};

/// The part of a page that commands read.
#[derive(Debug, Deserialize)]
pub(crate) struct AuditPageText {
    /// The records as they are written, the newest first: numbers keep all their digits.
    pub(crate) records: Vec<Box<RawValue>>,
    /// The place of the next page; `None` at the end.
    pub(crate) next: Option<String>,
    /// The time of the oldest record that was searched.
    pub(crate) oldest_at: Option<Timestamp>,
    /// The number of searched lines that are no records.
    pub(crate) unreadable_lines: usize,
}

/// Returns a path with a query of the pairs that have a value.
pub(super) fn query_path<'a>(
    path: &str,
    query: impl IntoIterator<Item = (&'a str, Option<String>)>,
) -> String {
    let mut text = Serializer::new(String::new());
    for (name, value) in query {
        if let Some(value) = value {
            text.append_pair(name, &value);
        }
    }
    format!("{path}?{}", text.finish())
}

/// Requests the page of a query. Prints the reason that there is none.
///
/// # Errors
/// The exit code.
pub(crate) fn request_page(
    gateway: &GatewayOption,
    query: &[(&str, Option<String>)],
) -> Result<AuditPageText, ExitCode> {
    let path = query_path("/audit", query.iter().cloned());
    let document = gateway.request_as::<Box<RawValue>>(&GatewayRequest::get(&path), ANSWER_TIMEOUT);
    let document = document.map_err(|error| report_no_log(&error))?;
    serde_json::from_str(document.get()).map_err(|_| report_other_version())
}

/// Prints the reason that there is no page, with the cure for a gateway that keeps no log.
fn report_no_log(error: &RunningGatewayError) -> ExitCode {
    match error {
        RunningGatewayError::Refused { code, .. } if code == AUDIT_FILE_NEEDED => {
            print_error(
                "the gateway does not record calls in a file, so there are none to read: set \
                 audit.file (`file` in [audit]), and reload it",
            );
            error.exit().into_code()
        }
        error => report_unanswered(error),
    }
}

/// Requests all pages of a filter, until `see` has enough.
///
/// # Errors
/// The exit code.
pub(crate) fn request_pages(
    gateway: &GatewayOption,
    filter: (&str, String),
    mut see: impl FnMut(AuditPageText) -> ControlFlow<()>,
) -> Result<(), ExitCode> {
    let filter = [(filter.0, Some(filter.1)), ("limit", Some(MAX_PAGE_RECORDS.to_owned()))];
    let mut cursor = None;
    loop {
        let query: Vec<_> = filter.iter().cloned().chain([("cursor", cursor)]).collect();
        let page = request_page(gateway, &query)?;
        let next = page.next.clone();
        cursor = match (see(page), next) {
            (ControlFlow::Continue(()), Some(next)) => Some(next),
            _ => return Ok(()),
        };
    }
}

/// The code of a gateway without a file for its audit log.
const AUDIT_FILE_NEEDED: &str = "audit_file_needed";
/// The most records of a page.
const MAX_PAGE_RECORDS: &str = "1000";
