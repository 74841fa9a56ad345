//! Size limits for servers' messages that wait for clients.
//!
//! A notification or a request waits for a client that is slow or absent: in its mailbox, with a
//! parked call, or in a call's queue. These queues are limited in number and in bytes. This module
//! limits each message's share, for all transports.

use std::sync::Arc;

use bytes::Bytes;

use crate::jsonrpc::Frame;
use crate::upstream::interaction::server_link::ServerLink;
use crate::upstream::peer::too_large;

/// Returns a server's message, or `None` for a notification or a request that is too large to wait
/// for a client. A request is refused with the reason.
pub(crate) fn admit<C: ServerLink>(connection: &Arc<C>, frame: Frame) -> Option<Frame> {
    let (method, params, limit) = match &frame {
        Frame::Response { .. } => return Some(frame),
        Frame::Notification { method, params } => {
            (method, params.as_ref().map_or(0, Bytes::len), MAX_NOTIFICATION_BYTES)
        }
        Frame::Request { method, params, .. } => {
            (method, params.as_ref().map_or(0, |params| params.len()), MAX_SERVER_REQUEST_BYTES)
        }
    };
    let size = method.len() + params;
    if size <= limit {
        return Some(frame.detach());
    }
    if connection.is_worth_a_warning() {
        tracing::warn!(server = %connection.server(), size, limit, "a message is too large and is dropped");
    }
    if let Frame::Request { id, .. } = &frame {
        connection.send(too_large(id, limit));
    }
    None
}

/// Maximum size in bytes of a notification. A log line can carry some data, but 64 notifications
/// wait for one client.
const MAX_NOTIFICATION_BYTES: usize = 256 * 1024;
/// Maximum size in bytes of a request, the same as a client's default limit (`limits.body`): a
/// request for sampling can carry images.
const MAX_SERVER_REQUEST_BYTES: usize = 4 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::call::ServerName;
    use crate::jsonrpc::{MAX_SERVER_DEPTH, parse};

    /// A connection that records the messages sent to its server.
    struct Recorder {
        server: ServerName,
        sent: Mutex<Vec<Bytes>>,
    }

    impl ServerLink for Recorder {
        fn server(&self) -> &ServerName {
            &self.server
        }

        fn is_worth_a_warning(&self) -> bool {
            true
        }

        fn send(self: &Arc<Self>, message: Bytes) {
            self.sent.lock().push(message);
        }
    }

    /// Admits a message with these members and params of `size` bytes. Returns true for admission,
    /// and true if the server is refused.
    fn admitted(members: &str, size: usize) -> (bool, bool) {
        let connection =
            Arc::new(Recorder { server: ServerName::new("s").unwrap(), sent: Mutex::default() });
        let params = format!("{{\"x\":\"{}\"}}", "x".repeat(size - "{\"x\":\"\"}".len()));
        let rest = if members.contains("result") {
            format!("\"id\":1,\"result\":{params}")
        } else {
            format!("{members},\"params\":{params}")
        };
        let message = Bytes::from(format!("{{\"jsonrpc\":\"2.0\",{rest}}}"));
        let frame = parse(&message, MAX_SERVER_DEPTH).unwrap();
        let admitted = admit(&connection, frame);
        // The buffer of the received message must not stay in memory.
        let is_own = !matches!(admitted, Some(Frame::Notification { .. } | Frame::Request { .. }))
            || message.is_unique();
        assert!(is_own, "{members}");
        let refused = !connection.sent.lock().is_empty();
        (admitted.is_some(), refused)
    }

    #[test]
    fn messages_that_wait_are_bounded_and_responses_are_not() {
        let notification = "\"method\":\"m\"";
        let request = "\"id\":7,\"method\":\"m\"";
        for (members, size, expected) in [
            (notification, MAX_NOTIFICATION_BYTES - 1, (true, false)),
            (notification, MAX_NOTIFICATION_BYTES, (false, false)),
            (request, MAX_SERVER_REQUEST_BYTES - 1, (true, false)),
            (request, MAX_SERVER_REQUEST_BYTES, (false, true)),
            ("result", MAX_SERVER_REQUEST_BYTES * 2, (true, false)),
        ] {
            assert_eq!(admitted(members, size), expected, "{members} {size}");
        }
    }
}
