//! Calls that the gateway makes on behalf of a client's call: those of its own tools, and of code.
//!
//! Each is a call of the same client like any other: it passes through the whole pipeline, with its
//! own record, rates, checks and permit.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::call::{Answer, Call, Client, Context, Event, Failure, Params};
use crate::jsonrpc::{Members, object_of, string};
use crate::mcp::{Method, meta};
use crate::pipeline::input::{parse_params, replace_client};
use crate::telemetry::audit::AuditTrail;

use super::active_call::ActiveCall;

/// A call of a tool that the gateway makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InnerCallRequest<'a> {
    /// The tool's public name.
    pub(crate) tool: &'a str,
    /// Raw arguments.
    pub(crate) arguments: &'a str,
}

/// Builds a call of a tool. The call declares the capabilities of `client`.
///
/// # Errors
/// [`Failure::Internal`] if the arguments are not JSON.
pub(crate) fn make_inner_call(
    outer: &Call,
    client: Arc<Client>,
    request: InnerCallRequest<'_>,
    trail: &AuditTrail,
) -> Result<Box<Call>, Failure> {
    let InnerCallRequest { tool, arguments } = request;
    let mut members = vec![("name", Cow::Owned(string(tool))), ("arguments", arguments.into())];
    members.extend(inner_meta(&outer.params).map(|meta| (meta::META, meta.into())));
    let params = parse_params(object_of(members).into())?;
    let context = Context {
        progress_token: None,
        log: None,
        sent: None,
        // The gateway sets no parameters in headers.
        peer: None,
        audit: outer.context.audit.as_ref().map(|notes| notes.for_inner_call(|| trail.next_id())),
        ..outer.context.clone()
    };
    let mut call = Box::new(Call { method: Method::ToolsCall, params, context, input: None });
    replace_client(&mut call, client)?;
    Ok(call)
}

/// Returns the client's `_meta` without the members that belong to its own call alone.
fn inner_meta(params: &Params) -> Option<String> {
    let raw = params.raw().get(params.meta_span()?)?;
    let members = Members::parse(raw).ok()?;
    let is_own = |name: &str| matches!(name, meta::PROGRESS_TOKEN | meta::HELD_RESULTS);
    let kept = members.0.iter().filter(|(name, _)| !is_own(name));
    let kept = kept.map(|(name, value): &(Cow<'_, str>, &RawValue)| (&**name, value.get().into()));
    String::from_utf8(object_of(kept)).ok()
}

/// Reasons for an inner call to have no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InnerCallFault {
    /// It was refused, or failed.
    #[error(transparent)]
    Failed(#[from] Failure),
    /// The answer has more bytes than the limit.
    #[error("the results have more than {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: usize,
    },
}

/// Waits for the answer to an inner call. Earlier messages are dropped. `hold` receives the bytes of
/// the answer, or of each piece of a large one, and may refuse it.
pub(crate) async fn await_answer(
    active: &mut ActiveCall,
    hold: impl Fn(usize) -> Result<(), InnerCallFault>,
) -> Result<Answer, InnerCallFault> {
    loop {
        match active.next().await {
            Some(Event::Answer(answer)) => {
                if let Ok(Answer::Result(result)) = &answer {
                    hold(result.raw().len())?;
                }
                return Ok(answer?);
            }
            Some(Event::Passing(passing)) => {
                return passing.whole_within(hold).await.map(Answer::Result);
            }
            Some(_) => {}
            None => return Err(Failure::Cancelled.into()),
        }
    }
}
