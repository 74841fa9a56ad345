//! Endpoints that a bridge can send its requests to.

use std::sync::Arc;

use bytes::Bytes;
use http::{Request, Response, Uri};

use crate::call::PeerAddress;
use crate::call::{Failure, GatewayFault};
use crate::downstream::{Body, McpService, Unauthenticated, refusal};
use crate::http_client::{HttpClient, ResponseBody};
use crate::telemetry::log::SharedFaultLog;
use crate::upstream::UpstreamError;

/// An MCP endpoint that answers HTTP-shaped requests.
pub trait McpPeer: Send + Sync + 'static {
    /// The body of its answers.
    type Body: http_body::Body<Data = Bytes, Error: Send> + Send + Unpin;

    /// Sends one request. The URI is always the endpoint's own; the request's is ignored. Dropping
    /// the future, or the body of the answer, means that the client has disconnected.
    fn send(
        &self,
        request: Request<Bytes>,
    ) -> impl Future<Output = Result<Response<Self::Body>, Failure>> + Send;

    /// Returns its need for tools' parameters in headers.
    fn mirroring(&self) -> Mirroring;
}

/// Need for tools' parameters in headers (2026-07-28, Streamable HTTP, "Custom Headers from Tool
/// Parameters").
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mirroring {
    /// Mirrored: intermediaries may read them.
    Wanted,
    /// Not mirrored: no intermediary exists.
    Needless,
}

/// The endpoint of this process.
pub struct Here {
    mcp: Arc<McpService>,
    uri: Uri,
}

impl Here {
    /// Creates the endpoint at a path such as `/mcp`.
    pub fn new(mcp: Arc<McpService>, uri: Uri) -> Self {
        Self { mcp, uri }
    }
}

impl McpPeer for Here {
    type Body = Body;

    async fn send(&self, request: Request<Bytes>) -> Result<Response<Body>, Failure> {
        let mut request = request;
        *request.uri_mut() = self.uri.clone();
        Ok(match self.mcp.authenticate(request, PeerAddress::parent()) {
            Ok(authenticated) => Arc::clone(&self.mcp).serve(authenticated).await,
            Err(Unauthenticated::Refused(response)) => *response,
            // The parent process needs no token.
            Err(Unauthenticated::Waiting(_)) => refusal(&Failure::IssuerUnavailable),
        })
    }

    fn mirroring(&self) -> Mirroring {
        Mirroring::Needless
    }
}

/// A gateway in another process, over HTTP.
pub struct There {
    client: HttpClient,
    /// Faults of the connection, in the log.
    faults: SharedFaultLog,
}

impl There {
    /// Creates the endpoint that an HTTP client sends to.
    pub fn new(client: HttpClient) -> Self {
        Self { client, faults: SharedFaultLog::new() }
    }
}

impl McpPeer for There {
    type Body = ResponseBody;

    async fn send(&self, request: Request<Bytes>) -> Result<Response<ResponseBody>, Failure> {
        let (head, body) = request.into_parts();
        self.client.send(&head.method, &head.headers, body).await.map_err(|error| {
            let fault = UpstreamError::from(error);
            let text = format!("no response from the gateway: {}", fault.chain());
            if let Some(line) = self.faults.note_about(&text, &text) {
                tracing::warn!("{line}");
            }
            GatewayFault::Transport(fault.public()).into()
        })
    }

    fn mirroring(&self) -> Mirroring {
        Mirroring::Wanted
    }
}
