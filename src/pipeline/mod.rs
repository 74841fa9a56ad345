//! Entry point for calls, list requests and introductions.
//!
//! Read this module first. `downstream` has turned a client's request into a [`Call`];
//! [`Gateway::call`] and `send` show the steps of a call line by line:
//!
//! route in the catalog → admit (policy) → send to the server → release the reply
//!
//! An [`ActiveCall`] is the reply as the client reads it. However the call ends, it writes the
//! access log, the metrics and the trace. If a server requests input in the middle of a call, the
//! client's request ends with an `InputRequiredResult`. The client's retry takes the same steps and
//! finds the parked call, or its server, by the sealed state that it carries.
//!
//! This module knows neither HTTP nor the eras' wire formats: `downstream` and `upstream` adapt to
//! those.

mod active_call;
mod attempt;
mod audit;
mod awaiting_client;
mod client_notices;
mod client_view;
mod code;
mod confirm;
mod due_listings;
mod entry;
mod first_lists;
mod inner_call;
mod input;
mod interception;
mod introduce;
mod kept_results;
mod listing;
mod login;
mod login_consents;
mod meta_tools;
mod own_tools;
mod paged_lists;
mod plan;
mod record;
mod release;
mod released_uris;
mod repeated_results;
mod retry;
mod route;
mod slow_call;
mod subscription_audit;
mod subscriptions;
mod tasks;

pub use active_call::ActiveCall;
pub use audit::{RefusedRequest, audit_notes};
pub use awaiting_client::CallAwaitingClient;
pub use client_notices::withholds_questions;
pub use entry::EntryCredentials;
pub use introduce::{Introduction, own_info};
pub use listing::Listed;
pub use login_consents::{ConsentBinding, ConsentStep};
pub use subscriptions::{Subscriber, Told};

use std::pin::Pin;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::watch;

use crate::call::{Call, Client, Context, Failure, MetaTool, Principal, Reply, boxed};
use crate::catalog::{Kind, SealedCursors};
use crate::clock;
use crate::config::CapabilitiesChoice;
use crate::mcp::{Era, Method};
use crate::policy::SharedAmount;
use crate::snapshot::{Operations, Snapshot, Snapshots, ViewKey};
use crate::telemetry::audit::AuditTrail;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otel::Tracing;

use attempt::{CallAttempt, FirstSend};
use client_view::ClientView;
use confirm::UserAccess;
use due_listings::DueLists;
use first_lists::FirstLists;
use input::{InputStore, Requester};
use kept_results::KeptAddress;
use own_tools::{find_own_tool, reply_of_own_tool};
use paged_lists::PagedLists;
use plan::{RoutedCall, SendPlan};
use record::Record;
use release::Release;
use retry::RetryPlan;
use slow_call::send_slow;

/// State shared by all calls.
pub struct Gateway {
    /// The current snapshot, and later ones.
    pub snapshots: Arc<Snapshots>,
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// Starts the traces of calls.
    pub tracing: ArcSwap<Tracing>,
    /// The audit log.
    pub audit: AuditTrail,
    /// The gateway's raw `serverInfo`.
    pub info: Bytes,
    cursors: SealedCursors,
    /// The lists that clients are reading page by page.
    paged: PagedLists,
    inputs: Arc<InputStore>,
    /// The metric handles of the methods that clients call.
    operations: Operations,
    /// Bounds the concurrent runs of code.
    code_runs: Arc<SharedAmount>,
    /// Processor time used by runs of code.
    code_budgets: Arc<code::CodeBudgets>,
}

/// A call until its reply begins.
pub type StartingCall = Pin<Box<dyn Future<Output = Box<ActiveCall>> + Send>>;

impl Gateway {
    /// Creates a gateway around its snapshots.
    pub fn new(
        snapshots: Arc<Snapshots>,
        metrics: Arc<Metrics>,
        cursors: SealedCursors,
        audit: AuditTrail,
    ) -> Self {
        Self {
            inputs: InputStore::new(Arc::clone(&snapshots), &metrics),
            operations: Operations::new(|method| metrics.operation_metrics(method)),
            code_runs: Arc::default(),
            code_budgets: Arc::default(),
            paged: PagedLists::default(),
            snapshots,
            metrics,
            tracing: ArcSwap::from_pointee(Tracing::disabled()),
            audit,
            info: own_info(),
            cursors,
        }
    }

    /// Records a client's declared capabilities before serving it: a gateway with a single client
    /// passes them on to its servers when they start.
    pub fn meet_client(&self, client: &Client) {
        self.snapshots.meet_client(client.abilities());
    }

    /// Ends a Legacy client's session: servers release the resources that they hold for it.
    pub fn client_left(&self, session: &str) {
        for member in self.snapshots.load().servers() {
            member.server.client_left(session);
        }
        self.snapshots.hub().leave(session);
    }

