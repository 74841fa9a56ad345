//! The audit log, searched from its end, and its new records as they are written.

use async_stream::stream;
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::task::spawn_blocking;

use crate::admin::api::event_stream::{
    answer_events, missed_event, record_event, too_many_observers,
};
use crate::admin::api::problem::{ApiProblem, ProblemCode};
use crate::admin::api::request::{EndpointAnswer, EndpointRequest, answer};
use crate::admin::audit_log::{
    AuditCursor, AuditFilter, AuditPage, KnownRecords, PageLimits, log_files, read_page,
    read_record,
};
use crate::telemetry::LiveItem;
use crate::telemetry::audit::MAX_LIVE_RECORD_BYTES;

use super::calls::past_limit;

/// Answers with the newest records that match, or with those before a cursor.
pub(crate) async fn search_records(request: EndpointRequest) -> EndpointAnswer {
    let filter = record_filter(&request)?;
    let records = request.count_argument("limit", MAX_RECORDS)?.unwrap_or(USUAL_RECORDS);
    let records = usize::try_from(records.max(1)).unwrap_or(1);
    let cursor = match request.argument("cursor") {
        Some(text) => {
            let invalid = || ApiProblem::invalid("cursor: expected `next` of a page");
            Some(AuditCursor::parse(text).ok_or_else(invalid)?)
        }
        None => None,
    };
    answer(&read_records(&request, filter, cursor, records).await?)
}

/// Answers with new records as they are written, after the last ones of the file if requested.
pub(crate) async fn watch_records(request: EndpointRequest) -> EndpointAnswer {
    let filter = record_filter(&request)?;
    let past = past_limit(&request, 0)?;
    let trail = &request.report.gateway.audit;
    if !trail.is_on() {
        let detail = "there is no audit log: set audit.file";
        return Err(ApiProblem::new(ProblemCode::AuditFileNeeded, detail));
    }
    // Observed first: no record is between the past ones and the new ones.
    let mut observed = trail.observe().map_err(too_many_observers)?;
    let page = match past {
        0 => AuditPage::default(),
        past => read_records(&request, filter.clone(), None, past).await?,
    };
    let events = stream! {
        for record in page.records.iter().rev() {
            yield live_event(record);
        }
        let mut known = KnownRecords::until(page.newest);
        while let Some(item) = observed.next().await {
            match item {
                LiveItem::Item(written) => match &written.item.json {
                    Some(json) => {
                        let Ok((record, text)) = read_record(json) else { continue };
                        if !known.has(&record) && filter.matches(&record) {
                            yield live_event(text);
                        }
                    }
                    None => yield missed_event(1),
                },
                LiveItem::Missed(missed) => yield missed_event(missed),
            }
        }
    };
    Ok(answer_events(&request, events))
}

fn record_filter(request: &EndpointRequest) -> Result<AuditFilter, ApiProblem> {
    let text = |name: &str| request.argument(name).map(str::to_owned);
    Ok(AuditFilter {
        id: text("id"),
        client: text("client"),
        tool: text("tool"),
        server: text("server"),
        decision: text("decision"),
        kind: text("kind"),
        since: request.time_argument("since")?,
        until: request.time_argument("until")?,
        after: request.count_argument("after", u64::MAX)?,
    })
}

async fn read_records(
    request: &EndpointRequest,
    filter: AuditFilter,
    cursor: Option<AuditCursor>,
    records: usize,
) -> Result<AuditPage, ApiProblem> {
    let limits = PageLimits { records, bytes: MAX_PAGE_BYTES, searched: MAX_SEARCHED_BYTES };
    let files = log_files(&request.report.configured().audit).ok_or_else(|| {
        let detail = "the audit log is not a file: set audit.file";
        ApiProblem::new(ProblemCode::AuditFileNeeded, detail)
    })?;
    let internal = |detail: String| ApiProblem::new(ProblemCode::Internal, detail);
    let read = spawn_blocking(move || read_page(&files, &filter, cursor, limits)).await;
    let read = read.map_err(|error| internal(error.to_string()))?;
    read.map_err(|error| internal(format!("the audit log cannot be read: {error}")))
}

/// Encodes a record; one that is too large counts as missed.
fn live_event(record: &RawValue) -> Bytes {
    let event = record_event(&record);
    if event.len() > MAX_LIVE_RECORD_BYTES + EVENT_FIELDS_BYTES { missed_event(1) } else { event }
}

/// Records of a page by default, and at most.
const USUAL_RECORDS: u64 = 100;
const MAX_RECORDS: u64 = 1000;
/// Limit of the bytes of a page's records.
const MAX_PAGE_BYTES: usize = 4 << 20;
/// Limit of the bytes that are searched for a page.
const MAX_SEARCHED_BYTES: u64 = 32 << 20;
/// Bytes of an event besides its record, at most.
const EVENT_FIELDS_BYTES: usize = 64;
