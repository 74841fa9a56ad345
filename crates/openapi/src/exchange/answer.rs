//! Conversion of an HTTP response to a tool's result.

use std::borrow::Cow;
use std::fmt::Write as _;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, LINK, LOCATION};
use http::{HeaderMap, HeaderName, StatusCode};
use serde_json::value::RawValue;

use trunkline_config::ServerSecrets;
use trunkline_core::text::{clip, skip_byte_order_mark};
use trunkline_jsonrpc::{MAX_SERVER_DEPTH, string, within_depth};
use trunkline_protocol::mcp::media_type_essence;

use crate::operations::operation::ApiOperation;
use crate::operations::outputs::ResultWrapping;
use crate::values::body::{BodyFormat, OCTET_STREAM_MEDIA_TYPE};

/// A response with its body read.
pub struct ApiAnswer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

/// The content of a body, by its media type.
pub(crate) enum AnswerContent<'a> {
    /// Valid JSON.
    Json(&'a RawValue),
    /// Text.
    Text(Cow<'a, str>),
    /// Anything else.
    Bytes,
}

impl ApiAnswer {
    /// Masks the gateway's credentials in a text body, because some APIs repeat the request's
    /// headers.
    #[must_use]
    pub fn without_credentials(mut self, secrets: &ServerSecrets) -> Self {
        let Ok(text) = std::str::from_utf8(&self.body) else { return self };
        if let Cow::Owned(masked) = secrets.hide_credentials_in(text) {
            self.body = masked.into();
        }
        self
    }

    /// Returns the media type without its parameters, in lower case.
    pub(crate) fn media_type(&self) -> String {
        let value = self.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        media_type_essence(value.unwrap_or_default())
    }

    /// Returns the content of the body by its media type. Without a media type, the first kind that
    /// fits is used.
    pub(crate) fn content(&self) -> AnswerContent<'_> {
        let media_type = self.media_type();
        let body = skip_byte_order_mark(&self.body);
        let json = || parse_json(body).map(AnswerContent::Json);
        let text = || self.decode_text(body).map(AnswerContent::Text);
        let is_known = |types: &[&str]| types.contains(&media_type.as_str());
        let found = match BodyFormat::of_media_type(&media_type) {
            format if format == BodyFormat::Json || is_known(&[""]) => json().or_else(text),
            format if format == BodyFormat::Text || is_known(&TEXT_MEDIA_TYPES) => text(),
            _ => None,
        };
        found.unwrap_or(AnswerContent::Bytes)
    }

    /// Decodes text in UTF-8, or in the encoding that an old server names.
    fn decode_text<'a>(&self, body: &'a [u8]) -> Option<Cow<'a, str>> {
        if let Ok(text) = std::str::from_utf8(body) {
            return Some(text.into());
        }
        let media_type = self.headers.get(CONTENT_TYPE)?.to_str().ok()?.to_ascii_lowercase();
        let (_, charset) = media_type.split_once("charset=")?;
        let charset = charset.split(';').next()?.trim_matches(['"', ' ']);
        // In ISO 8859-1 each byte is the character with that number.
        let is_latin = matches!(charset, "iso-8859-1" | "latin1" | "us-ascii");
        is_latin.then(|| body.iter().map(|byte| char::from(*byte)).collect())
    }

    /// Returns the result of a call of the operation's tool. `uri` names the requested resource,
    /// without its query.
    pub fn tool_result(
        &self,
        operation: &ApiOperation,
        uri: &str,
        secrets: &ServerSecrets,
    ) -> String {
        let meta = self.meta(secrets);
        let error =
            |text: &str| format!("{{\"content\":[{}],\"isError\":true{meta}}}", text_block(text));
        if !self.status.is_success() {
            return error(&self.error_text(secrets));
        }
        let content = match self.content() {
            AnswerContent::Json(json) if !self.body.is_empty() => {
                let structured = match (operation.wrapping, json.get().starts_with('{')) {
                    (ResultWrapping::Arrays, true) => json.get().to_owned(),
                    _ => format!("{{\"result\":{}}}", json.get()),
                };
                let text = text_block(json.get());
                return format!(
                    "{{\"content\":[{text}],\"structuredContent\":{structured}{meta}}}"
                );
            }
            // Clients drop a result that violates its output schema, unless it is an error.
            _ if operation.has_output => {
                return error(&format!(
                    "The request was successful, but its answer is not the JSON that the API's \
                     document promises. {}",
                    self.error_text(secrets)
                ));
            }
            _ if self.body.is_empty() => {
                text_block(&format!("Done: HTTP {}, without content.", self.status))
            }
            AnswerContent::Text(text) => text_block(&text),
            AnswerContent::Json(_) | AnswerContent::Bytes => self.binary_block(uri),
        };
        format!("{{\"content\":[{content}]{meta}}}")
    }

    /// Returns a content block for bytes: an image or a sound as such, anything else as an embedded
    /// resource.
    fn binary_block(&self, uri: &str) -> String {
        let media_type = self.media_type();
        let media_type = if media_type.is_empty() { OCTET_STREAM_MEDIA_TYPE } else { &media_type };
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

    /// Returns the body in base64.
    pub(crate) fn base64(&self) -> String {
        STANDARD.encode(&self.body)
    }

    /// Returns the status and the server's message, without the secrets that servers repeat.
    pub(crate) fn error_text(&self, secrets: &ServerSecrets) -> String {
        let mut text = format!("HTTP {}", self.status);
        let body = match self.content() {
            AnswerContent::Json(json) => Cow::Borrowed(json.get()),
            AnswerContent::Text(text) => text,
            AnswerContent::Bytes => Cow::default(),
        };
        let body = secrets.hide_in(body.trim());
        if !body.is_empty() {
            let shown = clip(&body, MAX_ERROR_MESSAGE_BYTES);
            let _ = write!(text, ": {shown}");
            if shown.len() < body.len() {
                let _ = write!(text, "… ({} bytes more)", body.len() - shown.len());
            }
        }
        text
    }

    /// Returns the headers for the model's next request, as a `_meta` with its comma.
    pub(crate) fn meta(&self, secrets: &ServerSecrets) -> String {
        let mut members = Vec::new();
        for (name, header) in META_HEADERS {
            // Several lines of a list form one list (RFC 9110, section 5.3).
            let lines = self.headers.get_all(header).iter();
            let value = lines.filter_map(|line| line.to_str().ok()).collect::<Vec<_>>().join(", ");
            // A clipped URL would be a different one.
            if !value.is_empty() && value.len() <= MAX_HEADER_BYTES {
                members.push(format!("\"{name}\":{}", string(&secrets.hide_in(&value))));
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

/// Returns a content block of text.
pub(crate) fn text_block(text: &str) -> String {
    format!("{{\"type\":\"text\",\"text\":{}}}", string(text))
}

/// Returns the result of a call that was not sent. The model can correct the call.
pub fn refusal(fault: &dyn std::error::Error) -> String {
    format!("{{\"content\":[{}],\"isError\":true}}", text_block(&fault.to_string()))
}

/// Forwarded headers with their keys in the result's `_meta`: pagination, the URL of a created
/// resource, and the time to wait.
const META_HEADERS: [(&str, HeaderName); 3] = [
    ("http/link", LINK),
    ("http/location", LOCATION),
    ("http/retry-after", http::header::RETRY_AFTER),
];
/// Media types of text that do not look like text: streams of JSON values, and scripts.
const TEXT_MEDIA_TYPES: [&str; 3] =
    ["application/x-ndjson", "application/jsonl", "application/javascript"];
/// Maximum number of bytes of a server's error message in a result.
const MAX_ERROR_MESSAGE_BYTES: usize = 4096;
/// Maximum number of bytes of a header in `_meta`.
const MAX_HEADER_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use serde_json::{Value, json};

    use super::*;
    use crate::values::security::OperationSecurity;

    fn operation(wrapping: ResultWrapping) -> ApiOperation {
        ApiOperation {
            label: "GET /x".into(),
            method: http::Method::GET,
            path: Vec::new(),
            parameters: Vec::new(),
            body: None,
            security: OperationSecurity::default(),
            wrapping,
            has_output: wrapping == ResultWrapping::Always,
        }
    }

    fn result(status: u16, media_type: &str, body: &[u8], wrapping: ResultWrapping) -> Value {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_str(media_type).unwrap());
        headers.insert(LINK, HeaderValue::from_static("</x?page=2&k=hunter2>; rel=\"next\""));
        let body = Bytes::copy_from_slice(body);
        let answer = ApiAnswer { status: StatusCode::from_u16(status).unwrap(), headers, body };
        let secrets = ServerSecrets::new(["hunter2"]);
        let text = answer.tool_result(&operation(wrapping), "http://a.test/x", &secrets);
        let mut result: Value = serde_json::from_str(&text).unwrap();
        let meta = result.as_object_mut().unwrap().remove("_meta").unwrap();
        assert_eq!(meta, json!({ "http/link": "</x?page=2&k=***>; rel=\"next\"" }));
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
            (
                "application/json",
                b"\xef\xbb\xbf{}",
                plain,
                json!({ "content": text("{}"), "structuredContent": {} }),
            ),
            ("text/plain; charset=ISO-8859-1", b"\xe9", plain, json!({ "content": text("é") })),
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

    #[test]
    fn an_error_says_nothing_secret() {
        let body = br#"{"detail":"the key hunter2 is wrong"}"#;
        let said = result(401, "application/json", body, ResultWrapping::Arrays);
        let text = said["content"][0]["text"].as_str().unwrap();
        assert_eq!(text, "HTTP 401 Unauthorized: {\"detail\":\"the key *** is wrong\"}");
    }

    #[test]
    fn an_answer_that_lacks_promised_fields_is_an_error_with_the_reason() {
        for (media_type, body) in [("application/json", &b""[..]), ("text/html", b"<p>")] {
            let said = result(200, media_type, body, ResultWrapping::Always);
            let text = said["content"][0]["text"].as_str().unwrap();
            assert!(text.starts_with("The request was successful, but"), "{text}");
            assert_eq!(said["isError"], true);
        }
    }
}
