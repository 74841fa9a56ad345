//! Header names of the Streamable HTTP transport, in the lower case of HTTP/2, and how a header
//! that may be sent only once is read.

use http::{HeaderMap, HeaderName, HeaderValue};

/// The protocol version of the request.
pub const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
/// Modern: the JSON-RPC method, mirrored.
pub const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Modern: `params.name` or `params.uri`, mirrored.
pub const NAME: HeaderName = HeaderName::from_static("mcp-name");
/// Modern: the prefix of headers that mirror tool parameters.
pub const PARAM_PREFIX: &str = "mcp-param-";
/// Legacy: the session id.
pub const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
/// Legacy: the last event that a client has received of a stream that it resumes.
pub const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
/// Tells reverse proxies not to buffer a stream's events.
pub const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// W3C Trace Context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// W3C Trace Context.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A header was sent more than once: an intermediary may have acted on another of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("duplicate header")]
pub struct DuplicateHeader;

/// The value of a header that may be sent only once; `None` if it was not sent.
///
/// # Errors
/// [`DuplicateHeader`].
pub fn single_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, DuplicateHeader> {
    let value = headers.get(name);
    // Most requests have no duplicate of any header, which is cheaper to tell.
    let may_be_duplicate = value.is_some() && headers.len() > headers.keys_len();
    if may_be_duplicate && headers.get_all(name).iter().nth(1).is_some() {
        return Err(DuplicateHeader);
    }
    Ok(value)
}

/// The first value of a header as text; `None` if it was not sent, or holds anything but visible
/// ASCII, spaces and tabs.
pub fn text_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}
