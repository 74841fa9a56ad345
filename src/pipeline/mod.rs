//! The story of one call, of one listing and of one introduction.
//!
//! This is the room to read first. A front has turned what a client said into
//! a [`Call`]; what happens to it stands in [`Gateway::call`] and `send`, line by line:
//!
//! route it in the catalog → admit it (policy) → send it on the server's link
//! → release the reply, which the front then watches to its end
//!
//! Whatever becomes of the call, its [`Exchange`] sees the end and says so in
//! the log, the metrics and the trace. A server that asks for input in the
//! middle of a call ends it with a result that asks; the client's retry goes
//! the same way and finds the rest of the call, or its server, by the sealed
//! state that it brings back.

mod exchange;
mod input;
mod introduce;
mod listing;
mod record;
mod release;
mod route;
mod subscriptions;
mod tasks;

pub use exchange::Exchange;
pub use introduce::{Introduction, own_info};
pub use listing::Listed;
pub use subscriptions::{Subscriber, Told};

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use tokio::sync::watch;

use crate::call::{Call, Context, Endpoint, Failure, Principal, Reply};
use crate::catalog::{Kind, SealedCursors};
use crate::era::state::State;
use crate::identity::Credential;
use crate::snapshot::{Operations, Snapshot, Snapshots, View, ViewKey};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otel::Tracing;
use crate::wire::Headers;

use input::{Asker, Inputs};
use record::Record;
use release::Release;
use tasks::Course;

/// What every call shares.
pub struct Gateway {
    /// The current snapshot, and those to come.
    pub snapshots: Arc<Snapshots>,
    /// Everything that is counted.
    pub metrics: Arc<Metrics>,
    /// Starts the traces of calls.
    pub tracing: ArcSwap<Tracing>,
    /// The gateway's raw `serverInfo`.
    pub info: Bytes,
    cursors: SealedCursors,
    inputs: Arc<Inputs>,
    /// The metric handles of what clients ask for.
    operations: Operations,
}

impl Gateway {
    /// A gateway around its snapshots.
    pub fn new(snapshots: Arc<Snapshots>, metrics: Arc<Metrics>, cursors: SealedCursors) -> Self {
        Self {
            inputs: Inputs::new(Arc::clone(&snapshots), &metrics),
            operations: Operations::new(|method| metrics.operation_metrics(method)),
            snapshots,
            metrics,
            tracing: ArcSwap::from_pointee(Tracing::disabled()),
            info: own_info(),
            cursors,
        }
    }

    /// A Legacy client's session is over: what servers hold for it goes.
    pub fn client_left(&self, session: &str) {
        for member in self.snapshots.load().servers() {
            member.server.client_left(session);
        }
        self.snapshots.hub().leave(session);
    }

