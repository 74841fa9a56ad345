//! Faults of a client's request: the evidence in failures.

use std::fmt;

use http::HeaderName;
use serde_json::{Value, json};

use trunkline_core::text::clip;
use trunkline_jsonrpc::{DepthError, FrameFault, JsonError, JsonSyntaxError, ObjectError};

use crate::mcp::{HeaderValueError, LogLevel, ProtocolVersion, meta};

use super::Failure;

/// Reasons that a body cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParseFault {
    /// Not valid JSON.
    #[error("not valid JSON: {0}")]
    Syntax(JsonSyntaxError),
    /// Nested deeper than allowed.
    #[error("{0}")]
    Depth(DepthError),
}

/// Faults of a request, or of its body as parsed JSON.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    /// Not a JSON-RPC message.
    #[error("{0}")]
    Frame(FrameFault),
    /// A request at the address for replicas that no replica has forwarded.
    #[error("this address is for other replicas of the gateway")]
    NotForwarded,
    /// A Modern client sent a response.
    #[error(
        "unexpected response: {} clients answer in `inputResponses`",
        ProtocolVersion::LATEST_MODERN
    )]
    ModernResponse,
    /// The session already has a request in progress with this id.
    #[error("a request with this id is already in progress")]
    DuplicateId,
    /// A batch in a session with a version that has none.
    #[error(
        "unexpected batch: only {} has batches, this session uses {version}",
        ProtocolVersion::V2025_03_26
    )]
    Batch {
        /// The version of the session.
        version: ProtocolVersion,
    },
    /// A batch that is empty or too long.
    #[error("a batch has 1 to {limit} messages, got {found}")]
    BatchSize {
        /// The number of messages in it.
        found: usize,
        /// The maximum.
        limit: usize,
    },
    /// A line over the limit, on standard input.
    #[error("the line is longer than {limit} bytes")]
    LineTooLong {
        /// Limit of the line's bytes.
        limit: usize,
    },
    /// The body did not arrive in time.
    #[error("timed out while reading the request body")]
    BodyTimeout,
    /// The connection ended within the body.
    #[error("the request body is incomplete: the connection was closed")]
    BodyIncomplete,
    /// The query of the URL is not valid.
    #[error("invalid URL query: {0}")]
    Query(QueryFault),
    /// More than one credential of a kind.
    #[error("duplicate header with credentials")]
    DuplicateCredentials,
    /// A token in the URL, where logs and caches would keep it.
    #[error("a token belongs in the Authorization header, never into the URL")]
    TokenInQuery,
    /// The endpoint does not support the HTTP method.
    #[error("POST a JSON-RPC message, or GET and DELETE with the Mcp-Session-Id of a session")]
    HttpMethod,
    /// A GET that does not accept an event stream.
    #[error("a GET opens an event stream: send `Accept: text/event-stream`")]
    NotAcceptable,
    /// No stream with this event is kept.
    #[error("unknown or expired Last-Event-ID")]
    UnknownEvent,
}

/// Faults of the query of an endpoint's URL.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QueryFault {
    /// The query is too long.
    #[error("{len} bytes, at most {limit} are allowed")]
    TooLong {
        /// The length found.
        len: usize,
        /// Limit of the bytes.
        limit: usize,
    },
    /// An unknown parameter.
    #[error(
        "unknown parameter {name:?}: expected `servers`, `tools`, `prompts` or `resources`, each \
         with patterns separated by commas"
    )]
    UnknownParameter {
        /// The parameter's name, truncated.
        name: String,
    },
    /// A duplicate parameter.
    #[error("duplicate parameter `{name}`: separate its patterns by commas")]
    Duplicate {
        /// The parameter's name.
        name: &'static str,
    },
    /// A pattern that is empty or too long, or not UTF-8.
    #[error(
        "invalid pattern {pattern:?} in `{name}`: a pattern has 1 to 128 characters, `*` is any \
         run of them and `?` any one"
    )]
    Pattern {
        /// The parameter.
        name: &'static str,
        /// The pattern, truncated.
        pattern: String,
    },
    /// Too many patterns.
    #[error("more than {limit} patterns")]
    TooManyPatterns {
        /// The maximum.
        limit: usize,
    },
    /// A server that the endpoint does not have.
    #[error("unknown server {name:?}")]
    UnknownServer {
        /// The server's name.
        name: String,
    },
}

