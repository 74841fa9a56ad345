//! The Host and Origin guard: the hosts that a request may name, and the pages that it may come
//! from.
//!
//! A web page that any browser on this machine opens can send requests to 127.0.0.1, and a page
//! with a name that is rebound to 127.0.0.1 can also read the answers. Two headers that a page
//! cannot forge give it away: Host still carries the page's name, and Origin contains the page's
//! source. So Host must name this machine (or a host that the operator allows), and Origin, when a
//! browser sends one, must be a page that the operator trusts.
//!
//! The judgement is pure: headers and the socket's local address in, an [`Admission`] or a
//! [`AdmissionError`] out. MCP 2026-07-28, Streamable HTTP, "Security Warning"; 2025-11-25,
//! Transports, the same heading.

mod connection;
mod host;

use std::{
    fmt,
    net::{IpAddr, SocketAddr},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Version, header};
use ipnet::IpNet;

use crate::mcp::header::{DuplicateHeaderError, single_value, text_value};
use crate::text::clip;

pub(super) use self::connection::ConnectionGuard;
use self::host::{HostPort, PageOrigin, RequestedHost, ends_below};

/// The names that this gateway answers to and the pages that it trusts, besides loopback.
#[derive(Debug, Clone, Default)]
pub struct Guard {
    hosts: Vec<HostRule>,
    origins: Vec<String>,
    local_pages: LocalPages,
}

/// Access of pages on this machine to a gateway on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum LocalPages {
    /// Any local page may call it, on any port: development tools are such pages.
    #[default]
    Trusted,
    /// Only pages that are configured, like any other page.
    Foreign,
}

/// A request that the guard admitted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Admission {
    /// The trusted page that sent the request; `None` if it does not come from a browser's page.
    pub origin: Option<HeaderValue>,
}

