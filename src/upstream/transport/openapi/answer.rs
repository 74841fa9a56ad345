//! From an HTTP response to a tool's result.

use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK, LOCATION};
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::value::RawValue;

use crate::jsonrpc::{MAX_SERVER_DEPTH, string, within_depth};
use crate::mcp::media_type_essence;
use crate::text::clip;

use super::body::{BodyFormat, OCTETS};
use super::outputs::ResultWrapping;

/// A response whose body has been read.
pub(super) struct ApiAnswer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
}

/// The content of a body, by its media type.
pub(super) enum AnswerContent<'a> {
    /// Valid JSON.
    Json(&'a RawValue),
    /// Text.
    Text(&'a str),
    /// Anything else.
    Bytes,
}

impl ApiAnswer {
    /// The media type without its parameters, in lower case.
    pub(super) fn media_type(&self) -> String {
        let value = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        media_type_essence(value.unwrap_or_default())
    }

    /// What the body is. A body without a media type is what it can be read as.
    pub(super) fn content(&self) -> AnswerContent<'_> {
        let media_type = self.media_type();
        let json = || parse_json(&self.body).map(AnswerContent::Json);
        let text = || std::str::from_utf8(&self.body).ok().map(AnswerContent::Text);
        let is_known = |types: &[&str]| types.contains(&media_type.as_str());
        let found = match BodyFormat::of_media_type(&media_type) {
            format if format == BodyFormat::Json || is_known(&[""]) => json().or_else(text),
            format if format == BodyFormat::Text || is_known(&TEXTS) => text(),
            _ => None,
        };
        found.unwrap_or(AnswerContent::Bytes)
    }

    /// The result of a tool call. `uri` names what was requested, without its query.
    pub(super) fn tool_result(&self, wrapping: ResultWrapping, uri: &str) -> String {
        if !self.status.is_success() {
            return format!(
                "{{\"content\":[{}],\"isError\":true{}}}",
                text_block(&self.error_text()),
                self.meta()
            );
        }
        let meta = self.meta();
        if self.body.is_empty() {
            let sentence = format!("Done: HTTP {}, without content.", self.status);
            return format!("{{\"content\":[{}]{meta}}}", text_block(&sentence));
        }
        match self.content() {
            AnswerContent::Json(json) => {
                let structured = match (wrapping, json.get().starts_with('{')) {
                    (ResultWrapping::Arrays, true) => json.get().to_owned(),
                    _ => format!("{{\"result\":{}}}", json.get()),
                };
                format!(
                    "{{\"content\":[{}],\"structuredContent\":{structured}{meta}}}",
                    text_block(json.get())
                )
            }
            AnswerContent::Text(text) => format!("{{\"content\":[{}]{meta}}}", text_block(text)),
            AnswerContent::Bytes => format!("{{\"content\":[{}]{meta}}}", self.binary_block(uri)),
        }
    }

    /// A picture or a sound as such, and other bytes as a resource in the result.
    fn binary_block(&self, uri: &str) -> String {
        let media_type = self.media_type();
        let media_type = if media_type.is_empty() { OCTETS } else { &media_type };
        let data = self.base64();
        let mime = string(media_type);
        match media_type.split('/').next() {
            Some(kind @ ("image" | "audio")) => {
                format!("{{\"type\":\"{kind}\",\"data\":\"{data}\",\"mimeType\":{mime}}}")
            }
            _ => format!(
                "{{\"type\":\"resource\",\"resource\":{{\"uri\":{},\"mimeType\":{mime},\"blob\":\"{data}\"}}}}",
                string(uri)
            ),
        }
    }

    /// The body in base64.
    pub(super) fn base64(&self) -> String {
        STANDARD.encode(&self.body)
    }

    /// Status and message of a response that is no success.
    pub(super) fn error_text(&self) -> String {
        let mut text = format!("HTTP {}", self.status);
        let body = match self.content() {
            AnswerContent::Json(json) => json.get(),
            AnswerContent::Text(text) => text.trim(),
            AnswerContent::Bytes => "",
        };
        if !body.is_empty() {
            let shown = clip(body, LONGEST_MESSAGE);
            let _ = write!(text, ": {shown}");
            if shown.len() < body.len() {
                let _ = write!(text, "… ({} bytes more)", body.len() - shown.len());
            }
        }
        text
    }

    /// The headers that tell where to go on, as a `_meta` with its comma.
    fn meta(&self) -> String {
        let mut members = Vec::new();
        for (name, header) in META_HEADERS {
            let value = self.headers.get(header).and_then(|value| value.to_str().ok());
            // A clipped URL would be another one.
            if let Some(value) = value.filter(|value| value.len() <= LONGEST_HEADER) {
                members.push(format!("\"{name}\":{}", string(value)));
            }
        }
        if members.is_empty() {
            String::new()
        } else {
            format!(",\"_meta\":{{{}}}", members.join(","))
        }
    }
}

