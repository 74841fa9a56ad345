//! A call's context: principal, client, endpoint and peer address.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use http::HeaderMap;
use serde_json::{Map, Value};

use crate::mcp::{Era, LogLevel, ProtocolVersion, meta};

use super::abilities::add_tasks;
use crate::call::{
    Abilities, AuditNotes, ConfirmationNote, DecidingRule, Grants, ProfileName, SentResults,
    TokenSource,
};

/// The authenticated caller. Two principals share no state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Principal {
    /// Any client of a gateway that requires no credentials.
    Anonymous,
    /// The client `NAME` of `[clients.NAME]`, identified by its key.
    Client(Arc<str>),
    /// A user, or a program, of `[issuers.NAME]`, identified by a token: `NAME:SUBJECT`. No client
    /// has such a name, since theirs contain no colon.
    User(Arc<str>),
}

impl Principal {
    /// Returns the principal's name in logs.
    #[inline]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Client(name) | Self::User(name) => name,
        }
    }

    /// Returns the issuer of a user.
    #[inline]
    pub fn issuer(&self) -> Option<&str> {
        match self {
            Self::User(name) => name.split_once(':').map(|(issuer, _)| issuer),
            Self::Anonymous | Self::Client(_) => None,
        }
    }
}

/// The addresses of a connection, as the socket reports them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeerAddress {
    /// The client's address.
    pub addr: SocketAddr,
    /// The gateway's own address that the client connected to.
    pub local: SocketAddr,
    /// True if the connection is encrypted.
    pub tls: bool,
    /// True if the client is the parent process, over standard streams. Both addresses are then
    /// loopback.
    pub stdio: bool,
}

impl PeerAddress {
    /// Returns the address of the parent process.
    pub fn parent() -> Self {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { addr: here, local: here, tls: false, stdio: true }
    }

    /// Returns the client's address with its port, if there is a socket.
    #[inline]
    pub fn socket(&self) -> Option<SocketAddr> {
        (!self.stdio).then_some(self.addr)
    }
}

/// A client's declarations: with each request (Modern), or once, when it opens its session
/// (Legacy).
#[derive(Debug, Clone)]
pub struct Client {
    /// The protocol version that the client speaks.
    pub version: ProtocolVersion,
    /// The client's raw `clientInfo`, if it sent one.
    pub info: Option<Bytes>,
    /// The client's raw capabilities.
    pub capabilities: Bytes,
    abilities: OnceLock<Abilities>,
    /// True if the client's calls wait for the end of their tasks.
    awaits_tasks: bool,
}

impl Client {
    /// Creates a client with these declarations.
    #[inline]
    pub fn new(version: ProtocolVersion, info: Option<Bytes>, capabilities: Bytes) -> Self {
        Self { version, info, capabilities, abilities: OnceLock::new(), awaits_tasks: false }
    }

    /// Adds task support (extension `io.modelcontextprotocol/tasks`), which the gateway provides on
    /// behalf of the client.
    #[must_use]
    pub fn with_tasks(&self) -> Self {
        let abilities = OnceLock::from(self.abilities().with_tasks());
        Self { capabilities: add_tasks(&self.capabilities), abilities, ..self.clone() }
    }

    /// Removes task support. The client's calls wait for the end of their tasks.
    #[must_use]
    pub fn awaiting_tasks(&self) -> Self {
        if !self.abilities().tasks {
            return Self { awaits_tasks: true, ..self.clone() };
        }
        let mut said: Map<String, Value> =
            serde_json::from_slice(&self.capabilities).unwrap_or_default();
        if let Some(extensions) = said.get_mut("extensions").and_then(Value::as_object_mut) {
            extensions.remove(meta::TASKS);
        }
        let capabilities = Value::Object(said).to_string().into();
        Self { awaits_tasks: true, ..Self::new(self.version, self.info.clone(), capabilities) }
    }

    /// Returns true if a call waits for the end of a Modern server's task and is answered with its
    /// result. Calls of Legacy clients do, which have no alternative, and those of
    /// [`Self::awaiting_tasks`].
    #[inline]
    pub fn awaits_tasks(&self) -> bool {
        self.awaits_tasks || self.version.era() == Era::Legacy
    }

    /// Removes the capabilities, for servers that must not learn them.
    #[must_use]
    pub fn without_capabilities(&self) -> Self {
        Self::new(self.version, self.info.clone(), Bytes::from_static(b"{}"))
    }

    /// Returns the name and version of the client's software, as declared; empty if missing.
    pub fn name_and_version(&self) -> (String, String) {
        let info: Value = self
            .info
            .as_deref()
            .and_then(|info| serde_json::from_slice(info).ok())
            .unwrap_or_default();
        let text = |key| info.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        (text("name"), text("version"))
    }

    /// Returns the server requests that the client can answer.
    #[inline]
    pub fn abilities(&self) -> &Abilities {
        self.abilities.get_or_init(|| Abilities::of(&self.capabilities, self.version))
    }
}

/// W3C Trace Context, as received and as sent.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    /// `traceparent` in `_meta`.
    pub parent: Option<String>,
    /// `tracestate` in `_meta`.
    pub state: Option<String>,
    /// `traceparent` among the HTTP headers.
    pub header: Option<String>,
    /// The context to send in `_meta` instead of the client's: the gateway's
    /// own span, or the one that only the header contained.
    pub sent: Option<(String, Option<String>)>,
}

/// The endpoint of a request: determines the elements that the client can see.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub struct Endpoint {
    /// The profile of the URL; none for `/mcp` itself.
    pub profile: Option<ProfileName>,
    /// The narrowing of the profile by the URL's query, if there is one: the same text for all
    /// equivalent queries.
    pub narrowing: Option<Arc<str>>,
}

