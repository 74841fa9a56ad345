//! What a browser needs to hear before it lets a trusted page read our answers.
//!
//! Only pages that the guard trusts get these headers, and they get exactly
//! their own origin back, never `*`. Cookies play no part here, so
//! `Access-Control-Allow-Credentials` is never sent.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;

use crate::wire::{Headers, Received, visible};

/// Whether this is the question a browser asks ahead of a request (Fetch, "CORS-preflight").
pub(super) fn is_preflight<B>(request: &Received<B>) -> bool {
    request.method == Method::OPTIONS
        && request.headers.contains(&header::ORIGIN)
        && request.headers.contains(&header::ACCESS_CONTROL_REQUEST_METHOD)
}

/// The answer to a preflight from a trusted page. [`mark`] adds the rest.
pub(super) fn preflight(asked: &Headers) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::default());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
    headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allowed_headers(asked));
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static(MAX_AGE));
    if asked.contains(&REQUEST_PRIVATE_NETWORK) {
        headers.insert(ALLOW_PRIVATE_NETWORK, HeaderValue::from_static("true"));
    }
    response
}

/// Lets the page at `origin` read this response.
pub(super) fn mark(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED));
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
}

/// The fixed list, and whatever parameter headers the page asked for: MCP 2026-07-28 lets a
/// tool's schema name them, so they cannot be listed beforehand.
fn allowed_headers(asked: &Headers) -> HeaderValue {
    let asked = asked.get_all(&header::ACCESS_CONTROL_REQUEST_HEADERS);
    let mut list = ALLOWED.to_owned();
    for name in asked.filter_map(visible).flat_map(|it| it.split(',')) {
        let name = name.trim();
        let parameter = name.get(..PARAMETER.len());
        if parameter.is_some_and(|start| start.eq_ignore_ascii_case(PARAMETER)) {
            list.push_str(", ");
            list.push_str(name);
        }
    }
    HeaderValue::try_from(list).unwrap_or(HeaderValue::from_static(ALLOWED))
}

const METHODS: &str = "GET, POST, DELETE";
const ALLOWED: &str = "content-type, accept, authorization, x-api-key, mcp-session-id, \
    mcp-protocol-version, mcp-method, mcp-name, last-event-id, traceparent, tracestate";
const EXPOSED: &str = "Mcp-Session-Id, WWW-Authenticate, Retry-After";
const PARAMETER: &str = "mcp-param-";
/// Seconds; long enough to spare a page a question per call, short enough for a reload.
const MAX_AGE: &str = "600";

/// Private Network Access: a public page asks before it calls a private address.
const REQUEST_PRIVATE_NETWORK: HeaderName =
    HeaderName::from_static("access-control-request-private-network");
const ALLOW_PRIVATE_NETWORK: &str = "access-control-allow-private-network";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameter_headers_are_allowed_as_asked_and_others_are_not() {
        let mut asked = HeaderMap::new();
        let names = HeaderValue::from_static("content-type, Mcp-Param-Region,x-evil, mcp-para");
        asked.insert(header::ACCESS_CONTROL_REQUEST_HEADERS, names);
        let answer = preflight(&Headers::from(&asked));
        let allowed = answer.headers()[header::ACCESS_CONTROL_ALLOW_HEADERS].to_str().unwrap();
        assert_eq!(allowed, format!("{ALLOWED}, Mcp-Param-Region"));
        assert!(!answer.headers().contains_key(ALLOW_PRIVATE_NETWORK));
    }

    #[test]
    fn a_plain_options_request_is_no_preflight() {
        let plain = http::Request::options("/").header("origin", "http://localhost");
        assert!(!is_preflight(&plain.body(()).unwrap().into()));
    }
}
