//! One connection, from its first byte to its end.

use std::{
    future::{Future, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use http::Request;
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpStream, UnixStream},
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tokio_rustls::TlsAcceptor;
use tower::Service as _;

use crate::clock;
use crate::identity::{CertificateError, ClientCertificate};
use crate::shares::ShareBoundError;

use super::{
    BoxError, ConnectionLimits, Drain, PeerAddress, Settings,
    activity::{Activity, Due, TrackActivity},
    edge::Edge,
    request_body::{LeftBody, RequestBody},
    socket::ListenerContext,
    tls::{ALPN_H2, ConnectionFault, refused_handshake},
    unread::{StreamTasks, UnreadBounds, UnreadShare},
    woken::PollWhenWoken,
};

/// Reasons for a connection to end abnormally.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectionError {
    /// No whole request arrived within [`ConnectionLimits::handshake`].
    #[error("no request came in time")]
    Unused,
    /// The TLS handshake failed.
    #[error("the TLS handshake failed")]
    Handshake(#[source] io::Error),
    /// The client's certificate was accepted, but cannot be parsed.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// The first bytes could not be read.
    #[error("the connection broke before its first request")]
    Broken(#[source] io::Error),
    /// The first bytes were not an HTTP request, or too large for one.
    #[error("the first request could not be read")]
    Garbled(#[source] hyper::Error),
    /// An HTTP error, or the client disconnected in the middle of a message.
    #[error("the HTTP connection failed")]
    Http(#[source] hyper::Error),
    /// The client does not read, and too many bytes wait for it.
    #[error("too much is left unread")]
    Unread(#[source] ShareBoundError),
}

impl ConnectionError {
    /// Returns the reason that the connection was refused before its first request; `None` for any other
    /// end, such as that of a probe that only connects.
    pub(super) fn refusal(&self) -> Option<ConnectionFault> {
        match self {
            Self::Certificate(error) => Some(ConnectionFault::WrongCertificate(error.to_string())),
            Self::Handshake(error) => refused_handshake(error),
            Self::Unused => Some(ConnectionFault::Silent),
            Self::Garbled(fault) if fault.is_parse() => Some(ConnectionFault::Garbled),
            _ => None,
        }
    }

    /// Returns true if the connection ended before it carried a request.
    pub(super) fn is_unused(&self) -> bool {
        !matches!(self, Self::Http(_) | Self::Unread(_))
    }
}

/// HTTP version of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Http1,
    Http2,
}

/// Serves one connection until it ends, a limit ends it, or a drain does.
pub(super) async fn run<F, S, R>(
    socket: TcpStream,
    peer: PeerAddress,
    settings: &Settings,
    context: Arc<ListenerContext<F>>,
) -> Result<(), ConnectionError>
where
    F: Fn(PeerAddress) -> S,
    S: Edge<RequestBody, R>,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let limits = &settings.limits;
    let begun = clock::now();
    let deadline = begun + limits.handshake;
    let drain = context.drain.clone();
    let activity = Activity::new(begun);
    let connection = ClientConnection { peer, certificate: None, limits, context, activity };
    match &settings.tls {
        None => match before(deadline, &drain, detect(&socket)).await? {
            None => Ok(()),
            Some(protocol) => {
                connection.serve(socket, protocol.map_err(ConnectionError::Broken)?).await
            }
        },
        Some(certificates) => {
            let acceptor = TlsAcceptor::from(certificates.config());
            let Some(stream) = before(deadline, &drain, acceptor.accept(socket)).await? else {
                return Ok(());
            };
            let stream = stream.map_err(ConnectionError::Handshake)?;
            let (_, session) = stream.get_ref();
            let shown = session.peer_certificates().and_then(<[_]>::split_first);
            let certificate = shown.map(|(own, rest)| {
                let parsed = ClientCertificate::parse(own)?;
                Ok::<_, CertificateError>(Arc::new(parsed.with_intermediates(rest)))
            });
            let certificate = certificate.transpose()?;
            let is_h2 = session.alpn_protocol() == Some(ALPN_H2);
            let protocol = if is_h2 { Protocol::Http2 } else { Protocol::Http1 };
            ClientConnection { certificate, ..connection }.serve(stream, protocol).await
        }
    }
}

/// Serves one connection to the private socket, over HTTP/1.1.
pub(super) async fn run_private<F, S, R>(
    stream: UnixStream,
    settings: &Settings,
    context: Arc<ListenerContext<F>>,
) -> Result<(), ConnectionError>
where
    F: Fn(PeerAddress) -> S,
    S: Edge<RequestBody, R>,
    R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let (peer, limits) = (PeerAddress::parent(), &settings.limits);
    let activity = Activity::new(clock::now());
    let connection = ClientConnection { peer, certificate: None, limits, context, activity };
    connection.serve(stream, Protocol::Http1).await
}

/// Runs a step before the first request, within the time limit. When a drain starts, it has only a moment
/// left: the client may have sent its request already.
async fn before<T>(
    deadline: Instant,
    drain: &Drain,
    step: impl Future<Output = T>,
) -> Result<Option<T>, ConnectionError> {
    let drained = async {
        drain.started().await;
        sleep(LAST_REQUEST_PATIENCE).await;
    };
    tokio::select! {
        biased;
        done = timeout_at(deadline, step) => done.map(Some).map_err(|_| ConnectionError::Unused),
        () = drained => Ok(None),
    }
}

/// Detects HTTP/2 with prior knowledge (RFC 9113, 3.3) by the first three bytes of its preface; no
/// method of HTTP/1 begins with them. The bytes stay in the socket.
async fn detect(socket: &TcpStream) -> io::Result<Protocol> {
    let mut start = [0; HTTP2_PREFACE.len()];
    let mut nap = MIN_NAP;
    loop {
        let seen = socket.peek(&mut start).await?;
        let seen = start.get(..seen).unwrap_or_default();
        if seen == HTTP2_PREFACE {
            return Ok(Protocol::Http2);
        }
        if seen.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if !HTTP2_PREFACE.starts_with(seen) {
            return Ok(Protocol::Http1);
        }
        // Only `P` or `PR` so far: a socket is readable as long as it has any bytes, so waiting for
        // readiness would spin. Rare, and bounded by the caller's deadline.
        sleep(nap).await;
        nap = (nap * 2).min(MAX_NAP);
    }
}

/// Reasons to check a connection.
enum Interruption {
    /// A drain has started.
    Drain,
    /// A time limit may have passed.
    Look,
}

/// A connection with a known protocol.
struct ClientConnection<'a, F> {
    peer: PeerAddress,
    /// The client's certificate from the TLS handshake.
    certificate: Option<Arc<ClientCertificate>>,
    limits: &'a ConnectionLimits,
    context: Arc<ListenerContext<F>>,
    activity: Arc<Activity>,
}

impl<F> ClientConnection<'_, F> {
    async fn serve<I, S, R>(self, io: I, protocol: Protocol) -> Result<(), ConnectionError>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        F: Fn(PeerAddress) -> S,
        S: Edge<RequestBody, R>,
        R: Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
    {
        let io = TokioIo::new(io);
        let edge = (self.context.edge)(self.peer);
        let stack = TrackActivity::new(edge, &self.activity);
        // Every layer of a stack is always ready, so there is no wait before a call.
        let certificate = self.certificate.clone();
        let leaving = match protocol {
            Protocol::Http1 => LeftBody::Dropped,
            Protocol::Http2 => LeftBody::Drained,
        };
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(|body| RequestBody::new(body, leaving));
            if let Some(certificate) = &certificate {
                request.extensions_mut().insert(Arc::clone(certificate));
            }
            PollWhenWoken::new(stack.clone().call(request))
        });
        let unread = UnreadBounds::new(self.limits, self.peer, &self.context.unread);
        // Boxed: a future stores the values that it takes and awaits twice.
        match protocol {
            Protocol::Http1 => {
                let connection = Box::pin(http1(self.limits).serve_connection(io, service));
                let unread = UnreadShare::new(&unread);
                self.drive(connection, unread, |it| it.get_mut().as_mut().graceful_shutdown()).await
            }
            Protocol::Http2 => {
                let streams = StreamTasks(Arc::clone(&unread));
                let connection = http2(self.limits, streams).serve_connection(io, service);
                let connection = Box::pin(connection);
                let unread = UnreadShare::new(&unread);
                self.drive(connection, unread, |it| it.get_mut().as_mut().graceful_shutdown()).await
            }
        }
    }

    /// Polls the connection, and asks it to close when it is idle or a drain starts. One without
    /// requests in flight that still does not close is dropped. Requests in flight have all the
    /// time that the drain leaves; the accept loop enforces that.
    async fn drive<C>(
        &self,
        connection: C,
        mut unread: UnreadShare,
        close: impl Fn(Pin<&mut C>),
    ) -> Result<(), ConnectionError>
    where
        C: Future<Output = hyper::Result<()>>,
    {
        let mut connection = pin!(connection);
        let (mut draining, mut closing, mut look_at) = (false, false, clock::now());
        // The task of a busy connection runs several times for each request, and is rarely
        // interrupted.
        let interruption = |draining, at| PollWhenWoken::new(self.interruption(draining, at));
        let mut interrupted = pin!(interruption(draining, look_at));
        loop {
            let served = poll_fn(|cx| match connection.as_mut().poll(cx) {
                Poll::Ready(ended) => Poll::Ready(ended.map_err(|fault| self.blame(fault))),
                // Over HTTP/2 each stream counts for itself.
                Poll::Pending => {
                    let exceeded = unread.poll_exceeded(self.activity.unwritten(), cx);
                    exceeded.map(|reached| Err(ConnectionError::Unread(reached)))
                }
            });
            let by = tokio::select! {
                biased;
                ended = served => return ended,
                by = interrupted.as_mut() => by,
            };
            match by {
                Interruption::Drain => {
                    draining = true;
                    close(connection.as_mut());
                }
                Interruption::Look => match self.due() {
                    Due::Look(at) => look_at = at,
                    Due::Never => return Err(ConnectionError::Unused),
                    Due::Idle if closing => return Ok(()),
                    Due::Idle => {
                        closing = true;
                        close(connection.as_mut());
                        look_at = clock::now() + LAST_WORD;
                    }
                },
            }
            interrupted.set(interruption(draining, look_at));
        }
    }

    /// Waits for the next reason to check the connection, other than its own progress.
    async fn interruption(&self, draining: bool, look_at: Instant) -> Interruption {
        tokio::select! {
            biased;
            () = self.context.drain.started(), if !draining => Interruption::Drain,
            () = sleep_until(look_at) => Interruption::Look,
        }
    }

    fn blame(&self, fault: hyper::Error) -> ConnectionError {
        if self.activity.is_unused() {
            ConnectionError::Garbled(fault)
        } else {
            ConnectionError::Http(fault)
        }
    }

    fn due(&self) -> Due {
        self.activity.due(clock::now(), self.limits.handshake, self.limits.idle)
    }
}