impl Endpoint {
    /// Returns the profile's name in logs and metrics.
    #[inline]
    pub fn profile(&self) -> &str {
        self.profile.as_ref().map_or(ProfileName::DEFAULT, ProfileName::as_str)
    }
}

/// The context of one call.
#[derive(Debug, Clone)]
pub struct Context {
    /// The authenticated caller.
    pub principal: Principal,
    /// Grants of the principal, if there are any.
    pub grants: Option<Arc<Grants>>,
    /// Source of tokens with more scopes; `None` without issuers.
    pub tokens: Option<Arc<TokenSource>>,
    /// The endpoint of the request.
    pub endpoint: Endpoint,
    /// The id of the Legacy session of the call, generated by the gateway; none
    /// for Modern clients.
    pub session: Option<Arc<str>>,
    /// The large results sent in the session; none for Modern clients, and for calls with results
    /// that the client does not see.
    pub sent: Option<Arc<SentResults>>,
    /// The address of the client.
    pub address: IpAddr,
    /// The client's address with its port, if there is a socket.
    pub peer: Option<SocketAddr>,
    /// The transport of the request: `http1`, `http2`, `stdio`.
    pub transport: &'static str,
    /// The client's declarations.
    pub client: Arc<Client>,
    /// The minimum level of log notifications that the client requested: with
    /// the request (Modern) or for its session (Legacy).
    pub log: Option<LogLevel>,
    /// The raw progress token, if the client wants progress notifications.
    pub progress_token: Option<Bytes>,
    /// The trace this call is part of.
    pub trace: Trace,
    /// The client's own HTTP headers. Only those that a server's configuration
    /// names are forwarded to it.
    pub headers: Arc<HeaderMap>,
    /// Notes for the audit record; `None` without an audit log.
    pub audit: Option<Arc<AuditNotes>>,
    /// True if an operator calls with the rights of the principal. Such a call uses none of the
    /// principal's credentials.
    pub by_operator: bool,
}

impl Context {
    /// Returns the context of a call that is not made: by a Modern client without capabilities, over
    /// HTTP/1.1 from this machine.
    pub fn assumed(principal: Principal, grants: Option<Arc<Grants>>, endpoint: Endpoint) -> Self {
        let version = ProtocolVersion::LATEST_MODERN;
        Self {
            principal,
            grants,
            tokens: None,
            endpoint,
            session: None,
            sent: None,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            peer: None,
            transport: "http1",
            client: Arc::new(Client::new(version, None, Bytes::from_static(b"{}"))),
            log: None,
            progress_token: None,
            trace: Trace::default(),
            headers: Arc::default(),
            audit: None,
            by_operator: false,
        }
    }

    /// Notes in the audit log the rule that decides about this call. The first one counts, and
    /// `say` is called only if there is an audit log.
    #[inline]
    pub fn decided_by(&self, say: impl FnOnce() -> DecidingRule) {
        if let Some(notes) = &self.audit {
            notes.set_rule(say());
        }
    }

    /// Notes in the audit log the rule that permits this call, unless another check refuses it.
    #[inline]
    pub fn permitted_by(&self, say: impl FnOnce() -> DecidingRule) {
        if let Some(notes) = &self.audit {
            notes.set_permission(say());
        }
    }

    /// Notes in the audit log the rule that has changed this call, unless another check refuses it.
    pub fn changed_by(&self, say: impl FnOnce() -> DecidingRule) {
        if let Some(notes) = &self.audit {
            notes.set_change(say());
        }
    }

    /// Notes in the audit log that this call is refused because a condition could not be evaluated.
    pub fn condition_failed(&self, describe: impl FnOnce() -> Box<str>) {
        if let Some(notes) = &self.audit {
            notes.set_condition_fault(describe());
        }
    }

    /// Notes in the audit log that the user was asked about this call, or has answered.
    #[inline]
    pub fn note_confirmation(&self, note: ConfirmationNote) {
        if let Some(notes) = &self.audit {
            notes.set_confirmation(note);
        }
    }

    /// Copies the bytes that the context shares with the body of its request, for a stream that
    /// outlives it.
    #[must_use]
    pub fn detach(self) -> Self {
        let copy = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
        let Client { version, info, capabilities, .. } = &*self.client;
        let client = Client::new(*version, info.as_ref().map(copy), copy(capabilities));
        let progress_token = self.progress_token.as_ref().map(copy);
        Self { client: Arc::new(client), progress_token, ..self }
    }

    /// Returns the minimum level of log notifications that the client receives; `None` if it
    /// receives none. By default, a Legacy client receives `info` and above (2025-11-25, Logging,
    /// "Setting Log Level", leaves the choice to the server), a Modern client none.
    pub fn hears(&self) -> Option<LogLevel> {
        let unasked = match self.client.version.era() {
            Era::Legacy => Some(LogLevel::Info),
            Era::Modern => None,
        };
        self.log.or(unasked)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::test_support::make_tool_call;

    #[test]
    fn a_detached_context_does_not_hold_the_body_of_its_request() {
        let body = Bytes::from(b"{}7".to_vec());
        let mut context = make_tool_call("t").context;
        let client =
            Client::new(ProtocolVersion::LATEST_MODERN, Some(body.slice(..2)), body.slice(..2));
        context.client = Arc::new(client);
        context.progress_token = Some(body.slice(2..));
        assert!(!body.is_unique());
        let detached = context.detach();
        assert!(body.is_unique());
        assert_eq!(detached.progress_token.as_deref(), Some(&b"7"[..]));
        assert_eq!(detached.client.info.as_deref(), Some(&b"{}"[..]));
    }
}
