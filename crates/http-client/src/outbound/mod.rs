//! Requests to URLs that are learned at run time: metadata, registration, token endpoints.
//!
//! A URL in the configuration is trusted. One that a server or an authorization server names is
//! not. Every such URL goes through [`OutboundClient::send`], the only place that decides if a
//! request to it is allowed. It must use HTTPS, or HTTP on this machine. It must not lead to a
//! private address, unless that is allowed ([`OutboundGuard`]), and the connection goes to the
//! address that was checked. Redirects to another origin are refused, and size and time are
//! limited. [`HttpClient`] differs: it talks to the server that the configuration names.

mod address;
mod guard;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use ipnet::IpNet;
use tokio::time::timeout;
use url::Url;

use trunkline_config::{HttpConfig, HttpTransport, ServerSecrets, is_safe_url};
use trunkline_core::codec::body::collect;
use trunkline_core::codec::file::{FileReader, ReadError};
use trunkline_core::text::skip_byte_order_mark;

use crate::body::decode_body;
use crate::client::HttpClient;
use crate::error::HttpError;
use guard::OutboundGuard;
pub use guard::Remedy;

/// Sends requests to URLs that are learned at run time.
#[derive(Clone, Default)]
pub struct OutboundClient {
    /// CA certificates to trust besides the system's.
    ca: Option<PathBuf>,
    files: FileReader,
    guard: Arc<OutboundGuard>,
}

/// One request.
pub struct OutboundRequest<'a> {
    /// The method.
    pub method: Method,
    /// The URL, which is judged before anything is sent.
    pub url: &'a Url,
    /// All headers besides those of every request.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

/// The response to a request, with its whole body.
#[derive(Debug)]
pub struct OutboundAnswer {
    /// The status, which may be an error.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body, decoded.
    pub body: Bytes,
}

/// Reason that there is no response from a URL that was learned at run time. The texts name the URL
/// without its query, which may contain a secret, and never contain a body.
#[derive(Debug, Clone, thiserror::Error)]
pub enum OutboundFault {
    /// The gateway may not send requests to the URL.
    #[error("{url} is not requested: expected HTTPS, or HTTP on this machine")]
    Unsafe {
        /// The URL.
        url: String,
    },
    /// The URL leads to an address that is not allowed.
    #[error("{url} is not requested: {reason}")]
    Address {
        /// The URL.
        url: String,
        /// The address, and the rule.
        reason: String,
    },
    /// There is no response.
    #[error("cannot reach {url}")]
    Request {
        /// The URL.
        url: String,
        /// The fault of the request.
        source: Box<HttpError>,
    },
    /// The body cannot be read.
    #[error("the response of {url} cannot be read")]
    Body {
        /// The URL.
        url: String,
        /// The fault of the body.
        source: Box<HttpError>,
    },
    /// The certificates cannot be read.
    #[error("the certificates cannot be read")]
    Files(#[source] std::sync::Arc<ReadError>),
    /// There is no response within the time limit.
    #[error("no response from {url} within {}s", REQUEST_TIME.as_secs())]
    Timeout {
        /// The URL.
        url: String,
    },
}

impl OutboundFault {
    /// Returns the same fault without these secrets in its quotes of a response.
    #[must_use]
    pub fn without(mut self, secrets: &ServerSecrets) -> Self {
        if let Self::Request { source, .. } | Self::Body { source, .. } = &mut self {
            **source = source.without(secrets);
        }
        self
    }
}

impl OutboundClient {
    /// Creates a client that trusts these CA certificates besides the system's. `configured` are
    /// the URLs in the configuration. `allowed` are the addresses to which other URLs may lead.
    pub fn new<'a>(
        ca: Option<PathBuf>,
        configured: impl IntoIterator<Item = &'a Url>,
        allowed: &[IpNet],
        remedy: Remedy,
    ) -> Self {
        let guard = Arc::new(OutboundGuard::new(configured, allowed, remedy));
        Self { ca, files: FileReader::default(), guard }
    }

