//! The connections to another replica, over HTTP/2: one for each runtime that forwards requests.
//!
//! A worker thread has a runtime of its own. It drives its connection itself, so that a forwarded request
//! stays on the thread of its client, and the owner spreads the connections over its own threads.

use std::collections::HashMap;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, header};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Id as RuntimeId};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use super::{ClusterError, ENVELOPE_HEADER, ReplicaId};
use crate::clock;
use crate::config::PeerHost;
use crate::shares::{Holder, Share, ShareBoundError, ShareBounds, SharedAmount};

/// A request that is forwarded: its head and its whole body.
pub struct ForwardedRequest {
    /// The head, without credentials of the gateway.
    pub head: Parts,
    /// The body.
    pub body: Bytes,
    /// Time limit of the head of the response.
    pub patience: Duration,
}

/// Headers, queries and bodies may contain secrets.
impl std::fmt::Debug for ForwardedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let path = self.head.uri.path();
        write!(f, "ForwardedRequest({} {path}, {} bytes)", self.head.method, self.body.len())
    }
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
    /// The head of the response did not arrive in time.
    #[error("the replica did not answer within {0:?}")]
    Late(Duration),
    /// The envelope cannot be sealed.
    #[error("the envelope cannot be sealed")]
    Seal(#[source] ClusterError),
}