    /// Returns a receiver of every change of the lists that clients see.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.snapshots.changes()
    }

    /// Drops the parked calls and task input requests of clients that are no longer configured.
    pub fn forget_strangers(&self) {
        let identity = Arc::clone(&self.snapshots.load().identity);
        let keep = |owner: &Principal| identity.has_principal(owner);
        self.inputs.parking.retain(keep);
        self.inputs.questions.retain(keep);
        self.inputs.kept.retain(keep);
        self.inputs.released.retain(keep);
    }

    /// Returns the key of the client's view.
    fn view_key(&self, context: &Context) -> ViewKey {
        let abilities = context.client.abilities();
        let abilities = (!abilities.are_none()).then(|| abilities.clone());
        let is_legacy = context.client.version.era() == Era::Legacy;
        let era = (is_legacy && self.snapshots.has_lists_by_era()).then_some(Era::Legacy);
        let account = self.snapshots.grants().account_of(&context.principal);
        let endpoint = context.endpoint.clone();
        ViewKey { endpoint, abilities, era, account, ..ViewKey::default() }
    }

    /// Makes one call of any method that servers answer. A failure becomes the active call's
    /// answer.
    ///
    /// # Cancel safety
    /// Dropping the future, or the active call, cancels the call.
    pub fn call(self: &Arc<Self>, snapshot: Arc<Snapshot>, call: Box<Call>) -> StartingCall {
        self.start(snapshot, call, None)
    }

    /// Makes a call again for a Legacy client, with its answers to the server's input requests. The
    /// client has sent one request, so the record continues.
    ///
    /// # Cancel safety
    /// As [`Gateway::call`].
    pub fn call_again(
        self: &Arc<Self>,
        mut earlier: Box<ActiveCall>,
        call: Box<Call>,
    ) -> StartingCall {
        let snapshot = self.snapshots.load_full();
        let record = earlier.take_record().map(Record::mark_resumed);
        self.start(snapshot, call, record)
    }

    /// Makes a call, with its record if it has one. A call of `call_tool` is replaced by the call
    /// that it names.
    fn start(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        call: Box<Call>,
        record: Option<Record>,
    ) -> StartingCall {
        if snapshot.has_meta_tools()
            && let Some(tool) = meta_tools::named_meta_tool(&call)
            && let key = self.view_key(&call.context)
            && let client = ClientView::find(Arc::clone(&snapshot), key, &call.context)
            && meta_tools::is_offered(&client.view, tool)
        {
            return self.call_meta_tool(client, tool, call, record);
        }
        let record = record.unwrap_or_else(|| Record::begin(self, &snapshot, &call));
        self.begin(snapshot, call, record)
    }

    fn call_meta_tool(
        self: &Arc<Self>,
        client: ClientView,
        tool: MetaTool,
        call: Box<Call>,
        record: Option<Record>,
    ) -> StartingCall {
        let ClientView { snapshot, view, .. } = &client;
        let unwrapped = match tool {
            MetaTool::Call(intent) => {
                Some(meta_tools::unwrap_call(snapshot, view, (tool, intent), &call))
            }
            MetaTool::Find | MetaTool::Describe | MetaTool::RunCode => None,
        };
        let meant = match &unwrapped {
            Some(Ok(inner)) => inner,
            _ => &call,
        };
        let record = record.unwrap_or_else(|| Record::begin(self, snapshot, meant));
        if let Some(Ok(inner)) = unwrapped {
            let asked = inner.params.name().unwrap_or_default().to_owned();
            let begun = self.begin(Arc::clone(snapshot), inner, record);
            return Box::pin(async move {
                let mut active = begun.await;
                meta_tools::explain_to_model(&mut active, client, asked);
                active
            });
        }
        let active = boxed(|| ActiveCall::begin(record, Requester::bind(&self.inputs, &call)));
        if tool == MetaTool::RunCode {
            return Box::pin(code::begin_or_resume(Arc::clone(self), client, call, active));
        }
        let mut active = active;
        active.attach_reply(match unwrapped {
            Some(Err(refused)) => Reply::ready(Err(refused)),
            _ => meta_tools::answer(client, tool, call),
        });
        Box::pin(async { active })
    }

    fn begin(
        self: &Arc<Self>,
        snapshot: Arc<Snapshot>,
        call: Box<Call>,
        record: Record,
    ) -> StartingCall {
        // Created before the first await, so that a call that is cancelled during routing or
        // sending is logged, too.
        let asker = Requester::bind(&self.inputs, &call);
        let active = boxed(|| ActiveCall::begin(record, asker));
        let key = self.view_key(&call.context);
        let client = ClientView::find(snapshot, key, &call.context);
        if !client.snapshot.config.tools.is_empty()
            && let Some(tool) = find_own_tool(&client, &call)
        {
            let mut active = active;
            active.attach_reply(reply_of_own_tool(self, &client, tool, call));
            return Box::pin(async { active });
        }
        Box::into_pin(boxed(|| await_reply(client, call, active)))
    }
}

/// Waits until the reply to a call begins.
#[expect(clippy::manual_async_fn, reason = "the future of an async fn has its arguments twice")]
fn await_reply(
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
