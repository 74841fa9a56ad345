//! The story of one call, of one listing and of one introduction.
//!
//! This is the room to read first. A front has turned what a client said into
//! a [`Call`]; what happens to it stands in [`Gateway::call`] and `send`, line by line:
//!
//! route it in the catalog → admit it (policy) → send it on the server's link
//! → hand the reply back, watched to its end
//!
//! Whatever becomes of the call, its [`Exchange`] sees the end and says so in
//! the log, the metrics and the trace.

mod exchange;
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
use crate::identity::Credential;
use crate::jsonrpc::string;
use crate::mcp::Era;
use crate::policy::Target;
use crate::snapshot::{Route, Snapshot, Snapshots};
use crate::telemetry::metrics::{Metrics, Operation};
use crate::telemetry::otel::Tracing;

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
    /// The metric handle of `tools/call`.
    calls: Arc<Operation>,
}

impl Gateway {
    /// A gateway around its snapshots.
    pub fn new(snapshots: Arc<Snapshots>, metrics: Arc<Metrics>, cursors: SealedCursors) -> Self {
        Self {
            calls: metrics.operation(record::TOOLS_CALL),
            snapshots,
            metrics,
            tracing: ArcSwap::from_pointee(Tracing::off()),
            info: own_info(),
            cursors,
        }
    }

    /// A Legacy client's session is over: what servers hold for it goes.
    pub fn client_left(&self, session: &str) {
        for member in self.snapshots.load().servers() {
            member.server.client_left(session);
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
        let snapshot = self.snapshots.load_full();
        // Born before the first await: a call that is given up on its way is
        // told of, too.
        let mut exchange = Exchange::begin(Record::begin(self, &call));
        if let Some(record) = exchange.record() {
            let reply = send(&snapshot, call, record).await;
            exchange.reply(reply.unwrap_or_else(|failure| Reply::ready(Err(failure))));
        }
        exchange
    }
}

async fn send(snapshot: &Snapshot, mut call: Call, record: &mut Record) -> Result<Reply, Failure> {
    let route = route(snapshot, &call)?;
    record.routed(route);
    check_headers(route, &call)?;
    call.context.trace.sent = record.trace_to_send(&call.context.trace);
    let target = target(route, &call);
    let permitted = snapshot.policy.admit(call, target).await?;
    record.sent();
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
