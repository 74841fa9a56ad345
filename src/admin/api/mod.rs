//! The admin API: everything that operators ask or change, as JSON.
//!
//! The same endpoints are served on the admin listener, for clients with a role, and on the private
//! socket, for the commands of the gateway's own user. [`endpoints`] is the table of all of them.
//! [`answer_api`] checks each request in one order (sender, path and method, role, page, body) before
//! a function of [`resources`] answers it, and records each change, also a refused one. This module
//! differs from the pages beside it, which are fixed; like them it shows no secret.

mod access;
#[cfg(test)]
mod docs;
mod endpoints;
mod event_stream;
mod openapi;
mod problem;
mod records;
mod request;
mod resources;
mod routing;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Request, Response};
use tokio::time::timeout;

use crate::codec::body::{BodyError, collect};
use crate::config::AdminRole;
use crate::downstream::Body;
use crate::identity::ClientCertificate;

use super::{StatusReport, respond};
pub use access::AdminEntrance;
use access::{OperatorIdentity, identify_operator, refuse_foreign_page};
use endpoints::ApiMethod;
pub use problem::refuse_admission;
use problem::{ApiProblem, ProblemCode};
use records::{ChangeOutcome, ChangeSender, make_recorded};
use request::{ChangeNotes, EndpointRequest};
pub(crate) use resources::definition_scan::{ScanFinding, ScanReport};
pub(crate) use resources::definitions::PendingPage;
pub(crate) use resources::tools::{
    CountedServer, CountedTool, ProfileListing, ToolListing, UnlistedServer,
};
use routing::{FoundEndpoint, find_endpoint, read_query};

/// Returns true for the paths of the API.
pub(super) fn has_path(path: &str) -> bool {
    path.strip_prefix(API_PATH).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Answers a request to the API.
pub(super) async fn answer_api<B>(
    report: &Arc<StatusReport>,
    entrance: AdminEntrance,
    request: Request<B>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let is_head = request.method() == Method::HEAD;
    let answered = match answer_request(report, entrance, request).await {
        Ok(response) => response,
        Err(problem) => problem.respond(),
    };
    if is_head { answered.map(|_| Body::empty()) } else { answered }
}

async fn answer_request<B>(
    report: &Arc<StatusReport>,
    entrance: AdminEntrance,
    request: Request<B>,
) -> Result<Response<Body>, ApiProblem>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let (mut head, body) = request.into_parts();
    // Before the path is looked up: a stranger does not learn which paths there are.
    let operator = identify_sender(report, entrance, &mut head).await?;
    let path = head.uri.path().strip_prefix(API_PATH).unwrap_or_default();
    let method = ApiMethod::of(&head.method);
    let found = find_endpoint(method, path)?;
    let endpoint = found.endpoint;
    let checked = check_request(report, found, &operator, &head, body).await;
    if !endpoint.is_recorded && !endpoint.are_refusals_recorded {
        return (endpoint.answer)(checked?).await;
    }
    let mut sender = change_sender(report, operator, &head);
    let request = checked.inspect_err(|problem| sender.record_refusal(problem))?;
    sender.notes = request.notes.clone();
    if !endpoint.is_recorded {
        let answered = (endpoint.answer)(request).await;
        let refusal = answered.as_ref().err().filter(|_| sender.notes.is_refused());
        if let Some(problem) = refusal {
            sender.record_refusal(problem);
        }
        return answered;
    }
    let change = (endpoint.answer)(request);
    let answered = make_recorded(sender, change, ChangeOutcome::of_endpoint).await;
    answered.unwrap_or_else(|| Err(broken_off()))
}

/// Checks the role, the query, the page and the body of a request.
async fn check_request<B>(
    report: &Arc<StatusReport>,
    found: FoundEndpoint,
    operator: &OperatorIdentity,
    head: &Parts,
    body: B,
) -> Result<EndpointRequest, ApiProblem>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let FoundEndpoint { endpoint, mut arguments } = found;
    let role = operator.require(endpoint.role)?;
    arguments.extend(read_query(endpoint, head.uri.query().unwrap_or_default())?);
    let body = if endpoint.method == ApiMethod::Get {
        Bytes::new()
    } else {
        refuse_foreign_page(&head.headers)?;
        read_body(&head.headers, body).await?
    };
    let (report, operator) = (Arc::clone(report), operator.clone());
    let (least, notes) = (endpoint.role, ChangeNotes::default());
    Ok(EndpointRequest { report, role, operator, least, arguments, body, notes })
}

