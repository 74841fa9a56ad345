//! Services that the operator names, for interceptors and embeddings: they receive and answer JSON.
//! Requests to MCP servers and to issuers do not pass here.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::Full;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::sync::OnceCell;
use tokio::task::spawn_blocking;
use url::Url;

use trunkline_core::codec::body::{BodyError, collect};
use trunkline_core::text::error_chain;
use trunkline_https::{NO_ENCODING, OWN_USER_AGENT, https_connector, tls_for};

use crate::connect_fault::{CaSetting, ConnectFault};

/// A service that receives JSON, and answers with status 200 and JSON. Redirects are not followed.
#[derive(Debug)]
pub struct JsonService {
    url: Url,
    headers: HeaderMap,
    /// Maximum number of idle connections.
    most_idle: usize,
    /// Built with the first request: reading the root certificates takes milliseconds.
    client: OnceCell<Client<HttpsConnector<HttpConnector>, Full<Bytes>>>,
}

/// Reason that a service has not answered. The texts contain no part of the request or the answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JsonServiceFault {
    /// No connection could be opened, or the connection broke off.
    #[error("the service cannot be reached: {cause}")]
    Unreachable {
        /// The error and its causes, for the log.
        cause: String,
    },
    /// The status of the answer is not 200.
    #[error("the service answered {status}")]
    Status {
        /// The status.
        status: StatusCode,
    },
    /// The answer is too large.
    #[error("the answer has more than {limit} bytes")]
    TooLarge {
        /// The bound.
        limit: usize,
    },
}

impl JsonService {
    /// Creates a service at this URL. Every request carries these headers.
    pub fn new(url: Url, mut headers: HeaderMap, most_idle: usize) -> Self {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.entry(header::USER_AGENT).or_insert(OWN_USER_AGENT);
        headers.entry(header::ACCEPT_ENCODING).or_insert(NO_ENCODING);
        Self { url, headers, most_idle, client: OnceCell::new() }
    }

    /// Sends a body, and returns the body of the answer, which has at most `limit` bytes.
    ///
    /// # Errors
    /// [`JsonServiceFault`].
    ///
    /// # Cancel safety
    /// The request is aborted.
    pub async fn post(&self, body: Vec<u8>, limit: usize) -> Result<Bytes, JsonServiceFault> {
        let client = self.client.get_or_try_init(|| self.build_client()).await?;
        let mut request = Request::post(self.url.as_str())
            .body(Full::new(Bytes::from(body)))
            .map_err(|error| unreachable(&error))?;
        *request.headers_mut() = self.headers.clone();
        let uri = request.uri().clone();
        let response = client.request(request).await;
        let response = response.map_err(|error| {
            unreachable(&ConnectFault::new(&uri, &CaSetting::Unknown, error.into()))
        })?;
        let status = response.status();
        if status != StatusCode::OK {
            return Err(JsonServiceFault::Status { status });
        }
        collect(response.into_body(), limit).await.map_err(|error| match error {
            BodyError::TooLarge { .. } | BodyError::Chatter { .. } => {
                JsonServiceFault::TooLarge { limit }
            }
            BodyError::Broken(error) => unreachable(&error),
        })
    }

    async fn build_client(
        &self,
    ) -> Result<Client<HttpsConnector<HttpConnector>, Full<Bytes>>, JsonServiceFault> {
        let url = self.url.clone();
        let tls = spawn_blocking(move || tls_for(&url)).await;
        let tls = tls.map_err(|error| unreachable(&error))?.map_err(|error| unreachable(&error))?;
        let mut client = Client::builder(TokioExecutor::new());
        client.pool_max_idle_per_host(self.most_idle).pool_idle_timeout(IDLE_CONNECTION_TIMEOUT);
        Ok(client.build(https_connector(tls)))
    }
}

fn unreachable(error: &(dyn Error + 'static)) -> JsonServiceFault {
    JsonServiceFault::Unreachable { cause: error_chain(error) }
}

/// Idle time after which a connection is closed.
const IDLE_CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
