//! The admin interface for operators and their probes.
//!
//! | path | answer |
//! |---|---|
//! | `/` | a page with links to the others |
//! | `/healthz` | 200 while the process answers at all |
//! | `/readyz` | 200 when clients should be sent here, 503 otherwise, with reasons for an allowed host |
//! | `/status` | everything about servers and configuration, as JSON |
//! | `/definitions` | the digest of every definition that servers list, with an `ETag` |
//! | `/tools` | the tokens of every tool, server and profile, by estimate |
//! | `/metrics` | OpenMetrics text |
//! | `POST /servers/NAME/refresh` | lists a server anew, for all clients or for `?client=NAME` |
//! | `/api/v1/…` | the [API](api) |
//!
//! [`answer_operator`] answers requests from the admin listener and from the private socket. Probes
//! need no credential, and neither do metrics on a loopback address; everything else needs a role.
//! [`respond`] is a function from a request for a page and a [`StatusSource`] to a response, without
//! socket or clock. This module differs from `listener`, which owns the sockets and admits
//! connections, and from `telemetry`, which records. No page holds a secret: the configuration is
//! named by path and digest, never shown, and [`ServerStatus`] has no field for an address with
//! credentials, a header or an environment.

pub(crate) mod api;
mod audit_log;
mod cluster_status;
mod configuration;
mod definitions;
mod expiries;
mod findings;
mod ready;
mod reason;
mod refresh;
mod report;
mod socket_paths;
mod status;
#[cfg(test)]
mod tests;
mod tools;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue};
use http::{HeaderName, Method, Request, Response, StatusCode};
use serde::Serialize;
use serde_json::json;

use crate::config::AdminRole;
use crate::downstream::Body;
use crate::listener::edge::ForeignHost;
use crate::telemetry::metrics;
pub(crate) use api::{
    API_PATH, CountedServer, CountedTool, PendingPage, ProfileListing, ScanFinding, ScanReport,
    ToolListing, UnlistedServer,
};
pub use api::{AdminEntrance, refuse_admission};
pub(crate) use audit_log::{LogFiles, log_files};
pub use cluster_status::{
    ClusterReadiness, ClusterStatus, ReplicaStatus, SkewedReplicaStatus, StoreFailureStatus,
    StoreLatencyStatus,
};
pub use configuration::{
    AppliedChange, ConfigActor, ConfigChange, ConfigChangeError, ConfigPlan, ConfigVersion,
    FileOnDisk, LoadedFile, PlanError, PlanSubject, ReloadAnswer, ReloadControl, ReloadRequest,
    RunningConfiguration, VersionDocument, VersionError,
};
pub use definitions::DefinitionDigestStatus;
use definitions::answer_definitions;
pub use expiries::{
    EXPIRY_WARNING, Expiry, ExpiryKind, ExpiryState, key_expiries, local_issuer_expiries,
};
pub use findings::{Finding, FindingLevel};
use findings::{limit_status, limit_text};
pub use ready::{Readiness, VERDICT_GRACE};
pub use refresh::{ChangedElements, RefreshReport, RefreshRequestError};
use refresh::{answer_refresh, refreshed_server};
pub use report::StatusReport;
pub(crate) use report::wall_time;
use report::{
    UseTimes, breaker_status, client_status, era, last_error, last_use, next_retry, server_state,
};
pub use socket_paths::{socket_candidates, socket_path, stable_path};
pub use status::{
    AuditStatus, BreakerStatus, CatalogStatus, ClientStatus, ConfigurationStatus,
    DefinitionFinding, DefinitionStatus, DependenceFinding, DisabledStatus, EmbeddingsStatus,
    ExpiryStatus, GatewayState, InstanceOwner, InstanceStatus, IssuerStatus, KeyStatus, LastError,
    ListDependenceStatus, ReloadStatus, ServerEra, ServerInfo, ServerStart, ServerState,
    ServerStatus, ServerTransport, SinkStatus, Status,
};
pub use tools::{ProfileTokenStatus, ServerTokenStatus, ToolTokenStatus, ToolsPage};

/// The source of the gateway's status.
#[async_trait]
pub trait StatusSource: Send + Sync {
    /// Returns the current status.
    fn status(&self) -> Status;

    /// Returns every definition that servers list.
    fn definitions(&self) -> Vec<DefinitionDigestStatus>;

    /// Returns the tokens of all tools. Counts those that were not counted yet, which takes up to
    /// some seconds.
    async fn tools(&self) -> ToolsPage;

    /// Returns the metrics in the OpenMetrics text format ([`metrics::CONTENT_TYPE`]).
    fn metrics(&self) -> String;

    /// Makes a server list again, for all clients or for one.
    ///
    /// # Errors
    /// [`RefreshRequestError`].
    async fn refresh(
        &self,
        server: &str,
        client: Option<&str>,
    ) -> Result<RefreshReport, RefreshRequestError>;
}

