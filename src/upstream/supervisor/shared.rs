//! State that the instances of one server share.

mod health;
mod trial_context;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::call::Abilities;
use crate::clock;
use crate::cluster::{Cluster, ServerLease};
use crate::codec::file::FileReader;
use crate::config::{Config, EraChoice, InstancesChoice, ScanChoice, ServerConfig};
use crate::mcp::{Era, ProtocolVersion};
use crate::policy::scan_of;
use crate::shares::{Holder, ShareBounds};
use crate::telemetry::events::EventSender;
use crate::telemetry::metrics::{Metrics, ServerMetrics};

use crate::child::Guardian;
use crate::oauth::{GrantBook, ServerAuthorizer};
use crate::upstream::journal::{Journals, ServerJournal};
use crate::upstream::lists::OfferedLists;
use crate::upstream::lists::store::{ListStore, settings_digest};
use crate::upstream::notifications::SubscriptionHub;
use crate::upstream::owner::{ClientDeclaration, InstanceKey};
use crate::upstream::response_memory::ResponseMemory;
use crate::upstream::supervisor::legacy_side::{LegacySide, LegacySupport};
use crate::upstream::supervisor::lists::first_list::ListPatience;
use crate::upstream::supervisor::pool::Pool;
use crate::upstream::supervisor::remembered_era::RememberedEra;
use crate::upstream::supervisor::sole_client::{SettledClient, SoleClient};
use crate::upstream::supervisor::start_queue::StartQueue;
use crate::upstream::transport::http;
use health::ReportedHealth;

/// Parts of the gateway that a server needs.
#[derive(Clone)]
pub struct ServerContext {
    /// Ends the children if the gateway is killed.
    pub guardian: Guardian,
    /// Notified whenever a server's list has changed.
    pub listed: Arc<Notify>,
    /// Source of metrics handles.
    pub metrics: Arc<Metrics>,
    /// Receives lifecycle events.
    pub events: EventSender,
    /// Stops all servers at once, including those that no snapshot names.
    pub stop: CancellationToken,
    /// Tracks the tasks of all servers.
    pub alive: TaskTracker,
    /// The clients' subscriptions at all servers.
    pub hub: Arc<SubscriptionHub>,
    /// Stores the lists for the next run.
    pub(in crate::upstream) store: Option<Arc<ListStore>>,
    /// Grants at servers with OAuth.
    pub grants: Arc<GrantBook>,
    /// Queue of starting child processes.
    pub(in crate::upstream) starts: Arc<StartQueue>,
    /// Permits to start a program. Each start occupies a thread, and the programs compete for the
    /// processors once they run.
    pub(super) program_starts: Arc<Semaphore>,
    /// Permits to build a list. Each build uses megabytes on its thread.
    pub(super) list_builds: Arc<Semaphore>,
    /// The only client, if there is no listener for others.
    pub(super) sole_client: Option<Arc<SoleClient>>,
    /// Memory of large responses.
    pub(in crate::upstream) response_memory: Arc<ResponseMemory>,
    /// Faults and output of servers, for operators.
    pub journals: Arc<Journals>,
    /// Share of a limit for one client, in percent.
    share: Arc<AtomicUsize>,
    /// True if definitions of any server are scanned.
    scans: Arc<AtomicBool>,
    /// True if a server has other lists for Legacy clients than for Modern ones.
    lists_by_era: Arc<AtomicBool>,
    /// The other replicas. `None` if the gateway is alone.
    cluster: Option<Arc<Cluster>>,
}

impl ServerContext {
    /// Creates the context of a gateway without servers.
    pub fn new(guardian: Guardian, metrics: Arc<Metrics>) -> Self {
        Self {
            guardian,
            metrics,
            events: EventSender::disabled(),
            listed: Arc::new(Notify::new()),
            stop: CancellationToken::new(),
            alive: TaskTracker::new(),
            hub: Arc::default(),
            store: None,
            grants: Arc::default(),
            starts: StartQueue::new(usize::MAX),
            program_starts: Arc::new(Semaphore::new(MAX_PROGRAM_STARTS)),
            list_builds: Arc::new(Semaphore::new(MAX_LIST_BUILDS)),
            sole_client: None,
            response_memory: Arc::default(),
            journals: Arc::default(),
            share: Arc::new(AtomicUsize::new(100)),
            scans: Arc::default(),
            lists_by_era: Arc::default(),
            cluster: None,
        }
    }

