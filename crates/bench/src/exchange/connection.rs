//! An HTTP/1.1 connection to the server under test, on hyper.
//!
//! The task that sends a request also polls hyper's connection, together with the response and its
//! body. No task is spawned, and no message passes between tasks, because the load generator's own
//! cost reduces the load that it can generate.

use std::error::Error as _;
use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use trunkline_https::client_tls;

use crate::BenchFault;

/// Opens connections to one server.
#[derive(Clone)]
pub struct Dialer {
    /// The server's address.
    pub address: SocketAddr,
    /// TLS settings, and the server name that the certificate must prove.
    pub tls: Option<(Arc<ClientConfig>, ServerName<'static>)>,
}

/// An open connection. Dropping it closes the socket.
pub struct BenchConnection {
    requests: SendRequest<Full<Bytes>>,
    driver: Driver,
}

/// Reason that a connection is unusable.
#[derive(Debug, thiserror::Error)]
pub enum BenchConnectionError {
    /// The socket or TLS failed in the middle of an answer.
    #[error("the connection broke: {0}")]
    Broken(io::Error),
    /// The server closed the connection in the middle of an answer.
    #[error("the server closed the connection")]
    Closed,
    /// The connection ended before the first byte of an answer, perhaps before the request.
    #[error("the server closed the connection without an answer")]
    Unanswered,
    /// The response head is not valid HTTP/1.1.
    #[error("the answer is not HTTP/1.1: {0}")]
    MalformedHead(hyper::Error),
    /// A chunk of the body is malformed.
    #[error("the answer's chunks are malformed")]
    MalformedChunk,
    /// The head or the body exceeds its bound.
    #[error("the answer is larger than {limit} bytes")]
    TooLarge {
        /// The bound.
        limit: usize,
    },
}

impl Dialer {
    /// Connects.
    ///
    /// # Errors
    /// The error of the system or of the TLS handshake.
    pub async fn connect(&self) -> io::Result<BenchConnection> {
        let tcp = TcpStream::connect(self.address).await?;
        tcp.set_nodelay(true)?;
        let tcp = TokioIo::new(tcp);
        let stream = match &self.tls {
            None => MaybeHttpsStream::Http(tcp),
            Some((config, name)) => {
                let connector = TlsConnector::from(Arc::clone(config));
                connector.connect(name.clone(), TokioIo::new(tcp)).await?.into()
            }
        };
        let mut http = http1::Builder::new();
        let handshake = http.max_header_size(MAX_HEAD_BYTES).handshake(stream).await;
        let (requests, connection) = handshake.map_err(io::Error::other)?;
        let driver = Driver { connection: Some(Box::new(connection)), has_unread: false };
        Ok(BenchConnection { requests, driver })
    }
}

/// Builds the TLS settings of a client that trusts the system's roots and those in `ca`.
///
/// # Errors
/// [`BenchFault::Tls`] if the file cannot be used.
pub(crate) fn tls_settings(ca: Option<&Path>) -> Result<ClientConfig, BenchFault> {
    let mut config = client_tls(ca).map_err(BenchFault::Tls)?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}

impl BenchConnection {
    /// Sends a request and waits for the head of its response; hyper skips interim responses.
    ///
    /// # Errors
    /// [`BenchConnectionError`]; the connection is unusable then.
    pub async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, BenchConnectionError> {
        let Self { requests, driver } = self;
        let ready = driver.drive(poll_fn(|cx| requests.poll_ready(cx))).await;
        ready.map_err(|_: hyper::Error| BenchConnectionError::Unanswered)?;
        let sent = driver.drive(requests.send_request(request)).await;
        sent.map_err(|error| {
            driver.close();
            if error.is_parse() || driver.has_unread {
                error.into()
            } else {
                BenchConnectionError::Unanswered
            }
        })
    }

    /// Reads a body to its end.
    ///
    /// # Errors
    /// [`BenchConnectionError`]; the connection is unusable then.
    pub async fn read_body(&mut self, body: Incoming) -> Result<Bytes, BenchConnectionError> {
        #[expect(clippy::disallowed_methods, reason = "`Limited` is the bound")]
        let whole = Limited::new(body, MAX_BODY_BYTES).collect();
        let whole = self.driver.drive(whole).await;
        whole.map(http_body_util::Collected::to_bytes).map_err(|error| {
            match error.downcast::<hyper::Error>() {
                Ok(error) => BenchConnectionError::from(*error),
                Err(other) if other.is::<LengthLimitError>() => {
                    BenchConnectionError::TooLarge { limit: MAX_BODY_BYTES }
                }
                Err(other) => BenchConnectionError::Broken(io::Error::other(other)),
            }
        })
    }

    /// Reads the next piece of a body; `None` at its end.
    ///
    /// # Errors
    /// [`BenchConnectionError`]; the connection is unusable then.
    pub async fn read_piece(
        &mut self,
        body: &mut Incoming,
    ) -> Result<Option<Bytes>, BenchConnectionError> {
        while !body.is_end_stream() {
            match self.driver.drive(body.frame()).await {
                None => break,
                Some(frame) => match frame?.into_data() {
                    Ok(piece) => return Ok(Some(piece)),
                    Err(_trailers) => {}
                },
            }
        }
        Ok(None)
    }
}

/// Hyper's connection: reads and writes when polled.
struct Driver {
    /// `None` once it is closed: only then does hyper refuse further requests.
    connection: Option<Box<HttpConnection>>,
    /// True if it was closed after a partial response head.
    has_unread: bool,
}

impl Driver {
    /// Polls the connection while the future waits for it.
    async fn drive<F: Future>(&mut self, future: F) -> F::Output {
        let mut future = pin!(future);
        poll_fn(|cx| {
            // The first poll queues the request's bytes for writing, or requests a read; the second
            // poll takes the bytes that were read.
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
            self.poll(cx);
            future.as_mut().poll(cx)
        })
        .await
    }

    fn poll(&mut self, cx: &mut Context<'_>) {
        // An error of the connection reaches the response or the body that waits for it.
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(cx).is_ready()
        {
            self.close();
        }
    }

    fn close(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.has_unread = !connection.into_parts().read_buf.is_empty();
        }
    }
}

type HttpConnection = http1::Connection<MaybeHttpsStream<TokioIo<TcpStream>>, Full<Bytes>>;

impl From<hyper::Error> for BenchConnectionError {
    fn from(error: hyper::Error) -> Self {
        if error.is_parse_too_large() {
            return Self::TooLarge { limit: MAX_HEAD_BYTES };
        }
        if error.is_parse() {
            return Self::MalformedHead(error);
        }
        let io = error.source().and_then(|source| source.downcast_ref::<io::Error>());
        match io.map(io::Error::kind) {
            Some(io::ErrorKind::UnexpectedEof) | None => Self::Closed,
            Some(io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput) => Self::MalformedChunk,
            Some(kind) => Self::Broken(kind.into()),
        }
    }
}

/// Maximum bytes of a response head.
const MAX_HEAD_BYTES: usize = 64 * 1024;
/// Maximum bytes of a body.
const MAX_BODY_BYTES: usize = 256 * 1024 * 1024;
