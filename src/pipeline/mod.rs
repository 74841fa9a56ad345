//! The story of one call, of one listing and of one introduction.
//!
//! This is the room to read first. A front has turned what a client said into
//! a [`Call`]; what happens to it stands in [`Gateway::call`] and `send`, line by line:
//!
//! route it in the catalog → admit it (policy) → send it on the server's link
//! → release the reply, which the front then watches to its end
//!
//! Whatever becomes of the call, its [`Exchange`] sees the end and says so in
//! the log, the metrics and the trace.

mod exchange;
mod introduce;
mod listing;
mod record;
mod release;
mod route;

pub use exchange::Exchange;
pub use introduce::{Introduction, own_info};
pub use listing::Listed;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::watch;

use crate::call::{Call, Context, Failure, Principal, Reply};
use crate::catalog::SealedCursors;
use crate::identity::Credential;
use crate::snapshot::{Operations, Snapshot, Snapshots, View, ViewKey};
use crate::telemetry::metrics::Metrics;
use crate::telemetry::otel::Tracing;

use record::Record;
use release::Release;

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
    /// The metric handles of what clients ask for.
    operations: Operations,
}

impl Gateway {
    /// A gateway around its snapshots.
    pub fn new(snapshots: Arc<Snapshots>, metrics: Arc<Metrics>, cursors: SealedCursors) -> Self {
        Self {
            operations: Operations::new(|method| metrics.operation(method)),
            snapshots,
            metrics,
            tracing: ArcSwap::from_pointee(Tracing::off()),
            info: own_info(),
            cursors,
        }
    }

    /// Tells of every change of the list that clients see.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.snapshots.changes()
    }

    /// Who sent a request with these headers. The key is taken out of them.
    ///
    /// # Errors
    /// [`Failure::KeyMissing`], [`Failure::KeyUnknown`] and [`Failure::OverLimit`].
    pub fn identify(
        &self,
        headers: &mut HeaderMap,
        address: IpAddr,
    ) -> Result<Credential, Failure> {
        let snapshot = self.snapshots.load();
        snapshot.identity.identify(headers).map_err(|unknown| {
            let failure = snapshot.policy.admit_stranger(address).err().unwrap_or(unknown);
            record::count_refusal(&self.metrics, &failure);
            tracing::debug!(%address, reason = failure.wire().label, "refused");
            failure
        })
    }

    /// What every request passes, whatever it asks for.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub fn admit_request(&self, who: &Principal, address: IpAddr) -> Result<(), Failure> {
        let admitted = self.snapshots.load().policy.admit_request(who, address);
        admitted.inspect_err(|failure| record::count_refusal(&self.metrics, failure))
    }

    /// What decides which view a client has. So far every client has the plain
    /// one: its profile, its narrowing and its abilities belong here.
    #[expect(clippy::unused_self, reason = "whether abilities matter is the snapshot's to say")]
    fn view_key(&self, _context: &Context) -> ViewKey {
        ViewKey::default()
    }

    /// The story of one call of any method that a server answers. Never fails: what goes wrong is the
    /// exchange's answer.
    ///
    /// # Cancel safety
    /// Dropping the future, or the exchange, cancels the call.
    pub async fn call(&self, call: Call) -> Exchange {
        let snapshot = self.snapshots.load_full();
        // Born before the first await: a call that is given up on its way is
        // told of, too.
        let mut exchange = Exchange::begin(Record::begin(self, &call));
        if let Some(record) = exchange.record() {
            let view = snapshot.view(&self.view_key(&call.context));
            let reply = send(&snapshot, &view, call, record).await;
            exchange.reply(reply.unwrap_or_else(|failure| Reply::ready(Err(failure))));
        }
        exchange
    }
}

async fn send(
    snapshot: &Snapshot,
    view: &Arc<View>,
    mut call: Call,
    record: &mut Record,
) -> Result<Reply, Failure> {
    let route = route::find(snapshot, view, &call)?;
    record.routed(&route);
    route::check_headers(&route, &call)?;
    call.context.trace.sent = record.trace_to_send(&call.context.trace);
    let release = Release::of(&call, &route.target.server, view);
    let permitted = snapshot.policy.admit(call, route.target).await?;
    record.sent();
    let reply = route.member.server.call(permitted, &route.member.config).await?;
    Ok(release.apply(reply))
}
