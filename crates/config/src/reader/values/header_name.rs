//! The name of a header that a configuration may set or forward.

use http::HeaderName;

use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::setting::TextSetting;

/// The name of a header that a configuration may set or forward.
pub(crate) struct HeaderSetting;

impl HeaderSetting {
    /// Parses a name, and rejects headers that the gateway writes itself.
    pub(crate) fn from_text(text: &str) -> Result<HeaderName, SettingFault> {
        let name = HeaderName::from_bytes(text.as_bytes()).map_err(|_| SettingFault::HeaderName)?;
        let lower = name.as_str();
        if lower.starts_with("mcp-") {
            let reason = "headers that begin with Mcp- are reserved for the protocol";
            return Err(SettingFault::HeaderReserved { reason });
        }
        match RESERVED_HEADERS.iter().find(|(_, names)| names.contains(&lower)) {
            Some((reason, _)) => Err(SettingFault::HeaderReserved { reason }),
            None => Ok(name),
        }
    }
}

impl TextSetting for HeaderSetting {
    type Value = HeaderName;
    const WORD: &'static str = "header name";
    const EXAMPLE: &'static str = "\"X-Request-Id\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<HeaderName>, SettingFault> {
        Self::from_text(text).map(Some)
    }
}

/// Headers that must not be fixed or forwarded, and the reason.
const RESERVED_HEADERS: [(&str, &[&str]); 4] = [
    // RFC 9110, section 7.6.1, and headers that older software treats likewise.
    (
        "it belongs to one connection, not to the message",
        &[
            "connection",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ],
    ),
    ("it follows from the URL", &["host"]),
    ("it follows from the body", &["content-length", "content-type", "content-encoding", "expect"]),
    ("the gateway must understand the answer", &["accept", "accept-encoding", "last-event-id"]),
];
