//! The media types of the Streamable HTTP transport.

use http::HeaderMap;
use http::header::CONTENT_TYPE;

use crate::text::clip;

/// What a body is, as its `Content-Type` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MediaType {
    /// `application/json`: one message.
    Json,
    /// `text/event-stream`: events that carry messages.
    EventStream,
    /// Another one, or none.
    Other,
}

impl MediaType {
    /// The one that a message's headers name.
    pub fn of(headers: &HeaderMap) -> Self {
        headers.get(CONTENT_TYPE).map_or(Self::Other, |value| Self::parse(value.as_bytes()))
    }

    /// Reads the value of `Content-Type`; parameters such as `charset` say
    /// nothing about what it is.
    pub fn parse(value: &[u8]) -> Self {
        // As most programs write it, it is known at once.
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

/// A `Content-Type` as an error may quote it: visible, and cut to a sensible length.
pub fn quote_content_type(headers: &HeaderMap) -> String {
    let value = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    clip(value.unwrap_or_default(), 100).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_media_type_is_told_by_its_essence() {
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
