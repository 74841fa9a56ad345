//! The HTTP client of one server: its pool, its TLS roots, its fixed headers.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::Either;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, LOCATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Uri};
use http_body_util::Full;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;

use trunkline_config::HttpConfig;
use trunkline_https::{NO_ENCODING, OWN_USER_AGENT, client_tls};
use trunkline_protocol::mcp::MediaType;

use crate::aws::AwsSigner;
use crate::body::ResponseBody;
use crate::error::{HttpError, HttpSetupFault};
use crate::pool::ConnectionPool;
use crate::request::{OutgoingRequest, RequestHeaders, RequestSigner, SignableRequest, Unsigned};
use crate::resolver::{AddressRule, HostResolver};
use crate::target::{RequestTarget, refused_redirect, same_origin_as};

/// Sends requests to one server.
pub struct HttpClient {
    pool: ConnectionPool,
    target: RequestTarget,
    /// The fixed headers of POST requests and of all others: those in the configuration, and those
    /// that the transport requires.
    posts: HeaderMap,
    others: HeaderMap,
    see_other: SeeOther,
    /// Signs requests for AWS. `None` for most servers.
    signer: Option<AwsSigner>,
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
pub struct RedirectedTo(pub Uri);

impl HttpClient {
    /// Creates a client as configured. Reads the platform's root certificates
    /// and the configured ones, and blocks for as long as that takes.
    ///
    /// # Errors
    /// [`HttpError::Setup`] if a setting cannot be used.
    pub fn new(config: &HttpConfig, connect_timeout: Duration) -> Result<Self, HttpError> {
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
    /// [`HttpError::Setup`] if a setting cannot be used.
    pub fn plain(config: &HttpConfig, connect_timeout: Duration) -> Result<Self, HttpError> {
        Self::with_resolver(config, connect_timeout, HostResolver::new(None))
    }

    /// Like [`plain`](Self::plain), for a host that the configuration does not name. Connects only
    /// to those of its addresses that the rule permits. The rule does not apply to a URL with an
    /// address as its host.
    ///
    /// # Errors
    /// [`HttpError::Setup`] if a setting cannot be used.
    pub(crate) fn guarded(
        config: &HttpConfig,
        connect_timeout: Duration,
        rule: Arc<dyn AddressRule>,
    ) -> Result<Self, HttpError> {
        Self::with_resolver(config, connect_timeout, HostResolver::new(Some(rule)))
    }

    /// Closes the idle connections. Call this when a response has the id of another request: the
    /// server's responses no longer match the order of the requests.
    pub fn close_idle_connections(&self) {
        self.pool.idle.close_all();
    }

    fn with_resolver(
        config: &HttpConfig,
        connect_timeout: Duration,
        resolver: HostResolver,
    ) -> Result<Self, HttpError> {
        let target = config.url.as_str().parse().ok().and_then(RequestTarget::new);
        let target = target.ok_or(HttpSetupFault::Url)?;
        let mut tcp = HttpConnector::new_with_resolver(resolver);
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        // A change stream may be silent for hours: keep-alive detects a lost
        // peer.
        tcp.set_keepalive(Some(KEEP_ALIVE));
        // Shared by the addresses of a name, so that a dead one leaves time for the next.
        tcp.set_connect_timeout(Some(connect_timeout));
        let tls = HttpsConnectorBuilder::new()
            .with_tls_config(client_tls(config.ca.as_deref()).map_err(HttpSetupFault::Tls)?)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector(tcp);
        let mut headers = HeaderMap::new();
        for (name, secret) in &config.headers {
            let mut value = HeaderValue::from_str(secret.expose())
                .map_err(|_| HttpSetupFault::Header { name: name.clone() })?;
            value.set_sensitive(true);
            headers.insert(name.clone(), value);
        }
        let others = headers.clone();
        let pool = ConnectionPool::new(tls, connect_timeout).with_ca(config.ca.clone());
        let see_other = SeeOther::Fetched;
        let signer = config.aws.as_ref().map(AwsSigner::new);
        Ok(Self { pool, target, posts: headers, others, see_other, signer })
    }

    /// Sends a request and follows at most [`MAX_REDIRECTS`] redirects within the
    /// server's own origin. A redirect elsewhere would send credentials and
    /// arguments to a place that the configuration does not name.
    ///
    /// # Errors
    /// [`HttpError`] if there is no response, or for a redirect that is not
    /// followed.
    pub fn send<'a>(
        &'a self,
        method: &'a Method,
        headers: &'a HeaderMap,
        body: Bytes,
    ) -> impl Future<Output = Result<Response<ResponseBody>, HttpError>> {
        self.send_to(OutgoingRequest { target: &self.target, method, headers, body })
    }

    /// Like [`send`](Self::send), to a target of the server's origin.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to(
        &self,
        request: OutgoingRequest<'_, impl RequestHeaders>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, HttpError>> {
        match &self.signer {
            None => Either::Left(self.send_unsigned(request)),
            // Boxed to keep the request of most servers small.
            Some(signer) => Either::Right(Box::pin(self.send_signed(request, signer))),
        }
    }

    fn send_unsigned(
        &self,
        request: OutgoingRequest<'_, impl RequestHeaders>,
    ) -> impl Future<Output = Result<Response<ResponseBody>, HttpError>> {
        let sending = self.pool.send(request.target, self.request(&request));
        async move {
            let response = sending.await?;
            if !is_redirect(response.status()) {
                return Ok(response);
            }
            // Boxed to keep the usual request small: redirects are rare.
            Box::pin(self.follow(response, request, &Unsigned)).await
        }
    }