/// Answers a request of an operator or a probe.
pub async fn answer_operator<B>(
    report: Arc<StatusReport>,
    entrance: AdminEntrance,
    request: Request<B>,
) -> Response<Body>
where
    B: http_body::Body<Data = Bytes> + Unpin,
{
    if api::has_path(request.uri().path()) {
        return api::answer_api(&report, entrance, request).await;
    }
    let (mut head, _) = request.into_parts();
    if is_open_page(entrance, head.uri.path()) {
        return respond(&Request::from_parts(head, ()), &*report).await;
    }
    let is_refresh = refreshed_server(head.uri.path()).is_some();
    let least = if is_refresh { AdminRole::Operator } else { AdminRole::Viewer };
    let operator = match api::admit_page(&report, entrance, &mut head, least).await {
        Ok(operator) => operator,
        Err(problem) => return problem.respond(),
    };
    let mut request = Request::from_parts(head, ());
    if let Some(role) = operator.role {
        request.extensions_mut().insert(role);
    }
    if is_refresh {
        return api::answer_changing_page(report, operator, request).await;
    }
    respond(&request, &*report).await
}

/// Returns true for a page that needs no credential: probes, which have none, and metrics on this
/// machine, whose scrapers had none before there were roles.
fn is_open_page(entrance: AdminEntrance, path: &str) -> bool {
    match AdminPage::at(path) {
        Some(AdminPage::Health | AdminPage::Readiness) => true,
        Some(AdminPage::Metrics) => entrance.is_loopback(),
        _ => false,
    }
}

/// Answers a request for a page, regardless of its body.
pub async fn respond(request: &Request<()>, source: &dyn StatusSource) -> Response<Body> {
    match refreshed_server(request.uri().path()) {
        Some(server) => answer_refresh(server, request, source).await,
        None => answer_page(request, source).await,
    }
}

async fn answer_page(request: &Request<()>, source: &dyn StatusSource) -> Response<Body> {
    let Some(page) = AdminPage::at(request.uri().path()) else {
        return json(
            StatusCode::NOT_FOUND,
            &json!({ "error": "not found", "paths": AdminPage::PATHS }),
        );
    };
    match *request.method() {
        Method::GET => page.answer(request, source).await,
        Method::HEAD => without_body(page.answer(request, source).await),
        _ => method_not_allowed(),
    }
}

#[derive(Debug, Clone, Copy)]
enum AdminPage {
    Index,
    Health,
    Readiness,
    Status,
    Definitions,
    Tools,
    Metrics,
}

impl AdminPage {
    const PATHS: [&'static str; 7] =
        ["/", "/healthz", "/readyz", "/status", "/definitions", "/tools", "/metrics"];

    fn at(path: &str) -> Option<Self> {
        Some(match path {
            "/" => Self::Index,
            "/healthz" => Self::Health,
            "/readyz" => Self::Readiness,
            "/status" => Self::Status,
            "/definitions" => Self::Definitions,
            "/tools" => Self::Tools,
            "/metrics" => Self::Metrics,
            _ => return None,
        })
    }

    async fn answer(self, request: &Request<()>, source: &dyn StatusSource) -> Response<Body> {
        match self {
            Self::Index => page(StatusCode::OK, "text/html; charset=utf-8", INDEX_PAGE),
            Self::Health => json(StatusCode::OK, &json!({ "healthy": true })),
            Self::Readiness => {
                let readiness = Readiness::of(&source.status());
                let status =
                    if readiness.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
                match request.extensions().get::<ForeignHost>() {
                    Some(ForeignHost) => json(status, &json!({ "ready": readiness.ready })),
                    None => json(status, &readiness),
                }
            }
            Self::Status => {
                let role = request.extensions().get().copied().unwrap_or(AdminRole::Viewer);
                json(StatusCode::OK, &limit_status(source.status(), role))
            }
            Self::Definitions => answer_definitions(request.headers(), source.definitions()),
            Self::Tools => json(StatusCode::OK, &source.tools().await),
            Self::Metrics => page(StatusCode::OK, metrics::CONTENT_TYPE, source.metrics()),
        }
    }
}

/// Indented: people read it with curl, and it is short.
fn json(status: StatusCode, value: &impl Serialize) -> Response<Body> {
    match serde_json::to_vec_pretty(value) {
        Ok(mut body) => {
            body.push(b'\n');
            page(status, "application/json", body)
        }
        Err(error) => {
            tracing::error!(%error, "an admin page could not be written");
            page(StatusCode::INTERNAL_SERVER_ERROR, "text/plain", "the page could not be written\n")
        }
    }
}

fn page(status: StatusCode, media_type: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let body = body.into();
    let length = HeaderValue::from(body.len());
    let mut response = Response::new(Body::Whole(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(media_type));
    headers.insert(CONTENT_LENGTH, length);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Removes the body for HEAD, and keeps the headers, including the length (RFC 9110, "HEAD").
fn without_body(response: Response<Body>) -> Response<Body> {
    response.map(|_| Body::empty())
}

fn method_not_allowed() -> Response<Body> {
    let mut response = json(
        StatusCode::METHOD_NOT_ALLOWED,
        &json!({ "error": "method not allowed", "methods": ["GET", "HEAD"] }),
    );
    response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

const X_CONTENT_TYPE_OPTIONS: HeaderName = HeaderName::from_static("x-content-type-options");

const INDEX_PAGE: &str = r#"<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Trunkline</title>
<h1>Trunkline</h1>
<ul>
<li><a href="/status">/status</a>: servers and configuration
<li><a href="/definitions">/definitions</a>: the digest of every definition
<li><a href="/tools">/tools</a>: the tokens of tools, servers and profiles, by estimate
<li><a href="/readyz">/readyz</a>: readiness for clients, with the reasons if not
<li><a href="/healthz">/healthz</a>: the process answers
<li><a href="/metrics">/metrics</a>: OpenMetrics text
</ul>
</html>
"#;
