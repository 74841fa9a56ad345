//! Calls of servers' tools, prompts and resources, from the route to the reply.

mod active_call;
mod attempt;
mod awaiting_client;
mod confirm;
mod inner_call;
mod interception;
mod login;
mod plan;
mod retry;
mod slow_notice;

pub use active_call::ActiveCall;
pub(crate) use active_call::{refusal_reason, refusal_response};
pub use awaiting_client::CallAwaitingClient;
pub(crate) use inner_call::{InnerCallFault, await_answer, make_inner_call, replace_client};

use std::pin::Pin;
use std::sync::Arc;

use crate::call::{Call, Failure, Reply};
use crate::catalog::Kind;
use crate::clock;
use crate::config::CapabilitiesChoice;
use crate::mcp::{Era, Method};
use crate::pipeline::client_view::ClientView;
use crate::pipeline::due_listings::DueLists;
use crate::pipeline::first_lists::FirstLists;
use crate::pipeline::kept_results::KeptAddress;
use crate::pipeline::release::Release;
use crate::pipeline::{listing, route, tasks};
use crate::snapshot::ViewKey;

use attempt::{CallAttempt, FirstSend};
use confirm::UserAccess;
use plan::{RoutedCall, SendPlan};
use retry::RetryPlan;
use slow_notice::send_slow;

/// A call until its reply begins.
pub type StartingCall = Pin<Box<dyn Future<Output = Box<ActiveCall>> + Send>>;

/// Waits until the reply to a call begins.
#[expect(clippy::manual_async_fn, reason = "the future of an async fn has its arguments twice")]
pub(super) fn await_reply(
    mut client: ClientView,
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
        if client.snapshot.lacks_lists()
            && !route::exists(&client, &call, active.asker())
            && let Some(pending) = FirstLists::pending(&client, None)
        {
            // The client knows the name from before a restart of the gateway.
            let snapshots = Arc::clone(&active.asker().inputs.snapshots);
            let key = client.key;
            drop((client.view, client.snapshot));
            Box::pin(pending.wait(&snapshots, None)).await;
            client = ClientView::find(snapshots.load_full(), key, &call.context);
        }
        let is_legacy = call.context.client.version.era() == Era::Legacy;
        if (client.key.abilities.is_some() || client.key.account.is_some() || is_legacy)
            && !route::exists(&client, &call, active.asker())
        {
            // A server that lists by client may offer the name to clients like this one, but has
            // not been asked yet.
            let (asked, until) = ((&call.context, Kind::Tools), clock::now() + listing::PATIENCE);
            Box::pin(listing::refresh_lists(&client, asked, until)).await;
            let era = is_legacy.then_some(Era::Legacy);
            let key = ViewKey { era, ..client.key.clone() };
            client.view = client.snapshot.view(&key, &call.context);
        }
        let reply = send(&client, call, &mut active).await;
        active.attach_reply(reply.unwrap_or_else(|failure| Reply::ready(Err(failure))));
        active
    }
}
/// A call without a route, and the reason.
struct UnroutedCall {
    call: Box<Call>,
    failure: Failure,
}

/// The reply to a call, once it has begun.
type BeginningReply<'a> = Pin<Box<dyn Future<Output = Result<Reply, Failure>> + Send + 'a>>;

/// Sends a call of a name that may be in due lists, or returns the failure of a call without a
/// route.
fn send_later<'a>(
    client: &'a ClientView,
    UnroutedCall { call, failure }: UnroutedCall,
    active: &'a mut ActiveCall,
) -> BeginningReply<'a> {
    Box::pin(async move {
        if let Some(due) = DueLists::pending(client) {
            let snapshots = Arc::clone(&active.asker().inputs.snapshots);
            due.wait(&snapshots).await;
            let key = client.key.clone();
            let later = ClientView::find(snapshots.load_full(), key, &call.context);
            if route::exists(&later, &call, active.asker()) {
                return send(&later, call, active).await;
            }
        }
        let failure = route::explain(failure, client, &call);
        Err(login::explain_missing_login(failure, client, &call).await)
    })
}

/// Routes a call, has policy admit it, and sends it. The reply is released when
/// the client reads it: [`ActiveCall::next`].
async fn send(
    client: &ClientView,
    mut call: Box<Call>,
    active: &mut ActiveCall,
) -> Result<Reply, Failure> {
    let ClientView { snapshot, view, .. } = client;
    if let Some(address) = KeptAddress::of(&call) {
        let (kept, who) = (&active.asker().inputs.kept, &call.context.principal);
        return Ok(Reply::ready(address.answer(kept, who, view)));
    }

    // Route.
    let route = route::find(client, &call, active.asker());
    let route = match route {
        Ok(route) => route,
        Err(failure) => {
            let unrouted = UnroutedCall { call, failure };
            return send_later(client, unrouted, active).await;
        }
    };
    let release =
        Release::for_call(&call, &route, (view, snapshot.policy.large_work()), active.asker())?;
    active.set_route(&route, release, &mut call);
    route.check_headers(&call)?;
    let access = UserAccess::of(&call);
    if route.member.config.client_capabilities == CapabilitiesChoice::Hide {
        active.hide_capabilities(&mut call)?;
    }
    let (attempt, confirmation) = CallAttempt::prepare(&mut call, &route, active.asker())?;

    // Admit. A resumed call was admitted with its first attempt.
    let member = route.member;
    // A request about a task is not a call of its tool, so the tool's hints do not apply.
    let of_call = route.results.filter(|_| call.method == Method::ToolsCall);
    let retries = RetryPlan::prepare(of_call, snapshot, member);
    let mut target = route.into_target(&call.params);
    target.confirmation = confirmation.clone();
    active.set_confirmation(confirmation);
    let mut routed = RoutedCall { call, target };
    if snapshot.policy.asks_users() {
        let planned = Box::pin(confirm::plan_question(snapshot, &mut routed, access)).await?;
        if let Some(question) = planned {
            return confirm::ask(active, &routed.call, &question);
        }
    }
    let RoutedCall { call, target } = routed;
    active.set_interceptors(snapshot.policy.call_interceptors(&call, &target));
    if let CallAttempt::First(way) = attempt
        && active.tells_when_slow()
    {
        active.mark_sent();
        return Ok(send_slow(
            snapshot,
            member,
            RoutedCall { call, target },
            SendPlan { way, retries },
        ));
    }
    let permitted = match &attempt {
        CallAttempt::Resumed { .. } => snapshot.policy.readmit_parked(call, target).await?,
        _ => snapshot.policy.admit(call, target).await?,
    };

    // Send. All but the usual attempt are boxed, to keep the future of every call small.
    active.mark_sent();
    match attempt {
        CallAttempt::First(way) => match (way, retries) {
            (FirstSend::Direct, None) => member.server.call(permitted, &member.config).await,
            (way, retries) => {
                Box::pin(SendPlan { way, retries }.send(snapshot, member, permitted)).await
            }
        },
        CallAttempt::Resumed { parked, input } => {
            Box::pin(active.resume(&permitted, parked, &input)).await
        }
        CallAttempt::TaskBridged => {
            Box::pin(tasks::bridge_request(snapshot, &permitted, active.asker())).await
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, C, F>(_: impl Fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    /// The future's size costs every call: memory, and bytes copied within it.
    #[test]
    fn a_calls_future_is_small() {
        let size = size(await_reply);
        assert!(size <= 3712, "{size} bytes");
    }
}
