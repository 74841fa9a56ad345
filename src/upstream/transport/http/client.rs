//! The client of one server: an [`HttpClient`] with the tokens that its requests carry, or the connection
//! to the replica that runs the server's child.

mod replica;

use bytes::Bytes;
use futures_util::future::{Either, TryFutureExt as _};
use http::uri::PathAndQuery;
use http::{HeaderMap, Method, Response, Uri};

use crate::http_client::{
    HttpClient, OutgoingRequest, RequestTarget, ResponseBody, TransportError,
};
use crate::upstream::UpstreamError;

use super::authorized::{RequestCredentials, send_authorized};
use super::headers::ServerHeaders;
pub(crate) use replica::ReplicaRoute;

/// Sends requests to one server.
pub(crate) struct ServerClient {
    route: ServerRoute,
    /// Source of tokens. `None` for most servers.
    credentials: Option<RequestCredentials>,
}

/// The way of requests to a server.
#[expect(clippy::large_enum_variant, reason = "there is one for each server")]
enum ServerRoute {
    /// To its URL.
    Url(HttpClient),
    /// To the replica that runs its child.
    Replica(Box<ReplicaRoute>),
}

impl ServerClient {
    pub(crate) fn new(http: HttpClient, credentials: Option<RequestCredentials>) -> Self {
        Self { route: ServerRoute::Url(http), credentials }
    }

    /// Creates the client of a server whose child another replica runs.
    pub(crate) fn through_replica(route: ReplicaRoute) -> Self {
        Self { route: ServerRoute::Replica(Box::new(route)), credentials: None }
    }

    /// Closes the idle connections. Call this when a response has the id of another request: the
    /// server's responses no longer match the order of the requests.
    pub(super) fn close_idle_connections(&self) {
        if let ServerRoute::Url(http) = &self.route {
            http.close_idle_connections();
        }
    }

    /// Returns the target of requests.
    fn target(&self) -> &RequestTarget {
        match &self.route {
            ServerRoute::Url(http) => http.target(),
            ServerRoute::Replica(route) => route.target(),
        }
    }

    /// Posts one JSON-RPC message.
    pub(super) fn post<'a>(
        &'a self,
        headers: &'a impl ServerHeaders,
        body: Bytes,
    ) -> impl Future<Output = Result<Response<ResponseBody>, UpstreamError>> {
        let (target, method) = (self.target(), &Method::POST);
        self.send_to(OutgoingRequest { target, method, headers, body })
    }

    /// Like [`post`](Self::post), for a message that may be sent twice. If a kept connection is
    /// lost before the response, the message is sent once more on a new one: the server may have
    /// closed the connection while it was idle.
    ///
    /// # Errors
    /// As [`HttpClient::send`].
    pub(super) async fn post_repeatable(
        &self,
        headers: &impl ServerHeaders,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        match self.post(headers, body.clone()).await {
            Err(fault) if is_kept_connection_lost(&fault) => {
                tracing::debug!(
                    fault = fault.chain(),
                    "a kept connection was lost, the request is repeated"
                );
                self.close_idle_connections();
                // Boxed to keep the usual request small: this is rare.
                Box::pin(self.post(headers, body)).await
            }
            response => response,
        }
    }

    /// Sends a request without a body.
    ///
    /// # Errors
    /// As [`HttpClient::send`].
    pub(super) fn send_empty<'a>(
        &'a self,
        method: &'a Method,
        headers: &'a HeaderMap,
    ) -> impl Future<Output = Result<Response<ResponseBody>, UpstreamError>> {
        let target = self.target();
        self.send_to(OutgoingRequest { target, method, headers, body: Bytes::new() })
    }

    /// Returns the target at another path of the server's origin. There is no way to name another
    /// host.
    pub(crate) fn target_at(&self, path: &PathAndQuery) -> Result<RequestTarget, UpstreamError> {
        match &self.route {
            ServerRoute::Url(http) => Ok(http.target_at(path)?),
            ServerRoute::Replica(route) => Ok(route.target().clone()),
        }
    }

    /// Resolves a reference relative to the URL of the server.
    pub(super) fn resolve(&self, reference: &str) -> Result<RequestTarget, UpstreamError> {
        match &self.route {
            ServerRoute::Url(http) => Ok(http.resolve(reference)?),
            ServerRoute::Replica(route) => Ok(route.target().clone()),
        }
    }

    /// Returns the URL of the server.
    pub(super) fn uri(&self) -> &Uri {
        self.target().uri()
    }

    /// Sends a request, with its owner's token if there are credentials.
    ///
    /// # Errors
    /// As [`HttpClient::send`], and [`UpstreamError::Login`] and [`UpstreamError::LoginNeeded`]
    /// without a token.
    pub(crate) fn send_to(
        &self,
        request: OutgoingRequest<'_, impl ServerHeaders>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, UpstreamError>> {
        match (&self.route, &self.credentials) {
            (ServerRoute::Url(http), None) => Either::Left(http.send_to(request).err_into()),
            // Boxed to keep the request of most servers small.
            (ServerRoute::Url(http), Some(credentials)) => {
                Either::Right(Either::Left(Box::pin(send_authorized(http, credentials, request))))
            }
            (ServerRoute::Replica(route), _) => {
                Either::Right(Either::Right(Box::pin(route.send(request))))
            }
        }
    }
}

/// Returns true if a request failed because its kept connection was lost.
pub(super) fn is_kept_connection_lost(fault: &UpstreamError) -> bool {
    let UpstreamError::Broken(error) = fault else { return false };
    matches!(error.downcast_ref(), Some(TransportError::Kept(_)))
}
