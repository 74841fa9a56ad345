//! A call's context: principal, client, endpoint and peer address.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::HeaderMap;

use crate::mcp::{Era, LogLevel, ProtocolVersion};

use super::{Abilities, ProfileName};

/// Who is calling. Nothing is shared between two principals.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// Whoever reaches a gateway that asks for no credentials.
    Anonymous,
    /// The `NAME` of a `[clients.NAME]` that showed its key.
    Client(Arc<str>),
}

impl Principal {
    /// The principal's name in logs.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Client(name) => name,
        }
    }
}

/// Where a request came from, as far as the socket knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress {
    /// The client's address.
    pub addr: SocketAddr,
    /// The address that the client reached us at.
    pub local: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Whether it is the process that started this one, over standard streams.
    /// Both addresses then stand for this machine.
    pub stdio: bool,
}

impl PeerAddress {
    /// The process that started this one.
    pub fn parent() -> Self {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { addr: here, local: here, tls: false, stdio: true }
    }

    /// The address with its port, where there is a socket.
    pub fn socket(&self) -> Option<SocketAddr> {
        (!self.stdio).then_some(self.addr)
    }
}

/// What the client says of itself: with each request (Modern) or once, when it
/// opened its session (Legacy).
#[derive(Debug, Clone)]
pub struct Client {
    /// The version it speaks.
    pub version: ProtocolVersion,
    /// Its raw `clientInfo`, where it sent one.
    pub info: Option<Bytes>,
    /// Its raw capabilities.
    pub capabilities: Bytes,
    abilities: OnceLock<Abilities>,
}

impl Client {
    /// A client that says this of itself.
    pub fn new(version: ProtocolVersion, info: Option<Bytes>, capabilities: Bytes) -> Self {
        Self { version, info, capabilities, abilities: OnceLock::new() }
    }

    /// The same client, if it knew tasks (extension
    /// `io.modelcontextprotocol/tasks`): the gateway does, in its place.
    #[must_use]
    pub fn with_tasks(&self) -> Self {
        let abilities = OnceLock::from(self.abilities().with_tasks());
        Self { abilities, ..self.clone() }
    }

    /// What servers may ask of it.
    pub fn abilities(&self) -> &Abilities {
        self.abilities.get_or_init(|| Abilities::of(&self.capabilities, self.version))
    }
}

/// W3C Trace Context, as it came and as it goes on.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// `traceparent` in `_meta`.
    pub parent: Option<String>,
    /// `tracestate` in `_meta`.
    pub state: Option<String>,
    /// `traceparent` among the HTTP headers.
    pub header: Option<String>,
    /// What goes into `_meta` instead of what the client put there: the
    /// gateway's own span, or what came by header alone.
    pub sent: Option<(String, Option<String>)>,
}

/// Where a client came in: which part of what there is it is shown.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The profile whose URL it is; none is `/mcp` itself.
    pub profile: Option<ProfileName>,
    /// How the URL's query narrows that, if it does: one text for all queries
    /// that mean the same.
    pub narrowing: Option<Arc<str>>,
}

impl Endpoint {
    /// The profile's name in logs and metrics.
    pub fn profile(&self) -> &str {
        self.profile.as_ref().map_or(ProfileName::DEFAULT, ProfileName::as_str)
    }
}

/// The conditions of one call.
#[derive(Debug, Clone)]
pub struct Context {
    /// Who is calling.
    pub principal: Principal,
    /// Where it came in.
    pub endpoint: Endpoint,
    /// The Legacy session that it calls in, by an id of the gateway's making;
    /// none for Modern clients.
    pub session: Option<Arc<str>>,
    /// From which address.
    pub address: IpAddr,
    /// That address with its port, where there is a socket.
    pub peer: Option<SocketAddr>,
    /// How the request came: `http1`, `http2`, `stdio`.
    pub transport: &'static str,
    /// What the client says of itself.
    pub client: Arc<Client>,
    /// The least severe log lines that the client asked for: with the request
    /// (Modern) or for its session (Legacy).
    pub log: Option<LogLevel>,
    /// The raw token under which the client wants progress, if it does.
    pub progress_token: Option<Bytes>,
    /// The trace this call is part of.
    pub trace: Trace,
    /// The client's own HTTP headers. Only those that a server's
    /// configuration names go on to it.
    pub headers: Arc<HeaderMap>,
}

impl Context {
    /// The least severe log lines that the client gets; none where it gets no
    /// lines. A Legacy client that asked for nothing leaves it to its server
    /// (2025-11-25, Logging, "Setting Log Level"), a Modern one wants none.
    pub fn hears(&self) -> Option<LogLevel> {
        let unasked = match self.client.version.era() {
            Era::Legacy => Some(LogLevel::Info),
            Era::Modern => None,
        };
        self.log.or(unasked)
    }
}
