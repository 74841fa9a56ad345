//! An open connection to a server, over any transport.

use bytes::Bytes;

use crate::call::{Answer, Call, Reply};
use crate::catalog::headers_for;
use crate::config::{ServerConfig, ServerKind as Transport};
use crate::mcp::{Era, Method};
use crate::policy::CallTarget;

use crate::child::Child;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::deadline::Deadline;
use crate::upstream::peer::Peer;
use crate::upstream::transport::http::HttpServer;
use crate::upstream::transport::openapi::OpenApiServer;
use crate::upstream::transport::stdio::StdioServer;

/// A connection to a server of known era and capabilities.
pub(crate) enum ServerConnection {
    /// Over the standard streams of a child.
    Stdio(Box<StdioServer>),
    /// Over Streamable HTTP.
    Http(HttpServer),
    /// To a plain HTTP API. The gateway acts as its MCP server.
    OpenApi(OpenApiServer),
}

impl ServerConnection {
    pub(crate) fn peer(&self) -> &Peer {
        match self {
            Self::Stdio(stdio) => stdio.peer(),
            Self::Http(http) => http.peer(),
            Self::OpenApi(api) => api.peer(),
        }
    }

    /// Sends one of the gateway's own requests. The caller sets a time limit.
    pub(crate) async fn request(
        &self,
        method: &Method,
        params: Bytes,
    ) -> Result<Answer, UpstreamError> {
        match self {
            Self::Stdio(stdio) => stdio.request(method.as_str(), params).await,
            Self::Http(http) => http.request(method, params).await,
            Self::OpenApi(api) => api.request(method).await,
        }
    }

    /// Sends a client's call, within the timeouts of `config`.
    pub(crate) async fn call(
        &self,
        call: &Call,
        target: &CallTarget,
        config: &ServerConfig,
    ) -> Result<Reply, UpstreamError> {
        let deadline = Deadline::new(config.timeout, config.max_timeout);
        match self {
            Self::Stdio(stdio) => stdio.call(call, target, deadline).await,
            Self::Http(http) => {
                let mirrored = match (http.peer().era(), &target.tool) {
                    (Era::Modern, Some(tool)) => {
                        headers_for(tool.sent_param_headers(), call.params.arguments())
                    }
                    _ => Vec::new(),
                };
                http.call(call, target, mirrored, deadline).await
            }
            // Boxed, because it would enlarge the future of every call.
            Self::OpenApi(api) => Box::pin(api.call(call, target, deadline)).await,
        }
    }

    /// Returns remarks for the operator besides the lists, such as operations that are left out of
    /// them.
    pub(crate) fn remarks(&self) -> Vec<String> {
        match self {
            Self::Stdio(_) | Self::Http(_) => Vec::new(),
            Self::OpenApi(api) => api.remarks(),
        }
    }

    /// Returns true if the last attempt to read the server's description failed. Its lists may then
    /// be outdated.
    pub(crate) fn is_stale(&self) -> bool {
        matches!(self, Self::OpenApi(api) if api.is_stale())
    }

    /// Waits until the connection is lost, or until the era or address of the
    /// server turns out to have changed.
    pub(crate) async fn closed(&self) -> UpstreamError {
        match self {
            Self::Stdio(stdio) => stdio.closed().await,
            Self::Http(http) => http.closed().await,
            // There is no connection to lose: each call opens its own.
            Self::OpenApi(_) => std::future::pending().await,
        }
    }

    /// Closes the connection: the input of a child, or the session of a Legacy HTTP server. Then
    /// stops the child, if there is one.
    pub(crate) async fn close(&self, child: Option<Child>) {
        match self {
            Self::Stdio(stdio) => stdio.close(),
            Self::Http(http) => http.close().await,
            Self::OpenApi(_) => {}
        }
        if let Some(child) = child {
            child.stop().await;
        }
    }
}

/// Returns the name of a transport in status and metrics.
pub(crate) fn transport_name(target: &Transport) -> &'static str {
    match target {
        Transport::Command(_) => "stdio",
        Transport::Http(_) => "http",
        Transport::OpenApi(_) => "openapi",
    }
}
