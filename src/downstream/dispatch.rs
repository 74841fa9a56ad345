//! The decision about a message, taken before anything is awaited.
//!
//! Reading a message and deciding what it asks for takes no time, and what it
//! takes to decide need not be carried through the wait that follows.

use std::future::ready;
use std::pin::Pin;

use http::Response;

use super::Body;
use super::legacy::LegacyCall;
use super::modern::ModernCall;
use super::response::{self, AnswerWriter};

/// A response that may have to wait for servers.
///
/// # Cancel safety
/// Dropping it means that the client has disconnected: a Modern call is cancelled, a Legacy one
/// runs to its end.
pub type PendingResponse = Pin<Box<dyn Future<Output = Response<Body>> + Send>>;

/// What is to be done about a message.
pub(super) enum Dispatch {
    /// Nothing: this is the answer.
    Answered(Response<Body>),
    /// A Modern client's call.
    Modern(ModernCall, AnswerWriter),
    /// A call in a Legacy session.
    Legacy(LegacyCall, AnswerWriter),
    /// Something else that may have to wait for servers.
    Waiting(PendingResponse),
}

impl Dispatch {
    /// Does it.
    pub(super) fn answer(self) -> PendingResponse {
        match self {
            Self::Answered(response) => Box::pin(ready(response)),
            Self::Modern(call, writer) => Box::pin(response::call(call, writer)),
            Self::Legacy(call, writer) => Box::pin(response::call(call, writer)),
            Self::Waiting(waiting) => waiting,
        }
    }
}
