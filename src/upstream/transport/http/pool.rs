//! Requests to one server, over HTTP/1.1 or HTTP/2.

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;
use tower::Service;

use crate::upstream::UpstreamError;

use super::body::ResponseBody;
use super::connection::{Answered, Http1Connection, Unanswered};
use super::idle::IdleConnections;
use super::resolver::HostResolver;

/// The connections to one server.
#[derive(Debug)]
pub(super) struct ConnectionPool {
    connector: HttpsConnector<HttpConnector<HostResolver>>,
    /// Time limit for connecting, including TLS.
    connect_timeout: Duration,
    pub(super) idle: IdleConnections,
    /// The HTTP/2 connection, which all requests share.
    http2: Mutex<Option<Http2Sender>>,
}

type Http2Sender = http2::SendRequest<Full<Bytes>>;

/// The target of a request, in the forms that HTTP requires.
#[derive(Debug, Clone)]
pub(super) struct RequestTarget {
    /// The absolute URI.
    pub(super) uri: Uri,
    /// Path and query, as in an HTTP/1.1 request line.
    origin_form: Uri,
    pub(super) host: HeaderValue,
}

impl RequestTarget {
    /// Returns the target that an absolute URI names, or `None` if it is not absolute.
    pub(super) fn new(uri: Uri) -> Option<Self> {
        let origin_form = uri.path_and_query()?.clone().into();
        let host = uri.host()?;
        let default = if uri.scheme_str() == Some("https") { 443 } else { 80 };
        let host = match uri.port_u16().filter(|port| *port != default) {
            Some(port) => HeaderValue::from_str(&format!("{host}:{port}")),
            None => HeaderValue::from_str(host),
        };
        Some(Self { origin_form, host: host.ok()?, uri })
    }

    /// Returns another path of the same origin.
    pub(super) fn with_path(&self, path: PathAndQuery) -> Option<Self> {
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(path);
        Uri::from_parts(parts).ok().and_then(Self::new)
    }
}

/// A newly opened connection.
enum Opened {
    Http1(Http1Connection),
    Http2(Http2Sender),
}

impl ConnectionPool {
    /// Creates a pool that opens connections on demand. The connector decides
    /// whether HTTP/2 is offered by ALPN.
    pub(super) fn new(
        connector: HttpsConnector<HttpConnector<HostResolver>>,
        connect_timeout: Duration,
    ) -> Self {
        let (idle, http2) = (IdleConnections::default(), Mutex::default());
        Self { connector, connect_timeout, idle, http2 }
    }

    /// Sends a request to `target` and returns its response when the head has arrived.
    ///
    /// If a connection turns out to be closed before it has taken anything, the request is sent on
    /// another one. A request that may have reached the server is not sent twice.
    ///
    /// # Errors
    /// [`TransportError`].
    ///
    /// # Cancel safety
    /// Cancelling closes the connection, which the server notices (over HTTP/2, the stream is
    /// reset).
    pub(super) fn send(
        &self,
        target: &RequestTarget,
        mut request: Request<Full<Bytes>>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, TransportError>> {
        *request.uri_mut() = target.origin_form.clone();
        request.headers_mut().insert(HOST, target.host.clone());
        // Handed over before the future exists, so that the future does not have to hold the
        // request.
        let begun = match self.idle.take() {
            Some(connection) => Ok(connection.send(request)),
            None => Err(Box::new(request)),
        };
        async move {
            let request = match begun {
                Ok(sending) => match self.receive(sending.await) {
                    Err(Unanswered::Unsent(request, _)) => request,
                    Err(Unanswered::Lost(fault)) => return Err(fault.on_kept()),
                    Ok(response) => return Ok(response),
                },
                Err(request) => request,
            };
            // Boxed to keep the usual request small: this is rare.
            Box::pin(self.send_on_another(target, request)).await
        }
    }

    fn receive(
        &self,
        answered: Result<Answered, Unanswered>,
    ) -> Result<Response<ResponseBody>, Unanswered> {
        let (response, connection) = answered?;
        ResponseBody::receive(response, connection, &self.idle).map_err(Unanswered::Lost)
    }

    /// Sends a request on the remaining idle connections in turn, and otherwise on a shared or new
    /// one.
    async fn send_on_another(
        &self,
        target: &RequestTarget,
        mut request: Box<Request<Full<Bytes>>>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        while let Some(connection) = self.idle.take() {
            request = match self.receive(connection.send(*request).await) {
                Err(Unanswered::Unsent(request, _)) => request,
                Err(Unanswered::Lost(fault)) => return Err(fault.on_kept()),
                Ok(response) => return Ok(response),
            };
        }
        self.send_on_shared_or_new(target, *request).await
    }

    async fn send_on_shared_or_new(
        &self,
        target: &RequestTarget,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<ResponseBody>, TransportError> {
        let shared = self.http2().clone().filter(|sender| !sender.is_closed());
        let opened = match shared {
            Some(sender) => {
                let sent = send_http2(sender, target, request).await;
                return sent.map_err(TransportError::on_kept);
            }
            None => self.open(&target.uri).await?,
        };
        match opened {
            Opened::Http1(connection) => self.receive(connection.send(request).await).map_err(
                |unanswered| match unanswered {
                    Unanswered::Unsent(_, fault) | Unanswered::Lost(fault) => fault,
                },
            ),
            Opened::Http2(sender) => send_http2(sender, target, request).await,
        }
    }

    async fn open(&self, uri: &Uri) -> Result<Opened, TransportError> {
        let limit = self.connect_timeout;
        let stream = timeout(limit, self.connector.clone().call(uri.clone())).await;
        let stream =
            stream.map_err(|_| TransportError::Connect(ConnectTimeoutError { limit }.into()))?;
        let stream = stream.map_err(TransportError::Connect)?;
        let is_http2 = match &stream {
            MaybeHttpsStream::Http(_) => false,
            MaybeHttpsStream::Https(tls) => tls.inner().get_ref().1.alpn_protocol() == Some(b"h2"),
        };
        if !is_http2 {
            return Ok(Opened::Http1(Http1Connection::open(stream).await?));
        }
        let opened = http2::handshake(TokioExecutor::new(), stream).await;
        let (sender, connection) = opened.map_err(|error| TransportError::Connect(error.into()))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an HTTP/2 connection to a server ended");
            }
        });
        *self.http2() = Some(sender.clone());
        Ok(Opened::Http2(sender))
    }

    fn http2(&self) -> MutexGuard<'_, Option<Http2Sender>> {
        self.http2.lock()
    }
}

