//! The state of the running gateway, as `/status` reports it.

mod evaluation_turns;
mod last_uses;
mod servers;

pub(super) use evaluation_turns::EvaluationTurns;
pub(super) use last_uses::{KeptUses, UseTimes, last_use};
pub(super) use servers::{breaker_status, era, last_error, next_retry, server_state};

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};
use std::time::SystemTime;

use async_trait::async_trait;
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::task::JoinError;

use crate::catalog::Kind;
use crate::clock;
use crate::config::{ClientConfig, ClientKey, Config};
use crate::downstream::McpService;
use crate::identity::{ApiKey, TokenIssuer};
use crate::pipeline::{CallExplanation, CallQuery, Gateway};
use crate::snapshot::{EmbedderReport, Snapshot};
use crate::telemetry::SinkReport;
use crate::telemetry::audit::AuditOverview;
use crate::telemetry::metrics::ExpiryTime;
use crate::text::{error_chain, escape_controls};
use crate::upstream::ElementChanges;

use super::configuration::ConfigurationNotes;
use super::definitions::{catalog_digest, definition_digests, list_tag};
use super::expiries::running_expiries;
use super::findings::find_findings;
use super::tools::profile_status;
use super::{
    AuditStatus, CatalogStatus, ChangedElements, ClientStatus, ClusterStatus,
    DefinitionDigestStatus, EmbeddingsStatus, Expiry, ExpiryStatus, GatewayState, IssuerStatus,
    KeyStatus, RefreshReport, RefreshRequestError, ReloadControl, SinkStatus, Status, StatusSource,
    ToolsPage,
};

/// Reports the gateway's state on request.
pub struct StatusReport {
    pub(super) gateway: Arc<Gateway>,
    pub(super) mcp: Arc<McpService>,
    pub(super) started_at: Timestamp,
    notes: Mutex<ConfigurationNotes>,
    pub(super) loads: Notify,
    /// Takes turns with evaluations of all definitions.
    pub(super) evaluations: EvaluationTurns,
    /// Last uses of this run and of earlier ones.
    pub(super) uses: KeptUses,
    /// Reads the configuration file, in a process that has one.
    pub(super) control: OnceLock<Weak<dyn ReloadControl>>,
}

impl StatusReport {
    /// Creates a report on a gateway that has just started.
    pub fn new(gateway: Arc<Gateway>, mcp: Arc<McpService>) -> Arc<Self> {
        let (notes, loads) = (Mutex::default(), Notify::new());
        let (evaluations, control) = (EvaluationTurns::default(), OnceLock::new());
        let started_at = Timestamp::now();
        let uses = KeptUses::default();
        Arc::new(Self { gateway, mcp, started_at, notes, loads, evaluations, uses, control })
    }

