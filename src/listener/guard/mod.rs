//! Who may be asked for, and from which page: the Host and Origin guard.
//!
//! A web page that any browser on this machine opens can send requests to
//! 127.0.0.1, and a page whose name is rebound to 127.0.0.1 can also read the
//! answers. Two headers that a page cannot forge give it away: Host still
//! carries the page's name, and Origin says where the page came from. So Host
//! must name this machine (or what the operator allows), and Origin, when a
//! browser sends one, must be a page the operator trusts.
//!
//! The judgement is pure: headers and the socket's local address in, an
//! [`Admission`] or a [`GuardRefusal`] out. MCP 2026-07-28, Streamable HTTP,
//! "Security Warning"; 2025-11-25, Transports, the same heading.

mod connection;
mod host;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Version, header};

use crate::mcp::header::{DuplicateHeader, single_value, text_value};
use crate::text::clip;

pub(super) use self::connection::ConnectionGuard;
use self::host::{HostPort, PageOrigin, RequestedHost, ends_below};

/// The names this gateway answers to and the pages it trusts, beside loopback.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    hosts: Vec<HostRule>,
    origins: Vec<String>,
    local_pages: LocalPages,
}

/// Whether any page of this machine may call a gateway on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LocalPages {
    /// They may, whatever their port: development tools are such pages.
    #[default]
    Trusted,
    /// Only those that are named, as any other page.
    Foreign,
}

/// What the guard let pass.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The trusted page the request came from; `None` when no browser sent it.
    pub origin: Option<HeaderValue>,
}

/// Why a request was turned away before anything looked at it. The text is
/// public: it goes to the client, so it names settings but no allowed value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardRefusal {
    /// RFC 9112, 3.2: HTTP/1.1 needs exactly one Host; HTTP/2 has `:authority`.
    #[error("the request names no host: send exactly one Host header (or :authority)")]
    MissingHost,
    /// Two Host headers, or a Host and a request target that disagree.
    #[error("the request names more than one host")]
    AmbiguousHost,
    /// Not `host` or `host:port`.
    #[error("the Host header is not a host with an optional port")]
    MalformedHost,
    /// Neither loopback, nor the address the connection came in on, nor allowed.
    #[error("host {0} is not served here: to allow it, add it to `allowed_hosts`")]
    ForeignHost(QuotedExcerpt),
    /// Not one origin; `null` (a sandboxed page, a file, a redirect) included.
    #[error("the Origin header does not name one page's origin, so it cannot be trusted")]
    OpaqueOrigin,
    /// A page that nobody allowed.
    #[error("origin {0} is not trusted: to allow it, add it to `allowed_origins`")]
    ForeignOrigin(QuotedExcerpt),
    /// More than one Transfer-Encoding header: readers may differ on where the body ends.
    #[error("the request has more than one Transfer-Encoding header: send one, `chunked`")]
    AmbiguousFraming,
    /// A transfer coding other than `chunked`.
    #[error("unknown transfer coding: the only one that is supported is `chunked`")]
    UnknownCoding,
    /// The header block is over the bound.
    #[error("the request's headers take {size} bytes, and `limits.header` allows {limit}")]
    HeadersTooLarge {
        /// Bytes of names and values.
        size: usize,
        /// [`super::ConnectionLimits::header`].
        limit: usize,
    },
    /// More header lines than the bound. Over HTTP/1 hyper refuses them.
    #[error("the request has {count} header lines, and at most {limit} are allowed")]
    TooManyHeaders {
        /// The header lines of the request.
        count: usize,
        /// [`super::ConnectionLimits::header_lines`].
        limit: usize,
    },
}

/// An entry of `allowed_hosts` or `allowed_origins` that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// In `allowed_hosts`.
    #[error(
        "`{0}` is not a host: write `gw.example.com`, `gw.example.com:8443` (that port only), \
         `*.example.com` or an address"
    )]
    Host(String),
    /// In `allowed_origins`.
    #[error("`{0}` is not an origin: write `https://app.example.com`, with nothing after the port")]
    Origin(String),
}