async fn send_http2(
    mut sender: Http2Sender,
    target: &RequestTarget,
    mut request: Request<Full<Bytes>>,
) -> Result<Response<ResponseBody>, TransportError> {
    *request.uri_mut() = target.uri.clone();
    // HTTP/2 uses `:authority` instead.
    request.headers_mut().remove(HOST);
    sender.ready().await.map_err(TransportError::Http2)?;
    let response = sender.send_request(request).await.map_err(TransportError::Http2)?;
    Ok(ResponseBody::receive_http2(response))
}

/// The connection was not established within the time limit.
#[derive(Debug, thiserror::Error)]
#[error("no connection within {limit:?}")]
struct ConnectTimeoutError {
    limit: Duration,
}

/// Error of a request without a complete response.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// No connection could be opened.
    #[error("no connection: {0}")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// The server closed the connection before the response was complete.
    #[error("the server closed the connection")]
    Closed,
    /// The response head is too large.
    #[error("the response head is larger than {limit} bytes")]
    HeadTooLarge {
        /// Maximum number of bytes.
        limit: usize,
    },
    /// The response is not valid HTTP/1.1.
    #[error("the response is not valid HTTP/1.1")]
    Malformed(#[source] hyper::Error),
    /// The connection was lost.
    #[error("the connection broke")]
    Broken(#[source] hyper::Error),
    /// The HTTP/2 stream or connection failed.
    #[error("the HTTP/2 stream failed")]
    Http2(#[source] hyper::Error),
    /// The body does not have the content coding that its head names.
    #[error("the body is not valid {coding}")]
    Undecodable {
        /// The coding.
        coding: &'static str,
        /// The fault in the encoded data.
        source: io::Error,
    },
    /// The lost connection had been kept from an earlier request.
    #[error(transparent)]
    Kept(Box<Self>),
}

impl TransportError {
    /// Marks the fault as one of a connection kept from an earlier request.
    #[cold]
    fn on_kept(self) -> Self {
        match self {
            Self::Closed | Self::Broken(_) | Self::Http2(_) => Self::Kept(Box::new(self)),
            other => other,
        }
    }

    pub(super) fn of_http1(error: hyper::Error) -> Self {
        let io = error.source().and_then(|cause| cause.downcast_ref::<std::io::Error>());
        let kind = io.map(std::io::Error::kind);
        if error.is_parse_too_large() {
            Self::HeadTooLarge { limit: super::connection::HEAD_LIMIT }
        } else if error.is_parse() {
            Self::Malformed(error)
        } else if error.is_incomplete_message()
            || error.is_closed()
            || error.is_canceled()
            || kind == Some(std::io::ErrorKind::UnexpectedEof)
        {
            Self::Closed
        } else {
            Self::Broken(error)
        }
    }
}

impl From<TransportError> for UpstreamError {
    fn from(fault: TransportError) -> Self {
        match fault {
            TransportError::Connect(error) => Self::Connect(error.into()),
            TransportError::Undecodable { coding, source } => {
                Self::Undecodable { coding, source: Arc::new(source) }
            }
            fault => Self::Broken(Arc::new(fault)),
        }
    }
}

#[cfg(test)]
mod tests;
