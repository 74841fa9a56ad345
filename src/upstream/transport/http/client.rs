//! The HTTP client of one server: its pool, its TLS roots, its fixed headers.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use crate::codec::file::{MAX_PEM, read_file};
use crate::config::HttpConfig;
use crate::mcp::MediaType;
use crate::telemetry::https::{NO_ENCODING, OWN_USER_AGENT};
use crate::text::{clip, hide_password};
use crate::upstream::{SetupFault, UpstreamError};

use super::authorized::RequestCredentials;
use super::aws::AwsSigner;
use super::body::ResponseBody;
use super::headers::{RequestHeaders, SignableRequest};
use super::pool::{ConnectionPool, RequestTarget, TransportError};
use super::resolver::{AddressRule, HostResolver};

/// Sends requests to one server.
pub struct HttpClient {
    pool: ConnectionPool,
    target: RequestTarget,
    /// The fixed headers of POST requests and of all others: those in the configuration, and those
    /// that the transport requires.
    posts: HeaderMap,
    others: HeaderMap,
    see_other: SeeOther,
    /// Authenticates requests in addition to the fixed headers. `None` for most servers.
    authority: Option<RequestAuthority>,
}

/// Authentication of the requests to a server.
enum RequestAuthority {
    Oauth(RequestCredentials),
    Aws(AwsSigner),
}

/// Meaning of `303 See Other` in response to a request that changes something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SeeOther {
    /// A fault: an MCP server responds at the requested URL.
    Refused,
    /// The response is at the other URL (RFC 9110, 15.4.4).
    Fetched,
}

/// Response extension with the URL to which the request was redirected.
#[derive(Debug, Clone)]
pub(crate) struct RedirectedTo(pub(crate) Uri);

impl HttpClient {
    /// Creates a client as configured. Reads the platform's root certificates
    /// and the configured ones, and blocks for as long as that takes.
    ///
    /// # Errors
    /// [`UpstreamError::Setup`] if a setting cannot be used.
    pub fn new(config: &HttpConfig, connect_timeout: Duration) -> Result<Self, UpstreamError> {
        let mut client = Self::plain(config, connect_timeout)?;
        client.posts.entry(ACCEPT).or_insert(MediaType::JSON_OR_EVENTS);
        client.posts.entry(CONTENT_TYPE).or_insert(MediaType::JSON);
        client.see_other = SeeOther::Refused;
        Ok(client)
    }

    /// Like [`new`](Self::new), for a server that does not speak MCP: only the configured headers
    /// are fixed, and `303 See Other` is followed.
    ///
    /// # Errors
    /// [`UpstreamError::Setup`] if a setting cannot be used.
    pub fn plain(config: &HttpConfig, connect_timeout: Duration) -> Result<Self, UpstreamError> {
        Self::with_resolver(config, connect_timeout, HostResolver::new(None))
    }

    /// Like [`plain`](Self::plain), for a host that the configuration does not name. Connects only
    /// to those of its addresses that the rule permits. The rule does not apply to a URL with an
    /// address as its host.
    ///
    /// # Errors
    /// [`UpstreamError::Setup`] if a setting cannot be used.
    pub(in crate::upstream) fn guarded(
        config: &HttpConfig,
        connect_timeout: Duration,
        rule: Arc<dyn AddressRule>,
    ) -> Result<Self, UpstreamError> {
        Self::with_resolver(config, connect_timeout, HostResolver::new(Some(rule)))
    }

    /// Closes the idle connections. Call this when a response has the id of another request: the
    /// server's responses no longer match the order of the requests.
    pub(super) fn close_idle_connections(&self) {
        self.pool.idle.close_all();
    }