    /// Sends a request, and reads the whole response.
    ///
    /// # Errors
    /// [`OutboundFault`] if requests to the URL are not allowed, or if there is no response within
    /// the limits of time and size. An HTTP error status is a response.
    pub async fn send(
        &self,
        request: OutboundRequest<'_>,
    ) -> Result<OutboundAnswer, OutboundFault> {
        let url = shown_url(request.url);
        if !is_safe_url(request.url) {
            return Err(OutboundFault::Unsafe { url });
        }
        if let Err(refused) = self.guard.check_host(request.url) {
            return Err(OutboundFault::Address { url, reason: refused.to_string() });
        }
        let exchange = timeout(REQUEST_TIME, self.exchange(request, &url)).await;
        exchange.unwrap_or(Err(OutboundFault::Timeout { url }))
    }

    async fn exchange(
        &self,
        request: OutboundRequest<'_>,
        shown: &str,
    ) -> Result<OutboundAnswer, OutboundFault> {
        let failed =
            |source| OutboundFault::Request { url: shown.to_owned(), source: Box::new(source) };
        let config = HttpConfig {
            url: request.url.clone(),
            headers: Vec::new(),
            ca: self.ca.clone(),
            transport: HttpTransport::Streamable,
            oauth: None,
            aws: None,
        };
        let rule = (!self.guard.trusts(request.url)).then(|| Arc::clone(&self.guard));
        let connect = move || match rule {
            Some(rule) => HttpClient::guarded(&config, CONNECT_TIME, rule),
            None => HttpClient::plain(&config, CONNECT_TIME),
        };
        let client = self.files.run(connect).await;
        let client = client.map_err(|error| OutboundFault::Files(error.into()))?;
        let client = client.map_err(failed)?;
        let response = client.send(&request.method, &request.headers, request.body).await;
        let mut response = response.map_err(failed)?;
        let unreadable =
            |source| OutboundFault::Body { url: shown.to_owned(), source: Box::new(source) };
        decode_body(&mut response).map_err(unreadable)?;
        let (head, body) = response.into_parts();
        let (status, headers) = (head.status, head.headers);
        let body = collect(body, MAX_ANSWER).await;
        let body = body.map_err(|error| unreadable(error.into()))?;
        Ok(OutboundAnswer { status, headers, body })
    }
}

/// Returns a URL without its query, which may contain a secret.
pub fn shown_url(url: &Url) -> String {
    let mut shown = url.clone();
    shown.set_query(None);
    shown.set_fragment(None);
    shown.into()
}

/// Returns the JSON object at the beginning of a body, without a byte order mark. Returns `None`
/// for any other body, such as the page that some servers return for every path.
pub fn json_object(body: &Bytes) -> Option<Bytes> {
    let body = body.slice_ref(skip_byte_order_mark(body));
    body.trim_ascii_start().starts_with(b"{").then_some(body)
}

/// Maximum size of a response, in bytes.
const MAX_ANSWER: usize = 256 << 10;
/// Time limit for connecting, and for a request together with its response.
const CONNECT_TIME: Duration = Duration::from_secs(5);
const REQUEST_TIME: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;
    use trunkline_core::text::error_chain;

    #[tokio::test]
    async fn a_url_that_others_can_listen_to_is_not_asked() {
        for url in ["http://192.0.2.1/token?secret=x", "ftp://127.0.0.1/", "file:///etc/passwd"] {
            let url: Url = url.parse().unwrap();
            let (method, headers, body) = (Method::GET, HeaderMap::new(), Bytes::new());
            let request = OutboundRequest { method, url: &url, headers, body };
            let fault = OutboundClient::default().send(request).await.unwrap_err();
            let text = fault.to_string();
            assert!(matches!(fault, OutboundFault::Unsafe { .. }), "{text}");
            assert!(!text.contains("secret"), "{text}");
        }
    }

    #[tokio::test]
    async fn names_with_addresses_of_this_machine_are_not_requested() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url: Url = format!("http://localhost:{port}/token?secret=x").parse().unwrap();
        let elsewhere: Url = "https://mcp.example/mcp".parse().unwrap();
        for (configured, is_asked) in [(&elsewhere, false), (&url, true)] {
            let (method, headers, body) = (Method::GET, HeaderMap::new(), Bytes::new());
            let request = OutboundRequest { method, url: &url, headers, body };
            let client = OutboundClient::new(None, [configured], &[], Remedy::AllowAddress);
            tokio::select! {
                biased;
                fault = client.send(request) => {
                    let text = error_chain(&fault.unwrap_err());
                    assert!(!is_asked && text.contains("has the loopback address"), "{text}");
                    assert!(!text.contains("secret"), "{text}");
                }
                _ = listener.accept() => assert!(is_asked),
            }
        }
    }
}
