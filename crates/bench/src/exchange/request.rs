//! Requests prepared before the run: only a number of ten digits and the session id differ between
//! them.

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};
use http_body_util::Full;
use memchr::memmem;
use serde_json::{Map, Value, json};

use trunkline_catalog::{ParamHeader, headers_for};
use trunkline_protocol::mcp::{
    Era, MediaType, ProtocolVersion, encode_value, header, meta, notification,
};

use super::target::BenchTarget;

/// A request that can be sent repeatedly.
#[derive(Debug, Clone)]
pub struct RequestTemplate {
    method: Method,
    path: Uri,
    /// All headers except the session's; hyper adds `Content-Length`.
    headers: HeaderMap,
    body: Vec<u8>,
    /// Positions of the number in the body: as the id, and at the placeholders of the arguments.
    places: Vec<usize>,
}

impl RequestTemplate {
    /// The request with this number, within a session if there is one.
    pub fn build(&self, number: u64, session: Option<&HeaderValue>) -> Request<Full<Bytes>> {
        let mut body = self.body.clone();
        let digits = Digits::of(number);
        for place in &self.places {
            if let Some(into) = body.get_mut(*place..place + NUMBER_DIGITS) {
                into.copy_from_slice(&digits.0);
            }
        }
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.path.clone();
        *request.headers_mut() = self.headers.clone();
        if let Some(session) = session {
            request.headers_mut().insert(header::SESSION_ID, session.clone());
        }
        request
    }

    /// The length of its body in bytes.
    pub fn body_len(&self) -> usize {
        self.body.len()
    }
}

/// A number of ten digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digits(pub [u8; NUMBER_DIGITS]);

impl Digits {
    /// The digits of `FIRST_NUMBER` plus this number.
    pub(crate) fn of(mut number: u64) -> Self {
        let mut digits = [b'0'; NUMBER_DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
        }
        Self(digits)
    }
}

/// Writes requests to a server, in the negotiated version.
#[derive(Clone)]
pub struct RequestWriter {
    /// The server.
    pub target: BenchTarget,
    /// The negotiated version; before that, the newest of its era.
    pub version: ProtocolVersion,
}

impl RequestWriter {
    /// Modern: requests the server's identity and capabilities.
    pub fn discover(&self) -> RequestTemplate {
        self.request("server/discover", json!({}))
    }

    /// Legacy: opens a session.
    pub fn initialize(&self) -> RequestTemplate {
        let params = json!({
            "protocolVersion": self.version.as_str(),
            "capabilities": {},
            "clientInfo": own_info(),
        });
        // The version header is only sent once a version is negotiated.
        let message = message("initialize", &params, Some(FIRST_NUMBER));
        self.post(HeaderMap::new(), &message.to_string())
    }

    /// Legacy: confirms the initialization.
    pub fn initialized(&self) -> RequestTemplate {
        let message = json!({ "jsonrpc": "2.0", "method": notification::INITIALIZED });
        self.post(self.version_header(), &message.to_string())
    }

    /// Legacy: ends the session.
    pub fn delete(&self) -> RequestTemplate {
        self.template(Method::DELETE, self.version_header(), Vec::new())
    }

    /// Requests a page of the list of tools: the first, or the one after a cursor.
    pub fn list(&self, cursor: Option<&str>) -> RequestTemplate {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        self.request("tools/list", params)
    }

    /// Calls a tool. `arguments` is raw JSON, in which the string `"{{n}}"` is the placeholder for
    /// the request's number.
    pub fn call(&self, tool: &str, arguments: &str, mirrored: &[ParamHeader]) -> RequestTemplate {
        let params = json!({ "name": tool, "arguments": Value::Null });
        let mut headers = self.method_headers("tools/call");
        if self.version.era() == Era::Modern {
            headers.insert(header::NAME, encode_value(tool));
            headers.extend(headers_for(mirrored, Some(arguments.as_bytes())));
        }
        // The raw arguments are inserted afterwards: large numbers and the order of keys stay
        // unchanged.
        let message = self.message("tools/call", params);
        let whole = message.replacen(NULL_ARGUMENTS, &format!("\"arguments\":{arguments}"), 1);
        self.post(headers, &whole)
    }

    fn request(&self, method: &'static str, params: Value) -> RequestTemplate {
        self.post(self.method_headers(method), &self.message(method, params))
    }