fn parse_json(body: &[u8]) -> Option<&RawValue> {
    within_depth(body, MAX_SERVER_DEPTH).ok()?;
    serde_json::from_slice(body).ok()
}

/// A content block of text.
pub(super) fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", string(text))
}

/// The result of a call that was not sent: the model can correct it.
pub(super) fn refusal(fault: &dyn std::error::Error) -> String {
    format!("{{\"content\":[{}],\"isError\":true}}", text_block(&fault.to_string()))
}

/// Headers that are passed on, by the key of the result's `_meta`: pagination, the place of what
/// was created, and how long to wait.
const META_HEADERS: [(&str, HeaderName); 3] = [
    ("http/link", LINK),
    ("http/location", LOCATION),
    ("http/retry-after", http::header::RETRY_AFTER),
];
/// Media types of text whose names do not tell: streams of JSON values, and scripts.
const TEXTS: [&str; 3] = ["application/x-ndjson", "application/jsonl", "application/javascript"];
/// The most bytes of a server's error message in a result.
const LONGEST_MESSAGE: usize = 4096;
/// The most bytes of a header in `_meta`.
const LONGEST_HEADER: usize = 4096;

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::{Value, json};

    use super::*;

    fn result(status: u16, media_type: &str, body: &[u8], wrapping: ResultWrapping) -> Value {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_str(media_type).unwrap());
        headers.insert(LINK, HeaderValue::from_static("</x?page=2>; rel=\"next\""));
        let body = Bytes::copy_from_slice(body);
        let answer = ApiAnswer { status: StatusCode::from_u16(status).unwrap(), headers, body };
        let text = answer.tool_result(wrapping, "http://a.test/x");
        let mut result: Value = serde_json::from_str(&text).unwrap();
        let meta = result.as_object_mut().unwrap().remove("_meta").unwrap();
        assert_eq!(meta, json!({ "http/link": "</x?page=2>; rel=\"next\"" }));
        result
    }

    #[test]
    fn each_kind_of_answer_becomes_its_kind_of_content() {
        let text = |text: &str| json!([{ "type": "text", "text": text }]);
        let plain = ResultWrapping::Arrays;
        for (media_type, body, wrapping, expected) in [
            (
                "application/json",
                &br#"{"a": 1}"#[..],
                plain,
                json!({ "content": text("{\"a\": 1}"), "structuredContent": { "a": 1 } }),
            ),
            (
                "application/problem+json; charset=utf-8",
                b"[1]",
                plain,
                json!({ "content": text("[1]"), "structuredContent": { "result": [1] } }),
            ),
            (
                "application/json",
                b"{}",
                ResultWrapping::Always,
                json!({ "content": text("{}"), "structuredContent": { "result": {} } }),
            ),
            ("application/json", b"{no", plain, json!({ "content": text("{no") })),
            ("text/csv", b"a,b", plain, json!({ "content": text("a,b") })),
            (
                "image/png",
                b"hi",
                plain,
                json!({ "content": [{ "type": "image", "data": "aGk=", "mimeType": "image/png" }] }),
            ),
            (
                "audio/wav",
                b"hi",
                plain,
                json!({ "content": [{ "type": "audio", "data": "aGk=", "mimeType": "audio/wav" }] }),
            ),
            (
                "application/pdf",
                b"hi",
                plain,
                json!({ "content": [{ "type": "resource", "resource": { "uri": "http://a.test/x", "mimeType": "application/pdf", "blob": "aGk=" } }] }),
            ),
            (
                "text/plain",
                b"",
                plain,
                json!({ "content": text("Done: HTTP 200 OK, without content.") }),
            ),
        ] {
            assert_eq!(result(200, media_type, body, wrapping), expected, "{media_type}");
        }
    }

    #[test]
    fn an_error_has_the_status_and_the_servers_message_within_a_bound() {
        let said = result(404, "application/json", br#"{"detail":"gone"}"#, ResultWrapping::Always);
        let text = "HTTP 404 Not Found: {\"detail\":\"gone\"}";
        assert_eq!(said, json!({ "content": [{ "type": "text", "text": text }], "isError": true }));
        let long = vec![b'x'; 10_000];
        let said = result(500, "text/plain", &long, ResultWrapping::Arrays);
        let text = said["content"][0]["text"].as_str().unwrap();
        assert!(text.len() < 4200 && text.ends_with("… (5904 bytes more)"), "{text}");
    }
}