    /// Lets one replica run the child of each server with `instances = "one"`.
    #[must_use]
    pub fn in_cluster(self, cluster: Arc<Cluster>) -> Self {
        Self { cluster: Some(cluster), ..self }
    }

    /// Stores the lists of servers for the next run, and uses those of the last run until the
    /// servers are ready.
    #[must_use]
    pub fn with_store(self, store: Arc<ListStore>) -> Self {
        Self { store: Some(store), ..self }
    }

    /// Declares the capabilities of the only client, which has yet to connect, to the main
    /// instances of servers.
    #[must_use]
    pub fn for_one_client(self) -> Self {
        Self { sole_client: Some(Arc::default()), ..self }
    }

    /// Records a client's declaration, if it is the only client.
    pub fn meet_client(&self, abilities: &Abilities) {
        if let Some(client) = &self.sole_client {
            client.meet(abilities);
        }
    }

    /// Sets the receiver of lifecycle events.
    #[must_use]
    pub fn with_events(self, events: EventSender) -> Self {
        Self { events, ..self }
    }

    /// Returns true if a server has, or had, other lists for Legacy clients than for Modern ones.
    pub fn has_lists_by_era(&self) -> bool {
        self.lists_by_era.load(Ordering::Acquire)
    }

    /// Records that a server has other lists for Legacy clients.
    pub(in crate::upstream) fn note_lists_by_era(&self) {
        self.lists_by_era.store(true, Ordering::Release);
    }

    /// Returns true if definitions of any server are scanned.
    pub(in crate::upstream) fn scans_definitions(&self) -> bool {
        self.scans.load(Ordering::Relaxed)
    }

    /// Applies a configuration's limits: the share of each client, and the number of child
    /// processes that start at once.
    pub fn set_limits(&self, config: &Config) {
        let is_scanned = |server: &Arc<ServerConfig>| scan_of(config, server) != ScanChoice::Off;
        let knows_clients = !config.clients.is_empty() || !config.issuers.is_empty();
        self.grants.set_knows_clients(knows_clients);
        self.grants.set_clients(&config.clients);
        let own = config.issuers.iter().map(|issuer| issuer.login_server().to_owned());
        let of_servers = config.servers.iter().filter_map(|it| it.oauth()?.issuer.clone());
        self.grants.set_configured_issuers(own.chain(of_servers).collect());
        self.scans.store(config.servers.iter().any(is_scanned), Ordering::Relaxed);
        self.share.store(config.share_of(100), Ordering::Relaxed);
        let limits = &config.gateway.limits;
        let bounds = ShareBounds { all: limits.responses, each: limits.responses_each };
        self.response_memory.set_bounds(bounds);
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        let parallel = config.gateway.start_parallel.map_or(2 * cores, NonZeroUsize::get);
        self.starts.set_limit(parallel);
        self.journals.keep_configured(config);
    }

    /// Returns true if one client may use less of a limit than all clients together.
    pub(in crate::upstream) fn has_shares(&self) -> bool {
        self.share.load(Ordering::Relaxed) < 100
    }

    /// Returns the part of a limit that one client may use, at least one.
    pub(super) fn share_of(&self, limit: usize) -> usize {
        let percent = self.share.load(Ordering::Relaxed);
        (limit.saturating_mul(percent) / 100).max(1).min(limit)
    }
}

