//! The server's side of a question.

use std::sync::Arc;

use bytes::Bytes;

use crate::call::ServerName;

/// A connection to a server that has sent a request to a client.
pub(crate) trait ServerLink: Send + Sync + 'static {
    /// Returns the name of the server.
    fn server(&self) -> &ServerName;

    /// Counts an unusable message. Returns true if it is to be logged.
    fn is_worth_a_warning(&self) -> bool;

    /// Sends the server a message outside calls. Never waits.
    fn send(self: &Arc<Self>, message: Bytes);
}