/// Answers a request for a page beside the API that may change something, like one to the API.
pub(super) async fn answer_changing_page(
    report: Arc<StatusReport>,
    operator: OperatorIdentity,
    request: Request<()>,
) -> Response<Body> {
    let (head, ()) = request.into_parts();
    let sender = change_sender(&report, operator, &head);
    let request = Request::from_parts(head, ());
    let change = async move { respond(&request, &*report).await };
    let answered = make_recorded(sender, change, ChangeOutcome::of_page).await;
    answered.unwrap_or_else(|| broken_off().respond())
}

fn change_sender(report: &StatusReport, operator: OperatorIdentity, head: &Parts) -> ChangeSender {
    let path = head.uri.path_and_query().map_or(head.uri.path(), PathAndQuery::as_str);
    let path = path.strip_prefix(API_PATH).unwrap_or(path).to_owned();
    let trail = report.gateway.audit.clone();
    let (method, notes) = (head.method.clone(), ChangeNotes::default());
    ChangeSender { trail, operator, method, path, notes }
}

fn broken_off() -> ApiProblem {
    ApiProblem::new(ProblemCode::Internal, "the change has broken off")
}

/// Checks the sender of a request for a page beside the API, and returns it.
///
/// # Errors
/// The refusal.
pub(super) async fn admit_page(
    report: &StatusReport,
    entrance: AdminEntrance,
    head: &mut Parts,
    least: AdminRole,
) -> Result<OperatorIdentity, ApiProblem> {
    let operator = identify_sender(report, entrance, head).await?;
    let is_read = matches!(head.method, Method::GET | Method::HEAD);
    let checked = operator
        .require(least)
        .and_then(|_| if is_read { Ok(()) } else { check_changing_page(head) });
    if let Err(problem) = checked {
        if !is_read {
            change_sender(report, operator, head).record_refusal(&problem);
        }
        return Err(problem);
    }
    Ok(operator)
}

fn check_changing_page(head: &Parts) -> Result<(), ApiProblem> {
    refuse_foreign_page(&head.headers)?;
    let is_plain = !head.headers.contains_key(CONTENT_TYPE);
    if is_plain || is_json(&head.headers) { Ok(()) } else { Err(unsupported_type()) }
}

async fn identify_sender(
    report: &StatusReport,
    entrance: AdminEntrance,
    head: &mut Parts,
) -> Result<OperatorIdentity, ApiProblem> {
    let certificate = head.extensions.remove::<Arc<ClientCertificate>>();
    identify_operator(&report.gateway, entrance, &mut head.headers, certificate.as_ref()).await
}

/// Reads a body of bounded size, within a time limit.
async fn read_body<B>(headers: &HeaderMap, body: B) -> Result<Bytes, ApiProblem>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    let reading = timeout(BODY_TIMEOUT, collect(body, MAX_BODY_BYTES)).await;
    let late = |_| ApiProblem::invalid("the body did not arrive in time");
    let body = reading.map_err(late)?.map_err(|error| match error {
        BodyError::TooLarge { .. } | BodyError::Chatter { .. } => {
            let detail = format!("expected a body of at most {MAX_BODY_BYTES} bytes");
            ApiProblem::new(ProblemCode::BodyTooLarge, detail)
        }
        BodyError::Broken(_) => ApiProblem::invalid("the body is incomplete"),
    })?;
    if body.is_empty() || is_json(headers) { Ok(body) } else { Err(unsupported_type()) }
}

/// Returns true for a body of JSON. A page of another site cannot send this type without a
/// preflight, which is refused.
fn is_json(headers: &HeaderMap) -> bool {
    let media = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let media = media.split(';').next().unwrap_or_default().trim();
    media.eq_ignore_ascii_case("application/json")
}

fn unsupported_type() -> ApiProblem {
    let detail = "expected no body, or the media type application/json";
    ApiProblem::new(ProblemCode::UnsupportedMediaType, detail)
}

fn unknown_path() -> ApiProblem {
    let detail = format!("no such path: {API_PATH}/openapi.json has all of them");
    ApiProblem::new(ProblemCode::UnknownPath, detail)
}

/// The path of the API.
pub(crate) const API_PATH: &str = "/api/v1";

/// Limit of the bytes of a body. A larger configuration is replaced on disk, and reloaded.
const MAX_BODY_BYTES: usize = 1 << 20;
/// Time limit for a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);