/// State that all instances of one server share.
pub(crate) struct ServerShared {
    config: Arc<ServerConfig>,
    context: ServerContext,
    metrics: Arc<ServerMetrics>,
    lists: OfferedLists,
    /// The instances besides the main one.
    pool: Pool,
    stop: CancellationToken,
    /// Tracks the tasks of the instances.
    lives: TaskTracker,
    /// Version of the main instance.
    era: RememberedEra,
    /// Legacy support of the server, if that version is Modern.
    legacy_side: LegacySide,
    /// The lease of its child, if one replica runs it.
    lease: Option<Arc<ServerLease>>,
    /// Tokens for its requests. `None` without OAuth.
    authorizer: Option<Arc<ServerAuthorizer>>,
    /// True if only the accounts of clients can be used: see `has_no_account`.
    no_account: AtomicBool,
    /// The only client, as it was declared to the main instance.
    main_client: Mutex<SettledClient>,
    /// Patience of list requests for its first list.
    patience: ListPatience,
    /// The HTTP client: one connection pool for all sessions.
    client: Mutex<Option<Arc<http::ServerClient>>>,
    /// Its faults and output.
    journal: Arc<ServerJournal>,
    /// Notified when the lists should be stored for the next run.
    unkept: Notify,
    /// Reads the certificates of that client.
    files: FileReader,
    /// Snapshots and calls that hold the server.
    pub(super) users: TaskTracker,
    /// True if a snapshot names this server. The metrics show only such servers.
    shown: AtomicBool,
    /// Health in the last event about the server.
    reported: Mutex<ReportedHealth>,
}

impl ServerShared {
    pub(crate) fn new(config: Arc<ServerConfig>, context: &ServerContext) -> Self {
        let known = context.store.as_ref().and_then(|store| store.take(&config));
        let known = known.as_ref();
        let metrics = context.metrics.server(config.name.as_str());
        let counted = Some(Arc::clone(&metrics));
        let cluster = context.cluster.as_ref();
        let cluster = cluster.filter(|_| config.instances == InstancesChoice::One);
        let lease = cluster.map(|it| it.server_lease(&config.name, settings_digest(&config)));
        let shared = Self {
            metrics,
            lease,
            authorizer: ServerAuthorizer::of(&config, &context.grants, counted),
            era: RememberedEra::new(config.era(), known),
            journal: context.journals.of(&config.name),
            config,
            context: context.clone(),
            lists: OfferedLists::restored(known),
            pool: Pool::default(),
            stop: context.stop.child_token(),
            lives: TaskTracker::new(),
            legacy_side: LegacySide::restored(known, clock::unix_now().as_secs()),
            no_account: AtomicBool::new(false),
            main_client: Mutex::default(),
            patience: ListPatience::default(),
            unkept: Notify::new(),
            client: Mutex::default(),
            files: FileReader::default(),
            users: TaskTracker::new(),
            shown: AtomicBool::new(false),
            reported: Mutex::default(),
        };
        if !shared.lists.are_same_in_both_eras() {
            shared.context.note_lists_by_era();
        }
        shared
    }