impl Guard {
    /// A guard that admits loopback, the address a connection came in on, and:
    ///
    /// - `hosts`: `gw.example.com` (any port), `gw.example.com:8443`, `*.example.com`, `10.0.0.7`;
    /// - `origins`: `https://app.example.com`, `vscode-webview://id`.
    ///
    /// # Errors
    /// Every entry that cannot be used. `*` alone is one: it would put the guard out of work.
    pub fn new(hosts: &[String], origins: &[String]) -> Result<Self, Vec<GuardError>> {
        let mut faults = Vec::new();
        let mut guard = Self::default();
        for entry in hosts {
            match HostRule::parse(entry) {
                Some(rule) => guard.hosts.push(rule),
                None => faults.push(GuardError::Host(entry.clone())),
            }
        }
        for entry in origins {
            match PageOrigin::parse(entry) {
                Some(_) => guard.origins.push(entry.clone()),
                None => faults.push(GuardError::Origin(entry.clone())),
            }
        }
        if faults.is_empty() { Ok(guard) } else { Err(faults) }
    }

    /// The same guard with another rule for pages of this machine.
    #[must_use]
    pub fn with_local_pages(mut self, local_pages: LocalPages) -> Self {
        self.local_pages = local_pages;
        self
    }

    /// Judges one request that came in on the socket address `local`.
    ///
    /// # Errors
    /// The first [`GuardRefusal`] that applies; nothing behind the guard may see the request.
    pub fn admit<B>(
        &self,
        request: &Request<B>,
        local: SocketAddr,
    ) -> Result<Admission, GuardRefusal> {
        let target = target(request)?;
        if !self.serves(target, local) {
            return Err(GuardRefusal::ForeignHost(QuotedExcerpt::of(authority_text(request))));
        }
        let origin = sole_origin(request.headers())?;
        if let Some(value) = &origin {
            let text = value.to_str().map_err(|_| GuardRefusal::OpaqueOrigin)?;
            let page = PageOrigin::parse(text).ok_or(GuardRefusal::OpaqueOrigin)?;
            if !self.trusts(page, target) {
                return Err(GuardRefusal::ForeignOrigin(QuotedExcerpt::of(text)));
            }
        }
        Ok(Admission { origin })
    }

    fn serves(&self, target: HostPort<'_>, local: SocketAddr) -> bool {
        // An address literal that equals the socket's own address is safe: a rebound page has a
        // name, and a page that was itself loaded from this address is caught by its Origin.
        target.host.is_loopback()
            || target.host == RequestedHost::Address(local.ip().to_canonical())
            || self.hosts.iter().any(|rule| rule.matches(target))
    }

    fn trusts(&self, page: PageOrigin<'_>, target: HostPort<'_>) -> bool {
        // A local page may call a local gateway, whatever the ports: the inspector does. Beyond
        // that a page may call the host that it came from itself, which `serves` has admitted.
        let is_local = page.is_web() && page.at.host.is_loopback() && target.host.is_loopback();
        (is_local && self.local_pages == LocalPages::Trusted)
            || page.covers(target)
            || self.origins.iter().any(|entry| PageOrigin::parse(entry) == Some(page))
    }
}

impl GuardRefusal {
    /// 400 for what is malformed, 403 for what is not allowed, 431 for what is too large.
    ///
    /// A foreign Host is not 421: that invites the client to ask again on a new connection.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::MissingHost
            | Self::AmbiguousHost
            | Self::MalformedHost
            | Self::AmbiguousFraming => StatusCode::BAD_REQUEST,
            Self::UnknownCoding => StatusCode::NOT_IMPLEMENTED,
            Self::ForeignHost(_) | Self::OpaqueOrigin | Self::ForeignOrigin(_) => {
                StatusCode::FORBIDDEN
            }
            Self::HeadersTooLarge { .. } | Self::TooManyHeaders { .. } => {
                StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE
            }
        }
    }

    /// A JSON-RPC error response without an id, as the specification suggests for a bad Origin:
    /// the body has not been read, so no request has an id yet.
    pub fn body(&self) -> Bytes {
        let error = serde_json::json!({
            "jsonrpc": "2.0",
            "error": { "code": INVALID_REQUEST, "message": self.to_string() },
        });
        error.to_string().into()
    }
}