fn http1(limits: &ConnectionLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        // A client that closes its side cancels its request: the service's future is dropped.
        .half_close(false)
        // Twice the limit, so that a head slightly over it gets an answer that names the limit, and
        // a much larger one is cut off with a bare 431.
        .max_header_size(limits.header.saturating_mul(2));
    // Any explicit value, even hyper's default, costs every request a list on the heap.
    if limits.header_lines != HYPER_HEADER_LINES {
        builder.max_headers(limits.header_lines);
    }
    builder
}

fn http2(limits: &ConnectionLimits, streams: StreamTasks) -> http2::Builder<StreamTasks> {
    let mut builder = http2::Builder::new(streams);
    let header = u32::try_from(limits.header.saturating_mul(2)).unwrap_or(u32::MAX);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.h2_streams)
        // Limit the bytes of bodies that arrive before they are read, if ever.
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(limits.h2_window)
        // Limits the memory for a client that opens every stream and reads none of them.
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(header)
        .keep_alive_interval(limits.ping)
        .keep_alive_timeout(limits.ping);
    if let Some(resets) = limits.h2_resets {
        builder.max_pending_accept_reset_streams(resets).max_local_error_reset_streams(None);
    }
    builder
}

const HTTP2_PREFACE: &[u8; 3] = b"PRI";
/// hyper's default limit of header lines.
const HYPER_HEADER_LINES: usize = 100;
/// Bytes of each response over HTTP/2 that wait for the client, besides the current piece.
const SEND_BUFFER: usize = 64 * 1024;
/// Bytes of a body that an HTTP/2 client may send ahead.
const STREAM_WINDOW: u32 = 256 * 1024;
const MIN_NAP: Duration = Duration::from_millis(1);
const MAX_NAP: Duration = Duration::from_millis(50);

/// Time for a client to begin its first request after a drain has started.
const LAST_REQUEST_PATIENCE: Duration = Duration::from_secs(1);
/// Time limit to close an idle connection (HTTP/2: GOAWAY, ping, GOAWAY).
const LAST_WORD: Duration = Duration::from_secs(1);
