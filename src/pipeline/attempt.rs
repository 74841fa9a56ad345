//! What kind of attempt a call is: decided once its route is known, before it is
//! admitted.

use crate::call::{Call, Failure, Input};
use crate::era::state::RequestState;

use super::input::{self, Requester};
use super::route::Route;
use super::tasks::TaskMode;

/// How a call is admitted and sent.
pub(super) enum CallAttempt {
    /// One request to the server: the usual case. Answers to the server's
    /// questions and the request for a task are in the params already.
    Direct,
    /// A retry of a call that waits for the input that the retry brings.
    Resumed {
        /// The number of the call that waits.
        parked: u64,
        /// The client's answers.
        input: Input,
    },
    /// The server runs the call as a task, whose result the gateway waits for.
    TaskAwaited,
    /// The server may insist on running the call as a task.
    TaskAwaitedIfNeeded,
    /// A request about a task, between two forms of tasks.
    TaskBridged,
}

impl CallAttempt {
    /// Decides what kind of attempt this is, and makes the call's params those
    /// that the server has to see.
    ///
    /// # Errors
    /// [`Failure::InvalidState`] for a state that is not of this request,
    /// [`Failure::InputRefused`] for a client that declines, and
    /// [`Failure::InvalidParams`] for answers that are none.
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
