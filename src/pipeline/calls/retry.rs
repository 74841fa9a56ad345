//! Retries of failed calls, as configured. Calls of read-only and idempotent tools are repeated; a
//! call of any other tool is repeated only if the server has received nothing of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::backoff::Backoff;
use crate::call::{Answer, Call, Event, Failure, InFlightSlot, Reply, ServerFault};
use crate::clock;
use crate::mcp::Method;
use crate::pipeline::route::Route;
use crate::policy::{Permitted, RetryBudget};
use crate::snapshot::{Snapshot, SnapshotServer};

use super::attempt::FirstSend;

/// Plan for repeating a call.
pub(super) struct RetryPlan {
    /// Attempts left.
    left: usize,
    /// The tool is read-only or idempotent.
    is_repeatable: bool,
    budget: Arc<RetryBudget>,
}

/// Part of a failed call that the server may have received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Received {
    Nothing,
    Perhaps,
}

/// An attempt that may succeed if it is made again.
enum FailedAttempt {
    Failure(Failure),
    /// A result that reports a busy server, as it arrived, and the rest of the reply.
    Result(Box<(Event, Reply)>),
}

impl FailedAttempt {
    /// Returns the client's reply if no further attempt follows.
    fn give_up(self, slot: Option<InFlightSlot>) -> Result<Reply, Failure> {
        match self {
            Self::Failure(failure) => Err(failure),
            Self::Result(result) => {
                let (first, rest) = *result;
                Ok(Reply::beginning_with(first, rest).with_slot(slot))
            }
        }
    }
}

impl fmt::Display for FailedAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failure(failure) => failure.fmt(f),
            Self::Result(..) => f.write_str("the server is busy"),
        }
    }
}

/// Returns true if another call may succeed.
fn is_transient(first: &Event) -> bool {
    matches!(first, Event::Answer(Ok(Answer::Result(result))) if result.is_transient())
}

impl RetryPlan {
    /// Returns the plan for a call; `None` if it is made once.
    #[inline]
    pub(super) fn new(call: &Call, route: &Route<'_>, snapshot: &Snapshot) -> Option<Self> {
        // A request about a task is not a call of its tool, so the tool's hints do not apply.
        let results = route.results.filter(|_| call.method == Method::ToolsCall)?;
        let left = results.settings.retries.filter(|retries| *retries > 0)?;
        let budget = snapshot.policy.server(route.server())?.retry_budget();
        Some(Self { left, is_repeatable: results.is_repeatable(), budget: Arc::clone(budget) })
    }

    /// Returns true if the call is repeated after this attempt, and counts the retry.
    fn take(&mut self, attempt: &FailedAttempt, received: Received) -> bool {
        let may_help = match (attempt, received) {
            (FailedAttempt::Failure(failure), Received::Nothing) => was_unreachable(failure),
            (FailedAttempt::Failure(failure), _) => self.is_repeatable && may_pass(failure),
            (FailedAttempt::Result(..), _) => self.is_repeatable,
        };
        let Some(left) = self.left.checked_sub(1).filter(|_| may_help) else { return false };
        self.left = left;
        self.budget.withdraw()
    }
}

/// Returns true if no connection to the server could be opened: it was refused, or its process is
/// not running.
fn was_unreachable(failure: &Failure) -> bool {
    use ServerFault::{NotRunning, NotStarted, Unreachable};
    matches!(failure, Failure::ServerDown { fault, .. }
        if matches!(**fault, Unreachable | NotStarted | NotRunning))
}

/// Returns true for a failure that may be temporary. A timeout is not: the client has waited for
/// long enough.
fn may_pass(failure: &Failure) -> bool {
    match failure {
        Failure::ServerBroke { .. } => true,
        Failure::BadAnswer { fault, .. } => {
            matches!(**fault, ServerFault::Status { status, .. }
                if matches!(status.as_u16(), 429 | 502 | 503 | 504))
        }
        failure => was_unreachable(failure),
    }
}

impl RetryPlan {
    /// Sends a call, and repeats it while its failures allow it. There is no further attempt once
    /// the server has begun to reply, or the client has received an event of the call.
    pub(super) fn send(
        self,
        way: FirstSend,
        snapshot: &Arc<Snapshot>,
        member: &SnapshotServer,
        permitted: Permitted<Call>,
    ) -> Reply {
        let (snapshot, member) = (Arc::clone(snapshot), member.clone());
        Reply::starting(async move { self.attempt_calls(way, &snapshot, &member, permitted).await })
    }

