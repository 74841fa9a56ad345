//! `POST /servers/NAME/refresh`: lists a server anew, for all clients or for one.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use serde::Serialize;
use serde_json::json;

use super::{StatusSource, json as answer_json};

/// Changes found by a refresh.
#[derive(Debug, Clone, Serialize)]
pub struct RefreshReport {
    /// The server.
    pub server: String,
    /// The client with the refreshed lists; `None` for all clients.
    pub client: Option<String>,
    /// True if a list has changed; clients are notified of it.
    pub changed: bool,
    /// The differences, by the kind of the list.
    pub lists: BTreeMap<&'static str, ChangedElements>,
}

/// The elements of one kind that differ, by the server's own names or URIs.
#[derive(Debug, Clone, Serialize)]
pub struct ChangedElements {
    /// New ones.
    pub added: Vec<String>,
    /// Removed ones.
    pub removed: Vec<String>,
    /// Those with another definition.
    pub changed: Vec<String>,
}

/// Reasons to refuse a refresh.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RefreshRequestError {
    /// The configuration has no such server.
    #[error("unknown server")]
    UnknownServer,
    /// The configuration has no such client.
    #[error("unknown client")]
    UnknownClient,
    /// The server could not be listed.
    #[error(transparent)]
    Unavailable(#[from] crate::upstream::RefreshError),
}

/// Returns the server in the path of a refresh.
pub(super) fn refreshed_server(path: &str) -> Option<&str> {
    let name = path.strip_prefix("/servers/")?.strip_suffix("/refresh")?;
    (!name.is_empty() && !name.contains('/')).then_some(name)
}

/// Answers the request for a refresh of this server.
pub(super) async fn answer_refresh(
    server: &str,
    request: &Request<()>,
    source: &dyn StatusSource,
) -> Response<Full<Bytes>> {
    if request.method() != Method::POST {
        let body = json!({ "error": "method not allowed", "methods": ["POST"] });
        let mut response = answer_json(StatusCode::METHOD_NOT_ALLOWED, &body);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST"));
        return response;
    }
    let refused = |status, error: &str| answer_json(status, &json!({ "error": error }));
    let client = match named_client(request.uri().query().unwrap_or_default()) {
        Ok(client) => client,
        Err(UnknownParameter) => {
            return refused(StatusCode::BAD_REQUEST, "expected at most one parameter, `client`");
        }
    };
    match source.refresh(server, client.as_deref()).await {
        Ok(report) => answer_json(StatusCode::OK, &report),
        Err(refusal @ RefreshRequestError::Unavailable(_)) => {
            refused(StatusCode::SERVICE_UNAVAILABLE, &refusal.to_string())
        }
        Err(refusal) => refused(StatusCode::NOT_FOUND, &refusal.to_string()),
    }
}

/// The query has an unknown parameter.
struct UnknownParameter;

fn named_client(query: &str) -> Result<Option<Cow<'_, str>>, UnknownParameter> {
    let mut parameters = url::form_urlencoded::parse(query.as_bytes());
    match (parameters.next(), parameters.next()) {
        (None, _) => Ok(None),
        (Some((key, client)), None) if key == "client" => Ok(Some(client)),
        _ => Err(UnknownParameter),
    }
}