    /// Tells of every change of the list that clients see.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.snapshots.changes()
    }

    /// Who sent a request with these headers. The key is taken out of them.
    ///
    /// # Errors
    /// [`Failure::KeyMissing`], [`Failure::KeyUnknown`] and [`Failure::OverLimit`].
    pub fn identify(&self, headers: &mut Headers, address: IpAddr) -> Result<Credential, Failure> {
        let snapshot = self.snapshots.load();
        snapshot.identity.identify(headers).map_err(|unknown| {
            let failure = snapshot.policy.admit_stranger(address).err().unwrap_or(unknown);
            record::count_refusal(&self.metrics, &failure);
            tracing::debug!(%address, reason = failure.wire().label, "refused");
            failure
        })
    }

    /// Where a request comes in, by the profile and the query of its URL.
    ///
    /// # Errors
    /// [`Failure::UnknownEndpoint`] and [`Failure::InvalidRequest`].
    pub fn endpoint(
        &self,
        who: &Principal,
        profile: &str,
        query: Option<&str>,
    ) -> Result<Endpoint, Failure> {
        let endpoint = self.snapshots.load().endpoint(who, profile, query);
        endpoint.inspect_err(|failure| record::count_refusal(&self.metrics, failure))
    }

    /// Forgets what waits for clients that a configuration has taken away.
    pub fn forget_strangers(&self) {
        let identity = Arc::clone(&self.snapshots.load().identity);
        let keep = |owner: &Principal| match owner {
            Principal::Client(name) => identity.lists(name),
            Principal::Anonymous => true,
        };
        self.inputs.parking.retain(keep);
        self.inputs.questions.retain(keep);
    }

    /// What every request passes, whatever it asks for.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub fn admit_request(&self, who: &Principal, address: IpAddr) -> Result<(), Failure> {
        let admitted = self.snapshots.load().policy.admit_request(who, address);
        admitted.inspect_err(|failure| record::count_refusal(&self.metrics, failure))
    }

    /// What decides which view a client has.
    #[expect(clippy::unused_self, reason = "whether abilities matter is the snapshot's to say")]
    fn view_key(&self, context: &Context) -> ViewKey {
        let abilities = context.client.abilities();
        let abilities = (!abilities.are_none()).then(|| abilities.clone());
        ViewKey { endpoint: context.endpoint.clone(), abilities }
    }

    /// The story of one call of any method that a server answers. Never fails: what goes wrong is the
    /// exchange's answer.
    ///
    /// # Cancel safety
    /// Dropping the future, or the exchange, cancels the call.
    pub async fn call(&self, call: Box<Call>) -> Box<Exchange> {
        let snapshot = self.snapshots.load_full();
        let record = Record::begin(self, &snapshot, &call);
        self.begin(snapshot, call, record).await
    }

    /// A call that goes on with what its client answered to what its server
    /// asked: for a front that calls again for its client, who has sent one
    /// request and is told of as one.
    ///
    /// # Cancel safety
    /// As [`Gateway::call`].
    pub async fn call_again(&self, mut earlier: Box<Exchange>, call: Box<Call>) -> Box<Exchange> {
        let snapshot = self.snapshots.load_full();
        let record = earlier.take_record();
        let record = record.unwrap_or_else(|| Record::begin(self, &snapshot, &call));
        self.begin(snapshot, call, record.resumed()).await
    }

    async fn begin(
        &self,
        snapshot: Arc<Snapshot>,
        call: Box<Call>,
        record: Record,
    ) -> Box<Exchange> {
        // Born before the first await: a call that is given up on its way is
        // told of, too.
        let mut exchange = Box::new(Exchange::begin(record, Asker::of(&self.inputs, &call)));
        let key = self.view_key(&call.context);
        let mut view = snapshot.view(&key);
        if key.abilities.is_some() && !route::exists(&snapshot, &view, &call, exchange.asker()) {
            // It may be there for clients of whom no server has heard yet.
            Box::pin(listing::on_behalf(&snapshot, &view, &key, Kind::Tools)).await;
            view = snapshot.view(&key);
        }
        let reply = send(&snapshot, &view, call, &mut exchange).await;
        exchange.reply(reply.unwrap_or_else(|failure| Reply::ready(Err(failure))));
        exchange
    }
}

async fn send(
    snapshot: &Arc<Snapshot>,
    view: &Arc<View>,
    mut call: Box<Call>,
    exchange: &mut Exchange,
) -> Result<Reply, Failure> {
    tasks::check(&call)?;
    let mut route = route::find(snapshot, view, &call, exchange.asker())?;
    let course = Course::of(&call, &route, view)?;
    let release = Release::of(&call, &route, view, exchange.asker())?.of_course(course);
    exchange.routed(&route, release, &mut call);
    route::check_headers(&route, &call)?;
    let input = input::answers(&call)?;
    let state = exchange.asker().state_of(input.as_ref(), route.target.server.as_str())?;
    if let (Some(State::Parked(id)), Some(input)) = (&state, &input) {
        input::check_objects(input)?;
        let permitted = snapshot.policy.readmit(call, route.target);
        exchange.sent();
        return Box::pin(exchange.take_up(&permitted, *id, input)).await;
    }
    if let Some(input) = &input {
        call.params = input::for_server(&call.params, input, state.as_ref())?;
    }
    let params = course.params(&call)?;
    if input.is_some() || params.is_some() {
        call.params = params.unwrap_or(call.params);
        // What the server is told instead stands in other places now.
        route = route::find(snapshot, view, &call, exchange.asker())?;
    }
    let permitted = snapshot.policy.admit(call, route.target).await?;
    exchange.sent();
    // Boxed but for the usual one: every call would have room for the largest.
    match course {
        Course::Plain | Course::WithoutTask | Course::AsTask => {
            route.member.server.call(permitted, &route.member.config).await
        }
        Course::Awaited => Box::pin(tasks::drive::legacy(snapshot, permitted)).await,
        Course::AwaitedIfNeeded => Box::pin(tasks::drive::modern(snapshot, permitted)).await,
        Course::Bridged => Box::pin(tasks::bridged(snapshot, &permitted, exchange.asker())).await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn size<A, B, F>(_: impl Fn(A, B) -> F) -> usize {
        size_of::<F>()
    }

    /// Futures move when they are boxed: larger ones cost every call.
    #[test]
    fn a_calls_future_is_small() {
        let size = size(Gateway::call);
        assert!(size <= 3584, "{size} bytes");
    }
}
