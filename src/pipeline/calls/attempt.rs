//! Decides the kind of attempt that a call is, once its route is known and before it is admitted.

use std::sync::Arc;

use crate::call::{Call, Failure, Input, Reply};
use crate::era::state::RequestState;
use crate::pipeline::input;
use crate::pipeline::input::Requester;
use crate::pipeline::route::Route;
use crate::pipeline::route::task_mode::TaskMode;
use crate::pipeline::tasks::drive::{await_legacy_task, await_modern_task};
use crate::policy::{Confirmation, Permitted};
use crate::snapshot::{Snapshot, SnapshotServer};

use super::confirm;

/// Kinds of attempts, by how they are admitted and sent.
pub(super) enum CallAttempt {
    /// The first attempt. The params already contain answers to the server's input requests and any
    /// request for a task.
    First(FirstSend),
    /// A retry of a parked call, with the input that the call waits for.
    Resumed {
        /// The id of the parked call.
        parked: u64,
        /// The client's answers.
        input: Input,
    },
    /// A request about a task, translated between the two forms of tasks.
    TaskBridged,
}

/// Ways to send a call that the server has not seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FirstSend {
    /// As one request: the usual case.
    Direct,
    /// The server runs the call as a task, and the gateway waits for its result.
    TaskAwaited,
    /// The server may insist on running the call as a task.
    TaskAwaitedIfNeeded,
}

impl FirstSend {
    /// Sends the call.
    pub(super) async fn send(
        self,
        snapshot: &Arc<Snapshot>,
        member: &SnapshotServer,
        permitted: Permitted<Call>,
    ) -> Result<Reply, Failure> {
        match self {
            Self::Direct => member.server.call(permitted, &member.config).await,
            Self::TaskAwaited => await_legacy_task(snapshot, permitted).await,
            Self::TaskAwaitedIfNeeded => await_modern_task(snapshot, permitted).await,
        }
    }
}

/// The kind of a call's attempt, and the user's consent to it.
pub(super) struct PlannedAttempt {
    pub(super) attempt: CallAttempt,
    pub(super) confirmation: Confirmation,
}

impl PlannedAttempt {
    /// Decides the kind of attempt and whether the user has agreed to the call, and rewrites the
    /// call's params for the server.
    ///
    /// # Errors
    /// [`Failure::InvalidState`] if the state belongs to another request, [`Failure::InputRefused`]
    /// and [`Failure::NotConfirmed`] if the client declines, and [`Failure::InvalidParams`] if an
    /// answer is malformed.
    pub(super) fn new(
        call: &mut Call,
        route: &Route<'_>,
        asker: &Requester,
    ) -> Result<Self, Failure> {
        let mut confirmation = Confirmation::Missing;
        if let Some(input) = input::read_input(call)? {
            let opened = asker.open_state(&input, route.server())?;
            // Every state is bound to the request, and all except a login's come from a call that
            // was made. A login that preceded the call confirms nothing.
            let of_call = opened.as_ref().filter(|opened| {
                !matches!(opened.state, RequestState::Login { confirmed: false, .. })
            });
            if let Some(opened) = of_call {
                confirmation = Confirmation::Given(Box::new(opened.id));
            }
            match opened.map(|opened| opened.state) {
                Some(RequestState::Parked(parked)) => {
                    input::check_responses(&input)?;
                    let attempt = CallAttempt::Resumed { parked: parked.number, input };
                    return Ok(Self { attempt, confirmation });
                }
                Some(RequestState::Confirm) => {
                    call.params = confirm::params_once_confirmed(call, &input)?;
                }
                state => {
                    call.params = input::params_for_server(&call.params, &input, state.as_ref())?;
                }
            }
        }
        if let Some(params) = route.task_mode.rewrite_params(call)? {
            call.params = params;
        }
        let attempt = match route.task_mode {
            TaskMode::Unchanged | TaskMode::Removed | TaskMode::Requested => {
                CallAttempt::First(FirstSend::Direct)
            }
            TaskMode::Awaited => CallAttempt::First(FirstSend::TaskAwaited),
            TaskMode::AwaitedIfNeeded => CallAttempt::First(FirstSend::TaskAwaitedIfNeeded),
            TaskMode::Bridged => CallAttempt::TaskBridged,
        };
        Ok(Self { attempt, confirmation })
    }
}