    /// Makes an evaluation on a thread of its own, once the earlier ones have ended.
    ///
    /// # Errors
    /// The evaluation panicked.
    pub(crate) async fn evaluate<T: Send + 'static>(
        &self,
        evaluation: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        self.evaluations.evaluate(evaluation).await
    }

    /// Waits until a file was loaded after the last wait.
    pub async fn next_load(&self) {
        self.loads.notified().await;
    }

    /// Returns the running configuration.
    pub fn configured(&self) -> Arc<Config> {
        Arc::clone(&self.gateway.snapshots.load().config)
    }

    /// Explains a call that is not made, with the lines of the running configuration.
    pub async fn explain_call(&self, query: &CallQuery) -> CallExplanation {
        let places = self.notes().file.places.clone();
        self.gateway.explain_call(query, &places).await
    }

    /// Notes the expiries of CA certificates for servers and issuers.
    pub fn note_authorities(&self, expiries: Vec<Expiry>) {
        self.notes().authorities = expiries;
        self.show_expiries();
    }

    /// Returns the calendar of expiries, the first to end first.
    pub fn expiries(&self) -> Vec<Expiry> {
        let notes = self.notes();
        let mut all = running_expiries(&self.gateway.snapshots, wall_time());
        all.extend(notes.file.expiries.iter().chain(&notes.authorities).cloned());
        all.sort_by(|one, other| (one.at, &one.name).cmp(&(other.at, &other.name)));
        all
    }

    fn expiry_statuses(&self, now: Timestamp) -> Vec<ExpiryStatus> {
        let (all, notes) = (self.expiries(), self.notes());
        all.into_iter().map(|expiry| expiry.status(now, &notes.file.places)).collect()
    }

    /// Shows the calendar in the metrics.
    pub(super) fn show_expiries(&self) {
        let time = |expiry: Expiry| ExpiryTime {
            kind: expiry.kind.label(),
            at: expiry.at.as_duration().as_secs_f64(),
            name: expiry.name,
        };
        let times = self.expiries().into_iter().map(time).collect();
        self.gateway.metrics.expiry_times().replace(times);
    }

    /// Returns the state of the destinations of audit records and events.
    fn sinks(&self) -> Vec<SinkReport> {
        let events = self.gateway.snapshots.events().sinks();
        self.gateway.audit.sink().into_iter().chain(events).collect()
    }

    /// Notes that the gateway is stopping.
    pub fn draining(&self) {
        self.notes().draining = true;
    }

    /// Returns the state of the gateway as a whole.
    pub(super) fn state(&self) -> GatewayState {
        if self.notes().draining { GatewayState::Draining } else { GatewayState::Ready }
    }

    pub(super) fn notes(&self) -> MutexGuard<'_, ConfigurationNotes> {
        self.notes.lock()
    }
}

#[async_trait]
impl StatusSource for StatusReport {
    fn status(&self) -> Status {
        let snapshot = self.gateway.snapshots.load();
        let catalog = &snapshot.plain.catalog;
        let count = |kind| catalog.list(kind).len();
        let tokens = snapshot.newest_token_report();
        let (now, uses) = (wall_time(), self.uses.times());
        let profiles = tokens.iter().flat_map(|report| &report.profiles).map(profile_status);
        let mut status = Status {
            version: env!("CARGO_PKG_VERSION"),
            now,
            started_at: self.started_at,
            state: self.state(),
            configuration: Some(self.configuration(&snapshot)),
            catalog: CatalogStatus {
                tools: count(Kind::Tools),
                prompts: count(Kind::Prompts),
                resources: count(Kind::Resources),
                templates: count(Kind::Templates),
                skills: count(Kind::Skills),
                digest: catalog_digest(catalog),
                etags: Kind::ALL.into_iter().map(|kind| list_tag(catalog, kind)).collect(),
                changed_at: Some(time(self.gateway.snapshots.changed_at())),
            },
            clients: snapshot
                .config
                .clients
                .iter()
                .map(|it| client_status(&snapshot, it, &uses))
                .collect(),
            issuers: snapshot.identity.issuers().iter().map(|it| issuer(&snapshot, it)).collect(),
            sessions: self.mcp.sessions(),
            streams: self.gateway.metrics.open_streams().value(),
            connections: self.gateway.metrics.open_connections().value(),
            audit: self.gateway.audit.overview().map(audit_status),
            sinks: self.sinks().into_iter().map(sink_status).collect(),
            cluster: self.mcp.cluster().map(|it| ClusterStatus::of(it.view(), now)),
            expiries: self.expiry_statuses(now),
            findings: Vec::new(),
            servers: snapshot
                .config
                .servers
                .iter()
                .filter_map(|it| servers::server_status(&self.gateway, &snapshot, it))
                .collect(),
            profiles: profiles.collect(),
            embeddings: snapshot.embedder.as_ref().map(|it| embeddings_status(&it.report())),
        };
        status.findings = find_findings(&status);
        status
    }

