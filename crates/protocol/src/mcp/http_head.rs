//! Headers of the HTTP requests that the gateway sends as an MCP client: to servers, and from
//! `trunkline stdio --connect` to a gateway.

use http::header::ACCEPT;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::header::{LAST_EVENT_ID, METHOD, NAME, PROTOCOL_VERSION, SESSION_ID};
use super::{MediaType, Method};

/// Adds the headers of every Modern request (2026-07-28, Streamable HTTP, "Standard Request
/// Headers"). `name` is the encoded subject of a method that has one.
#[inline]
pub fn add_modern_headers(
    headers: &mut HeaderMap,
    version: Option<HeaderValue>,
    method: &Method,
    name: Option<HeaderValue>,
) {
    insert(headers, PROTOCOL_VERSION, version);
    headers.insert(METHOD, method.to_header());
    insert(headers, NAME, name);
}

/// Adds the headers of every request in a Legacy session, whose id some servers leave out
/// (2025-11-25, Transports, "Session Management" and "Protocol Version Header").
#[inline]
pub fn add_session_headers(
    headers: &mut HeaderMap,
    version: Option<HeaderValue>,
    session_id: Option<HeaderValue>,
) {
    insert(headers, PROTOCOL_VERSION, version);
    insert(headers, SESSION_ID, session_id);
}

/// Adds the headers of a GET of an event stream, which continues after `last_event_id` if there is
/// one (2025-11-25, Transports, "Resumability and Redelivery").
pub fn add_stream_headers(headers: &mut HeaderMap, last_event_id: Option<HeaderValue>) {
    headers.insert(ACCEPT, MediaType::EVENTS);
    insert(headers, LAST_EVENT_ID, last_event_id);
}

#[inline]
fn insert(headers: &mut HeaderMap, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        headers.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers that `add` adds, in the order of their names.
    fn added(add: impl FnOnce(&mut HeaderMap)) -> Vec<(String, String)> {
        let mut headers = HeaderMap::new();
        add(&mut headers);
        let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
        let mut added: Vec<_> =
            headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect();
        added.sort();
        added
    }

    fn pairs<const N: usize>(pairs: [(&str, &str); N]) -> Vec<(String, String)> {
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec()
    }

    #[test]
    fn a_request_has_the_headers_of_its_era_and_only_the_known_values() {
        let value = |text| Some(HeaderValue::from_static(text));
        let version = ("mcp-protocol-version", "v");
        assert_eq!(
            added(|it| add_modern_headers(it, value("v"), &Method::ToolsCall, value("clock"))),
            pairs([("mcp-method", "tools/call"), ("mcp-name", "clock"), version])
        );
        assert_eq!(
            added(|it| add_modern_headers(it, None, &Method::Discover, None)),
            pairs([("mcp-method", "server/discover")])
        );
        assert_eq!(
            added(|it| add_session_headers(it, value("v"), value("7"))),
            pairs([version, ("mcp-session-id", "7")])
        );
        assert_eq!(added(|it| add_session_headers(it, value("v"), None)), pairs([version]));
        assert_eq!(
            added(|it| add_stream_headers(it, value("7"))),
            pairs([("accept", "text/event-stream"), ("last-event-id", "7")])
        );
        assert_eq!(
            added(|it| add_stream_headers(it, None)),
            pairs([("accept", "text/event-stream")])
        );
    }
}
