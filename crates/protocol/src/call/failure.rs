//! The gateway's one outward error type, with the whole table of codes, statuses and labels.
//!
//! Every module has errors of its own; a client receives one of these. The public text reveals
//! nothing that is hidden from the client; the log has the details for the operator.

mod interceptor;
mod request;
mod server;
mod token;
mod tool_call;
mod wire;

pub use interceptor::{InterceptorFault, InterceptorOutageError, InterceptorRefusalError};
pub use request::{
    ConfirmationError, CursorError, HeaderFault, InputError, NeededCapability, ParamsFault,
    ParseFault, QueryFault, RequestFault, StateError,
};
pub use server::{GatewayFault, InternalFault, ServerFault, StatusNote, TaskFault, VersionFault};
pub use token::{NeededScopes, TokenFault};
pub use tool_call::{ArgumentsError, MetaCallError, OtherViolations};
pub use wire::WireForm;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use crate::mcp::ProtocolVersion;

use super::ServerName;

/// The party that caused a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blame {
    /// The client sent an invalid or disallowed request.
    Client,
    /// The server behind the gateway failed.
    Server,
    /// The gateway refused, or failed itself.
    Gateway,
}

/// Reasons for a call to have no response from its server.
///
/// Rare and large evidence is boxed: results that may hold a failure are moved on every call.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// The body is not JSON.
    #[error("{0}")]
    Parse(ParseFault),
    /// The body is JSON, but not a valid request.
    #[error("{0}")]
    InvalidRequest(Box<RequestFault>),
    /// The params do not fit the method.
    #[error("invalid params: {0}")]
    InvalidParams(ParamsFault),
    /// A Modern request without its required `_meta`.
    #[error("invalid params: {0}")]
    InvalidMeta(ParamsFault),
    /// A header contradicts the body, or is missing.
    #[error("header mismatch: {0}")]
    HeaderMismatch(Box<HeaderFault>),
    /// A version that the gateway does not speak.
    #[error("unsupported protocol version {requested:?}")]
    UnsupportedVersion {
        /// The requested version.
        requested: String,
    },
    /// The method does not exist.
    #[error("method not found: {method}")]
    MethodNotFound {
        /// The requested method.
        method: String,
    },
    /// The tool does not exist, or this principal may not use it: the same for
    /// both.
    #[error("unknown tool: {name}")]
    UnknownTool {
        /// The requested name.
        name: String,
    },
    /// The tool left the lists a moment ago, and this principal could see it until then.
    #[error("the tool {name} is no longer available: list the tools again")]
    DepartedTool {
        /// The requested name.
        name: String,
    },
    /// A meta-tool cannot call the requested tool.
    #[error(transparent)]
    MetaCallRefused(#[from] MetaCallError),
    /// The prompt does not exist, or this principal may not use it.
    #[error("unknown prompt: {name}")]
    UnknownPrompt {
        /// The requested name.
        name: String,
    },
    /// The resource does not exist, or this principal may not read it.
    #[error("Resource not found")]
    UnknownResource {
        /// The requested URI.
        uri: String,
    },
    /// The task does not exist, or belongs to another principal: the same for
    /// both.
    #[error("unknown or expired task: {id}")]
    UnknownTask {
        /// The requested id.
        id: String,
    },
    /// This principal may use the requested element, but not with these arguments.
    #[error("this call is not allowed with these arguments; other arguments may be allowed")]
    CallDenied,
    /// The user has to agree to the call, and has not.
    #[error("the call was not made, because it needs the consent of its user: {0}")]
    NotConfirmed(ConfirmationError),
    /// The tool's arguments violate its schema.
    #[error("the arguments do not fit the tool's input schema:\n{0}")]
    InvalidArguments(ArgumentsError),
    /// A Legacy request outside a session.
    #[error(
        "a session is required: send `initialize` first, then its `Mcp-Session-Id` with every \
         request"
    )]
    SessionRequired,
    /// The session does not exist or has ended.
    #[error("unknown or expired session: open a new one with `initialize`")]
    SessionLost,
    /// The maximum number of sessions is open.
    #[error("too many open sessions, the limit is {limit}: try again later")]
    TooManySessions {
        /// The limit's name.
        name: &'static str,
        /// Limit of open sessions.
        limit: usize,
    },
    /// The maximum number of streams is open.
    #[error("too many open streams, the limit is {limit}: try again later")]
    TooManyStreams {
        /// Limit of open streams.
        limit: usize,
    },
    /// The maximum number of subscriptions is reached.
    #[error("too many subscriptions, the limit is {limit}: unsubscribe from some resources first")]
    TooManySubscriptions {
        /// Limit of subscriptions.
        limit: usize,
    },
    /// The resource's server offers no notifications of changes.
    #[error("no server offers subscriptions for this resource: {uri}")]
    NoUpdates {
        /// The requested URI.
        uri: String,
    },
    /// A key is required and the request has none.
    #[error("a key is required: send it as `Authorization: Bearer KEY` or as `X-API-Key: KEY`")]
    KeyMissing,
    /// The key belongs to no client.
    #[error("unknown key")]
    KeyUnknown,
    /// The key has expired.
    #[error("the key has expired")]
    KeyExpired,
    /// A token or a key is required and the request has none.
    #[error("a token is required: send it as `Authorization: Bearer TOKEN`")]
    TokenMissing,
    /// The token is not accepted.
    #[error("{0}")]
    TokenRefused(TokenFault),
    /// The keys of the token's issuer are not known yet.
    #[error("the keys of the authorization server are not available: try again later")]
    IssuerUnavailable,
    /// The principal lacks a scope.
    #[error("{0}")]
    ScopesNeeded(Box<NeededScopes>),
    /// The server needs a claim that the caller's token lacks.
    #[error("the call was not made: the caller has no token with a usable claim {claim:?}")]
    ClaimNeeded {
        /// The claim.
        claim: Arc<str>,
    },
    /// An operator calls with the rights of a client, and the server needs the client's own
    /// credentials.
    #[error(
        "the call was not made: the server {server} needs credentials of the client itself, and an \
         operator who calls as the client does not use them"
    )]
    CredentialsWithheld {
        /// The server.
        server: ServerName,
    },
    /// The profile does not exist, or this principal may not use it: the same
    /// for both.
    #[error("no such endpoint: the MCP endpoint is /mcp, and /mcp/NAME for a profile")]
    UnknownEndpoint,
    /// The body is larger than allowed.
    #[error("the request body is larger than {limit} bytes")]
    BodyTooLarge {
        /// Limit of the body's bytes.
        limit: usize,
    },
    /// The media type of the body is not JSON.
    #[error("the request body must be application/json")]
    MediaType,
    /// An interceptor refused the call, or withholds its result.
    #[error(transparent)]
    Intercepted(Box<InterceptorRefusalError>),
    /// A required interceptor does not answer, so the call is not made, or its result not shown.
    #[error(transparent)]
    InterceptorDown(Box<InterceptorOutageError>),
    /// A limit is reached.
    #[error("over the limit {limit}: try again in {}", seconds(*retry_after))]
    OverLimit {
        /// The limit's name.
        limit: String,
        /// Time to wait before another attempt.
        retry_after: Duration,
    },
    /// The request was served, but its answer was dropped because too many bytes wait to be read.
    #[error("the answer was dropped: unread answers reach the limit {limit}")]
    AnswerDropped {
        /// The limit's name.
        limit: &'static str,
    },
    /// The audit log is required, and cannot record the request.
    #[error(
        "the request was not served, because the gateway has to record it and cannot write its \
         audit log: try again later"
    )]
    AuditUnavailable,
    /// The store that replicas share cannot be reached, and the request needs it.
    #[error(
        "the request was not served, because the store that the gateway's replicas share cannot be \
         reached: try again later"
    )]
    StoreUnavailable,
    /// The gateway is stopping.
    #[error("the gateway is shutting down")]
    Draining,
    /// The replica that has the session was lost during the request.
    #[error(
        "the gateway replica with this session was lost during the request, which may have been \
         served: check before you repeat it"
    )]
    ReplicaLost,
    /// The replica that has the session cannot be reached, and has not been given up yet.
    #[error(
        "the gateway replica with this session cannot be reached: try again, another one takes over \
         shortly"
    )]
    ReplicaUnreachable,
    /// The gateway that `trunkline stdio --connect` connects to does not
    /// answer.
    #[error("no response from the gateway: {0}")]
    Unreachable(Box<GatewayFault>),
    /// The server is unavailable.
    #[error("the server {server} is not available: {fault}")]
    ServerDown {
        /// The server.
        server: ServerName,
        /// The fault of the server.
        fault: Box<ServerFault>,
    },
    /// The user has to log in to the server.
    #[error(
        "the server {server} needs a login: open {link} in a browser, log in there, and then make \
         the call again"
    )]
    LoginNeeded {
        /// The server.
        server: ServerName,
        /// The login link for the user.
        link: Arc<str>,
    },
    /// Too many calls of the server have failed, and none is sent for a while.
    #[error(
        "too many calls to the server {server} have failed: try again in {}",
        seconds(*retry_after)
    )]
    BreakerOpen {
        /// The server.
        server: ServerName,
        /// Time to wait before another attempt.
        retry_after: Duration,
    },
    /// The server exited, or the connection to it was lost, during the call.
    #[error("the server {server} failed during the call: {fault}")]
    ServerBroke {
        /// The server.
        server: ServerName,
        /// The fault of the server.
        fault: Box<ServerFault>,
    },
    /// The server took too long.
    #[error("the server {server} did not respond within {}", seconds(*after))]
    ServerTimeout {
        /// The server.
        server: ServerName,
        /// The time that the gateway waited.
        after: Duration,
    },
    /// The server sent an invalid response.
    #[error("the server {server} sent an invalid response: {fault}")]
    BadAnswer {
        /// The server.
        server: ServerName,
        /// The fault of the response.
        fault: Box<ServerFault>,
    },
    /// The server requests input that the client has not declared the capability for.
    #[error("the server requests input that this client does not support: {needed}")]
    InputNeeded {
        /// The capability that the client would need.
        needed: NeededCapability,
    },
    /// The request needs a capability that the client did not declare.
    #[error("missing required client capability: {needed}")]
    CapabilityNeeded {
        /// The capability that the client would need.
        needed: NeededCapability,
    },
    /// The client declined to provide the input.
    #[error("the client refused the input that the server requested: {0}")]
    InputRefused(InputError),
    /// The client did not provide the input in time.
    #[error("the client did not provide the input that the server requested within {}", seconds(*after))]
    InputTimeout {
        /// The time that the gateway waited.
        after: Duration,
    },
    /// The server requested input too many times.
    #[error("the server {server} requested input more than {limit} times in one call")]
    InputEndless {
        /// The server.
        server: ServerName,
        /// The limit.
        limit: usize,
    },
    /// A retry carries a state that cannot be used.
    #[error("invalid requestState: {0}; make the call again without it")]
    InvalidState(StateError),
    /// The client cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// The gateway itself failed.
    #[error("internal error: {0}")]
    Internal(Box<InternalFault>),
}