    fn definitions(&self) -> Vec<DefinitionDigestStatus> {
        let snapshot = self.gateway.snapshots.load();
        snapshot.servers().flat_map(|member| definition_digests(&snapshot, member)).collect()
    }

    async fn tools(&self) -> ToolsPage {
        let snapshot = self.gateway.snapshots.load_full();
        let counting = tokio::task::spawn_blocking(move || snapshot.report_tokens());
        ToolsPage::of(&counting.await.unwrap_or_default())
    }

    fn metrics(&self) -> String {
        self.show_expiries();
        self.gateway.metrics.sink_levels().replace(&self.sinks());
        self.gateway.metrics.encode_text()
    }

    async fn refresh(
        &self,
        server: &str,
        client: Option<&str>,
    ) -> Result<RefreshReport, RefreshRequestError> {
        let (running, clients) = self.refreshed(server, client)?;
        let changes = running.refresh(clients.as_deref()).await?;
        self.gateway.snapshots.catch_up().await;
        let lists =
            changes.into_iter().map(|(kind, ElementChanges { added, removed, changed })| {
                (kind.member(), ChangedElements { added, removed, changed })
            });
        let lists: BTreeMap<_, _> = lists.collect();
        tracing::info!(server, client, changed = !lists.is_empty(), "refreshed for an operator");
        let client = client.map(str::to_owned);
        Ok(RefreshReport { server: server.to_owned(), client, changed: !lists.is_empty(), lists })
    }
}

pub(super) fn client_status(
    snapshot: &Snapshot,
    client: &ClientConfig,
    uses: &UseTimes,
) -> ClientStatus {
    let key = |key: &ClientKey| KeyStatus {
        sha256: key.hash.abbreviation(),
        expires_at: key.expires,
        last_used_at: snapshot
            .identity
            .key(&key.hash)
            .and_then(ApiKey::last_use)
            .map(|since_1970| time(SystemTime::UNIX_EPOCH + since_1970))
            .max(uses.key(key)),
    };
    ClientStatus { name: client.name.to_string(), keys: client.keys.iter().map(key).collect() }
}

fn embeddings_status(report: &EmbedderReport) -> EmbeddingsStatus {
    EmbeddingsStatus {
        source: if report.is_service { "service" } else { "model" },
        dimensions: report.dimensions,
        vectors: report.vectors,
        waiting: report.waiting,
        error: report.fault.as_ref().map(ToString::to_string),
    }
}

fn issuer(snapshot: &Snapshot, issuer: &TokenIssuer) -> IssuerStatus {
    let relay = snapshot.logins.find(issuer.config.name.as_str());
    let login_fault = relay.and_then(|relay| relay.fault());
    let state = issuer.keys.state();
    IssuerStatus {
        name: issuer.config.name.to_string(),
        keys: issuer.keys.current().map_or(0, |keys| keys.key_count()),
        fetched_at: state.fetched_at.map(|since_1970| time(SystemTime::UNIX_EPOCH + since_1970)),
        error: state.fault.map(|fault| escape_controls(&fault)),
        login_error: login_fault.map(|fault| escape_controls(&error_chain(&fault))),
    }
}

fn audit_status(log: AuditOverview) -> AuditStatus {
    AuditStatus {
        written: log.written,
        dropped: log.dropped,
        queued_bytes: log.queued,
        last_seq: log.last_number,
        last_hash: log.last_hash,
        error: log.fault,
        refuses_requests: log.refuses,
    }
}

fn sink_status(sink: SinkReport) -> SinkStatus {
    let SinkReport { sink: name, place, fault } = sink;
    SinkStatus { name, place, error: fault.map(|fault| escape_controls(&fault)) }
}

/// Returns the current time of day.
pub(crate) fn wall_time() -> Timestamp {
    time(clock::wall_now())
}

pub(super) fn time(at: SystemTime) -> Timestamp {
    Timestamp::try_from(at).unwrap_or(Timestamp::UNIX_EPOCH)
}
