//! Calls of servers' tools, prompts and resources, from the route to the reply.

mod active_call;
mod attempt;
mod awaiting_client;
mod confirm;
mod inner_call;
mod interception;
mod list_waits;
mod login;
mod plan;
mod retry;
mod slow_notice;

pub use active_call::ActiveCall;
pub use awaiting_client::CallAwaitingClient;
pub(crate) use inner_call::{InnerCallFault, InnerCallRequest, await_answer, make_inner_call};
pub(crate) use login::LOGIN_TIMEOUT;
pub(crate) use retry::MAX_RETRY_DELAY;

use std::pin::Pin;
use std::sync::Arc;

use crate::call::{Call, Failure, Reply};
use crate::pipeline::client_view::ClientView;
use crate::pipeline::input::Requester;
use crate::pipeline::input::kept_results::KeptAddress;
use crate::pipeline::{route, tasks};
use crate::snapshot::Snapshot;
use crate::telemetry::observation::CallStep;

use attempt::{CallAttempt, FirstSend};
use list_waits::ListWaits;
use plan::{CallPlan, RoutedCall, SendPlan};
use slow_notice::{SlowSend, send_slow};

/// A call until its reply begins.
pub type StartingCall = Pin<Box<dyn Future<Output = Box<ActiveCall>> + Send>>;

/// Waits until the reply to a call begins.
#[expect(clippy::manual_async_fn, reason = "the future of an async fn has its arguments twice")]
pub(super) fn await_reply(
    mut client: Box<ClientView>,
    call: Box<Call>,
    mut active: Box<ActiveCall>,
) -> impl Future<Output = Box<ActiveCall>> {
    async move {
        if login::may_await_login(&call) {
            match Box::pin(login::resume_login(client, &call, &mut active)).await {
                Ok(resumed) => client = resumed,
                Err(refused) => {
                    active.attach_reply(Reply::ready(Err(refused)));
                    return active;
                }
            }
        }
        let reply = match KeptAddress::of(&call) {
            Some(address) => Ok(read_kept(&address, &client, &active)),
            None => route_and_send(client, call, &mut active).await,
        };
        active.attach_reply(reply.unwrap_or_else(|failure| Reply::ready(Err(failure))));
        active
    }
}

/// Returns the reply to a read of a result that the gateway keeps. It needs no list of a server.
fn read_kept(address: &KeptAddress, client: &ClientView, active: &ActiveCall) -> Reply {
    let Requester { inputs, principal, .. } = active.asker();
    Reply::ready(address.answer(&inputs.kept, principal, &client.view))
}

/// Routes a call once, and again after each wait for lists, and sends it.
async fn route_and_send(
    mut client: Box<ClientView>,
    call: Box<Call>,
    active: &mut ActiveCall,
) -> Result<Reply, Failure> {
    let mut waits = ListWaits::new(&call);
    loop {
        let failure = match route::find(&client, &call, active.asker()) {
            Ok(route) => {
                let mut plan = Box::new(CallPlan::new(&client, route, call, active)?);
                if client.snapshot.policy.asks_users() {
                    Box::pin(plan.plan_question(&client.snapshot)).await?;
                }
                return send(&client.snapshot, plan, active).await;
            }
            Err(failure) => failure,
        };
        let snapshots = &active.asker().inputs.snapshots;
        match Box::pin(waits.next(client, &call, &failure, snapshots)).await {
            Ok(newer) => client = newer,
            Err(same) => return Err(Box::pin(explain_unrouted(failure, &same, &call)).await),
        }
    }
}

/// Returns the client's failure of a call without a route.
async fn explain_unrouted(failure: Failure, client: &ClientView, call: &Call) -> Failure {
    let failure = route::explain(failure, client, call);
    login::explain_missing_login(failure, client, call).await
}

/// Has policy admit a planned call, and sends it. The reply is released when the client reads it:
/// [`ActiveCall::next`].
async fn send(
    snapshot: &Arc<Snapshot>,
    plan: Box<CallPlan<'_>>,
    active: &mut ActiveCall,
) -> Result<Reply, Failure> {
    if let Some(question) = &plan.question {
        return confirm::ask(active, &plan.routed.call, question, plan.access);
    }
    let RoutedCall { call, target } = plan.routed;
    active.set_interceptors(snapshot.policy.call_interceptors(&call, &target));
    if let SlowSend::WhileRead(way) = plan.notice {
        active.mark_sent();
        let (routed, planned) = (RoutedCall { call, target }, SendPlan::new(way, plan.retries));
        let planned = planned.timed_by(active.timer());
        return Ok(send_slow(snapshot, plan.member, routed, planned));
    }

    // Admit. A resumed call was admitted with its first attempt.
    let permitted = match (&plan.attempt, active.timer()) {
        (CallAttempt::Resumed { .. }, _) => snapshot.policy.readmit_parked(call, target).await?,
        (_, None) => snapshot.policy.admit(call, target).await?,
        (_, Some(timer)) => Box::pin(snapshot.policy.admit_observed(call, target, timer)).await?,
    };

    // Send. All but the usual attempt are boxed, to keep the future of every call small.
    active.mark_sent();
    active.begin_step(CallStep::Server);
    match (plan.attempt, plan.retries) {
        (CallAttempt::First(FirstSend::Direct), None) => {
            plan.member.server.call(permitted, &plan.member.config).await
        }
        (CallAttempt::First(way), retries) => {
            Box::pin(SendPlan::new(way, retries).send(snapshot, plan.member, permitted)).await
        }
        (CallAttempt::Resumed { parked, input }, _) => {
            Box::pin(active.resume(&permitted, parked, &input)).await
        }
        (CallAttempt::TaskBridged, _) => {
            Box::pin(tasks::bridge_request(snapshot, &permitted, active.asker())).await
        }
    }
}

#[cfg(test)]
mod tests;
