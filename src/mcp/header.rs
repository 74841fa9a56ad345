//! Header names of the Streamable HTTP transport, in the lower case of HTTP/2.

use http::HeaderName;

/// The protocol version of the request.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Modern: the JSON-RPC method, mirrored.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Modern: `params.name` or `params.uri`, mirrored.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Modern: what the names of mirrored tool parameters begin with.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// Legacy: the session.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// Legacy: the last event that a client has of a stream that it resumes.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells reverse proxies not to hold a stream's events back.
pub const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// W3C Trace Context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// W3C Trace Context.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");
