//! Text in HTTP header values: the Base64 sentinel that `Mcp-Name` and the
//! `Mcp-Param-*` headers share (MCP 2026-07-28, Streamable HTTP, "Value
//! Encoding").

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::HeaderValue;

/// Reason why a header value cannot be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HeaderValueError {
    /// A byte outside visible ASCII, space and tab.
    #[error("the header holds characters outside visible ASCII")]
    Characters,
    /// A sentinel without canonical Base64 between its marks.
    #[error("the header's Base64 is not valid")]
    Base64,
    /// The Base64 decodes to something other than UTF-8.
    #[error("the header's Base64 does not hold UTF-8")]
    Utf8,
}

/// Encodes `text` as a header value: literally if that is safe and unambiguous,
/// otherwise as Base64 between the marks.
pub fn encode_value(text: &str) -> HeaderValue {
    if is_plain_value(text)
        && let Ok(value) = HeaderValue::from_str(text)
    {
        return value;
    }
    let encoded = format!("{BASE64_PREFIX}{}{BASE64_SUFFIX}", STANDARD.encode(text));
    // Base64 and the marks are visible ASCII, so the default is never used.
    HeaderValue::try_from(encoded).unwrap_or(HeaderValue::from_static("=?base64??="))
}

/// Decodes a header value.
///
/// # Errors
/// [`HeaderValueError`] for characters that no conforming client sends, and for
/// a sentinel around anything but padded, canonical Base64 of UTF-8.
pub fn decode_value(text: &str) -> Result<Cow<'_, str>, HeaderValueError> {
    if !is_visible(text) {
        return Err(HeaderValueError::Characters);
    }
    let Some(encoded) =
        text.strip_prefix(BASE64_PREFIX).and_then(|rest| rest.strip_suffix(BASE64_SUFFIX))
    else {
        return Ok(Cow::Borrowed(text));
    };
    let bytes = STANDARD.decode(encoded).map_err(|_| HeaderValueError::Base64)?;
    String::from_utf8(bytes).map(Cow::Owned).map_err(|_| HeaderValueError::Utf8)
}

/// Returns true if a text may be sent literally. HTTP allows an empty value, but some proxies drop
/// such a header, and the call would be rejected as a mismatch; so an empty text is encoded.
fn is_plain_value(text: &str) -> bool {
    let padded = text.starts_with([' ', '\t']) || text.ends_with([' ', '\t']);
    !text.is_empty() && is_visible(text) && !padded && !is_encoded_value(text)
}

/// Returns true if a text is visible ASCII, spaces and tabs only.
fn is_visible(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

/// Returns true if a header value has the marks of the sentinel.
#[inline]
pub fn is_encoded_value(text: &str) -> bool {
    text.starts_with(BASE64_PREFIX) && text.ends_with(BASE64_SUFFIX)
}

const BASE64_PREFIX: &str = "=?base64?";
const BASE64_SUFFIX: &str = "?=";

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn values_are_encoded_as_the_specification_shows() {
        for (text, header) in [
            ("us-west1", "us-west1"),
            ("a b\tc", "a b\tc"),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" padded ", "=?base64?IHBhZGRlZCA=?="),
            ("line1\nline2", "=?base64?bGluZTEKbGluZTI=?="),
            ("=?base64?literal?=", "=?base64?PT9iYXNlNjQ/bGl0ZXJhbD89?="),
            ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
            ("", "=?base64??="),
        ] {
            assert_eq!(encode_value(text), header, "{text:?}");
            assert_eq!(decode_value(header).as_deref(), Ok(text));
        }
    }

    #[test]
    fn a_value_no_conforming_client_sends_is_refused() {
        for (text, error) in [
            ("=?base64?SGVsbG8?=", HeaderValueError::Base64),
            ("=?base64?SGVsb G8=?=", HeaderValueError::Base64),
            ("=?base64?SGVsbG9=?=", HeaderValueError::Base64),
            ("=?base64?_w==?=", HeaderValueError::Base64),
            ("=?base64?/w==?=", HeaderValueError::Utf8),
            ("café", HeaderValueError::Characters),
        ] {
            assert_eq!(decode_value(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn the_marks_are_case_sensitive() {
        assert_eq!(decode_value("=?BASE64?SGVsbG8=?=").as_deref(), Ok("=?BASE64?SGVsbG8=?="));
    }

    proptest! {
        #[test]
        fn every_text_survives_the_way_there_and_back(text in ".*") {
            let value = encode_value(&text);
            prop_assert_eq!(decode_value(value.to_str().unwrap()), Ok(Cow::Borrowed(&*text)));
        }
    }
}