    fn with_resolver(
        config: &HttpConfig,
        connect_timeout: Duration,
        resolver: HostResolver,
    ) -> Result<Self, UpstreamError> {
        let target = config.url.as_str().parse().ok().and_then(RequestTarget::new);
        let target = target.ok_or(SetupFault::Url)?;
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // A change stream may be silent for hours: keep-alive detects a lost
        // peer.
        tcp.set_keepalive(Some(KEEP_ALIVE));
        // Shared by the addresses of a name, so that a dead one leaves time for the next.
        tcp.set_connect_timeout(Some(connect_timeout));
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(client_tls(config.ca.as_deref())?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let mut headers = HeaderMap::new();
        for (name, secret) in &config.headers {
            let mut value = HeaderValue::from_str(secret.expose())
                .map_err(|_| SetupFault::Header { name: name.clone() })?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        let others = headers.clone();
        let pool = ConnectionPool::new(tls, connect_timeout);
        let see_other = SeeOther::Fetched;
        let authority = config.aws.as_ref().map(|aws| RequestAuthority::Aws(AwsSigner::new(aws)));
        Ok(Self { pool, target, posts: headers, others, see_other, authority })
    }

    /// Sends tokens with the requests.
    #[must_use]
    pub(in crate::upstream) fn with_credentials(self, credentials: RequestCredentials) -> Self {
        Self { authority: Some(RequestAuthority::Oauth(credentials)), ..self }
    }

    /// Posts one JSON-RPC message.
    pub(super) fn post(
        &self,
        headers: &impl RequestHeaders,
        body: Bytes,
    ) -> impl Future<Output = Result<Response<ResponseBody>, UpstreamError>> {
        self.send_to(&self.target, &Method::POST, headers, body)
    }

    /// Like [`post`](Self::post), for a message that may be sent twice. If a kept connection is
    /// lost before the response, the message is sent once more on a new one: the server may have
    /// closed the connection while it was idle.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub(super) async fn post_repeatable(
        &self,
        headers: &impl RequestHeaders,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        match self.post(headers, body.clone()).await {
            Err(fault) if is_kept_connection_lost(&fault) => {
                tracing::debug!(
                    fault = fault.chain(),
                    "a kept connection was lost, the request is repeated"
                );
                self.close_idle_connections();
                // Boxed to keep the usual request small: this is rare.
                Box::pin(self.post(headers, body)).await
            }
            response => response,
        }
    }

    /// Sends a request and follows at most [`REDIRECTS`] redirects within the
    /// server's own origin. A redirect elsewhere would send credentials and
    /// arguments to a place that the configuration does not name.
    ///
    /// # Errors
    /// [`UpstreamError`] if there is no response, or for a redirect that is not
    /// followed.
    pub fn send(
        &self,
        method: &Method,
        headers: &HeaderMap,
        body: Bytes,
    ) -> impl Future<Output = Result<Response<ResponseBody>, UpstreamError>> {
        self.send_to(&self.target, method, headers, body)
    }

    /// Like [`send`](Self::send), to another path of the server's origin. There is no way to name
    /// another host.
    pub(in crate::upstream::transport) async fn send_to_path(
        &self,
        path: &PathAndQuery,
        (method, headers): (&Method, &impl RequestHeaders),
        body: Bytes,
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let target = self.target.with_path(path.clone()).ok_or(SetupFault::Url)?;
        self.send_to(&target, method, headers, body).await
    }

    /// Like [`send`](Self::send), to another URL of the server's origin.
    pub(super) fn send_to(
        &self,
        target: &RequestTarget,
        method: &Method,
        headers: &impl RequestHeaders,
        body: Bytes,
    ) -> impl Future<Output = Result<Response<ResponseBody>, UpstreamError>> {
        match &self.authority {
            None => Either::Left(self.send_once(target, method, headers, body)),
            // Boxed to keep the request of most servers small.
            Some(authority) => {
                let message = (method, headers, body);
                Either::Right(Box::pin(async move {
                    match authority {
                        RequestAuthority::Oauth(credentials) => {
                            self.send_authorized(credentials, target, message).await
                        }
                        RequestAuthority::Aws(signer) => {
                            self.send_signed(signer, target, message).await
                        }
                    }
                }))
            }
        }
    }

    /// Sends a request with its headers as they are, and follows redirects.
    pub(super) fn send_once(
        &self,
        target: &RequestTarget,
        method: &Method,
        headers: &impl RequestHeaders,
        body: Bytes,
    ) -> impl Future<Output = Result<Response<ResponseBody>, UpstreamError>> {
        let sending = self.pool.send(target, self.request(method, headers, body.clone()));
        async move {
            let response = sending.await?;
            if !is_redirect(response.status()) {
                return Ok(response);
            }
            // Boxed to keep the usual request small: redirects are rare.
            Box::pin(self.follow(target, response, (method, headers, body))).await
        }
    }

    /// Like [`send_once`](Self::send_once), with a signature of the whole request.
    pub(super) async fn send_once_signed(
        &self,
        target: &RequestTarget,
        (method, headers, body): (&Method, &impl RequestHeaders, Bytes),
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let request = self.signed_request(target, (method, headers), &body)?;
        let response = self.pool.send(target, request).await?;
        if is_redirect(response.status()) {
            return self.follow(target, response, (method, headers, body)).await;
        }
        Ok(response)
    }

    async fn follow(
        &self,
        from: &RequestTarget,
        mut response: Response<ResponseBody>,
        (method, headers, mut body): (&Method, &impl RequestHeaders, Bytes),
    ) -> Result<Response<ResponseBody>, UpstreamError> {
        let (mut target, mut method) = (from.clone(), method.clone());
        for _ in 0..REDIRECTS {
            let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let location = location.unwrap_or_default();
            let next = self.redirected_method(response.status(), &method);
            let next = next.ok_or_else(|| refused_redirect(location))?;
            target = same_origin_as(&target.uri, location)?;
            if next != method {
                (method, body) = (next, Bytes::new());
            }
            let request = self.signed_request(&target, (&method, headers), &body)?;
            response = self.pool.send(&target, request).await?;
            if !is_redirect(response.status()) {
                response.extensions_mut().insert(RedirectedTo(target.uri));
                return Ok(response);
            }
        }
        Err(UpstreamError::Redirect { to: target.uri.path().to_owned() })
    }

    /// Returns the method of the request that follows a redirect, or `None` if the redirect is
    /// refused.
    fn redirected_method(&self, status: StatusCode, method: &Method) -> Option<Method> {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        match status {
            StatusCode::TEMPORARY_REDIRECT | StatusCode::PERMANENT_REDIRECT => Some(method.clone()),
            // Clients may follow these by GET, whatever the method was (RFC 9110, 15.4).
            StatusCode::MOVED_PERMANENTLY | StatusCode::FOUND | StatusCode::SEE_OTHER
                if is_read =>
            {
                Some(method.clone())
            }
            StatusCode::SEE_OTHER if self.see_other == SeeOther::Fetched => Some(Method::GET),
            _ => None,
        }
    }

    /// Builds a request from its own headers and the fixed ones. The fixed headers prevail.
    fn request(
        &self,
        method: &Method,
        headers: &impl RequestHeaders,
        body: Bytes,
    ) -> Request<Full<Bytes>> {
        let fixed = if *method == Method::POST { &self.posts } else { &self.others };
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method.clone();
        let all = request.headers_mut();
        all.reserve(fixed.len() + USUAL_HEADERS);
        // Inserted first, so that headers of the configuration and of the client replace them.
        all.insert(USER_AGENT, OWN_USER_AGENT);
        all.insert(ACCEPT_ENCODING, NO_ENCODING);
        headers.add_to(all);
        for (name, value) in fixed {
            all.insert(name.clone(), value.clone());
        }
        request
    }

    /// Like [`request`](Self::request), with a signature of the whole request.
    fn signed_request(
        &self,
        target: &RequestTarget,
        (method, headers): (&Method, &impl RequestHeaders),
        body: &Bytes,
    ) -> Result<Request<Full<Bytes>>, UpstreamError> {
        let mut request = self.request(method, headers, body.clone());
        let RequestTarget { uri, host, .. } = target;
        let signable = SignableRequest { method, uri, host, body };
        headers.sign(&signable, request.headers_mut())?;
        Ok(request)
    }

    /// Returns the server's URL.
    pub(super) fn uri(&self) -> &Uri {
        &self.target.uri
    }
}

/// Returns true if a request failed because its kept connection was lost.
pub(super) fn is_kept_connection_lost(fault: &UpstreamError) -> bool {
    let UpstreamError::Broken(error) = fault else { return false };
    matches!(error.downcast_ref(), Some(TransportError::Kept(_)))
}

fn refused_redirect(to: &str) -> UpstreamError {
    UpstreamError::Redirect { to: clip(&hide_password(to), 200).to_owned() }
}

/// Returns true if a response redirects to another URL. `304 Not Modified` is in the same class,
/// but names none.
fn is_redirect(status: StatusCode) -> bool {
    status.is_redirection() && status != StatusCode::NOT_MODIFIED
}

/// Resolves a reference relative to `from`. Refuses one to another origin.
pub(super) fn same_origin_as(from: &Uri, to: &str) -> Result<RequestTarget, UpstreamError> {
    let refused = || refused_redirect(to);
    let base = url::Url::parse(&from.to_string()).map_err(|_| refused())?;
    let target = base.join(to.trim()).map_err(|_| refused())?;
    if target.origin() != base.origin() {
        return Err(refused());
    }
    target.as_str().parse().ok().and_then(RequestTarget::new).ok_or_else(refused)
}

/// Returns the TLS configuration for servers: the platform's root certificates, and those of a
/// file.
///
/// # Errors
/// [`UpstreamError::Setup`] if the file cannot be used.
pub fn client_tls(ca: Option<&Path>) -> Result<ClientConfig, UpstreamError> {
    // Most servers use only the platform's roots and share this configuration.
    static USUAL: OnceLock<ClientConfig> = OnceLock::new();
    match (ca, USUAL.get()) {
        (None, Some(usual)) => Ok(usual.clone()),
        (None, None) => {
            let usual = trusting(platform_roots().clone())?;
            Ok(USUAL.get_or_init(|| usual).clone())
        }
        (Some(path), _) => trusting(with_roots_of(path)?),
    }
}

fn with_roots_of(path: &Path) -> Result<RootCertStore, UpstreamError> {
    let unusable =
        |source: Arc<dyn Error + Send + Sync>| SetupFault::Ca { path: path.into(), source };
    let text = read_file(path, MAX_PEM).map_err(|error| unusable(Arc::new(error)))?;
    let mut roots = platform_roots().clone();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unusable(Arc::new(error)))?;
        roots.add(certificate).map_err(|error| unusable(Arc::new(error)))?;
    }
    Ok(roots)
}

