//! Requests to one server, over whatever HTTP it speaks.

use std::error::Error;

use bytes::Bytes;
use http::Uri;
use http_body_util::Full;
use hyper::client::conn::http2;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use parking_lot::{Mutex, MutexGuard};
use tower_service::Service;

use super::WireFault;
use super::body::Response;
use super::connection::Connection;
use super::idle::Idle;
use super::request::Request;

/// Why nothing came back.
#[derive(Debug, thiserror::Error)]
pub enum PoolFault {
    /// No connection could be had.
    #[error("no connection: {0}")]
    Connect(#[source] Box<dyn Error + Send + Sync>),
    /// It broke when something had been sent.
    #[error(transparent)]
    Broken(#[from] WireFault),
}

/// The connections to one server.
#[derive(Debug)]
pub struct Pool {
    connector: HttpsConnector<HttpConnector>,
    pub(super) idle: Idle,
    /// The one of HTTP/2, which all requests share.
    h2: Mutex<Option<H2>>,
}

type H2 = http2::SendRequest<Full<Bytes>>;

/// A connection that was opened.
enum Opened {
    Http1(Connection),
    Http2(H2),
}

impl Pool {
    /// Opens connections when they are needed. The connector offers HTTP/2 by
    /// ALPN or does not.
    pub fn new(connector: HttpsConnector<HttpConnector>) -> Self {
        Self { connector, idle: Idle::default(), h2: Mutex::default() }
    }

    /// Sends a request, and gives its answer when the head of it has come.
    ///
    /// A connection that turns out to be closed before it has taken anything
    /// costs another one; whatever may have reached the server is not sent
    /// twice.
    ///
    /// # Errors
    /// [`PoolFault`].
    ///
    /// # Cancel safety
    /// The connection is closed, by which the server notices (with HTTP/2 the
    /// stream is reset).
    pub async fn send(&self, request: Request<'_>) -> Result<Response, PoolFault> {
        while let Some(connection) = self.idle.take() {
            match self.exchange(connection, &request).await {
                Err(WireFault::Unsent(_)) => {}
                done => return Ok(done?),
            }
        }
        let shared = self.h2().clone().filter(|h2| !h2.is_closed());
        if let Some(h2) = shared {
            return Ok(over_h2(h2, &request).await?);
        }
        Ok(match Box::pin(self.open(request.uri)).await.map_err(PoolFault::Connect)? {
            Opened::Http1(connection) => self.exchange(connection, &request).await?,
            Opened::Http2(h2) => over_h2(h2, &request).await?,
        })
    }

    async fn exchange(
        &self,
        mut connection: Connection,
        request: &Request<'_>,
    ) -> Result<Response, WireFault> {
        request.write_head(connection.head_to_write());
        let head = connection.exchange(request.body.clone()).await?;
        Response::new(head, connection, &self.idle)
    }

    async fn open(&self, uri: &Uri) -> Result<Opened, Box<dyn Error + Send + Sync>> {
        let mut connector = self.connector.clone();
        let stream = connector.call(uri.clone()).await?;
        let MaybeHttpsStream::Https(tls) = &stream else {
            return Ok(Opened::Http1(Connection::new(stream)));
        };
        if tls.inner().get_ref().1.alpn_protocol() != Some(b"h2") {
            return Ok(Opened::Http1(Connection::new(stream)));
        }
        let (h2, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "an HTTP/2 connection to a server ended");
            }
        });
        *self.h2() = Some(h2.clone());
        Ok(Opened::Http2(h2))
    }

    fn h2(&self) -> MutexGuard<'_, Option<H2>> {
        self.h2.lock()
    }
}

async fn over_h2(mut h2: H2, request: &Request<'_>) -> Result<Response, WireFault> {
    let response = async {
        h2.ready().await?;
        h2.send_request(request.for_h2()).await
    };
    Ok(Response::of_h2(Box::pin(response).await.map_err(WireFault::H2)?))
}
