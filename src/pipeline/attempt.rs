//! Decides what kind of attempt a call is, once its route is known and before
//! it is admitted.

use crate::call::{Call, Failure, Input};
use crate::era::state::RequestState;

use super::input::{self, Requester};
use super::route::Route;
use super::tasks::TaskMode;

/// How a call is admitted and sent.
pub(super) enum CallAttempt {
    /// One request to the server: the usual case. The params already contain
    /// answers to the server's input requests and any request for a task.
    Direct,
    /// A retry of a parked call, with the input that the call waits for.
    Resumed {
        /// The id of the parked call.
        parked: u64,
        /// The client's answers.
        input: Input,
    },
    /// The server runs the call as a task, whose result the gateway waits for.
    TaskAwaited,
    /// The server may insist on running the call as a task.
    TaskAwaitedIfNeeded,
    /// A request about a task, translated between the two forms of tasks.
    TaskBridged,
}

impl CallAttempt {
    /// Decides what kind of attempt this is, and rewrites the call's params for
    /// the server.
    ///
    /// # Errors
    /// [`Failure::InvalidState`] if the state belongs to another request,
    /// [`Failure::InputRefused`] if the client declines, and
    /// [`Failure::InvalidParams`] if an answer is malformed.
    pub(super) fn prepare(
        call: &mut Call,
        route: &Route<'_>,
        asker: &Requester,
    ) -> Result<Self, Failure> {
        if let Some(input) = input::read_input(call)? {
            match asker.open_state(&input, route.server())? {
                Some(RequestState::Parked(parked)) => {
                    input::check_responses(&input)?;
                    return Ok(Self::Resumed { parked, input });
                }
                state => {
                    call.params = input::params_for_server(&call.params, &input, state.as_ref())?;
                }
            }
        }
        if let Some(params) = route.task_mode.rewrite_params(call)? {
            call.params = params;
        }
        Ok(match route.task_mode {
            TaskMode::Unchanged | TaskMode::Removed | TaskMode::Requested => Self::Direct,
            TaskMode::Awaited => Self::TaskAwaited,
            TaskMode::AwaitedIfNeeded => Self::TaskAwaitedIfNeeded,
            TaskMode::Bridged => Self::TaskBridged,
        })
    }
}