impl Failure {
    /// Returns the `data` member of the JSON-RPC error, if there is one.
    pub fn data(&self) -> Option<Value> {
        match self {
            Self::UnsupportedVersion { requested } => Some(json!({
                "supported": [ProtocolVersion::LATEST_MODERN.as_str()],
                "requested": requested,
            })),
            Self::InputNeeded { needed } | Self::CapabilityNeeded { needed } => {
                Some(json!({ "requiredCapabilities": needed.to_json() }))
            }
            Self::OverLimit { limit, retry_after } => Some(json!({
                "limit": limit,
                "retryAfterMs": u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            })),
            Self::BreakerOpen { retry_after, .. } => Some(json!({
                "retryAfterMs": u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
            })),
            Self::AnswerDropped { limit } => Some(json!({ "limit": limit })),
            Self::ScopesNeeded(needed) => Some(json!({ "requiredScopes": needed.scopes })),
            Self::UnknownResource { uri } | Self::NoUpdates { uri } => Some(json!({ "uri": uri })),
            _ => None,
        }
    }

    /// Returns the name of the limit that is reached.
    pub fn limit(&self) -> Option<&str> {
        match self {
            Self::OverLimit { limit, .. } => Some(limit),
            Self::TooManySessions { name, .. } => Some(name),
            Self::TooManyStreams { .. } => Some("streams"),
            Self::TooManySubscriptions { .. } => Some("subscriptions"),
            Self::BodyTooLarge { .. } => Some("body"),
            Self::AnswerDropped { limit } => Some(limit),
            _ => None,
        }
    }

