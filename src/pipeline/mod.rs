//! The story of one call, of one listing and of one introduction.
//!
//! This is the room to read first. A front has turned what a client said into
//! a [`Call`]; what happens to it stands in [`Gateway::call`] and `send`, line by line:
//!
//! route it in the catalog → admit it (policy) → send it on the server's link
//! → hand the reply back, watched to its end
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

pub use exchange::Exchange;
pub use introduce::{Introduction, own_info};
pub use listing::Listed;

use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::watch;

use crate::call::{Call, Failure, Principal, Reply};
use crate::catalog::{SealedCursors, verify_headers};
use crate::era::state::State;
use crate::identity::Credential;
use crate::jsonrpc::string;
use crate::mcp::Era;
use crate::policy::Target;
use crate::snapshot::{Route, Snapshot, Snapshots};
use crate::telemetry::metrics::{Metrics, Operation};
use crate::telemetry::otel::Tracing;

use input::{Asker, Inputs};
use record::Record;

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
    /// The metric handle of `tools/call`.
    calls: Arc<Operation>,
}

impl Gateway {
    /// A gateway around its snapshots.
    pub fn new(snapshots: Arc<Snapshots>, metrics: Arc<Metrics>, cursors: SealedCursors) -> Self {
        Self {
            calls: metrics.operation(record::TOOLS_CALL),
            inputs: Inputs::new(Arc::clone(&snapshots), &metrics),
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

    /// The story of one `tools/call`. Never fails: what goes wrong is the
    /// exchange's answer.
    ///
    /// # Cancel safety
    /// Dropping the future, or the exchange, cancels the call.
    pub async fn call(&self, call: Call) -> Exchange {
        let record = Record::begin(self, &call);
        self.begin(call, record).await
    }

    /// A call that goes on with what its client answered to what its server
    /// asked: for a front that calls again for its client, who has sent one
    /// request and is told of as one.
    ///
    /// # Cancel safety
    /// As [`Gateway::call`].
    pub async fn call_again(&self, mut earlier: Exchange, call: Call) -> Exchange {
        let record = earlier.take_record().unwrap_or_else(|| Record::begin(self, &call));
        self.begin(call, record.resumed()).await
    }

    async fn begin(&self, call: Call, record: Record) -> Exchange {
        let snapshot = self.snapshots.load_full();
        // Born before the first await: a call that is given up on its way is
        // told of, too.
        let mut exchange = Exchange::begin(record, Asker::of(&self.inputs, &call));
        let reply = send(&snapshot, call, &mut exchange).await;
        exchange.reply(reply.unwrap_or_else(|failure| Reply::ready(Err(failure))));
        exchange
    }
}

async fn send(
    snapshot: &Snapshot,
    mut call: Call,
    exchange: &mut Exchange,
) -> Result<Reply, Failure> {
    let route = route(snapshot, &call)?;
    exchange.routed(route, &mut call);
    check_headers(route, &call)?;
    let input = input::answers(&call)?;
    let server = route.entry.server.as_str();
    let state = exchange.asker().state_of(input.as_ref(), server)?;
    if let (Some(State::Parked(id)), Some(input)) = (&state, &input) {
        input::check_objects(input)?;
        let target = target(route, &call);
        let permitted = snapshot.policy.readmit(call, target);
        exchange.sent();
        return exchange.take_up(&permitted, *id, input).await;
    }
    if let Some(input) = &input {
        call.params = input::for_server(&call.params, input, state.as_ref())?;
    }
    let target = target(route, &call);
    let permitted = snapshot.policy.admit(call, target).await?;
    exchange.sent();
    route.member.server.call(permitted, &route.member.config).await
}

fn route<'a>(snapshot: &'a Snapshot, call: &Call) -> Result<Route<'a>, Failure> {
    let Some(name) = call.params.name() else {
        return Err(Failure::InvalidParams { detail: "invalid params: `name` is missing".into() });
    };
    // The same for a name that never was and for one that is hidden.
    let unknown = || Failure::UnknownTool { name: name.chars().take(128).collect() };
    snapshot.route(name).ok_or_else(unknown)
}

/// The client mirrored parameters into headers; somebody on the way may have
/// believed them (2026-07-28, Streamable HTTP, "Server Validation"). Over
/// standard streams there are none, and nobody on the way.
fn check_headers(route: Route<'_>, call: &Call) -> Result<(), Failure> {
    let params = &route.entry.tool.param_headers;
    let mirrors = call.context.peer.is_some() && call.context.client.version.era() == Era::Modern;
    if params.is_empty() || !mirrors {
        return Ok(());
    }
    verify_headers(params, &call.context.headers, call.params.arguments())
        .map_err(|mismatch| Failure::HeaderMismatch { detail: mismatch.to_string() })
}

fn target(route: Route<'_>, call: &Call) -> Target {
    let native = route.entry.native();
    let renamed =
        call.params.name_span().filter(|_| native.as_str() != route.entry.public.as_str());
    let edit = renamed.map(|span| (span, string(native.as_str()).into()));
    Target::tool(&route.entry.server, &route.entry.tool, edit.into_iter().collect())
}