fn trusting(roots: RootCertStore) -> Result<ClientConfig, UpstreamError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(SetupFault::Tls)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the platform's root certificates, read once.
fn platform_roots() -> &'static RootCertStore {
    static ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(%error, "some of the platform's root certificates cannot be read");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        roots
    })
}

/// Number of headers in a usual call besides the fixed ones, including `Host`, `Content-Length` and
/// the gateway's own. The request's map is created with room for them.
const USUAL_HEADERS: usize = 8;
/// Maximum number of redirects per request.
const REDIRECTS: usize = 3;
/// Interval of TCP keep-alive probes on a silent connection.
const KEEP_ALIVE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_that_is_refused_does_not_tell_a_password() {
        let from = "http://127.0.0.1/mcp".parse().unwrap();
        let to = "http://user:hunter2@example.com/";
        for refused in [same_origin_as(&from, to).err().unwrap(), refused_redirect(to)] {
            let refused = refused.to_string();
            assert!(refused.contains("http://***@example.com/"), "{refused}");
        }
    }

    #[test]
    fn a_redirect_is_followed_only_within_its_origin() {
        let from: Uri = "http://a.test:80/mcp".parse().unwrap();
        for (to, followed) in [
            ("/mcp/", Some("http://a.test/mcp/")),
            ("http://a.test/x", Some("http://a.test/x")),
            ("//b.test/mcp", None),
            ("https://a.test/mcp", None),
            ("http://a.test:81/mcp", None),
        ] {
            let uri = same_origin_as(&from, to).ok().map(|target| target.uri.to_string());
            assert_eq!(uri.as_deref(), followed, "{to}");
        }
    }

    #[test]
    fn a_redirect_keeps_the_method_or_reads_from_a_plain_server() {
        let url = "http://127.0.0.1/".parse().unwrap();
        let (headers, ca, transport) = (Vec::new(), None, crate::config::HttpTransport::Streamable);
        let config = HttpConfig { url, headers, ca, transport, oauth: None, aws: None };
        let mcp = HttpClient::new(&config, KEEP_ALIVE).unwrap();
        let plain = HttpClient::plain(&config, KEEP_ALIVE).unwrap();
        let (get, head, post) = (Some(Method::GET), Some(Method::HEAD), Some(Method::POST));
        for (status, method, of_mcp, of_plain) in [
            (307, Method::POST, &post, &post),
            (308, Method::POST, &post, &post),
            (302, Method::POST, &None, &None),
            (302, Method::GET, &get, &get),
            (301, Method::HEAD, &head, &head),
            (303, Method::POST, &None, &get),
            (303, Method::DELETE, &None, &get),
            (303, Method::HEAD, &head, &head),
            (300, Method::GET, &None, &None),
        ] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(mcp.redirected_method(status, &method), *of_mcp, "{status} {method}");
            assert_eq!(plain.redirected_method(status, &method), *of_plain, "{status} {method}");
        }
    }
}