    /// Returns the failure of a client without the tasks extension.
    pub fn tasks_needed() -> Self {
        Self::CapabilityNeeded { needed: NeededCapability::Tasks }
    }

    /// Returns the failure of a server that is unavailable.
    pub fn server_down(server: ServerName, fault: ServerFault) -> Self {
        Self::ServerDown { server, fault: Box::new(fault) }
    }

    /// Returns the failure of a server that failed during a call.
    pub fn server_broke(server: ServerName, fault: ServerFault) -> Self {
        Self::ServerBroke { server, fault: Box::new(fault) }
    }

    /// Returns the failure of a server that sent an invalid response.
    pub fn bad_answer(server: ServerName, fault: ServerFault) -> Self {
        Self::BadAnswer { server, fault: Box::new(fault) }
    }

    /// Removes the server's text that the failure quotes.
    #[must_use]
    pub fn without_quotes(self) -> Self {
        let bare = |fault: Box<ServerFault>| Box::new(fault.without_quotes());
        match self {
            Self::ServerDown { server, fault } => Self::ServerDown { server, fault: bare(fault) },
            Self::ServerBroke { server, fault } => Self::ServerBroke { server, fault: bare(fault) },
            Self::BadAnswer { server, fault } => Self::BadAnswer { server, fault: bare(fault) },
            other => other,
        }
    }

