//! An open connection to a server, of either transport.

use bytes::Bytes;

use crate::call::{Answer, Call, Reply};
use crate::catalog::headers_for;
use crate::config::{Server as ServerConfig, Target as Transport};
use crate::mcp::{Era, Method};
use crate::policy::Target;

use super::LinkFault;
use super::child::Child;
use super::deadline::Deadline;
use super::http::Http;
use super::peer::Peer;
use super::stdio::Stdio;

/// A server that has answered and can be called.
pub(super) enum Connection {
    /// By its standard streams.
    Stdio(Stdio),
    /// By Streamable HTTP.
    Http(Http),
}

impl Connection {
    pub(super) fn peer(&self) -> &Peer {
        match self {
            Self::Stdio(stdio) => stdio.peer(),
            Self::Http(http) => http.peer(),
        }
    }

    /// A request of the gateway's own. The caller bounds the time.
    pub(super) async fn request(
        &self,
        method: &Method,
        params: Bytes,
    ) -> Result<Answer, LinkFault> {
        match self {
            Self::Stdio(stdio) => stdio.request(method.as_str(), params).await,
            Self::Http(http) => http.request(method, params).await,
        }
    }

    /// A client's call, within the times that `config` allows.
    pub(super) async fn call(
        &self,
        call: &Call,
        target: &Target,
        config: &ServerConfig,
    ) -> Result<Reply, LinkFault> {
        let deadline = Deadline::new(config.timeout, config.max_timeout);
        match self {
            Self::Stdio(stdio) => stdio.call(call, target, deadline).await,
            Self::Http(http) => {
                let mirrored = match (http.peer().era(), &target.tool) {
                    (Era::Modern, Some(tool)) => {
                        headers_for(&tool.param_headers, call.params.arguments())
                    }
                    _ => Vec::new(),
                };
                http.call(call, target, mirrored, deadline).await
            }
        }
    }

    /// Waits until the connection, or what is known of the server, is lost.
    pub(super) async fn closed(&self) -> LinkFault {
        match self {
            Self::Stdio(stdio) => stdio.closed().await,
            Self::Http(http) => http.closed().await,
        }
    }

    /// Says good-bye: to a child by the end of its input, to a Legacy HTTP
    /// server by the end of its session. Then the child, if there is one, is
    /// stopped.
    pub(super) async fn close(&self, child: Option<Child>) {
        match self {
            Self::Stdio(stdio) => stdio.close(),
            Self::Http(http) => http.close().await,
        }
        if let Some(child) = child {
            child.stop().await;
        }
    }
}

/// How a transport is named in status and metrics.
pub(super) fn transport_name(target: &Transport) -> &'static str {
    match target {
        Transport::Command(_) => "stdio",
        Transport::Http(_) => "http",
    }
}
