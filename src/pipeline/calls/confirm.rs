//! Confirmation by the user: the question before a call, and the answer to it.

use std::borrow::Cow;

use serde::Deserialize;

use crate::call::{
    Call, ConfirmationError, ConfirmationNote, Failure, Input, InternalFault, Params, Question,
    Reply,
};
use crate::era::lower;
use crate::jsonrpc::{Response, object};

use super::active_call::ActiveCall;

/// Asks the user, if the client supports it.
///
/// # Errors
/// [`Failure::NotConfirmed`] if the client does not.
pub(super) fn ask(
    active: &mut ActiveCall,
    call: &Call,
    question: &Question,
    access: UserAccess,
) -> Result<Reply, Failure> {
    match access {
        UserAccess::None => {
            call.context.note_confirmation(ConfirmationNote::Impossible);
            Err(Failure::NotConfirmed(ConfirmationError::CannotAsk))
        }
        UserAccess::Form => {
            call.context.note_confirmation(ConfirmationNote::Asked);
            active.ask_user(question)
        }
    }
}

/// Forms of questions that a client can show its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum UserAccess {
    /// None.
    None,
    /// Form elicitation.
    Form,
}

impl UserAccess {
    /// Reads the capabilities that the client of a call has declared.
    pub(super) fn of(call: &Call) -> Self {
        if call.context.client.abilities().form { Self::Form } else { Self::None }
    }
}

/// Returns the params of a confirmed call, without the confirmation's input.
///
/// # Errors
/// [`Failure::NotConfirmed`] if the user has not agreed.
pub(super) fn params_once_confirmed(call: &Call, input: &Input) -> Result<Params, Failure> {
    let Some(refused) = refusal_in(input) else {
        call.context.note_confirmation(ConfirmationNote::Accepted);
        let raw = lower::without_input(call.params.raw());
        return Ok(Params::parse(Some(raw)).map_err(InternalFault::Params)?);
    };
    call.context.note_confirmation(match refused {
        ConfirmationError::CannotAsk => ConfirmationNote::Impossible,
        _ => ConfirmationNote::Declined,
    });
    Err(Failure::NotConfirmed(refused))
}

/// Returns the reason that a call is not confirmed; `None` if the user has agreed.
fn refusal_in(input: &Input) -> Option<ConfirmationError> {
    #[derive(Deserialize)]
    struct ConfirmAnswer<'a> {
        #[serde(borrow)]
        action: Cow<'a, str>,
    }
    let answer = input.responses.iter().find(|(key, _)| key == CONFIRM_KEY);
    let raw = match answer {
        None => return Some(ConfirmationError::NotAsked),
        // The client does not support questions, or its host forbids them.
        Some((_, Response::Error(_))) => return Some(ConfirmationError::CannotAsk),
        Some((_, Response::Result(raw))) => raw,
    };
    let answer: Result<ConfirmAnswer<'_>, _> = object(raw);
    match answer.as_ref().map(|answer| &*answer.action) {
        Ok("accept") => None,
        Ok("decline") => Some(ConfirmationError::Declined),
        _ => Some(ConfirmationError::Dismissed),
    }
}

/// The key of the question.
pub(super) const CONFIRM_KEY: &str = "confirm";