/// The start of something the client sent, for repeating it in a message.
#[derive(Clone, PartialEq, Eq)]
pub struct QuotedExcerpt(String);

impl QuotedExcerpt {
    fn of(text: &str) -> Self {
        Self(clip(text, EXCERPT).to_owned())
    }
}

impl fmt::Display for QuotedExcerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

impl fmt::Debug for QuotedExcerpt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.0)
    }
}

/// One entry of `allowed_hosts`.
#[derive(Debug, Clone)]
enum HostRule {
    /// This name, at this port if one was written, else at any.
    Name(String, Option<u16>),
    /// The same for an address.
    Address(IpAddr, Option<u16>),
    /// Everything below this name, at any port.
    Below(String),
}

impl HostRule {
    fn parse(entry: &str) -> Option<Self> {
        if let Some(parent) = entry.strip_prefix("*.") {
            let HostPort { host: RequestedHost::Name(name), port: None } = HostPort::parse(parent)?
            else {
                return None;
            };
            return Some(Self::Below(name.to_owned()));
        }
        let HostPort { host, port } = HostPort::parse(entry)?;
        Some(match host {
            RequestedHost::Name(name) => Self::Name(name.to_owned(), port),
            RequestedHost::Address(address) => Self::Address(address, port),
        })
    }

    fn matches(&self, target: HostPort<'_>) -> bool {
        let at = |port: Option<u16>| port.is_none() || port == target.port;
        match self {
            Self::Name(name, port) => target.host == RequestedHost::Name(name) && at(*port),
            Self::Address(address, port) => {
                target.host == RequestedHost::Address(*address) && at(*port)
            }
            Self::Below(parent) => match target.host {
                RequestedHost::Name(name) => ends_below(name, parent),
                RequestedHost::Address(_) => false,
            },
        }
    }
}

/// The one host a request names, in its target and its Host header together.
fn target<B>(request: &Request<B>) -> Result<HostPort<'_>, GuardRefusal> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let header = hosts.next().map(read_host).transpose()?;
    if hosts.next().is_some() {
        return Err(GuardRefusal::AmbiguousHost);
    }
    // HTTP/2's `:authority`, or the absolute form of an HTTP/1 target.
    let uri = request.uri().authority();
    let uri = uri
        .map(|it| HostPort::parse(it.as_str()).ok_or(GuardRefusal::MalformedHost))
        .transpose()?;
    match (uri, header) {
        (Some(uri), Some(header)) if uri != header => Err(GuardRefusal::AmbiguousHost),
        (_, Some(header)) => Ok(header),
        (Some(uri), None) if request.version() >= Version::HTTP_2 => Ok(uri),
        _ => Err(GuardRefusal::MissingHost),
    }
}

fn read_host(value: &HeaderValue) -> Result<HostPort<'_>, GuardRefusal> {
    let text = value.to_str().map_err(|_| GuardRefusal::MalformedHost)?;
    HostPort::parse(text.trim()).ok_or(GuardRefusal::MalformedHost)
}

fn authority_text<B>(request: &Request<B>) -> &str {
    let header = text_value(request.headers(), &header::HOST);
    header.or_else(|| request.uri().authority().map(http::uri::Authority::as_str)).unwrap_or("")
}

fn sole_origin(headers: &HeaderMap) -> Result<Option<HeaderValue>, GuardRefusal> {
    let origin = single_value(headers, &header::ORIGIN);
    origin.map(Option::<&HeaderValue>::cloned).map_err(|DuplicateHeader| GuardRefusal::OpaqueOrigin)
}

/// JSON-RPC 2.0, 5.1: what was sent is not a valid request.
const INVALID_REQUEST: i32 = -32600;

/// How many characters of a client's value a message repeats.
const EXCERPT: usize = 100;

#[cfg(test)]
mod tests;
