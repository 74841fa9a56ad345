//! The audit log, searched from its end.

use tokio::task::spawn_blocking;

use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::audit_log::{AuditCursor, AuditFilter, PageLimits, log_files, read_page};

/// Answers with the newest records that match, or with those before a cursor.
pub(crate) async fn search_records(request: EndpointRequest) -> EndpointAnswer {
    let text = |name: &str| request.argument(name).map(str::to_owned);
    let filter = AuditFilter {
        client: text("client"),
        tool: text("tool"),
        server: text("server"),
        decision: text("decision"),
        kind: text("kind"),
        since: request.time_argument("since")?,
        until: request.time_argument("until")?,
        after: request.count_argument("after", u64::MAX)?,
    };
    let records = request.count_argument("limit", MAX_RECORDS)?.unwrap_or(USUAL_RECORDS);
    let records = usize::try_from(records.max(1)).unwrap_or(1);
    let cursor = match request.argument("cursor") {
        Some(text) => {
            let invalid = || ApiProblem::invalid("cursor: expected `next` of a page");
            Some(AuditCursor::parse(text).ok_or_else(invalid)?)
        }
        None => None,
    };
    let files = log_files(&request.report.configured().audit).ok_or_else(|| {
        let detail = "the audit log is not a file: set audit.file";
        ApiProblem::new(ProblemCode::AuditFileNeeded, detail)
    })?;
    let limits = PageLimits { records, bytes: MAX_PAGE_BYTES, searched: MAX_SEARCHED_BYTES };
    let internal = |detail: String| ApiProblem::new(ProblemCode::Internal, detail);
    let read = spawn_blocking(move || read_page(&files, &filter, cursor, limits)).await;
    let read = read.map_err(|error| internal(error.to_string()))?;
    answer(&read.map_err(|error| internal(format!("the audit log cannot be read: {error}")))?)
}

/// Records of a page by default, and at most.
const USUAL_RECORDS: u64 = 100;
const MAX_RECORDS: u64 = 1000;
/// Limit of the bytes of a page's records.
const MAX_PAGE_BYTES: usize = 4 << 20;
/// Limit of the bytes that are searched for a page.
const MAX_SEARCHED_BYTES: u64 = 32 << 20;
