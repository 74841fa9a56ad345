//! The decision about a message, taken before anything is awaited.
//!
//! Reading a message and deciding what it asks for takes no time, and what it
//! takes to decide need not be carried through the wait that follows.

use std::pin::Pin;

use http::Response;

use super::Body;
use super::legacy::LegacyCall;
use super::modern::ModernCall;
use super::response::{self, AnswerWriter};

/// What is to be done about a message.
pub(super) enum Dispatch {
    /// Nothing: this is the answer.
    Answered(Response<Body>),
    /// A Modern client's call.
    Modern(ModernCall, AnswerWriter),
    /// A call in a Legacy session.
    Legacy(LegacyCall, AnswerWriter),
    /// Something else that may have to wait for servers.
    Waiting(Pin<Box<dyn Future<Output = Response<Body>> + Send>>),
}

impl Dispatch {
    /// Does it.
    pub(super) async fn answer(self) -> Response<Body> {
        match self {
            Self::Answered(response) => response,
            // Boxed: what is copied in moving larger futures costs more.
            Self::Modern(call, writer) => Box::pin(response::call(call, writer)).await,
            Self::Legacy(call, writer) => Box::pin(response::call(call, writer)).await,
            Self::Waiting(waiting) => waiting.await,
        }
    }
}