impl ForwardError {
    /// Returns true if the owner may have acted on the request.
    pub fn was_sent(&self) -> bool {
        matches!(self, Self::Broken(_) | Self::Late(_))
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

/// TLS of new connections to replicas, shared with the code that reloads it; `None` for replicas on
/// this machine.
pub(super) type PeerTls = Arc<ArcSwapOption<ClientConfig>>;

/// The connections to one replica.
#[derive(Debug)]
pub struct PeerLink {
    id: ReplicaId,
    address: PeerHost,
    tls: PeerTls,
    /// The connection of each runtime: as many as this process has worker threads.
    connections: Mutex<HashMap<RuntimeId, Arc<AsyncMutex<LinkState>>>>,
    /// Requests without a whole response, by client.
    open: Arc<SharedAmount>,
}

/// The connection of one runtime.
#[derive(Debug, Default)]
struct LinkState {
    sender: Option<PeerSender>,
    /// Number of connections so far.
    number: u64,
    /// TLS of the sender's connection.
    tls: Option<Arc<ClientConfig>>,
    failed_at: Option<Instant>,
}

impl PeerLink {
    pub(super) fn new(id: ReplicaId, address: PeerHost, tls: PeerTls) -> Self {
        Self { id, address, tls, connections: Mutex::default(), open: Arc::default() }
    }

    /// Returns the id of the replica.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Returns the address of the replica.
    pub fn address(&self) -> &PeerHost {
        &self.address
    }

    /// Takes a place for a request, which it holds until the end of its response: one client leaves
    /// room on the connection to the others.
    ///
    /// # Errors
    /// [`ShareBoundError`].
    pub fn take_place(
        &self,
        holder: &Holder,
        bounds: ShareBounds,
    ) -> Result<Share, ShareBoundError> {
        self.open.take(holder, 1, bounds)
    }

    /// Sends a request once. One that a closing connection has not taken, or that the replica refuses
    /// unprocessed, is sent over the next one, with the same envelope: a replica serves it once.
    pub(super) async fn send(
        &self,
        request: ForwardedRequest,
        envelope: &str,
    ) -> Result<Response<Incoming>, ForwardError> {
        let patience = request.patience;
        let mut request = self.prepare(request, envelope);
        for _ in 0..MAX_ATTEMPTS {
            let waiting = timeout(SENDER_TIMEOUT, self.sender()).await;
            let sender = waiting.unwrap_or(Err(LinkError::Timeout));
            let (number, mut sender) = sender.map_err(ForwardError::Unreachable)?;
            match timeout(patience, sender.try_send_request(request.clone())).await {
                Ok(Ok(response)) => return Ok(response),
                Ok(Err(mut error)) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None if is_unprocessed(error.error()) => {}
                    None => return Err(ForwardError::Broken(error.into_error())),
                },
                Err(_) => return Err(ForwardError::Late(patience)),
            }
            self.abandon(number).await;
        }
        Err(ForwardError::Unreachable(LinkError::Recent))
    }

    /// Writes the request as one over HTTP/2. The client's host stays: the owner judges tokens by it.
    fn prepare(&self, request: ForwardedRequest, envelope: &str) -> Request<Full<Bytes>> {
        let ForwardedRequest { mut head, body, .. } = request;
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

    /// Returns the connection of this runtime, or opens it. Requests of a runtime wait for one attempt,
    /// and share its failure. An attempt goes on without the request that has begun it.
    async fn sender(&self) -> Result<(u64, PeerSender), LinkError> {
        let mut state = self.connection().lock_owned().await;
        let tls = self.tls.load_full();
        // A connection under other certificates is left to its last request.
        let is_current = state.tls.as_ref().map(Arc::as_ptr) == tls.as_ref().map(Arc::as_ptr);
        if let Some(open) = state.sender.as_ref().filter(|it| is_current && !it.is_closed()) {
            return Ok((state.number, open.clone()));
        }
        let now = clock::now();
        if state.failed_at.is_some_and(|at| now.saturating_duration_since(at) < RETRY_PAUSE) {
            return Err(LinkError::Recent);
        }
        let connecting = connect(self.address.clone(), tls.clone());
        let connecting = tokio::spawn(async move {
            let connected = timeout(CONNECT_TIMEOUT, connecting).await;
            let connected = connected.unwrap_or(Err(LinkError::Timeout));
            state.failed_at = connected.is_err().then(clock::now);
            state.sender = connected.as_ref().ok().cloned();
            state.number += 1;
            state.tls = tls;
            connected.map(|sender| (state.number, sender))
        });
        connecting.await.map_err(std::io::Error::other)?
    }

    /// Returns the place of this runtime's connection.
    fn connection(&self) -> Arc<AsyncMutex<LinkState>> {
        Arc::clone(self.connections.lock().entry(Handle::current().id()).or_default())
    }

    /// Leaves a connection that takes no more requests to its last ones, even if it is not closed yet.
    async fn abandon(&self, number: u64) {
        let connection = self.connection();
        let mut state = connection.lock().await;
        if state.number == number {
            state.sender = None;
        }
    }
}

/// Returns true if the replica has not processed the request of a failed stream: it closes the connection
/// in order, and its last stream was an earlier one, or it has refused the stream (RFC 9113, 8.7).
fn is_unprocessed(error: &hyper::Error) -> bool {
    let failed = error.source().and_then(|source| source.downcast_ref::<h2::Error>());
    failed.is_some_and(|failed| {
        let reason = failed.reason();
        failed.is_remote()
            && ((failed.is_go_away() && reason == Some(h2::Reason::NO_ERROR))
                || (failed.is_reset() && reason == Some(h2::Reason::REFUSED_STREAM)))
    })
}

/// Sends requests over an open connection.
type PeerSender = SendRequest<Full<Bytes>>;

/// Connects to a replica, and drives the connection on the current runtime.
async fn connect(
    address: PeerHost,
    tls: Option<Arc<ClientConfig>>,
) -> Result<PeerSender, LinkError> {
    let (host, port) = (address.host(), address.port());
    let Some(tls) = tls else {
        // Another name may be resolved to this machine now, and to another one later.
        if !address.is_own_machine() {
            return Err(LinkError::Plaintext);
        }
        let socket = TcpStream::connect((host, port)).await?;
        socket.set_nodelay(true)?;
        let is_own = socket.peer_addr().is_ok_and(|address| address.ip().is_loopback());
        return if is_own { start(socket).await } else { Err(LinkError::Plaintext) };
    };
    let name = ServerName::try_from(host.to_owned()).map_err(|_| LinkError::Name)?;
    let socket = TcpStream::connect((host, port)).await?;
    socket.set_nodelay(true)?;
    let stream = TlsConnector::from(tls).connect(name, socket).await?;
    start(stream).await
}

async fn start<I>(io: I) -> Result<PeerSender, LinkError>
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
        // Clients that cancel reset streams whose owner still answers. No number of them ends the
        // connection, which other clients share.
        .max_local_error_reset_streams(None)
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
/// Time for which a request waits for the connection: for an attempt, or for the end of another
/// request's.
const SENDER_TIMEOUT: Duration = CONNECT_TIMEOUT.saturating_add(Duration::from_millis(500));
/// Time after a failed attempt in which there is no other one.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// Times that a request is offered to a connection.
const MAX_ATTEMPTS: usize = 2;
/// Interval of pings, and the time limit of their answers.
const PING_INTERVAL: Duration = Duration::from_secs(3);
const PING_TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of one response that wait for its client.
const STREAM_WINDOW: u32 = 64 << 10;
/// Requests at a time of one replica, and responses for which its connection has room.
pub const MAX_FORWARDED: u32 = 16_384;
/// Bytes of the headers of a response.
const MAX_RESPONSE_HEADER: u32 = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn without_certificates_only_this_machine_is_connected_to() {
        for host in ["192.0.2.1:7070", "gateway-0:7070", "[2001:db8::1]:7070"] {
            let address = PeerHost::parse(host).unwrap();
            let link = PeerLink::new(ReplicaId::new([1; 8]), address, PeerTls::default());
            assert!(matches!(link.sender().await, Err(LinkError::Plaintext)), "{host}");
            assert!(matches!(link.sender().await, Err(LinkError::Recent)), "{host}");
        }
    }
}
