//! Cross-origin requests (CORS): headers that let a page's browser read the responses.
//!
//! Only pages that the guard admits get this far. Each gets exactly its own origin back, never `*`;
//! cookies play no part here, so `Access-Control-Allow-Credentials` is never sent.

use std::convert::Infallible;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderMap, HeaderName, Method, Request, Response, header};
use tower::{Layer, Service};
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use super::edge::EdgeFuture;
use crate::mcp;

/// Applies CORS to requests that a page sent. Other requests pass unchanged, and their responses
/// carry no CORS header.
#[derive(Clone)]
pub(super) struct CorsForPages<S> {
    inner: S,
}

impl<S> CorsForPages<S> {
    pub(super) fn new(inner: S) -> Self {
        Self { inner }
    }
}

impl<S, B, R> Service<Request<B>> for CorsForPages<S>
where
    S: Service<Request<B>, Response = Response<R>, Error = Infallible, Future = EdgeFuture<R>>
        + Clone,
    R: Default + Send + 'static,
{
    type Response = Response<R>;
    type Error = Infallible;
    type Future = EdgeFuture<R>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.headers().contains_key(header::ORIGIN) {
            let mut with_cors = cors_layer(request.headers()).layer(self.inner.clone());
            Box::pin(with_cors.call(request))
        } else {
            self.inner.call(request)
        }
    }
}

fn cors_layer(request: &HeaderMap) -> CorsLayer {
    CorsLayer::new()
        .allow_origin(AllowOrigin::mirror_request())
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::list(allowed_headers(request)))
        .expose_headers([mcp::header::SESSION_ID, header::WWW_AUTHENTICATE, header::RETRY_AFTER])
        // Long enough to spare a page a preflight per call, short enough to notice a reload.
        .max_age(Duration::from_mins(10))
        .allow_private_network(true)
}

/// Returns the fixed list, and the parameter headers that a preflight requests: a tool's schema
/// names them (MCP 2026-07-28, "Custom Headers from Tool Parameters"), so they cannot be listed in
/// advance.
fn allowed_headers(request: &HeaderMap) -> Vec<HeaderName> {
    let requested = request.get_all(header::ACCESS_CONTROL_REQUEST_HEADERS).iter();
    let names = requested.filter_map(|value| value.to_str().ok()).flat_map(|it| it.split(','));
    let names = names.filter_map(|name| name.trim().parse::<HeaderName>().ok());
    let parameters = names.filter(|name| name.as_str().starts_with(mcp::header::PARAM_PREFIX));
    ALLOWED_HEADERS.into_iter().chain(parameters).collect()
}

const ALLOWED_HEADERS: [HeaderName; 11] = [
    header::CONTENT_TYPE,
    header::ACCEPT,
    header::AUTHORIZATION,
    crate::identity::API_KEY,
    mcp::header::SESSION_ID,
    mcp::header::PROTOCOL_VERSION,
    mcp::header::METHOD,
    mcp::header::NAME,
    mcp::header::LAST_EVENT_ID,
    mcp::header::TRACEPARENT,
    mcp::header::TRACESTATE,
];

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn parameter_headers_are_allowed_as_asked_and_others_are_not() {
        let mut request = HeaderMap::new();
        let names = HeaderValue::from_static("content-type, Mcp-Param-Region,x-evil, mcp-para");
        request.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, names);
        let allowed = allowed_headers(&request);
        assert_eq!(allowed[..ALLOWED_HEADERS.len()], ALLOWED_HEADERS);
        assert_eq!(allowed[ALLOWED_HEADERS.len()..], ["mcp-param-region"]);
    }
}
