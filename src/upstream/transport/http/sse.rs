//! Servers on the HTTP+SSE transport of 2024-11-05.
//!
//! Such a server has one event stream, which names the URL for POST requests
//! and carries all its messages. The gateway turns this into a pipe: lines
//! written to it are posted, and messages from the stream are lines to read, so
//! that everything above works as with a child's standard streams.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::{AbortHandle, Aborted, BoxFuture, abortable};
use futures_util::stream::FuturesUnordered;
use http::{HeaderMap, Method, Response, StatusCode};
use tokio::io::{AsyncWriteExt, DuplexStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::client::ServerClient;
use crate::call::ServerName;
use crate::codec::body::collect;
use crate::codec::lines::{LineReader, join_lines};
use crate::codec::sse::SseReader;
use crate::config::ServerConfig;
use crate::http_client::{OutgoingRequest, RequestTarget, ResponseBody, decode_body};
use crate::jsonrpc::{self, Frame, Id, MAX_SERVER_DEPTH};
use crate::mcp::{MediaType, add_stream_headers, code, notification, quote_content_type};
use crate::text::skip_byte_order_mark;
use crate::upstream::UpstreamError;

/// Returns true if the failure of `initialize` may be that of an HTTP+SSE server (2025-11-25,
/// Transports, "Backwards Compatibility").
pub(crate) fn may_be_old(fault: &UpstreamError) -> bool {
    matches!(fault, UpstreamError::Status { status, .. } if matches!(
        *status,
        StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED
    ))
}

/// Returns the fault to report after both transports were tried: that of HTTP+SSE if the server has
/// opened an event stream there, or requires a login there.
pub(crate) fn choose_fault(streamable: UpstreamError, sse: UpstreamError) -> UpstreamError {
    match sse {
        UpstreamError::Status { .. }
        | UpstreamError::MediaType { .. }
        | UpstreamError::Connect(_) => streamable,
        fault => fault,
    }
}

/// Opens a server's stream and waits until it names its URL. Returns the two ends of the pipe:
/// lines written to the first are posted, and messages are read from the second. Closing either
/// closes the stream, and with it the session. The caller sets a time limit.
pub(crate) async fn open(
    client: Arc<ServerClient>,
    config: &ServerConfig,
) -> Result<(DuplexStream, DuplexStream), UpstreamError> {
    let mut headers = HeaderMap::new();
    add_stream_headers(&mut headers, None);
    let response = client.send_empty(&Method::GET, &headers).await?;
    let mut events = events_of(response, config.max_response)?;
    let endpoint = find_endpoint(&mut events, &client).await?;
    let (input, posted) = tokio::io::duplex(PIPE_BYTES);
    let (lines, output) = tokio::io::duplex(PIPE_BYTES);
    let (said, to_write) = mpsc::channel(MAX_QUEUED_REPLIES);
    let server = config.name.clone();
    let post = SsePoster {
        client,
        endpoint,
        server: server.clone(),
        said: said.clone(),
        most: config.in_flight + MAX_OTHER_POSTS,
    };
    tokio::spawn(async move {
        // The first to end stops the others.
        tokio::select! {
            () = post.all(posted) => {}
            () = hear(events, said, &server) => {}
            () = write(to_write, lines) => {}
        }
    });
    Ok((input, output))
}

/// Returns the URL for messages, from the first event that names one. Comments, reconnection delays
/// and other events may precede it. It must be of the server's own origin, because POST requests
/// carry the configured credentials.
async fn find_endpoint(
    events: &mut SseReader<ResponseBody>,
    client: &ServerClient,
) -> Result<RequestTarget, UpstreamError> {
    for _ in 0..MAX_EVENTS_BEFORE_ENDPOINT {
        let event = events.next_event().await?.ok_or(UpstreamError::NoAnswer)?;
        if event.event.as_deref() == Some(b"endpoint") {
            return client.resolve(&String::from_utf8_lossy(&event.data));
        }
        tracing::debug!("an event before the endpoint of a server is skipped");
    }
    Err(UpstreamError::NoAnswer)
}

/// Returns the events of a response.
fn events_of(
    mut response: Response<ResponseBody>,
    limit: usize,
) -> Result<SseReader<ResponseBody>, UpstreamError> {
    if !response.status().is_success() {
        return Err(UpstreamError::of_status(response.status()));
    }
    decode_body(&mut response)?;
    if MediaType::of(response.headers()) != MediaType::EventStream {
        return Err(UpstreamError::MediaType { found: quote_content_type(response.headers()) });
    }
    Ok(SseReader::new(response.into_body(), limit))
}

/// Forwards the server's messages until its stream ends.
async fn hear(mut events: SseReader<ResponseBody>, said: mpsc::Sender<Bytes>, server: &ServerName) {
    loop {
        match events.next_message().await.map_err(UpstreamError::from) {
            // A keep-alive, such as `ping`.
            Ok(Some(message)) if !may_be_message(&message) => events.count_skipped(),
            Ok(Some(message)) => {
                if said.send(message).await.is_err() {
                    return;
                }
            }
            Ok(None) => return,
            Err(fault) => {
                tracing::warn!(server = %server, "its stream is lost: {}", fault.chain());
                return;
            }
        }
    }
}

/// Returns true if the text may be a message or a batch, after a byte order mark or blanks.
fn may_be_message(text: &[u8]) -> bool {
    matches!(skip_byte_order_mark(text).trim_ascii_start().first(), Some(b'{' | b'['))
}

async fn write(mut messages: mpsc::Receiver<Bytes>, mut lines: DuplexStream) {
    while let Some(message) = messages.recv().await {
        let mut line = Vec::with_capacity(message.len() + 1);
        line.extend_from_slice(&message);
        join_lines(&mut line);
        line.push(b'\n');
        if lines.write_all(&line).await.is_err() {
            return;
        }
    }
}

/// Posts the gateway's messages.
struct SsePoster {
    client: Arc<ServerClient>,
    endpoint: RequestTarget,
    server: ServerName,
    /// Receives messages from outside the server's stream.
    said: mpsc::Sender<Bytes>,
    /// Maximum number of concurrent POSTs of requests.
    most: usize,
}

impl SsePoster {
    /// Posts every line until the input ends or the session is lost. Requests are posted
    /// concurrently, because some servers respond to a POST only when the request is done. Other
    /// messages keep their order.
    async fn all(&self, posted: DuplexStream) {
        let mut lines = LineReader::new(posted, usize::MAX);
        let mut requests = OpenPosts::default();
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                Some(SessionLost(lost)) = requests.next() => {
                    if lost {
                        return;
                    }
                    continue;
                }
            };
            let Ok(Some(line)) = line else { return };
            let cancelled = match jsonrpc::parse(&line, MAX_SERVER_DEPTH) {
                Ok(Frame::Request { id, .. }) if requests.len() < self.most => {
                    requests.begin(&id, self.request(id.clone(), line));
                    continue;
                }
                Ok(Frame::Request { .. }) => {
                    let open = requests.len();
                    tracing::warn!(server = %self.server, open, "it leaves too many requests open: the session is closed");
                    return;
                }
                Ok(Frame::Notification { method, params }) if method == notification::CANCELLED => {
                    params.as_ref().and_then(notification::cancelled_request)
                }
                _ => None,
            };
            // Earlier requests go first. The wait is limited, because their results may depend on
            // this message.
            let earlier = async { while requests.next().await.is_some() {} };
            let _ = timeout(EARLIER_REQUESTS_TIMEOUT, earlier).await;
            self.aside(line).await;
            // The request has been cancelled, so its POST is closed too.
            if let Some(id) = cancelled {
                requests.cancel(&id);
            }
        }
    }

    async fn request(&self, id: Id, line: Bytes) -> SessionLost {
        let refused = match self.send(line).await {
            Ok(status) if status.is_success() => return SessionLost(false),
            Ok(StatusCode::NOT_FOUND | StatusCode::GONE) | Err(UpstreamError::Connect(_)) => {
                return SessionLost(true);
            }
            Ok(status) => UpstreamError::of_status(status),
            Err(fault) => fault,
        };
        tracing::debug!(server = %self.server, "a request was refused: {}", refused.public());
        let message = format!("the server did not accept the request: {}", refused.public());
        let error = jsonrpc::error_object(code::SERVER_UNAVAILABLE, &message);
        let answer = jsonrpc::error(Some(&id), &error);
        SessionLost(self.said.send(answer).await.is_err())
    }

    async fn aside(&self, line: Bytes) {
        match timeout(ASIDE_TIMEOUT, self.send(line)).await {
            Ok(Ok(status)) if status.is_success() => {}
            Ok(Ok(status)) => {
                tracing::debug!(server = %self.server, %status, "a message was refused");
            }
            Ok(Err(fault)) => {
                tracing::debug!(server = %self.server, fault = %fault.public(), "a message was lost");
            }
            Err(_) => tracing::debug!(server = %self.server, "a message took too long"),
        }
    }

    async fn send(&self, line: Bytes) -> Result<StatusCode, UpstreamError> {
        let (target, headers) = (&self.endpoint, &HeaderMap::new());
        let post = OutgoingRequest { target, method: &Method::POST, headers, body: line };
        let response = self.client.send_to(post).await?;
        let status = response.status();
        // A connection can be reused only if the body is read to its end, which
        // has usually arrived with the head.
        let _ =
            timeout(STREAM_END_TIMEOUT, collect(response.into_body(), MAX_ERROR_BODY_BYTES)).await;
        Ok(status)
    }
}