    #[inline]
    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        &self.config
    }

    /// Returns the parts of the gateway that the server needs.
    #[inline]
    pub(crate) fn context(&self) -> &ServerContext {
        &self.context
    }

    /// Returns its faults and output.
    pub(super) fn journal(&self) -> &ServerJournal {
        &self.journal
    }

    pub(super) fn metrics(&self) -> &Arc<ServerMetrics> {
        &self.metrics
    }

    /// Returns the server's lists.
    #[inline]
    pub(crate) fn lists(&self) -> &OfferedLists {
        &self.lists
    }

    /// Returns the instances besides the main one.
    #[inline]
    pub(crate) fn pool(&self) -> &Pool {
        &self.pool
    }

    /// Returns the version of the main instance.
    pub(super) fn era(&self) -> &RememberedEra {
        &self.era
    }

    /// Returns the Legacy support of a server with a Modern main instance.
    #[inline]
    pub(crate) fn legacy_side(&self) -> &LegacySide {
        &self.legacy_side
    }

    /// Returns the lease of its child. `None` if each replica runs its own.
    #[inline]
    pub(crate) fn lease(&self) -> Option<&Arc<ServerLease>> {
        self.lease.as_ref()
    }

    /// Returns the source of tokens for requests, or `None` without OAuth.
    #[inline]
    pub(crate) fn authorizer(&self) -> Option<&Arc<ServerAuthorizer>> {
        self.authorizer.as_ref()
    }

    /// Returns the patience of list requests for the first list.
    pub(super) fn patience(&self) -> &ListPatience {
        &self.patience
    }

    /// Returns the reader of the HTTP client's certificates.
    pub(super) fn files(&self) -> &FileReader {
        &self.files
    }

    /// Returns the only client, as it was declared to the main instance.
    pub(super) fn main_client(&self) -> MutexGuard<'_, SettledClient> {
        self.main_client.lock()
    }

    /// Returns a token for one instance, which is cancelled together with the server.
    pub(super) fn child_stop(&self) -> CancellationToken {
        self.stop.child_token()
    }

    /// Waits until the server has to end.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn stopped(&self) {
        self.stop.cancelled().await;
    }

    /// Runs a task of the server. The server's end waits for it.
    pub(super) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.lives.spawn(self.context.alive.track_future(task));
    }

    /// Stops the server for good, once its holders and calls are gone or `patience` has passed.
    pub(crate) async fn shut_down(&self, patience: Duration) {
        self.users.close();
        tokio::select! {
            _ = timeout(patience, self.users.wait()) => {}
            () = self.stop.cancelled() => {}
        }
        self.stop.cancel();
        self.lives.close();
        self.lives.wait().await;
    }

    /// Returns true if no snapshot takes the server again: it was removed or replaced.
    pub(super) fn is_released(&self) -> bool {
        self.users.is_closed()
    }

    /// Requests the storage of the server's data. Does not wait.
    pub(super) fn keep_soon(&self) {
        self.unkept.notify_one();
    }

    /// Waits until storage is requested.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn keep_requested(&self) {
        self.unkept.notified().await;
    }

    /// Returns true if the last start of the main instance failed for lack of a login or a token,
    /// at a server where clients have their own accounts.
    #[inline]
    pub(crate) fn has_no_account(&self) -> bool {
        self.no_account.load(Ordering::Acquire)
    }

    /// Records whether only the accounts of clients can be used.
    pub(super) fn set_no_account(&self, has_none: bool) {
        self.no_account.store(has_none, Ordering::Release);
    }

    /// Returns the server's last version, or the configured one. Returns `None` if it is unknown.
    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        self.era.version()
    }

    /// Returns true if clients of this era should be served in Legacy at a server of this version,
    /// unless the server turns out not to support it.
    pub(crate) fn wants_legacy(&self, version: ProtocolVersion, era: Era) -> bool {
        era == Era::Legacy
            && version.era() == Era::Modern
            && self.config.era() == EraChoice::Auto
            && !self.config.has_one_instance()
    }

    /// Returns true if clients of this era are served in Legacy at a server of this version, as far
    /// as is known.
    pub(crate) fn serves_legacy(&self, version: ProtocolVersion, era: Era) -> bool {
        self.wants_legacy(version, era) && self.legacy_side.support() != LegacySupport::Refuted
    }

    /// Tries refuted Legacy support again if that is due, without waiting. The attempt counts for
    /// the client that caused it.
    pub(crate) fn retry_legacy(self: &Arc<Self>, holder: &Holder) {
        if self.legacy_side.take_retry() {
            self.try_legacy(holder);
        }
    }

    /// Tries Legacy without capabilities, and without waiting.
    pub(super) fn try_legacy(self: &Arc<Self>, holder: &Holder) {
        let plain = ClientDeclaration::of_legacy_client(&Abilities::none());
        // If there is no room for it, another attempt follows later.
        if let Ok(instance) = self.open_instance(InstanceKey::lister(plain), holder) {
            instance.demand().touch();
        }
    }

    /// Rebuilds views and notifies clients, because the lists of some clients may differ from now
    /// on.
    pub(crate) fn announce_lists(&self) {
        self.lists.count_change();
        self.context.listed.notify_one();
    }

    /// Returns the HTTP client that all instances share.
    pub(crate) fn client(&self) -> MutexGuard<'_, Option<Arc<http::ServerClient>>> {
        self.client.lock()
    }
}

/// Keeps a server from being stopped.
#[derive(Clone)]
pub struct StopGuard(#[allow(dead_code, reason = "held for its drop")] TaskTrackerToken);

/// Maximum number of programs that are started at once.
const MAX_PROGRAM_STARTS: usize = 2;
/// Maximum number of lists that are built at once.
const MAX_LIST_BUILDS: usize = 2;