    /// Like [`send_to`](Self::send_to), with headers of this signer instead of the configured
    /// signature. The request is signed again after each redirect.
    ///
    /// # Errors
    /// As [`send`](Self::send), and those of the signer.
    pub async fn send_signed<S: RequestSigner>(
        &self,
        request: OutgoingRequest<'_, impl RequestHeaders>,
        signer: &S,
    ) -> Result<Response<ResponseBody>, S::Error> {
        let message = self.signed_request(&request, signer)?;
        let response = self.pool.send(request.target, message).await.map_err(HttpError::from)?;
        if is_redirect(response.status()) {
            return self.follow(response, request, signer).await;
        }
        Ok(response)
    }

    async fn follow<S: RequestSigner>(
        &self,
        mut response: Response<ResponseBody>,
        request: OutgoingRequest<'_, impl RequestHeaders>,
        signer: &S,
    ) -> Result<Response<ResponseBody>, S::Error> {
        let OutgoingRequest { target, method, headers, mut body } = request;
        let (mut target, mut method) = (target.clone(), method.clone());
        for _ in 0..MAX_REDIRECTS {
            let location = response.headers().get(LOCATION).and_then(|to| to.to_str().ok());
            let location = location.unwrap_or_default();
            let next = self.redirected_method(response.status(), &method);
            let next = next.ok_or_else(|| refused_redirect(location))?;
            target = same_origin_as(&target.uri, location)?;
            if next != method {
                (method, body) = (next, Bytes::new());
            }
            let request =
                OutgoingRequest { target: &target, method: &method, headers, body: body.clone() };
            let request = self.signed_request(&request, signer)?;
            response = self.pool.send(&target, request).await.map_err(HttpError::from)?;
            if !is_redirect(response.status()) {
                response.extensions_mut().insert(RedirectedTo(target.uri));
                return Ok(response);
            }
        }
        Err(HttpError::Redirect { to: target.uri.path().to_owned() }.into())
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
    fn request(&self, request: &OutgoingRequest<'_, impl RequestHeaders>) -> Request<Full<Bytes>> {
        let OutgoingRequest { target, method, headers, body } = request;
        // The request carries the credentials of this client's server.
        debug_assert_eq!(target.uri.authority(), self.target.uri.authority(), "another server");
        let fixed = if **method == Method::POST { &self.posts } else { &self.others };
        let mut built = Request::new(Full::new(body.clone()));
        *built.method_mut() = (*method).clone();
        let all = built.headers_mut();
        all.reserve(fixed.len() + USUAL_HEADERS);
        // Inserted first, so that headers of the configuration and of the client replace them.
        all.insert(USER_AGENT, OWN_USER_AGENT);
        all.insert(ACCEPT_ENCODING, NO_ENCODING);
        headers.add_to(all);
        for (name, value) in fixed {
            all.insert(name.clone(), value.clone());
        }
        built
    }

    /// Like [`request`](Self::request), with a signature of the whole request.
    fn signed_request<S: RequestSigner>(
        &self,
        request: &OutgoingRequest<'_, impl RequestHeaders>,
        signer: &S,
    ) -> Result<Request<Full<Bytes>>, S::Error> {
        let mut built = self.request(request);
        let RequestTarget { uri, host, .. } = request.target;
        let OutgoingRequest { method, body, .. } = request;
        let signable = SignableRequest { method, uri, host, body };
        signer.sign(&signable, built.headers_mut())?;
        Ok(built)
    }

    /// Returns the target of requests to the server's URL.
    #[inline]
    pub fn target(&self) -> &RequestTarget {
        &self.target
    }

    /// Returns the target at another path of the server's origin.
    ///
    /// # Errors
    /// [`HttpError::Setup`] if no URL has the path.
    pub fn target_at(&self, path: &PathAndQuery) -> Result<RequestTarget, HttpError> {
        let target = self.target.with_path(path.clone());
        target.ok_or_else(|| HttpSetupFault::Url.into())
    }

    /// Resolves a reference relative to the server's URL.
    ///
    /// # Errors
    /// [`HttpError::Redirect`] if it leads to another origin.
    pub fn resolve(&self, reference: &str) -> Result<RequestTarget, HttpError> {
        same_origin_as(&self.target.uri, reference)
    }
}

/// Returns true if a response redirects to another URL. `304 Not Modified` is in the same class,
/// but names none.
#[inline]
fn is_redirect(status: StatusCode) -> bool {
    status.is_redirection() && status != StatusCode::NOT_MODIFIED
}

/// Number of headers in a usual call besides the fixed ones, including `Host`, `Content-Length` and
/// the gateway's own. The request's map is created with room for them.
const USUAL_HEADERS: usize = 8;
/// Maximum number of redirects per request.
const MAX_REDIRECTS: usize = 3;
/// Interval of TCP keep-alive probes on a silent connection.
const KEEP_ALIVE: Duration = Duration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_redirect_keeps_the_method_or_reads_from_a_plain_server() {
        let url = "http://127.0.0.1/".parse().unwrap();
        let (headers, ca, transport) =
            (Vec::new(), None, trunkline_config::HttpTransport::Streamable);
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
