//! One HTTP/1.1 connection: hyper's, driven by the task that uses it.
//!
//! Nothing is spawned: a task that waits for a response, or for a piece of its
//! body, polls hyper's connection first. A connection is dropped with its
//! request, which is how the server notices a cancellation.

mod interim;

use std::error::Error as _;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::error::TransportError;
use interim::{AwaitedBytes, GuardedStream};

/// An open connection.
#[derive(Debug)]
pub(crate) struct Http1Connection {
    sender: SendRequest<Full<Bytes>>,
    /// hyper's state machine; `None` once it has ended.
    driver: Option<Box<Driver>>,
    awaited: Arc<AwaitedBytes>,
    /// A response has arrived on this connection.
    is_used: bool,
}

/// The byte stream, with or without TLS.
pub(crate) type ServerStream = MaybeHttpsStream<TokioIo<TcpStream>>;

type Driver = http1::Connection<GuardedStream, Full<Bytes>>;

/// The head of a response, and the connection that its body comes on.
pub(crate) type Answered = (Response<Incoming>, Http1Connection);

/// Error of a request without a response.
pub(crate) enum Unanswered {
    /// The server has read nothing of the request.
    Unsent(Box<Request<Full<Bytes>>>, TransportError),
    /// The request may have reached the server.
    Lost(TransportError),
}

impl Http1Connection {
    pub(crate) async fn open(stream: ServerStream) -> Result<Self, TransportError> {
        let (stream, awaited) = GuardedStream::new(stream);
        let handshake = http1::Builder::new().max_header_size(HEAD_LIMIT).handshake(stream).await;
        let (sender, driver) = handshake.map_err(TransportError::of_http1)?;
        Ok(Self { sender, driver: Some(Box::new(driver)), awaited, is_used: false })
    }

    /// Returns true if the connection accepts a request: the last exchange is over, and the server
    /// has neither closed the connection nor sent unsolicited data. Makes no system call while
    /// nothing has arrived.
    pub(crate) fn is_reusable(&mut self) -> bool {
        advance(&mut self.driver, &mut Context::from_waker(Waker::noop()));
        self.sender.is_ready()
    }

    /// Sends a request. The future waits for the head of its response, and returns the connection
    /// with it, for the body.
    ///
    /// hyper reads before it writes: if the server has closed the connection or sent unsolicited
    /// data, the request comes back [`Unanswered::Unsent`].
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection.
    pub(crate) fn send(
        mut self,
        request: Request<Full<Bytes>>,
    ) -> impl Future<Output = Result<Answered, Unanswered>> {
        if self.is_used {
            self.awaited.begin_again();
        } else {
            self.awaited.begin();
        }
        // Boxed, because hyper's future has room for the request, and every future around it would
        // have that room twice.
        let mut response = Box::pin(self.sender.try_send_request(request));
        async move {
            let driver = &mut self.driver;
            let mut is_sent = false;
            let head = poll_fn(|cx| {
                if is_sent {
                    return poll_fed_by(driver, cx, |cx| response.as_mut().poll(cx));
                }
                // The first poll writes the request. It has to wait for the response in any case,
                // and does so with the task's waker.
                is_sent = true;
                advance(driver, cx);
                response.as_mut().poll(cx)
            });
            let head = head.await;
            self.awaited.end();
            self.is_used = true;
            head.map(|head| (head, self)).map_err(|mut fault| match fault.take_message() {
                Some(request) => {
                    let fault = TransportError::of_http1(fault.into_error());
                    Unanswered::Unsent(Box::new(request), fault)
                }
                None => Unanswered::Lost(TransportError::of_http1(fault.into_error())),
            })
        }
    }

    /// Returns true if the connection accepts a request, as far as is known without reading from
    /// its socket.
    pub(crate) fn is_ready(&self) -> bool {
        self.sender.is_ready()
    }

    /// Polls a future that only this connection can complete.
    pub(crate) fn poll_feeding<T>(
        &mut self,
        cx: &mut Context<'_>,
        next: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        poll_fed_by(&mut self.driver, cx, next)
    }
}

/// Polls `next`, and `driver` in order to complete it.
///
/// hyper passes received data through channels that wake the receiver. Here the
/// receiver is the same task, which would be woken needlessly after each
/// response. So `driver` and `next` are first polled without a waker, and with
/// the task's own only if it has to wait.
fn poll_fed_by<T>(
    driver: &mut Option<Box<Driver>>,
    cx: &mut Context<'_>,
    mut next: impl FnMut(&mut Context<'_>) -> Poll<T>,
) -> Poll<T> {
    let mut quiet = Context::from_waker(Waker::noop());
    if let ready @ Poll::Ready(_) = next(&mut quiet) {
        return ready;
    }
    advance(driver, &mut quiet);
    if let ready @ Poll::Ready(_) = next(&mut quiet) {
        return ready;
    }
    advance(driver, cx);
    next(cx)
}

/// Lets hyper read and write as far as it can. A connection that has ended is
/// dropped, which wakes the tasks that wait for its data.
fn advance(driver: &mut Option<Box<Driver>>, cx: &mut Context<'_>) {
    if let Some(connection) = driver
        && let Poll::Ready(ended) = Pin::new(connection).poll(cx)
    {
        if let Err(error) = ended {
            tracing::trace!(target: "trunkline::upstream::transport::http::connection", %error, "a connection to a server ended");
        }
        *driver = None;
    }
}

impl TransportError {
    /// Returns the error of a request or of a body over HTTP/1.1.
    pub(crate) fn of_http1(error: hyper::Error) -> Self {
        let io = error.source().and_then(|cause| cause.downcast_ref::<io::Error>());
        let kind = io.map(io::Error::kind);
        if error.is_parse_too_large() {
            Self::HeadTooLarge { limit: HEAD_LIMIT }
        } else if error.is_parse() {
            Self::Malformed(error)
        } else if error.is_incomplete_message()
            || error.is_closed()
            || error.is_canceled()
            || kind == Some(io::ErrorKind::UnexpectedEof)
        {
            Self::Closed
        } else {
            Self::Broken(error)
        }
    }
}

/// Maximum size in bytes of a response head, and of the trailers after its body.
pub(crate) const HEAD_LIMIT: usize = 64 * 1024;
