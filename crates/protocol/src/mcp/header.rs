//! Header names of the Streamable HTTP transport, in the lower case of HTTP/2, and the reading of
//! headers that may be sent only once.

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
/// Asks reverse proxies not to buffer a stream's events.
pub const ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");
/// W3C Trace Context.
pub const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// W3C Trace Context.
pub const TRACESTATE: HeaderName = HeaderName::from_static("tracestate");

/// A header was sent more than once: an intermediary may have acted on another of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("duplicate header")]
pub struct DuplicateHeaderError;

/// The headers that describe a message, found in one pass.
#[derive(Debug, Default)]
pub struct MessageHeaders<'a> {
    /// `MCP-Protocol-Version`.
    pub version: SentHeader<'a>,
    /// `Mcp-Method`.
    pub method: SentHeader<'a>,
    /// `Mcp-Name`.
    pub name: SentHeader<'a>,
}

/// The values of a header.
#[derive(Debug, Clone, Copy, Default)]
pub struct SentHeader<'a> {
    first: Option<&'a HeaderValue>,
    is_duplicate: bool,
}

impl<'a> MessageHeaders<'a> {
    /// Finds the headers of a message.
    pub fn read(headers: &'a HeaderMap) -> Self {
        let mut found = Self::default();
        for (name, value) in headers {
            let header = match name.as_str() {
                "mcp-protocol-version" => &mut found.version,
                "mcp-method" => &mut found.method,
                "mcp-name" => &mut found.name,
                _ => continue,
            };
            header.is_duplicate = header.first.is_some();
            header.first.get_or_insert(value);
        }
        found
    }
}

impl<'a> SentHeader<'a> {
    /// The value of a header that may be sent only once; `None` if it was not sent.
    ///
    /// # Errors
    /// [`DuplicateHeaderError`].
    #[inline]
    pub fn single(self) -> Result<Option<&'a HeaderValue>, DuplicateHeaderError> {
        if self.is_duplicate { Err(DuplicateHeaderError) } else { Ok(self.first) }
    }

    /// The first value as text; `None` if the header was not sent, or holds anything but visible
    /// ASCII, spaces and tabs.
    #[inline]
    pub fn text(self) -> Option<&'a str> {
        self.first.and_then(|value| value.to_str().ok())
    }
}

/// The value of a header that may be sent only once; `None` if it was not sent.
///
/// # Errors
/// [`DuplicateHeaderError`].
pub fn single_value<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a HeaderValue>, DuplicateHeaderError> {
    let value = headers.get(name);
    // Most requests have no duplicate of any header, which is cheaper to find out.
    let may_be_duplicate = value.is_some() && headers.len() > headers.keys_len();
    if may_be_duplicate && headers.get_all(name).iter().nth(1).is_some() {
        return Err(DuplicateHeaderError);
    }
    Ok(value)
}

/// The first value of a header as text; `None` if it was not sent, or holds anything but visible
/// ASCII, spaces and tabs.
#[inline]
pub fn text_value<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_of_a_message_are_found_and_duplicates_are_noticed() {
        let value = HeaderValue::from_static;
        let mut headers = HeaderMap::new();
        assert_eq!(MessageHeaders::read(&headers).version.single(), Ok(None));
        headers.insert(PROTOCOL_VERSION, value("v"));
        headers.insert(METHOD, value("m"));
        headers.insert(NAME, value("n"));
        let found = MessageHeaders::read(&headers);
        let texts = [found.version, found.method, found.name].map(SentHeader::text);
        assert_eq!(texts, [Some("v"), Some("m"), Some("n")]);
        assert_eq!(found.method.single(), Ok(Some(&value("m"))));
        headers.append(METHOD, value("m"));
        headers.append(METHOD, value("m"));
        let found = MessageHeaders::read(&headers);
        assert_eq!(found.method.single(), Err(DuplicateHeaderError));
        assert_eq!(found.method.text(), Some("m"));
        assert!(found.name.single().is_ok());
    }
}