    fn message(&self, method: &str, mut params: Value) -> String {
        if self.version.era() == Era::Modern
            && let Some(params) = params.as_object_mut()
        {
            params.insert(meta::META.into(), Value::Object(self.meta()));
        }
        message(method, &params, Some(FIRST_NUMBER)).to_string()
    }

    fn meta(&self) -> Map<String, Value> {
        let mut all = Map::new();
        all.insert(meta::PROTOCOL_VERSION.into(), self.version.as_str().into());
        all.insert(meta::CLIENT_INFO.into(), own_info());
        all.insert(meta::CLIENT_CAPABILITIES.into(), json!({}));
        all
    }

    fn method_headers(&self, method: &'static str) -> HeaderMap {
        let mut headers = self.version_header();
        if self.version.era() == Era::Modern {
            headers.insert(header::METHOD, HeaderValue::from_static(method));
        }
        headers
    }

    fn version_header(&self) -> HeaderMap {
        let version = HeaderValue::from_static(self.version.as_str());
        HeaderMap::from_iter([(header::PROTOCOL_VERSION, version)])
    }

    fn post(&self, mut headers: HeaderMap, body: &str) -> RequestTemplate {
        headers.insert(ACCEPT, MediaType::JSON_OR_EVENTS);
        headers.insert(CONTENT_TYPE, MediaType::JSON);
        let body = body.replace(NUMBER_PLACEHOLDER, &FIRST_NUMBER.to_string());
        self.template(Method::POST, headers, body.into_bytes())
    }

    /// Headers from the command line replace the protocol's.
    fn template(&self, method: Method, mut headers: HeaderMap, body: Vec<u8>) -> RequestTemplate {
        headers.extend(self.target.headers.clone());
        let places = memmem::find_iter(&body, &Digits::of(FIRST_NUMBER).0).collect();
        RequestTemplate { method, path: self.target.path.clone(), headers, body, places }
    }
}

fn message(method: &str, params: &Value, id: Option<u64>) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn own_info() -> Value {
    json!({ "name": "trunkline-bench", "version": env!("CARGO_PKG_VERSION") })
}

/// The first number. All numbers have the same length, and fit into 32 bits.
pub(crate) const FIRST_NUMBER: u64 = 1_000_000_000;
/// The length of a number in digits.
pub(crate) const NUMBER_DIGITS: usize = 10;
/// The placeholder for the number in arguments.
const NUMBER_PLACEHOLDER: &str = "\"{{n}}\"";
const NULL_ARGUMENTS: &str = "\"arguments\":null";

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;
    use url::Url;

    use super::*;

    async fn writer(version: ProtocolVersion) -> RequestWriter {
        let url = Url::parse("http://127.0.0.1:1/mcp").unwrap();
        RequestWriter { target: BenchTarget::new(&url, &[], None).await.unwrap(), version }
    }

    #[expect(clippy::disallowed_methods, reason = "the request is our own")]
    async fn parts(request: Request<Full<Bytes>>) -> (HeaderMap, String) {
        let (head, body) = request.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        (head.headers, String::from_utf8(body.to_vec()).unwrap())
    }

    #[tokio::test]
    async fn the_headers_of_a_modern_call_match_its_body() {
        let writer = writer(ProtocolVersion::LATEST_MODERN).await;
        let request = writer.call("search", r#"{"n":"{{n}}","x":1e400}"#, &[]);
        let (headers, body) = parts(request.build(FIRST_NUMBER + 7, None)).await;
        assert!(body.contains(r#""arguments":{"n":1000000007,"x":1e400}"#), "{body}");
        assert!(body.contains(r#""id":1000000007"#), "{body}");
        assert_eq!(headers["mcp-method"], "tools/call");
        assert_eq!(headers["mcp-name"], "search");
    }

    #[tokio::test]
    async fn a_legacy_call_carries_its_session() {
        let writer = writer(ProtocolVersion::LATEST_LEGACY).await;
        let session = HeaderValue::from_static("s1");
        let call = writer.call("search", "{}", &[]).build(FIRST_NUMBER, Some(&session));
        let (headers, body) = parts(call).await;
        assert_eq!(headers["mcp-session-id"], "s1");
        assert!(!headers.contains_key("mcp-method"), "{headers:?}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["params"], json!({ "name": "search", "arguments": {} }));
        let (headers, body) = parts(writer.initialize().build(FIRST_NUMBER, None)).await;
        assert!(!headers.contains_key("mcp-protocol-version"), "{headers:?}");
        let body: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(body["params"]["protocolVersion"], "2025-11-25");
    }
}