    /// Returns the value of `Retry-After`.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::OverLimit { retry_after, .. } => Some(*retry_after),
            Self::TooManySessions { .. }
            | Self::TooManyStreams { .. }
            | Self::StoreUnavailable
            | Self::Draining
            | Self::ReplicaUnreachable
            | Self::IssuerUnavailable => Some(Duration::from_secs(1)),
            // The log is tried again at least every 5 seconds.
            Self::AuditUnavailable => Some(Duration::from_secs(5)),
            _ => None,
        }
    }

    /// Builds the JSON-RPC error object.
    pub fn to_error(&self) -> Vec<u8> {
        let mut error = json!({ "code": self.wire().code, "message": self.to_string() });
        if let (Some(data), Some(object)) = (self.data(), error.as_object_mut()) {
            object.insert("data".into(), data);
        }
        error.to_string().into_bytes()
    }

    /// Builds the tool result for a failure that a model can correct or work around: a server's
    /// failure, its own arguments, or input that was refused or late. `None` if the failure is a
    /// protocol error.
    pub fn to_tool_result(&self) -> Option<Vec<u8>> {
        let for_the_model = self.wire().blame == Blame::Server
            || matches!(
                self,
                Self::InvalidArguments(_)
                    | Self::CallDenied
                    | Self::MetaCallRefused(_)
                    | Self::NotConfirmed(_)
                    | Self::Intercepted(_)
                    | Self::InterceptorDown(_)
                    | Self::DepartedTool { .. }
                    | Self::LoginNeeded { .. }
                    | Self::InputRefused(_)
                    | Self::InputTimeout { .. }
            );
        for_the_model.then(|| tool_error(&self.to_string()))
    }
}

/// Builds a tool result that reports an error in a text for the model.
pub fn tool_error(text: &str) -> Vec<u8> {
    json!({ "content": [{ "type": "text", "text": text }], "isError": true })
        .to_string()
        .into_bytes()
}

fn seconds(duration: Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64().max(0.1))
}
