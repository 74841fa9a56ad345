//! Requests prepared as bytes: what changes from one to the next is a number of
//! ten digits, and on a session its id.

use http::HeaderValue;
use memchr::memmem;
use serde_json::{Map, Value, json};

use super::target::Target;
use crate::catalog::{ParamHeader, headers_for};
use crate::mcp::{Era, ProtocolVersion, encode_value, header, meta, notification};

/// A request that can be sent again and again.
#[derive(Debug, Clone)]
pub struct Request {
    /// All lines of the head but the session's and the empty one.
    head: String,
    body: Vec<u8>,
    /// Where in the body the number stands: as the id, and wherever the
    /// arguments ask for it.
    places: Vec<usize>,
}

impl Request {
    /// Writes the request as number `number`, with the lines of a session.
    pub fn write(&self, out: &mut Vec<u8>, number: u64, session: &str) {
        out.clear();
        out.extend_from_slice(self.head.as_bytes());
        out.extend_from_slice(session.as_bytes());
        out.extend_from_slice(b"\r\n");
        let begin = out.len();
        out.extend_from_slice(&self.body);
        let digits = Digits::of(number);
        for place in &self.places {
            let at = begin + place;
            if let Some(into) = out.get_mut(at..at + DIGITS) {
                into.copy_from_slice(&digits.0);
            }
        }
    }

    /// How many bytes its body has.
    pub fn body_len(&self) -> usize {
        self.body.len()
    }
}

/// A number of ten digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Digits(pub [u8; DIGITS]);

impl Digits {
    /// Those of `FIRST` and above.
    pub fn of(mut number: u64) -> Self {
        let mut digits = [b'0'; DIGITS];
        for digit in digits.iter_mut().rev() {
            *digit = b'0' + u8::try_from(number % 10).unwrap_or(0);
            number /= 10;
        }
        Self(digits)
    }
}

/// Writes requests to a server, in its version.
#[derive(Clone)]
pub struct Writer {
    /// The server.
    pub target: Target,
    /// The version agreed with it; the newest of its era before that.
    pub version: ProtocolVersion,
}

impl Writer {
    /// Modern: who are you?
    pub fn discover(&self) -> Request {
        self.request("server/discover", json!({}), "")
    }

    /// Legacy: a session, please.
    pub fn initialize(&self) -> Request {
        let params = json!({
            "protocolVersion": self.version.as_str(),
            "capabilities": {},
            "clientInfo": own_info(),
        });
        // The version header comes with what was agreed.
        let message = message("initialize", &params, Some(FIRST));
        self.post("", &message.to_string())
    }

    /// Legacy: the session has begun.
    pub fn initialized(&self) -> Request {
        let message = json!({ "jsonrpc": "2.0", "method": notification::INITIALIZED });
        self.post(&self.version_line(), &message.to_string())
    }

    /// Legacy: the session is over.
    pub fn delete(&self) -> Request {
        let head = format!("{}{}", self.target.head("DELETE"), self.version_line());
        Request { head, body: Vec::new(), places: Vec::new() }
    }

