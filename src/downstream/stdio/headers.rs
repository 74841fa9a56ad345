//! HTTP headers derived from a line's message.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method as HttpMethod, Request};

use crate::call::Params;
use crate::mcp::{
    Era, MediaType, Method, ProtocolVersion, add_modern_headers, add_stream_headers, encode_value,
};

/// A request as parsed from its line.
#[derive(Debug)]
pub(super) struct PipedRequest {
    pub(super) method: Method,
    /// Invalid ones are left for the endpoint to refuse.
    pub(super) params: Option<Params>,
    /// The version in `_meta`.
    version: Option<String>,
}

impl PipedRequest {
    pub(super) fn new(method: &str, params: Option<Bytes>) -> Self {
        let params = Params::parse(params).ok();
        let meta = params.as_ref().and_then(|params| params.meta().ok());
        Self { method: Method::parse(method), params, version: meta.and_then(|meta| meta.version) }
    }

    /// Detects the era from the client's opening (2026-07-28, Versioning, "Backward
    /// Compatibility").
    pub(super) fn era(&self) -> Era {
        if self.version.is_some() || self.method.is_modern_only() {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    /// Returns the headers that mirror a Modern request (2026-07-28, Streamable HTTP, "Request
    /// Metadata").
    pub(super) fn mirrored(&self) -> HeaderMap {
        let mut headers = HeaderMap::with_capacity(8);
        let version = self.version.as_deref().unwrap_or(ProtocolVersion::LATEST_MODERN.as_str());
        let params = self.params.as_ref();
        let name = params.and_then(|params| match self.method.name_param()? {
            "uri" => params.uri(),
            "taskId" => params.task(),
            _ => params.name(),
        });
        let version = HeaderValue::from_str(version).ok();
        add_modern_headers(&mut headers, version, &self.method, name.map(encode_value));
        headers
    }
}

/// Builds a POST of one message.
pub(super) fn post(mut headers: HeaderMap, body: Bytes) -> Request<Bytes> {
    headers.insert(CONTENT_TYPE, MediaType::JSON);
    headers.insert(ACCEPT, MediaType::JSON_OR_EVENTS);
    request(HttpMethod::POST, headers, body)
}

/// Builds a GET of a stream, after this event if there is one.
pub(super) fn get(mut headers: HeaderMap, last_id: Option<HeaderValue>) -> Request<Bytes> {
    add_stream_headers(&mut headers, last_id);
    request(HttpMethod::GET, headers, Bytes::new())
}

/// Builds the request that ends a session.
pub(super) fn delete(headers: HeaderMap) -> Request<Bytes> {
    request(HttpMethod::DELETE, headers, Bytes::new())
}

fn request(method: HttpMethod, headers: HeaderMap, body: Bytes) -> Request<Bytes> {
    let mut request = Request::new(body);
    *request.method_mut() = method;
    *request.headers_mut() = headers;
    request
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mcp::header;

    fn asked(method: &str, params: &'static str) -> PipedRequest {
        PipedRequest::new(method, Some(Bytes::from_static(params.as_bytes())))
    }

    #[test]
    fn a_modern_request_is_mirrored_into_headers() {
        let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}"#;
        let call: &'static str = format!(r#"{{"name":"é",{meta}}}"#).leak();
        let call = asked("tools/call", call);
        assert_eq!(call.era(), Era::Modern);
        let headers = call.mirrored();
        assert_eq!(headers[header::PROTOCOL_VERSION], "2026-07-28");
        assert_eq!(headers[header::METHOD], "tools/call");
        assert_eq!(headers[header::NAME], "=?base64?w6k=?=");
        let list: &'static str = format!(r#"{{"name":"x",{meta}}}"#).leak();
        assert!(!asked("tools/list", list).mirrored().contains_key(header::NAME));
    }

    #[test]
    fn the_opening_tells_the_era() {
        for (method, params, era) in [
            ("initialize", "{}", Era::Legacy),
            ("tools/list", "{}", Era::Legacy),
            ("tools/list", "{\"_meta\":7}", Era::Legacy),
            ("server/discover", "{}", Era::Modern),
            ("subscriptions/listen", "[]", Era::Modern),
        ] {
            assert_eq!(asked(method, params).era(), era, "{method} {params}");
        }
    }
}
