//! `POST /servers/NAME/refresh`: lists a server anew, for all clients or for one.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use http::header::{ALLOW, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::json;

use super::{StatusReport, StatusSource, json as answer_json};
use crate::call::{Client, Principal, ServerName};
use crate::downstream::Body;
use crate::snapshot::ServerActionError;
use crate::upstream::Server;

/// Changes found by a refresh.
#[derive(Debug, Clone, Serialize, JsonSchema)]
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
#[derive(Debug, Clone, Serialize, JsonSchema)]
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
    /// An operator has disabled the server.
    #[error("the server is disabled: enable it first (`trunkline enable`)")]
    DisabledServer,
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
) -> Response<Body> {
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
        Err(
            refusal @ (RefreshRequestError::Unavailable(_) | RefreshRequestError::DisabledServer),
        ) => refused(StatusCode::SERVICE_UNAVAILABLE, &refusal.to_string()),
        Err(refusal) => refused(StatusCode::NOT_FOUND, &refusal.to_string()),
    }
}

impl StatusReport {
    /// Returns the server, and the sessions of the client, that a refresh is for.
    pub(super) fn refreshed(
        &self,
        server: &str,
        client: Option<&str>,
    ) -> Result<RefreshTarget, RefreshRequestError> {
        let snapshot = self.gateway.snapshots.load();
        let name = ServerName::new(server).map_err(|_| RefreshRequestError::UnknownServer)?;
        let missing = || match snapshot.missing_reason(&name) {
            ServerActionError::Disabled => RefreshRequestError::DisabledServer,
            ServerActionError::Unknown => RefreshRequestError::UnknownServer,
        };
        let member = snapshot.server(&name).ok_or_else(missing)?;
        let clients = &snapshot.config.clients;
        let is_user = |name: &str| {
            name.contains(':') && snapshot.identity.has_principal(&Principal::User(name.into()))
        };
        let is_known = |client: &str| match &clients[..] {
            [] if snapshot.identity.issuers().is_empty() => client == Principal::Anonymous.as_str(),
            clients => clients.iter().any(|known| *known.name == *client) || is_user(client),
        };
        if !client.is_none_or(is_known) {
            return Err(RefreshRequestError::UnknownClient);
        }
        let sessions = client.map(|client| self.mcp.clients_of(client));
        Ok((Arc::clone(&member.server), sessions))
    }
}

/// A server, and the clients to refresh; `None` for all.
pub(super) type RefreshTarget = (Arc<Server>, Option<Vec<Arc<Client>>>);

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