    /// A page of the list of tools: the first, or the one behind a cursor.
    pub fn list(&self, cursor: Option<&str>) -> Request {
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({ "cursor": cursor }));
        self.request("tools/list", params, "")
    }

    /// A call. `arguments` is raw JSON, in which the string `"{{n}}"` stands
    /// for the request's number.
    pub fn call(&self, tool: &str, arguments: &str, mirrored: &[ParamHeader]) -> Request {
        let params = json!({ "name": tool, "arguments": Value::Null });
        let mut lines = String::new();
        if self.version.era() == Era::Modern {
            let line = |name: &str, value: &HeaderValue| {
                format!("{name}: {}\r\n", value.to_str().unwrap_or_default())
            };
            lines.push_str(&line(header::NAME.as_str(), &encode_value(tool)));
            for (name, value) in headers_for(mirrored, Some(arguments.as_bytes())) {
                lines.push_str(&line(name.as_str(), &value));
            }
        }
        // The raw arguments go in behind: big numbers and the order of keys stay as given.
        let message = self.message("tools/call", params);
        let whole = message.replacen(EMPTY, &format!("\"arguments\":{arguments}"), 1);
        self.post(&self.lines("tools/call", &lines), &whole)
    }

    fn request(&self, method: &str, params: Value, lines: &str) -> Request {
        let message = self.message(method, params);
        self.post(&self.lines(method, lines), &message)
    }

    fn message(&self, method: &str, mut params: Value) -> String {
        if self.version.era() == Era::Modern
            && let Some(params) = params.as_object_mut()
        {
            params.insert(meta::META.into(), Value::Object(self.meta()));
        }
        message(method, &params, Some(FIRST)).to_string()
    }

    fn meta(&self) -> Map<String, Value> {
        let mut all = Map::new();
        all.insert(meta::PROTOCOL_VERSION.into(), self.version.as_str().into());
        all.insert(meta::CLIENT_INFO.into(), own_info());
        all.insert(meta::CLIENT_CAPABILITIES.into(), json!({}));
        all
    }

    fn lines(&self, method: &str, more: &str) -> String {
        let version = self.version_line();
        match self.version.era() {
            Era::Legacy => version,
            Era::Modern => format!("{version}{}: {method}\r\n{more}", header::METHOD),
        }
    }

    fn version_line(&self) -> String {
        format!("{}: {}\r\n", header::PROTOCOL_VERSION, self.version)
    }

    fn post(&self, lines: &str, body: &str) -> Request {
        let body = body.replace(NUMBER, &FIRST.to_string()).into_bytes();
        let head = format!(
            "{}accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
             {lines}content-length: {}\r\n",
            self.target.head("POST"),
            body.len()
        );
        let places = memmem::find_iter(&body, &Digits::of(FIRST).0).collect();
        Request { head, body, places }
    }
}

/// The lines that a session adds to each request.
pub fn session_lines(id: Option<&str>) -> String {
    id.map_or_else(String::new, |id| format!("{}: {id}\r\n", header::SESSION_ID))
}

fn message(method: &str, params: &Value, id: Option<u64>) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

fn own_info() -> Value {
    json!({ "name": "trunkline-bench", "version": env!("CARGO_PKG_VERSION") })
}

/// The first number. All have as many digits, and fit into 32 bits.
pub const FIRST: u64 = 1_000_000_000;
/// How many digits a number has.
pub const DIGITS: usize = 10;
/// What stands for the number in arguments.
const NUMBER: &str = "\"{{n}}\"";
const EMPTY: &str = "\"arguments\":null";

#[cfg(test)]
mod tests {
    use super::*;
    use url::Url;

    async fn writer(version: ProtocolVersion) -> Writer {
        let url = Url::parse("http://127.0.0.1:1/mcp").unwrap();
        Writer { target: Target::new(&url, &[], None).await.unwrap(), version }
    }

    fn text(request: &Request, number: u64, session: Option<&str>) -> (String, Value) {
        let mut out = Vec::new();
        request.write(&mut out, number, &session_lines(session));
        let text = String::from_utf8(out).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = format!("content-length: {}", body.len());
        assert!(head.contains(&length), "{length} in {head}");
        (head.to_owned(), serde_json::from_str(body).unwrap())
    }

    #[tokio::test]
    async fn a_modern_call_says_in_headers_what_its_body_says() {
        let writer = writer(ProtocolVersion::LATEST_MODERN).await;
        let request = writer.call("search", r#"{"n":"{{n}}","x":1e400}"#, &[]);
        let mut out = Vec::new();
        request.write(&mut out, FIRST + 7, "");
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains(r#""arguments":{"n":1000000007,"x":1e400}"#), "{text}");
        assert!(text.contains(r#""id":1000000007"#), "{text}");
        for line in ["mcp-method: tools/call\r\n", "mcp-name: search\r\n"] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }

    #[tokio::test]
    async fn a_legacy_call_carries_its_session() {
        let writer = writer(ProtocolVersion::LATEST_LEGACY).await;
        let (head, body) = text(&writer.call("search", "{}", &[]), FIRST, Some("s1"));
        assert!(head.contains("mcp-session-id: s1") && !head.contains("mcp-method"), "{head}");
        assert_eq!(body["params"], json!({ "name": "search", "arguments": {} }));
        let (head, body) = text(&writer.initialize(), FIRST, None);
        assert!(!head.contains("mcp-protocol-version"), "{head}");
        assert_eq!(body["params"]["protocolVersion"], "2025-11-25");
    }
}