/// Reasons to refuse a request before anything else processes it. The text is public: it goes to
/// the client, so it names settings but no allowed value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// RFC 9112, 3.2: HTTP/1.1 needs exactly one Host; HTTP/2 has `:authority`.
    #[error("the request names no host: send exactly one Host header (or :authority)")]
    MissingHost,
    /// Two Host headers, or a Host and a request target that disagree.
    #[error("the request names more than one host")]
    AmbiguousHost,
    /// Not `host` or `host:port`.
    #[error("the Host header is not a host with an optional port")]
    MalformedHost,
    /// Neither loopback, nor the address that the connection came in on, nor allowed.
    #[error("{}", describe_foreign_host(.0, "allowed_hosts"))]
    ForeignHost(QuotedExcerpt),
    /// Not one origin; `null` (a sandboxed page, a file, a redirect) included.
    #[error("the Origin header does not name one page's origin, so it cannot be trusted")]
    OpaqueOrigin,
    /// A page that is not allowed.
    #[error("{}", describe_foreign_origin(.0, "allowed_origins"))]
    ForeignOrigin(QuotedExcerpt),
    /// More than one Transfer-Encoding header: readers may disagree about the end of the body.
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
    /// Creates a guard that admits loopback, the address that a connection came in on, and:
    ///
    /// - `hosts`: `gw.example.com` (any port), `gw.example.com:8443`, `*.example.com`, `10.0.0.7`;
    /// - `origins`: `https://app.example.com`, `vscode-webview://id`.
    ///
    /// # Errors
    /// Every entry that cannot be used. `*` alone is one: it would disable the guard.
    pub fn new(hosts: &[String], origins: &[String]) -> Result<Self, Vec<GuardError>> {
        Self::with_hosts(HostRule::parse, hosts, origins)
    }

    /// Creates a guard like [`Self::new`], of which `hosts` may also be blocks of addresses
    /// (`10.0.0.0/8`), and `*` for any host: operators' programs often know the gateway by an
    /// address that changes.
    ///
    /// # Errors
    /// Every entry that cannot be used.
    pub fn for_operators(hosts: &[String], origins: &[String]) -> Result<Self, Vec<GuardError>> {
        Self::with_hosts(HostRule::parse_for_operators, hosts, origins)
    }

    fn with_hosts(
        parse: fn(&str) -> Option<HostRule>,
        hosts: &[String],
        origins: &[String],
    ) -> Result<Self, Vec<GuardError>> {
        let mut faults = Vec::new();
        let mut guard = Self::default();
        for entry in hosts {
            match parse(entry) {
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

    /// Returns the guard with another allowed host, written as in a URL. A host that no request can
    /// name changes nothing.
    #[must_use]
    pub fn allowing(mut self, host: &str) -> Self {
        self.hosts.extend(HostRule::parse(host));
        self
    }

    /// Returns the guard with another rule for pages of this machine.
    #[must_use]
    pub fn with_local_pages(mut self, local_pages: LocalPages) -> Self {
        self.local_pages = local_pages;
        self
    }

    /// Judges one request that came in on the socket address `local`.
    ///
    /// # Errors
    /// The first [`AdmissionError`] that applies; nothing behind the guard may see the request.
    pub fn admit<B>(
        &self,
        request: &Request<B>,
        local: SocketAddr,
    ) -> Result<Admission, AdmissionError> {
        let target = target(request)?;
        if !self.serves(target, local) {
            return Err(AdmissionError::ForeignHost(QuotedExcerpt::of(authority_text(request))));
        }
        let origin = sole_origin(request.headers())?;
        if let Some(value) = &origin {
            let text = value.to_str().map_err(|_| AdmissionError::OpaqueOrigin)?;
            let page = PageOrigin::parse(text).ok_or(AdmissionError::OpaqueOrigin)?;
            if !self.trusts(page, target) {
                return Err(AdmissionError::ForeignOrigin(QuotedExcerpt::of(text)));
            }
        }
        Ok(Admission { origin })
    }

    fn serves(&self, target: HostPort<'_>, local: SocketAddr) -> bool {
        // An address literal that equals the socket's own address is safe: a rebound page has a
        // name, and a page that was loaded from this address is caught by its Origin.
        target.host.is_loopback()
            || target.host == RequestedHost::Address(local.ip().to_canonical())
            || self.hosts.iter().any(|rule| rule.matches(target))
    }

    fn trusts(&self, page: PageOrigin<'_>, target: HostPort<'_>) -> bool {
        // A local page may call a local gateway, on any ports: the inspector does. Beyond that a
        // page may call the host that it came from, which `serves` has admitted.
        let is_local = page.is_web() && page.at.host.is_loopback() && target.host.is_loopback();
        (is_local && self.local_pages == LocalPages::Trusted)
            || page.covers(target)
            || self.origins.iter().any(|entry| PageOrigin::parse(entry) == Some(page))
    }
}

impl AdmissionError {
    /// Returns 400 for a malformed request, 403 for one that is not allowed, 431 for one that is
    /// too large.
    ///
    /// A foreign Host is not 421: that invites the client to try again on a new connection.
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

    /// Describes the refusal of a listener for operators, whose settings are those of `[admin]`.
    pub fn describe_for_operators(&self) -> String {
        match self {
            Self::ForeignHost(host) => describe_foreign_host(host, "admin.allowed_hosts"),
            Self::ForeignOrigin(origin) => describe_foreign_origin(origin, "admin.allowed_origins"),
            other => other.to_string(),
        }
    }

    /// Returns a JSON-RPC error response without an id, as the specification suggests for a bad
    /// Origin: the body has not been read, so no request has an id yet.
    pub fn body(&self) -> Bytes {
        let error = serde_json::json!({
            "jsonrpc": "2.0",
            "error": { "code": INVALID_REQUEST, "message": self.to_string() },
        });
        error.to_string().into()
    }
}

fn describe_foreign_host(host: &QuotedExcerpt, setting: &str) -> String {
    format!("host {host} is not served here: to allow it, add it to `{setting}`")
}

fn describe_foreign_origin(origin: &QuotedExcerpt, setting: &str) -> String {
    format!("origin {origin} is not trusted: to allow it, add it to `{setting}`")
}

/// The start of a client's value, to be quoted in a message.
#[derive(Clone, PartialEq, Eq)]
pub struct QuotedExcerpt(String);

impl QuotedExcerpt {
    fn of(text: &str) -> Self {
        Self(clip(text, MAX_EXCERPT_BYTES).to_owned())
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
    /// This name, at this port if there is one, otherwise at any.
    Name(String, Option<u16>),
    /// The same for an address.
    Address(IpAddr, Option<u16>),
    /// Every subdomain of this name, at any port.
    Below(String),
    /// Every address of this block, at any port.
    Network(IpNet),
    /// Every host.
    Any,
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

    fn parse_for_operators(entry: &str) -> Option<Self> {
        if entry == "*" {
            return Some(Self::Any);
        }
        entry.parse().map(Self::Network).ok().or_else(|| Self::parse(entry))
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
            Self::Network(block) => match target.host {
                RequestedHost::Name(_) => false,
                RequestedHost::Address(address) => block.contains(&address),
            },
            Self::Any => true,
        }
    }
}

/// Returns the one host that a request names, in its target and its Host header together.
fn target<B>(request: &Request<B>) -> Result<HostPort<'_>, AdmissionError> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let header = hosts.next().map(read_host).transpose()?;
    if hosts.next().is_some() {
        return Err(AdmissionError::AmbiguousHost);
    }
    // HTTP/2's `:authority`, or the absolute form of an HTTP/1 target.
    let uri = request.uri().authority();
    let uri = uri
        .map(|it| HostPort::parse(it.as_str()).ok_or(AdmissionError::MalformedHost))
        .transpose()?;
    match (uri, header) {
        (Some(uri), Some(header)) if uri != header => Err(AdmissionError::AmbiguousHost),
        (_, Some(header)) => Ok(header),
        (Some(uri), None) if request.version() >= Version::HTTP_2 => Ok(uri),
        _ => Err(AdmissionError::MissingHost),
    }
}

fn read_host(value: &HeaderValue) -> Result<HostPort<'_>, AdmissionError> {
    let text = value.to_str().map_err(|_| AdmissionError::MalformedHost)?;
    HostPort::parse(text.trim()).ok_or(AdmissionError::MalformedHost)
}

fn authority_text<B>(request: &Request<B>) -> &str {
    let header = text_value(request.headers(), &header::HOST);
    header.or_else(|| request.uri().authority().map(http::uri::Authority::as_str)).unwrap_or("")
}

fn sole_origin(headers: &HeaderMap) -> Result<Option<HeaderValue>, AdmissionError> {
    let origin = single_value(headers, &header::ORIGIN);
    origin
        .map(Option::<&HeaderValue>::cloned)
        .map_err(|DuplicateHeaderError| AdmissionError::OpaqueOrigin)
}

/// JSON-RPC 2.0, 5.1: the request is not valid.
const INVALID_REQUEST: i32 = -32600;

/// Limit of the characters of a client's value in a message.
const MAX_EXCERPT_BYTES: usize = 100;

#[cfg(test)]
mod tests;
