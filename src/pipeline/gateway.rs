//! The gateway's state, shared by all requests of all clients.

use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::json;
use tokio::sync::watch;

use crate::call::{Client, Context, Params, Principal};
use crate::cluster::ReplicaId;
use crate::mcp::{Era, Method};
use crate::shares::SharedAmount;
use crate::snapshot::{Operations, Snapshots, ViewKey};
use crate::telemetry::audit::AuditTrail;
use crate::telemetry::metrics::Metrics;
use crate::telemetry::observation::CallObservers;
use crate::telemetry::otel::Tracing;

use super::input::{InputStore, StateSender};
use super::stores::code_budgets::CodeBudgets;
use super::stores::paged_lists::PagedLists;
use super::stores::refused_logins::RefusedLogins;
use super::stores::seen_clients::{ClientSighting, SeenClients};

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
    /// Recent calls, and those who observe calls.
    pub calls: Arc<CallObservers>,
    /// The gateway's raw `serverInfo`.
    pub info: Bytes,
    /// The lists that clients are reading page by page.
    pub(super) paged: PagedLists,
    pub(super) inputs: Arc<InputStore>,
    /// The metric handles of the methods that clients call.
    pub(super) operations: Operations,
    /// Bounds the concurrent runs of code.
    pub(super) code_runs: Arc<SharedAmount>,
    /// Processor time used by runs of code.
    pub(super) code_budgets: Arc<CodeBudgets>,
    /// Refused logins that have been logged, or will be.
    pub(super) refused_logins: Arc<RefusedLogins>,
    /// Clients without a session that were served lately.
    seen_clients: SeenClients,
}

impl Gateway {
    /// Creates a gateway around its snapshots.
    pub fn new(snapshots: Arc<Snapshots>, metrics: Arc<Metrics>, audit: AuditTrail) -> Self {
        Self {
            inputs: InputStore::new(Arc::clone(&snapshots), &metrics),
            operations: Operations::new(|method| metrics.operation_metrics(method)),
            code_runs: Arc::default(),
            code_budgets: Arc::default(),
            refused_logins: Arc::default(),
            seen_clients: SeenClients::default(),
            paged: PagedLists::default(),
            snapshots,
            metrics,
            tracing: ArcSwap::from_pointee(Tracing::disabled()),
            audit,
            calls: Arc::default(),
            info: own_info(),
        }
    }

    /// Makes this gateway the service of its only server for other replicas: it introduces itself as
    /// that server, and passes the states of its questions as they are, because any replica may
    /// continue the call.
    pub fn stand_for_server(&self) {
        self.inputs.pass_states();
    }

    /// Makes this gateway one of several replicas.
    pub fn join_replicas(&self, own: ReplicaId) {
        self.inputs.join_replicas(own);
    }

    /// Returns the replica where a sender's request goes on, if it continues a parked call or reads a kept
    /// result. `None` if it may go on anywhere.
    pub fn find_replica(
        &self,
        sender: StateSender<'_>,
        method: &Method,
        params: &Params,
    ) -> Option<ReplicaId> {
        self.inputs.find_replica(sender, method, params)
    }

    /// Records a client's declared capabilities before serving it: a gateway with a single client
    /// passes them on to its servers when they start.
    pub fn meet_client(&self, client: &Client) {
        self.snapshots.meet_client(client.abilities());
    }

    /// Notes the sender of a request without a session, for operators.
    #[inline]
    pub fn see_client(&self, context: &Context) {
        self.seen_clients.note(context);
    }

    /// Returns the clients without a session that were served within the last hour, the last one
    /// first.
    pub fn seen_clients(&self) -> Vec<ClientSighting> {
        self.seen_clients.sightings()
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
    pub(super) fn view_key(&self, context: &Context) -> ViewKey {
        let abilities = context.client.abilities();
        let abilities = (!abilities.are_none()).then(|| abilities.clone());
        let is_legacy = context.client.version.era() == Era::Legacy;
        let era = (is_legacy && self.snapshots.has_lists_by_era()).then_some(Era::Legacy);
        // An operator who calls as a client sees no lists that only its login reveals.
        let account = if context.by_operator {
            None
        } else {
            self.snapshots.grants().account_of(&context.principal)
        };
        let endpoint = context.endpoint.clone();
        ViewKey { endpoint, abilities, era, account, ..ViewKey::default() }
    }
}

/// Returns the gateway's raw `serverInfo`, for results that the gateway makes itself.
pub fn own_info() -> Bytes {
    json!({ "name": "trunkline", "version": env!("CARGO_PKG_VERSION") }).to_string().into()
}
