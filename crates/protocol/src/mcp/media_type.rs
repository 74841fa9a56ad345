//! The media types of the Streamable HTTP transport.

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use trunkline_core::text::clip;

/// The media type of a body, from its `Content-Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaType {
    /// `application/json`: one message.
    Json,
    /// `text/event-stream`: events that carry messages.
    EventStream,
    /// Another media type, or none.
    Other,
}

impl MediaType {
    /// The `Content-Type` of a message.
    pub const JSON: HeaderValue = HeaderValue::from_static("application/json");
    /// The `Content-Type` of events, and the `Accept` of a client that wants nothing else.
    pub const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
    /// The `Accept` of a client that posts a message.
    pub const JSON_OR_EVENTS: HeaderValue =
        HeaderValue::from_static("application/json, text/event-stream");

    /// The media type in a message's headers.
    pub fn of(headers: &HeaderMap) -> Self {
        headers.get(CONTENT_TYPE).map_or(Self::Other, |value| Self::parse(value.as_bytes()))
    }

    /// Parses the value of `Content-Type`; parameters such as `charset` are ignored.
    pub fn parse(value: &[u8]) -> Self {
        // Fast path for the usual spellings.
        match value {
            b"application/json" => return Self::Json,
            b"text/event-stream" => return Self::EventStream,
            _ => {}
        }
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        if essence.eq_ignore_ascii_case(b"application/json") {
            Self::Json
        } else if essence.eq_ignore_ascii_case(b"text/event-stream") {
            Self::EventStream
        } else {
            Self::Other
        }
    }
}

/// The media type without its parameters, in lower case (RFC 9110, section 8.3.1).
pub fn media_type_essence(value: &str) -> String {
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// A `Content-Type` for error messages: visible characters only, truncated.
pub fn quote_content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    clip(value.unwrap_or_default(), 100).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_recognised_by_its_essence() {
        for (value, expected) in [
            ("application/json", MediaType::Json),
            ("Application/JSON ; charset=utf-8", MediaType::Json),
            ("text/event-stream", MediaType::EventStream),
            ("text/event-stream;charset=UTF-8", MediaType::EventStream),
            ("text/event-streams", MediaType::Other),
            ("application/json-rpc", MediaType::Other),
            ("", MediaType::Other),
        ] {
            assert_eq!(MediaType::parse(value.as_bytes()), expected, "{value}");
        }
    }
}