/// The POSTs of requests that are under way, by the ids of the requests.
#[derive(Default)]
struct OpenPosts<'a> {
    posts: FuturesUnordered<BoxFuture<'a, (Id, Result<SessionLost, Aborted>)>>,
    handles: HashMap<Id, AbortHandle>,
}

impl<'a> OpenPosts<'a> {
    fn len(&self) -> usize {
        self.posts.len()
    }

    fn begin(&mut self, id: &Id, post: impl Future<Output = SessionLost> + Send + 'a) {
        let (post, handle) = abortable(post);
        self.handles.insert(id.clone(), handle);
        let id = id.clone();
        self.posts.push(Box::pin(async move { (id, post.await) }));
    }

    /// Closes the connection of a POST.
    fn cancel(&mut self, id: &Id) {
        if let Some(handle) = self.handles.remove(id) {
            handle.abort();
        }
    }

    /// Returns the result of the next POST that ends, or `None` if there is none.
    ///
    /// # Cancel safety
    /// Safe.
    async fn next(&mut self) -> Option<SessionLost> {
        let (id, ended) = self.posts.next().await?;
        self.handles.remove(&id);
        Some(ended.unwrap_or(SessionLost(false)))
    }
}

/// True if a POST showed that the session is lost.
struct SessionLost(bool);

/// Maximum number of events before the one that names the URL for messages.
const MAX_EVENTS_BEFORE_ENDPOINT: usize = 100;
/// The capacity of a pipe, in bytes.
const PIPE_BYTES: usize = 64 * 1024;
/// Maximum number of messages that wait to be read. Few, because each may be as large as a
/// response.
const MAX_QUEUED_REPLIES: usize = 2;
/// Time that a message other than a request waits for earlier requests, and time limit for its own
/// POST.
const EARLIER_REQUESTS_TIMEOUT: Duration = Duration::from_secs(1);
const ASIDE_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of bytes to read from the response to a POST, and the time limit for reading
/// them.
const MAX_ERROR_BODY_BYTES: usize = 64 * 1024;
const STREAM_END_TIMEOUT: Duration = Duration::from_millis(500);
/// Maximum number of POSTs besides those of the calls in flight: for the gateway's own requests,
/// and for calls that have just ended.
const MAX_OTHER_POSTS: usize = 64;