    async fn attempt_calls(
        mut self,
        way: FirstSend,
        snapshot: &Arc<Snapshot>,
        member: &SnapshotServer,
        mut permitted: Permitted<Call>,
    ) -> Result<Reply, Failure> {
        self.budget.deposit();
        // All attempts are one call in flight.
        let slot = permitted.take_slot();
        let until = clock::now() + member.config.timeout;
        let mut backoff = Backoff::new(FIRST_WAIT, MAX_RETRY_DELAY);
        loop {
            let again = (permitted.get().clone(), permitted.target().clone());
            let (attempt, received) = match way.send(snapshot, member, permitted).await {
                // The connection was lost, or the server refused the request.
                Err(failure @ (Failure::ServerBroke { .. } | Failure::BadAnswer { .. })) => {
                    (FailedAttempt::Failure(failure), Received::Perhaps)
                }
                Err(failure) => (FailedAttempt::Failure(failure), Received::Nothing),
                Ok(mut reply) => match reply.next().await {
                    Some(Event::Answer(Err(failure))) => {
                        (FailedAttempt::Failure(failure), Received::Perhaps)
                    }
                    Some(first) if is_transient(&first) => {
                        (FailedAttempt::Result(Box::new((first, reply))), Received::Perhaps)
                    }
                    Some(first) => return Ok(Reply::beginning_with(first, reply).with_slot(slot)),
                    None => return Ok(reply),
                },
            };
            if clock::now() >= until || !self.take(&attempt, received) {
                return attempt.give_up(slot);
            }
            let (server, tool) = (&member.config.name, &again.1.native);
            tracing::info!(%server, ?tool, failure = %attempt, left = self.left, "a call is made again");
            let wait = backoff.jittered_wait_after(Duration::ZERO, &mut fastrand::Rng::new());
            tokio::time::sleep(wait).await;
            let (call, target) = again;
            // The breaker has opened meanwhile.
            let Ok(again) = snapshot.policy.admit_retry(Box::new(call), target) else {
                return attempt.give_up(slot);
            };
            permitted = again;
        }
    }
}

/// Limits of the waits: before the first retry, and before any.
const FIRST_WAIT: Duration = Duration::from_millis(200);
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::ServerName;

    fn plan(left: usize, is_repeatable: bool) -> RetryPlan {
        RetryPlan { left, is_repeatable, budget: Arc::default() }
    }

    #[test]
    fn only_harmless_calls_are_repeated() {
        let server = || ServerName::new("s").unwrap();
        let status = |code| ServerFault::of_status(http::StatusCode::from_u16(code).unwrap());
        let down = |fault| Failure::server_down(server(), fault);
        let bad = |code| Failure::bad_answer(server(), status(code));
        let broke = Failure::server_broke(server(), ServerFault::Disconnected);
        let late = Failure::ServerTimeout { server: server(), after: Duration::ZERO };
        for (failure, received, of_reads, of_others) in [
            (down(ServerFault::Unreachable), Received::Nothing, true, true),
            (down(ServerFault::NotRunning), Received::Nothing, true, true),
            (down(ServerFault::Unreachable), Received::Perhaps, true, false),
            (down(ServerFault::Redirect), Received::Nothing, false, false),
            (broke, Received::Perhaps, true, false),
            (bad(503), Received::Perhaps, true, false),
            (bad(500), Received::Perhaps, false, false),
            (late.clone(), Received::Nothing, false, false),
            (late, Received::Perhaps, false, false),
            (Failure::Cancelled, Received::Perhaps, false, false),
        ] {
            let failed = FailedAttempt::Failure(failure);
            let taken = [true, false].map(|reads| plan(1, reads).take(&failed, received));
            assert_eq!(taken, [of_reads, of_others], "{failed} {received:?}");
            assert!(!plan(0, true).take(&failed, received), "{failed}");
        }
    }

    #[test]
    fn an_empty_budget_ends_all_retries() {
        let budget: Arc<RetryBudget> = Arc::default();
        while budget.withdraw() {}
        let failure = Failure::server_down(ServerName::new("s").unwrap(), ServerFault::Unreachable);
        let mut plan = RetryPlan { left: 5, is_repeatable: true, budget };
        assert!(!plan.take(&FailedAttempt::Failure(failure), Received::Nothing));
    }
}