/// Faults of the params of a request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamsFault {
    /// Not an object, or a duplicate of a member that the gateway reads.
    #[error("{0}")]
    Syntax(ObjectError),
    /// A required member is missing.
    #[error("`{member}` is missing")]
    Missing {
        /// The member's name.
        member: &'static str,
    },
    /// A required member of `_meta` is missing.
    #[error("`_meta` lacks `{key}`")]
    MissingMeta {
        /// The key.
        key: &'static str,
    },
    /// A member has the wrong type.
    #[error("`{member}` must be {kind}")]
    Kind {
        /// The member's name.
        member: &'static str,
        /// The expected type.
        kind: &'static str,
    },
    /// A member that is kept has more bytes than allowed.
    #[error("`{member}` is larger than {limit} bytes")]
    TooLarge {
        /// The member's name.
        member: &'static str,
        /// Limit of the bytes.
        limit: usize,
    },
    /// Two responses to one input request.
    #[error("duplicate key {key:?} in `inputResponses`")]
    DuplicateResponse {
        /// The key, truncated.
        key: String,
    },
    /// More responses than a server can have requested.
    #[error("more than {limit} members in `inputResponses`")]
    TooManyResponses {
        /// The limit.
        limit: usize,
    },
    /// A duplicate notification in the filter of `subscriptions/listen`.
    #[error("duplicate key {key:?} in `notifications`")]
    DuplicateNotification {
        /// The key, truncated.
        key: String,
    },
    /// More unknown notifications than are forwarded to servers.
    #[error("more than {limit} bytes of unknown members in `notifications`")]
    UnknownNotifications {
        /// Limit of the bytes.
        limit: usize,
    },
    /// An answer to a server's input request is not an object.
    #[error("`inputResponses[{key:?}]` must be an object")]
    InputResponse {
        /// The key, truncated.
        key: String,
    },
    /// A log level that does not exist.
    #[error("unknown log level {name:?}: expected one of {}", LogLevelNames)]
    LogLevel {
        /// The name, truncated.
        name: String,
    },
    /// The cursor cannot be used.
    #[error("{0}")]
    Cursor(CursorError),
}

impl ParamsFault {
    /// Returns the fault of an unknown log level.
    pub fn log_level(name: &str) -> Self {
        Self::LogLevel { name: clip(name, 64).to_owned() }
    }
}

impl From<ObjectError> for ParamsFault {
    fn from(fault: ObjectError) -> Self {
        Self::Syntax(fault)
    }
}

/// The names of all log levels, for error messages.
struct LogLevelNames;

impl fmt::Display for LogLevelNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&LogLevel::ALL.map(LogLevel::as_str).join(", "))
    }
}

/// Reasons to reject a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// Malformed, changed, or sealed by an earlier run of the gateway.
    #[error("invalid cursor")]
    Invalid,
    /// Valid, but for a list that has changed since and is no longer kept. Continuing would skip elements
    /// or repeat them.
    #[error(
        "stale cursor: the list has changed since its first page, start again without a cursor"
    )]
    Stale,
}

/// Disagreements between the headers of a request and its body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// A required header is missing.
    #[error("the {name} header is missing, the body has {body:?}")]
    Missing {
        /// The header.
        name: HeaderName,
        /// The body's value, truncated.
        body: String,
    },
    /// Duplicate header.
    #[error("duplicate {name} header")]
    Duplicate {
        /// The header.
        name: HeaderName,
    },
    /// The header and the body have different values.
    #[error("the {name} header has {header:?}, the body {body:?}")]
    Mismatch {
        /// The header.
        name: HeaderName,
        /// The header's value, truncated.
        header: String,
        /// The body's value, truncated.
        body: String,
    },
    /// The header's value cannot be decoded.
    #[error("cannot decode the {name} header: {fault}")]
    Encoding {
        /// The header.
        name: HeaderName,
        /// The fault of the value.
        fault: HeaderValueError,
    },
    /// A header that mirrors a parameter is missing. Parameters may be secrets, so this variant
    /// and the next two carry no values: the text is sent to the client and logged.
    #[error("the {name} header is missing, but the arguments have a value for it")]
    ParamMissing {
        /// The header.
        name: HeaderName,
    },
    /// A header mirrors a parameter that the body does not have.
    #[error("unexpected {name} header: the arguments have no value for it")]
    ParamUnexpected {
        /// The header.
        name: HeaderName,
    },
    /// A header and the parameter that it mirrors differ.
    #[error("the {name} header does not match the arguments")]
    ParamMismatch {
        /// The header.
        name: HeaderName,
    },
    /// The arguments that the headers mirror cannot be parsed.
    #[error("cannot compare the headers with the arguments: {0}")]
    Arguments(JsonError),
}

