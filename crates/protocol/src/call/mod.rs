//! The internal language: the form of a call between `downstream`, which receives it, and
//! `upstream`, which sends it.
//!
//! A call is always Modern in shape: it carries its principal, its protocol version and its
//! client's capabilities, and depends on no connection and no session. Payloads stay the bytes that
//! were received; spans locate the members that are read or rewritten. This module makes no
//! decisions and does no I/O.

mod boxed;
mod drain;
mod failure;
mod meta_tool;
mod names;
mod reply;
mod request;
#[cfg(any(test, feature = "test-support"))]
pub mod test_support;
#[cfg(test)]
mod tests;

pub use boxed::boxed;
pub use drain::{Drain, DrainSwitch, drain};
pub use failure::{
    ArgumentsError, Blame, ConfirmationError, CursorError, Failure, GatewayFault, HeaderFault,
    InputError, InterceptorFault, InterceptorOutageError, InterceptorRefusalError, InternalFault,
    MetaCallError, NeededCapability, NeededScopes, OtherViolations, ParamsFault, ParseFault,
    QueryFault, RequestFault, ServerFault, StateError, StatusNote, TaskFault, TokenFault,
    VersionFault, WireForm, tool_error,
};
pub use meta_tool::{CallIntent, MetaTool};
pub use names::{
    NativeName, ProfileName, ProfileNameError, PublicName, ServerName, ServerNameError,
};
pub use reply::answer::{Answer, AnswerFault, ErrorBody, ResultBody, ResultType, text_content};
pub use reply::input::{Asked, Input, MAX_QUESTIONS, Question, QuestionsFault};
pub use reply::passing::{Passing, ResultMeter};
pub use reply::sent_results::{ResultDigest, SentResults};
pub use reply::{Answers, Event, InFlightSlot, Notice, Reply, ReplyWatch};
pub use request::abilities::Abilities;
pub use request::audit_notes::{AuditCredential, AuditNotes, ConfirmationNote, DecidingRule};
pub use request::context::{Client, Context, Endpoint, PeerAddress, Principal, Trace};
pub use request::grants::{CallerToken, Grants, find_claim};
pub use request::params::{MAX_DECLARATION, Meta, Params};
pub use request::token_source::TokenSource;

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use crate::mcp::Method;

/// Spans of a call's raw params, and the raw JSON that replaces them for the
/// server.
pub type Edits = [(Range<usize>, Bytes)];

/// A map with keys from a configuration or from a server's list.
///
/// Names from clients are only looked up, or belong to clients that have logged in, so no client
/// can fill a map with colliding names. To stop servers from doing so, each process draws its own
/// random seed; a cryptographic hash is not needed, and costs several times as much.
pub type Named<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// One client request inside the gateway.
#[derive(Debug, Clone)]
pub struct Call {
    /// The method of the request.
    pub method: Method,
    /// The request's params, as the client sent them.
    pub params: Params,
    /// The sender, and the circumstances of the request.
    pub context: Context,
    /// A Legacy client's responses to the server's input requests. A Modern
    /// client's responses are in the params.
    pub input: Option<Input>,
}
