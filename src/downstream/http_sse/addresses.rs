//! Addresses of the old transport: those of streams, and those that messages are posted to.
//!
//! A gateway alone finds the endpoint of a message by its stream: `/message?session=ID`. A replica that
//! does not have the stream knows the endpoint by the address: `/message/NAME?tools=x*&session=ID` for
//! the stream `/sse/NAME?tools=x*`. The id is sealed with both, and is worthless at another endpoint.

use bytes::{BufMut, Bytes, BytesMut};
use http::Uri;

/// Kinds of addresses of the old transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OldAddress {
    /// A stream is opened.
    Stream,
    /// A message is posted.
    Messages,
    /// A message is posted, to a stream at a profile.
    MessagesAtProfile,
}

impl OldAddress {
    /// Recognizes the path of an address.
    pub(super) fn parse(path: &str) -> Option<Self> {
        if path.strip_prefix(STREAM_PATH).is_some_and(is_end_of_segment) {
            return Some(Self::Stream);
        }
        match path.strip_prefix(MESSAGES_PATH)? {
            "" => Some(Self::Messages),
            rest => rest.starts_with('/').then_some(Self::MessagesAtProfile),
        }
    }
}

fn is_end_of_segment(rest: &str) -> bool {
    rest.is_empty() || rest.starts_with('/')
}

/// Returns the endpoint for the address of a stream: `/mcp/x?y` for `/sse/x?y`.
pub(super) fn endpoint_of_stream(uri: &Uri) -> Uri {
    let all = uri.path_and_query().map_or(STREAM_PATH, |all| all.as_str());
    let rest = all.strip_prefix(STREAM_PATH).unwrap_or_default();
    format!("{ENDPOINT_PATH}{rest}").parse().unwrap_or_else(|_| default_endpoint())
}

/// Returns the endpoint that the address of a message names: `/mcp/x?y` for `/message/x?y&session=ID`.
pub(super) fn endpoint_of_messages(uri: &Uri) -> Uri {
    let path = uri.path().strip_prefix(MESSAGES_PATH).unwrap_or_default();
    let parameters = uri.query().unwrap_or_default().split('&');
    let parameters = parameters.filter(|it| !it.starts_with(ID_PARAMETER));
    let query = parameters.collect::<Vec<_>>().join("&");
    format!("{ENDPOINT_PATH}{path}?{query}").parse().unwrap_or_else(|_| default_endpoint())
}

/// Returns the id of the stream that a message is posted to.
pub(super) fn stream_id(uri: &Uri) -> Option<&str> {
    uri.query()?.split('&').find_map(|parameter| parameter.strip_prefix(ID_PARAMETER))
}

/// Returns the address for messages to a stream: `/message/x?y&session=ID` for the endpoint `/mcp/x?y`.
pub(super) fn address_of_messages(endpoint: &Uri, id: &str) -> String {
    let rest = endpoint.path_and_query().and_then(|it| it.as_str().strip_prefix(ENDPOINT_PATH));
    let rest = rest.unwrap_or_default();
    let separator = if rest.contains('?') { '&' } else { '?' };
    format!("{MESSAGES_PATH}{rest}{separator}{ID_PARAMETER}{id}")
}

/// Builds the event that opens a stream (2024-11-05, Transports, "HTTP with SSE").
pub(super) fn endpoint_event(address: &str) -> Bytes {
    let mut event = BytesMut::with_capacity(32 + address.len());
    event.put_slice(b"event: endpoint\ndata: ");
    event.put_slice(address.as_bytes());
    event.put_slice(b"\n\n");
    event.freeze()
}

/// Returns the endpoint of the default profile.
pub(super) fn default_endpoint() -> Uri {
    Uri::from_static(ENDPOINT_PATH)
}

/// Path of endpoints.
const ENDPOINT_PATH: &str = "/mcp";
/// Path of streams.
const STREAM_PATH: &str = "/sse";
/// Path of posted messages.
const MESSAGES_PATH: &str = "/message";
/// Parameter with the id of a stream.
const ID_PARAMETER: &str = "session=";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_of_a_stream_names_an_endpoint() {
        for (stream, endpoint) in [
            ("/sse", "/mcp"),
            ("/sse?servers=a", "/mcp?servers=a"),
            ("/sse/team?tools=x*", "/mcp/team?tools=x*"),
        ] {
            assert_eq!(
                OldAddress::parse(stream.split('?').next().unwrap()),
                Some(OldAddress::Stream)
            );
            assert_eq!(endpoint_of_stream(&Uri::from_static(stream)).to_string(), endpoint);
        }
    }

    #[test]
    fn the_address_for_messages_names_the_endpoint_and_the_stream() {
        for (endpoint, address) in [
            ("/mcp", "/message?session=1"),
            ("/mcp?servers=a", "/message?servers=a&session=1"),
            ("/mcp/", "/message/?session=1"),
            ("/mcp/team?tools=x*&servers=", "/message/team?tools=x*&servers=&session=1"),
        ] {
            let built = address_of_messages(&Uri::from_static(endpoint), "1");
            assert_eq!(built, address);
            let uri: Uri = built.parse().unwrap();
            assert_eq!(stream_id(&uri), Some("1"));
            let named = endpoint_of_messages(&uri);
            let query = |uri: &Uri| uri.query().unwrap_or_default().to_owned();
            let endpoint = Uri::from_static(endpoint);
            assert_eq!((named.path(), query(&named)), (endpoint.path(), query(&endpoint)));
        }
    }

    #[test]
    fn other_paths_are_no_addresses_of_the_old_transport() {
        for path in ["/", "/mcp", "/sse2", "/messages", "/message2/x", "/x/message"] {
            assert_eq!(OldAddress::parse(path), None, "{path}");
        }
        assert_eq!(OldAddress::parse("/message"), Some(OldAddress::Messages));
        assert_eq!(OldAddress::parse("/message/x"), Some(OldAddress::MessagesAtProfile));
    }
}
