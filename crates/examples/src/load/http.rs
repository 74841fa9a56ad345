//! The load server over HTTP, and helpers that the other bench servers share.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ALLOW, AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use url::Url;

use trunkline_core::codec::body::collect;

use super::answers::{Answers, LoadAnswer, LoadSession};

/// The HTTP server.
pub(super) struct LoadServer {
    pub(super) answers: Answers,
    pub(super) latency: Duration,
    pub(super) events: bool,
    /// Challenge for requests without a token.
    pub(super) challenge: Option<HeaderValue>,
}

/// Returns the challenge of a protected resource with its metadata at this URL (RFC 9728, section
/// 5.1).
pub(super) fn challenge(metadata: &Url) -> Option<HeaderValue> {
    // A URL has only characters that are valid in a header.
    HeaderValue::try_from(format!("Bearer resource_metadata=\"{metadata}\"")).ok()
}

/// Event that ends a server besides a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// Only a signal.
    Signal,
    /// The end of standard input: the parent process is gone.
    Eof,
}

impl Until {
    pub(crate) fn of(eof: bool) -> Self {
        if eof { Self::Eof } else { Self::Signal }
    }

    /// Completes when the server should end.
    pub(crate) async fn comes(self) {
        let input = async {
            match self {
                Self::Signal => pending().await,
                Self::Eof => {
                    let mut rest = [0; 64];
                    let mut input = tokio::io::stdin();
                    while matches!(input.read(&mut rest).await, Ok(1..)) {}
                }
            }
        };
        tokio::select! {
            () = received(SignalKind::terminate()) => {}
            () = received(SignalKind::interrupt()) => {}
            () = input => {}
        }
    }
}

/// Completes when the process receives the signal.
async fn received(kind: SignalKind) {
    match signal(kind) {
        Ok(mut signal) => {
            signal.recv().await;
        }
        Err(_) => pending().await,
    }
}

/// Serves until it should end.
pub(super) fn run(
    address: SocketAddr,
    threads: usize,
    until: Until,
    server: LoadServer,
) -> io::Result<()> {
    let mut builder = match threads {
        1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(threads).enable_all().build()?;
    let ended = runtime.block_on(async {
        let listener = TcpListener::bind(address).await?;
        announce(&listener)?;
        tokio::select! {
            () = serve(listener, Arc::new(server)) => {}
            () = until.comes() => {}
        }
        Ok(())
    });
    // A read of standard input cannot be cancelled.
    runtime.shutdown_background();
    ended
}

/// Prints the endpoint, in the same words as the gateway.
pub(crate) fn announce(listener: &TcpListener) -> io::Result<()> {
    eprintln!("clients connect to http://{}/mcp", listener.local_addr()?);
    Ok(())
}

async fn serve(listener: TcpListener, server: Arc<LoadServer>) {
    let sessions = Arc::new(AtomicU64::new(0));
    loop {
        let Ok((socket, _)) = listener.accept().await else {
            // The process may be out of file descriptors: connections that end
            // free some.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let _ = socket.set_nodelay(true);
        let (server, sessions) = (Arc::clone(&server), Arc::clone(&sessions));
        tokio::spawn(async move {
            let answer = service_fn(|request| respond(&server, &sessions, request));
            let mut http = http1::Builder::new();
            let _ =
                http.timer(TokioTimer::new()).serve_connection(TokioIo::new(socket), answer).await;
        });
    }
}

async fn respond(
    server: &LoadServer,
    sessions: &AtomicU64,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let challenge = server.challenge.as_ref();
    if let Some(challenge) = challenge.filter(|_| !request.headers().contains_key(AUTHORIZATION)) {
        let mut response = empty(StatusCode::UNAUTHORIZED);
        response.headers_mut().insert(WWW_AUTHENTICATE, challenge.clone());
        return Ok(response);
    }
    let session = request.headers().get(SESSION_ID).map(HeaderValue::as_bytes);
    let session = match session {
        Some(id) if id.starts_with(SESSION_ID_PREFIX.as_bytes()) => LoadSession::Open,
        _ => LoadSession::None,
    };
    if request.method() == Method::DELETE {
        let known = session == LoadSession::Open;
        return Ok(empty(if known { StatusCode::OK } else { StatusCode::NOT_FOUND }));
    }
    if request.method() != Method::POST {
        let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
        response.headers_mut().insert(ALLOW, HeaderValue::from_static("POST, DELETE"));
        return Ok(response);
    }
    let Ok(body) = collect(request.into_body(), MAX_BODY_BYTES).await else {
        return Ok(empty(StatusCode::PAYLOAD_TOO_LARGE));
    };
    Ok(match server.answers.answer(&body, session) {
        LoadAnswer::Call(message) => {
            if !server.latency.is_zero() {
                tokio::time::sleep(server.latency).await;
            }
            if server.events { event(&message) } else { json(StatusCode::OK, message) }
        }
        LoadAnswer::Now(message) => json(StatusCode::OK, message),
        LoadAnswer::Initialized(message) => {
            let number = sessions.fetch_add(1, Relaxed);
            let mut response = json(StatusCode::OK, message);
            if let Ok(id) = HeaderValue::try_from(format!("{SESSION_ID_PREFIX}{number}")) {
                response.headers_mut().insert(SESSION_ID, id);
            }
            response
        }
        LoadAnswer::NoSession => empty(StatusCode::NOT_FOUND),
        LoadAnswer::Nothing => empty(StatusCode::ACCEPTED),
        LoadAnswer::Invalid(message) => json(StatusCode::BAD_REQUEST, message),
    })
}

fn json(status: StatusCode, message: Bytes) -> Response<Full<Bytes>> {
    typed(status, "application/json", message)
}

fn event(message: &[u8]) -> Response<Full<Bytes>> {
    let event = [b"event: message\ndata: ", message, b"\n\n"].concat();
    typed(StatusCode::OK, "text/event-stream", event.into())
}

fn typed(status: StatusCode, media: &'static str, body: Bytes) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(media));
    response
}

fn empty(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = status;
    response
}

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// The prefix of every session id.
const SESSION_ID_PREFIX: &str = "load-";
const MAX_BODY_BYTES: usize = 64 * 1024 * 1024;