/// Reasons to reject a `requestState`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum StateError {
    /// Not sealed by this gateway, changed, or another principal's.
    #[error("it was not issued to this client, or was modified")]
    Invalid,
    /// Sealed by this gateway, but expired.
    #[error("it has expired")]
    Expired,
    /// Sealed by this gateway, for a different request.
    #[error("it belongs to a request with another method or other params")]
    OtherRequest,
    /// The call that it continues has ended, or was already continued.
    #[error("its call is no longer waiting for input")]
    Ended,
    /// It proves the user's consent to one call, which has been made already.
    #[error("the call with the consent of the user was already made: call again without it")]
    Used,
}

/// A client's refusals of input that a server requested.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InputError {
    /// The user declined.
    #[error("the user declined")]
    Declined,
    /// The user dismissed the request without a choice.
    #[error("the user did not answer")]
    Dismissed,
    /// The client answered with an error.
    #[error("{}", message.as_deref().unwrap_or("no reason given"))]
    Error {
        /// The error's message, truncated.
        message: Option<String>,
    },
}

/// Reasons not to make a call that needs the user's consent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ConfirmationError {
    /// The user declined.
    #[error("the user declined")]
    Declined,
    /// The user dismissed the question without a choice.
    #[error("the user did not answer")]
    Dismissed,
    /// The client cannot show a form to its user.
    #[error("this client cannot ask its user (elicitation)")]
    CannotAsk,
    /// The user was not asked.
    #[error("the user was not asked")]
    NotAsked,
    /// The arguments have a duplicate key or a number that is out of range, or are nested too deeply.
    #[error(
        "its arguments cannot be shown to the user: a duplicate key, a number that is out of range, or \
         nested too deeply"
    )]
    UnreadableArguments,
    /// There are too many arguments.
    #[error("its arguments are too many to be shown to the user")]
    TooManyArguments,
}

/// A capability that a client would have to declare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NeededCapability {
    /// Sampling.
    Sampling,
    /// Sampling with tools.
    SamplingTools,
    /// Roots.
    Roots,
    /// Elicitation with a form.
    ElicitationForm,
    /// Elicitation with a URL.
    ElicitationUrl,
    /// The tasks extension.
    Tasks,
}

impl NeededCapability {
    /// Returns the `ClientCapabilities` object that declares it.
    pub fn to_json(self) -> Value {
        match self {
            Self::Sampling => json!({ "sampling": {} }),
            Self::SamplingTools => json!({ "sampling": { "tools": {} } }),
            Self::Roots => json!({ "roots": {} }),
            Self::ElicitationForm => json!({ "elicitation": { "form": {} } }),
            Self::ElicitationUrl => json!({ "elicitation": { "url": {} } }),
            Self::Tasks => json!({ "extensions": { meta::TASKS: {} } }),
        }
    }
}

impl NeededCapability {
    /// Returns the part of the request that it is about, for texts after the method.
    pub fn part(self) -> &'static str {
        match self {
            Self::SamplingTools => " with tools",
            Self::ElicitationForm => " with a form",
            Self::ElicitationUrl => " with a URL",
            Self::Sampling | Self::Roots | Self::Tasks => "",
        }
    }
}

impl fmt::Display for NeededCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.to_json().fmt(f)
    }
}

impl From<RequestFault> for Failure {
    fn from(fault: RequestFault) -> Self {
        Self::InvalidRequest(Box::new(fault))
    }
}

impl From<FrameFault> for Failure {
    fn from(fault: FrameFault) -> Self {
        match fault {
            FrameFault::Syntax(fault) => Self::Parse(ParseFault::Syntax(fault)),
            FrameFault::Depth(fault) => Self::Parse(ParseFault::Depth(fault)),
            other => RequestFault::Frame(other).into(),
        }
    }
}

impl From<QueryFault> for Failure {
    fn from(fault: QueryFault) -> Self {
        RequestFault::Query(fault).into()
    }
}

impl From<ParamsFault> for Failure {
    fn from(fault: ParamsFault) -> Self {
        Self::InvalidParams(fault)
    }
}

impl From<CursorError> for Failure {
    fn from(error: CursorError) -> Self {
        ParamsFault::Cursor(error).into()
    }
}

impl From<HeaderFault> for Failure {
    fn from(fault: HeaderFault) -> Self {
        Self::HeaderMismatch(Box::new(fault))
    }
}

impl From<StateError> for Failure {
    fn from(error: StateError) -> Self {
        Self::InvalidState(error)
    }
}

impl From<InputError> for Failure {
    fn from(refusal: InputError) -> Self {
        Self::InputRefused(refusal)
    }
}
