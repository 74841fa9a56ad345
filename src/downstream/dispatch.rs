//! The decision about a message, taken before anything is awaited.
//!
//! Reading a message and deciding what it asks for takes no time, and what it
//! takes to decide need not be carried through the wait that follows.

use std::future::ready;
use std::pin::Pin;

use http::Response;

use super::Body;

/// A response that may have to wait for servers: what was decided about a message.
///
/// # Cancel safety
/// Dropping it means that the client has disconnected: a Modern call is cancelled, a Legacy one
/// runs to its end.
pub type PendingResponse = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// A response that waits for nothing.
pub(super) fn answered(response: Response<Body>) -> PendingResponse {
    Box::pin(ready(response))
}
