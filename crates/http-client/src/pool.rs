//! Requests to one server, over HTTP/1.1 or HTTP/2.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::timeout;
use tower::Service;

use crate::body::ResponseBody;
use crate::connect_fault::{CaSetting, ConnectFault};
use crate::connection::{Answered, Http1Connection, Unanswered};
use crate::error::TransportError;
use crate::idle::IdleConnections;
use crate::resolver::HostResolver;
use crate::target::RequestTarget;

/// The connections to one server.
#[derive(Debug)]
pub(crate) struct ConnectionPool {
    connector: HttpsConnector<HttpConnector<HostResolver>>,
    /// Time limit for connecting, including TLS.
    connect_timeout: Duration,
    /// The file of CA certificates that are trusted besides the system's, for messages.
    ca: Option<PathBuf>,
    pub(crate) idle: IdleConnections,
    /// The HTTP/2 connection, which all requests share.
    http2: Mutex<Option<Http2Sender>>,
}

type Http2Sender = http2::SendRequest<Full<Bytes>>;

/// A newly opened connection.
enum Opened {
    Http1(Http1Connection),
    Http2(Http2Sender),
}

impl ConnectionPool {
    /// Creates a pool that opens connections on demand. The connector decides
    /// whether HTTP/2 is offered by ALPN.
    pub(crate) fn new(
        connector: HttpsConnector<HttpConnector<HostResolver>>,
        connect_timeout: Duration,
    ) -> Self {
        let (idle, http2) = (IdleConnections::default(), Mutex::default());
        Self { connector, connect_timeout, ca: None, idle, http2 }
    }

    /// Names the file of trusted CA certificates in messages.
    pub(crate) fn with_ca(self, ca: Option<PathBuf>) -> Self {
        Self { ca, ..self }
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
    pub(crate) fn send(
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
                    Unanswered::Unsent(_, fault) | Unanswered::Lost(fault) => {
                        fault.on_plain(&target.uri)
                    }
                },
            ),
            Opened::Http2(sender) => send_http2(sender, target, request).await,
        }
    }

    async fn open(&self, uri: &Uri) -> Result<Opened, TransportError> {
        let limit = self.connect_timeout;
        let stream = timeout(limit, self.connector.clone().call(uri.clone())).await;
        let fault = |error| {
            TransportError::Connect(
                ConnectFault::new(uri, &CaSetting::new(self.ca.as_deref()), error).into(),
            )
        };
        let stream = stream.map_err(|_| fault(ConnectTimeoutError { limit }.into()))?;
        let stream = stream.map_err(fault)?;
        let is_http2 = match &stream {
            MaybeHttpsStream::Http(_) => false,
            MaybeHttpsStream::Https(tls) => tls.inner().get_ref().1.alpn_protocol() == Some(b"h2"),
        };
        if !is_http2 {
            return Ok(Opened::Http1(Http1Connection::open(stream).await?));
        }
        let opened = http2::handshake(TokioExecutor::new(), stream).await;
        let (sender, connection) = opened.map_err(|error| fault(error.into()))?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(target: "trunkline::upstream::transport::http::pool", %error, "an HTTP/2 connection to a server ended");
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

#[cfg(test)]
mod tests;
