//! A request, and how its head is written.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use http_body_util::Full;

/// A request to a server.
#[derive(Debug)]
pub struct Request<'a> {
    /// Its method.
    pub method: &'a Method,
    /// Its address, whole.
    pub uri: &'a Uri,
    /// What every request to this server carries. Wins over what `headers` has.
    pub fixed: &'a Fixed,
    /// What this one carries.
    pub headers: &'a OwnHeaders,
    /// What follows the head.
    pub body: Bytes,
}

/// The headers of one request: so few that none is found sooner by its hash.
#[derive(Debug, Clone, Default)]
pub struct OwnHeaders(Vec<(HeaderName, HeaderValue)>);

impl OwnHeaders {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// None yet, with room for so many.
    pub fn with_capacity(many: usize) -> Self {
        Self(Vec::with_capacity(many))
    }

    /// Puts a header in the place of the one of its name, or behind all others.
    pub fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        match self.0.iter_mut().find(|(other, _)| *other == name) {
            Some((_, other)) => *other = value,
            None => self.0.push((name, value)),
        }
    }

    /// Whether there is one of this name.
    pub fn has(&self, name: &HeaderName) -> bool {
        self.0.iter().any(|(other, _)| other == name)
    }
}

impl From<&HeaderMap> for OwnHeaders {
    fn from(map: &HeaderMap) -> Self {
        Self(map.iter().map(|(name, value)| (name.clone(), value.clone())).collect())
    }
}

/// Headers that stand in every request, written once.
#[derive(Debug, Default)]
pub struct Fixed {
    headers: HeaderMap,
    /// The same as lines of a head.
    lines: Vec<u8>,
}

impl Fixed {
    /// Prepares headers.
    pub fn new(headers: HeaderMap) -> Self {
        let mut lines = Vec::new();
        for (name, value) in &headers {
            line(&mut lines, name, value);
        }
        Self { headers, lines }
    }
}

impl Request<'_> {
    /// Writes the head as HTTP/1.1 has it (RFC 9112).
    pub(super) fn write_head(&self, out: &mut Vec<u8>) {
        let target = self.uri.path_and_query().map_or("/", |target| target.as_str());
        for piece in [self.method.as_str(), " ", target, " HTTP/1.1\r\nhost: ", self.host()] {
            out.extend_from_slice(piece.as_bytes());
        }
        if let Some(port) = self.port() {
            out.push(b':');
            out.extend_from_slice(itoa::Buffer::new().format(port).as_bytes());
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.fixed.lines);
        for (name, value) in self.own() {
            line(out, name, value);
        }
        if !self.body.is_empty() || self.method == Method::POST {
            out.extend_from_slice(b"content-length: ");
            let length = self.body.len();
            out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
    }

    /// The same for HTTP/2.
    pub(super) fn for_h2(&self) -> http::Request<Full<Bytes>> {
        let mut request = http::Request::new(Full::new(self.body.clone()));
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        let all = request.headers_mut();
        *all = self.fixed.headers.clone();
        for (name, value) in self.own() {
            all.append(name.clone(), value.clone());
        }
        request
    }

    /// Its headers but for those that are fixed.
    fn own(&self) -> impl Iterator<Item = &(HeaderName, HeaderValue)> {
        let fixed = &self.fixed.headers;
        self.headers.0.iter().filter(|(name, _)| fixed.keys().all(|fixed| fixed != name))
    }

    fn host(&self) -> &str {
        self.uri.host().unwrap_or_default()
    }

    /// The port, unless it is the scheme's own.
    fn port(&self) -> Option<u16> {
        let usual = if self.uri.scheme() == Some(&http::uri::Scheme::HTTPS) { 443 } else { 80 };
        self.uri.port_u16().filter(|port| *port != usual)
    }
}

fn line(out: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    out.extend_from_slice(name.as_str().as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}
