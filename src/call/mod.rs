//! The internal language: what a call is between `downstream`, which receives
//! it, and `upstream`, which sends it.
//!
//! A call is always Modern in shape: it carries its principal, its protocol
//! version and its client's capabilities, and depends on no connection and no
//! session. Payloads stay the bytes that were received; spans locate the members
//! that are read or rewritten. This module makes no decisions and does no I/O.

mod abilities;
mod alarm;
mod answer;
mod context;
mod drain;
mod failure;
mod input;
mod names;
mod params;
mod passing;
mod reply;
#[cfg(test)]
mod tests;

pub use abilities::Abilities;
pub use alarm::{Alarm, watch_alarms};
pub use answer::{Answer, AnswerFault, ErrorBody, ResultBody, ResultType};
pub use context::{Client, Context, Endpoint, PeerAddress, Principal, Trace};
pub use drain::{Drain, DrainSwitch, drain};
pub use failure::{Blame, Failure, WireForm, tool_error};
pub use input::{Asked, Input, MOST_QUESTIONS, Question};
pub use names::{
    NativeName, ProfileName, ProfileNameError, PublicName, ServerName, ServerNameError,
};
pub use params::{Meta, Params, ParamsFault};
pub use passing::Passing;
pub use reply::{Answers, Event, InFlightSlot, Notice, Reply};

use std::collections::HashMap;
use std::ops::Range;

use bytes::Bytes;

use crate::mcp::Method;

/// Places in a call's raw params, and the raw JSON that goes there for the
/// server.
pub type Edits = [(Range<usize>, Bytes)];

/// What is found by a name that a configuration or a server's list gives.
///
/// Names that come from clients are only looked up: nobody can fill one with
/// names that hash alike. So that no server can, either, the seed is drawn anew
/// by each process; a cryptographic hash is not needed, and costs several times
/// as much.
pub type Named<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// One client request inside the gateway.
#[derive(Debug, Clone)]
pub struct Call {
    /// What is asked for.
    pub method: Method,
    /// The request's params, as the client sent them.
    pub params: Params,
    /// Who asks, and under which conditions.
    pub context: Context,
    /// What a Legacy client answered to what the server asked. A Modern
    /// client's answers stand in the params.
    pub input: Option<Input>,
}
