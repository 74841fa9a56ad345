//! The connection to another replica: one over HTTP/2, opened by the first request.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::{ClusterError, ENVELOPE_HEADER, ReplicaId};
use crate::clock;
use crate::config::PeerHost;

/// A request that is forwarded: its head and its whole body.
#[derive(Debug)]
pub struct ForwardedRequest {
    /// The head, without credentials of the gateway.
    pub head: Parts,
    /// The body.
    pub body: Bytes,
}

/// Reasons that a forwarded request has no response.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// There is no connection to the owner: it never saw the request.
    #[error("the replica cannot be reached")]
    Unreachable(#[source] LinkError),
    /// The connection failed after the request was sent.
    #[error("the connection to the replica failed")]
    Broken(#[source] hyper::Error),
    /// The envelope cannot be sealed.
    #[error("the envelope cannot be sealed")]
    Seal(#[source] ClusterError),
}

impl ForwardError {
    /// Returns true if the owner may have acted on the request.
    pub fn was_sent(&self) -> bool {
        matches!(self, Self::Broken(_))
    }
}

/// Reasons that there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The last attempt failed a moment ago.
    #[error("the last attempt to connect failed")]
    Recent,
    /// The address has no TLS, and is not on this machine.
    #[error("without certificates, only replicas on this machine are connected to")]
    Plaintext,
    /// The address is not a valid name of a certificate.
    #[error("the address is not a name that a certificate can have")]
    Name,
    /// There was no connection in time.
    #[error("the connection took too long")]
    Timeout,
    /// The system's error, or that of the handshake.
    #[error("the connection failed")]
    Io(#[from] std::io::Error),
    /// The handshake of HTTP/2 failed.
    #[error("the HTTP/2 connection failed")]
    Http(#[from] hyper::Error),
}

/// Settings of connections to replicas.
#[derive(Debug, Clone)]
pub(super) struct PeerLinkSettings {
    /// `None` for replicas on this machine.
    pub(super) tls: Option<ClientConfig>,
    /// Drives the connections: requests come from threads that each have a runtime of their own.
    pub(super) runtime: Handle,
}

/// The connection to one replica.
#[derive(Debug)]
pub struct PeerLink {
    id: ReplicaId,
    address: PeerHost,
    settings: PeerLinkSettings,
    state: Mutex<LinkState>,
}

#[derive(Debug, Default)]
struct LinkState {
    sender: Option<SendRequest<Full<Bytes>>>,
    failed_at: Option<Instant>,
}

impl PeerLink {
    pub(super) fn new(id: ReplicaId, address: PeerHost, settings: PeerLinkSettings) -> Self {
        Self { id, address, settings, state: Mutex::default() }
    }

    /// Returns the id of the replica.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Returns the address of the replica.
    pub fn address(&self) -> &PeerHost {
        &self.address
    }

    /// Sends a request once. One that a closing connection has not taken is sent over the next one.
    pub(super) async fn send(
        &self,
        request: ForwardedRequest,
        envelope: &str,
    ) -> Result<Response<Incoming>, ForwardError> {
        let mut request = self.prepare(request, envelope);
        for _ in 0..MAX_ATTEMPTS {
            let mut sender = self.sender().await.map_err(ForwardError::Unreachable)?;
            match sender.try_send_request(request).await {
                Ok(response) => return Ok(response),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(ForwardError::Broken(error.into_error())),
                },
            }
        }
        Err(ForwardError::Unreachable(LinkError::Recent))
    }

    /// Writes the request as one over HTTP/2. The client's host stays: the owner judges tokens by it.
    fn prepare(&self, request: ForwardedRequest, envelope: &str) -> Request<Full<Bytes>> {
        let ForwardedRequest { mut head, body } = request;
        let headers = &mut head.headers;
        let host = headers.remove(header::HOST);
        for name in [
            header::CONNECTION,
            header::TRANSFER_ENCODING,
            header::UPGRADE,
            header::TE,
            header::TRAILER,
            header::EXPECT,
            header::CONTENT_LENGTH,
        ] {
            headers.remove(name);
        }
        for name in ["keep-alive", "proxy-connection", "http2-settings"] {
            headers.remove(name);
        }
        if let Ok(mut value) = HeaderValue::from_str(envelope) {
            value.set_sensitive(true);
            headers.insert(ENVELOPE_HEADER, value);
        }
        let mut uri = head.uri.clone().into_parts();
        let host = host.and_then(|host| host.to_str().ok()?.parse().ok());
        uri.authority = uri.authority.or(host).or_else(|| self.address.to_string().parse().ok());
        uri.scheme = Some(http::uri::Scheme::HTTPS);
        uri.path_and_query.get_or_insert_with(|| http::uri::PathAndQuery::from_static("/"));
        let mut sent = Request::new(Full::new(body));
        *sent.method_mut() = head.method;
        *sent.uri_mut() = http::Uri::from_parts(uri).unwrap_or(head.uri);
        *sent.headers_mut() = head.headers;
        sent
    }

    /// Returns the connection, or opens it. Requests wait for one attempt, and share its failure.
    async fn sender(&self) -> Result<SendRequest<Full<Bytes>>, LinkError> {
        let mut state = self.state.lock().await;
        if let Some(open) = state.sender.as_ref().filter(|sender| !sender.is_closed()) {
            return Ok(open.clone());
        }
        let now = clock::now();
        if state.failed_at.is_some_and(|at| now.saturating_duration_since(at) < RETRY_PAUSE) {
            return Err(LinkError::Recent);
        }
        let connecting = connect(self.address.clone(), self.settings.clone());
        let connecting = self.settings.runtime.spawn(timeout(CONNECT_TIMEOUT, connecting));
        let connected = connecting.await.map_err(std::io::Error::other)?;
        match connected.unwrap_or(Err(LinkError::Timeout)) {
            Ok(sender) => {
                state.failed_at = None;
                Ok(state.sender.insert(sender).clone())
            }
            Err(error) => {
                state.failed_at = Some(clock::now());
                Err(error)
            }
        }
    }
}

/// Connects to a replica, and drives the connection on the current runtime.
async fn connect(
    address: PeerHost,
    settings: PeerLinkSettings,
) -> Result<SendRequest<Full<Bytes>>, LinkError> {
    let (host, port) = (address.host(), address.port());
    let Some(tls) = settings.tls else {
        // Another name may be resolved to this machine now, and to another one later.
        if !address.is_own_machine() {
            return Err(LinkError::Plaintext);
        }
        let socket = TcpStream::connect((host, port)).await?;
        let is_own = socket.peer_addr().is_ok_and(|address| address.ip().is_loopback());
        return if is_own { start(socket).await } else { Err(LinkError::Plaintext) };
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| LinkError::Name)?;
    let socket = TcpStream::connect((host, port)).await?;
    socket.set_nodelay(true)?;
    let stream = TlsConnector::from(Arc::new(tls)).connect(name, socket).await?;
    start(stream).await
}

async fn start<I>(io: I) -> Result<SendRequest<Full<Bytes>>, LinkError>
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = http2::Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        // A connection whose replica hangs is closed, and so are its requests.
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW)
        // Every stream has its whole window: a client that reads slowly does not hold up the others.
        .initial_connection_window_size(STREAM_WINDOW.saturating_mul(MAX_FORWARDED))
        .max_header_list_size(MAX_RESPONSE_HEADER)
        .handshake(TokioIo::new(io))
        .await?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(%error, "the connection to a replica ended");
        }
    });
    Ok(sender)
}

/// Time limit of a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Time after a failed attempt in which there is no other one.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Connections that a request is offered to.
const MAX_ATTEMPTS: usize = 2;
/// Interval of pings, and the time limit of their answers.
const PING_INTERVAL: Duration = Duration::from_secs(3);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of one response that wait for its client.
const STREAM_WINDOW: u32 = 64 << 10;
/// Responses for which the connection has room.
const MAX_FORWARDED: u32 = 16_384;
/// Bytes of the headers of a response.
const MAX_RESPONSE_HEADER: u32 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_certificates_only_this_machine_is_connected_to() {
        let settings = PeerLinkSettings { tls: None, runtime: Handle::current() };
        for host in ["192.0.2.1:7070", "gateway-0:7070", "[2001:db8::1]:7070"] {
            let address = PeerHost::parse(host).unwrap();
            let link = PeerLink::new(ReplicaId::new([1; 8]), address, settings.clone());
            assert!(matches!(link.sender().await, Err(LinkError::Plaintext)), "{host}");
            assert!(matches!(link.sender().await, Err(LinkError::Recent)), "{host}");
        }
    }
}
