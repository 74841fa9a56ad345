//! Dispatch of a message: the decision about it, before anything is awaited.
//!
//! Parsing a message and choosing its response takes no time, and the state for this choice need
//! not be carried through the wait that follows.

use std::future::ready;
use std::pin::Pin;

use http::Response;

use crate::downstream::Body;

/// The response to a message, which may have to wait for servers.
///
/// # Cancel safety
/// Dropping it means that the client has disconnected: a Modern call is cancelled, a Legacy one
/// runs to its end.
pub type PendingResponse = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// Returns a response that is ready.
pub(crate) fn answered(response: Response<Body>) -> PendingResponse {
    Box::pin(ready(response))
}
