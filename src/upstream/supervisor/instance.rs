//! One instance of a server: a child process, or an HTTP connection or session, with its own life
//! cycle.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::call::{Call, Failure, Reply, ServerFault, ServerName};
use crate::clock::{self, LastUse};
use crate::config::{ServerConfig, ServerKind, StartChoice};
use crate::mcp::{Era, ProtocolVersion};
use crate::policy::Permitted;

use crate::upstream::UpstreamError;
use crate::upstream::credentials::GrantOwner;
use crate::upstream::lists::FinishedListing;
use crate::upstream::notifications::Inbox;
use crate::upstream::notifications::changes::ChangedLists;
use crate::upstream::owner::InstanceKey;
use crate::upstream::supervisor::callers::Callers;
use crate::upstream::supervisor::life::live;
use crate::upstream::supervisor::shared::{ServerShared, StopGuard};
use crate::upstream::supervisor::state::{InstanceHistory, InstanceView, LifeState};
use crate::upstream::transport::caller_headers::check_claims;
use crate::upstream::transport::connection::ServerConnection;

/// One instance of a server.
pub(in crate::upstream) struct Instance {
    pub(in crate::upstream) kin: Arc<ServerShared>,
    /// Its scope, and the capabilities that were declared to the server.
    pub(in crate::upstream) owner: Arc<InstanceKey>,
    pub(in crate::upstream) connection: ArcSwapOption<ServerConnection>,
    pub(in crate::upstream) state: watch::Sender<LifeState>,
    pub(in crate::upstream) notes: Mutex<InstanceHistory>,
    /// Notified when a start may be needed: see `is_wanted`.
    pub(in crate::upstream) demand: Notify,
    /// True if a list request needs a start.
    pub(in crate::upstream) unlisted: AtomicBool,
    /// Number of list requests that wait for the first list.
    pub(in crate::upstream) list_requests: AtomicU32,
    /// The last list request that has ended.
    pub(in crate::upstream) listings: watch::Sender<Option<FinishedListing>>,
    /// The server's lists that may have changed.
    pub(in crate::upstream) changes: Arc<ChangedLists>,
    /// Notified when an operator requests the list.
    pub(in crate::upstream) list_asked: Notify,
    /// Receives the server's messages outside responses.
    pub(in crate::upstream) inbox: Arc<Inbox>,
    pub(in crate::upstream) stop: CancellationToken,
    pub(in crate::upstream) restarts: AtomicU32,
    /// Number of calls in flight.
    calls: AtomicU32,
    /// True if there has been a call.
    was_called: AtomicBool,
    /// Legacy sessions of these calls. Empty for the main instance.
    callers: Callers,
    /// Times of the instance's creation and of the end of its last call.
    used: LastUse,
    /// Notified when the last call in flight ends.
    freed: Notify,
}

impl Instance {
    /// Starts an instance and its task.
    pub(in crate::upstream) fn start(kin: &Arc<ServerShared>, owner: InstanceKey) -> Arc<Self> {
        let changes = Arc::new(ChangedLists::default());
        let subscriptions = kin.surroundings.hub.of(&kin.config.name, &owner);
        let inbox = Inbox::new(Arc::clone(&changes), subscriptions);
        inbox.keep_secret(&kin.config.secrets);
        inbox.count_in(&kin.metrics);
        let instance = Arc::new(Self {
            inbox,
            kin: Arc::clone(kin),
            owner: Arc::new(owner),
            connection: ArcSwapOption::empty(),
            state: watch::Sender::new(LifeState::Idle),
            notes: Mutex::default(),
            demand: Notify::new(),
            unlisted: AtomicBool::new(false),
            list_requests: AtomicU32::new(0),
            listings: watch::Sender::new(None),
            changes,
            list_asked: Notify::new(),
            stop: kin.stop.child_token(),
            restarts: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            was_called: AtomicBool::new(false),
            callers: Callers::default(),
            used: LastUse::new(clock::now()),
            freed: Notify::new(),
        });
        let life = kin.surroundings.alive.track_future(live(Arc::clone(&instance)));
        kin.lives.spawn(life);
        instance
    }

    pub(in crate::upstream) fn name(&self) -> &ServerName {
        &self.kin.config.name
    }

    pub(in crate::upstream) fn config(&self) -> &Arc<ServerConfig> {
        &self.kin.config
    }

    /// Returns true if this is the main instance, which lives as long as its server.
    pub(in crate::upstream) fn is_main(&self) -> bool {
        self.owner.is_main()
    }

    /// Returns the owner, with the declaration for opening a Legacy connection.
    pub(in crate::upstream) fn declared_owner(&self) -> Arc<InstanceKey> {
        if !self.is_main() {
            return Arc::clone(&self.owner);
        }
        let told = self.kin.main_declaration(ProtocolVersion::LATEST_LEGACY);
        Arc::new(InstanceKey { whose: self.owner.whose.clone(), told })
    }

    /// Sends a call.
    pub(in crate::upstream) async fn call(
        &self,
        mut permitted: Permitted<Call>,
        config: &ServerConfig,
        in_use: InUse,
    ) -> Result<Reply, Failure> {
        let slot = permitted.take_slot();
        if let (false, Some(session)) = (self.is_main(), &permitted.get().context.session) {
            self.callers.add(session, &self.kin.surroundings.hub);
        }
        let reads = &self.inbox.reads;
        check_claims(&config.call_headers, &permitted.get().context)?;
        // Credentials of the client may affect the result, so it is not cached.
        let has_own_credentials = !config.forward_headers.is_empty()
            || !config.call_headers.is_empty()
            || self.kin.authorizer.as_ref().is_some_and(|it| it.tells_clients_apart());
        let most = config.read_cache.filter(|_| !has_own_credentials);
        let reading = match reads.find(permitted.get(), permitted.target(), most) {
            Ok(known) => return Ok(known),
            Err(reading) => reading,
        };
        let context = &permitted.get().context;
        self.kin.note_caller(context);
        let connection = match self.connected().await {
            Ok(connection) => connection,
            Err(fault) => {
                let explained = Box::pin(self.kin.explain_down(fault, context));
                return Err(self.fail(explained.await));
            }
        };
        let (call, target) = (permitted.get(), permitted.target());
        let reply = match connection.call(call, target, config).await {
            // The child was lost before the call was sent. The next child receives the call.
            Err(UpstreamError::Exited(_)) => {
                Box::pin(async {
                    let next = self.connected_after(&connection).await?;
                    next.call(call, target, config).await
                })
                .await
            }
            reply => reply,
        };
        let reply = reply.map_err(|fault| self.fail(fault))?.with_slot((slot, in_use));
        Ok(match reading.filter(|_| connection.peer().era() == Era::Modern) {
            Some(reading) => reads.keep(reading, reply),
            None => reply,
        })
    }

    /// Starts the main instance of a lazy server that has never been listed.
    pub(in crate::upstream) fn start_unlisted(&self) {
        let is_lazy = self.config().start == StartChoice::Lazy;
        if is_lazy && self.kin.lists.base.load().is_none() {
            self.unlisted.store(true, Ordering::SeqCst);
            self.demand.notify_one();
        }
    }

    /// Requests the lists, starting the instance if necessary. Does not wait.
    pub(in crate::upstream) fn want_list(&self) {
        self.want_list_by(|| self.changes.mark_all());
    }

    /// Requests the lists for an operator, independent of the server's pace.
    pub(in crate::upstream) fn refresh_list(&self) {
        self.want_list_by(|| self.list_asked.notify_one());
    }

    fn want_list_by(&self, cause: impl FnOnce()) {
        self.touch();
        if *self.state.borrow() == LifeState::Ready {
            cause();
        } else {
            self.unlisted.store(true, Ordering::SeqCst);
            self.demand.notify_one();
        }
    }

    /// Returns true if the instance has failed too often and has not been ready since.
    pub(in crate::upstream) fn has_failed(&self) -> bool {
        *self.state.borrow() == LifeState::Failed
    }

    /// Returns the connection. Waits if a start is due or in progress. In backoff, this makes a
    /// start due.
    pub(in crate::upstream) async fn connected(
        &self,
    ) -> Result<Arc<ServerConnection>, UpstreamError> {
        if let Some(connection) = self.connection.load_full() {
            return Ok(connection);
        }
        let mut state = self.state.subscribe();
        let before = self.restarts.load(Ordering::Relaxed);
        let is_in_backoff = matches!(*state.borrow(), LifeState::Backoff { .. });
        self.demand.notify_one();
        let verdict = |state: &LifeState| match state {
            LifeState::Ready | LifeState::Failed | LifeState::Stopped => true,
            // After a login the start follows soon.
            LifeState::AwaitsLogin => self.has_link(),
            // The start that this call made due has failed.
            LifeState::Backoff { .. } => self.restarts.load(Ordering::Relaxed) != before,
            LifeState::Idle | LifeState::Connecting => false,
        };
        let limit = self.config().start_timeout;
        let patience = if is_in_backoff { limit.min(RETRY_PATIENCE) } else { limit };
        let _ = timeout(patience, state.wait_for(verdict)).await;
        self.connection.load_full().ok_or_else(|| {
            let fault = self.notes().told.clone();
            UpstreamError::Down(Box::new(fault.unwrap_or(ServerFault::NotRunning)))
        })
    }

    /// Returns the owner of the instance's grant, for requests that belong to no single client.
    pub(in crate::upstream) fn grant_owner(&self) -> Option<GrantOwner> {
        let authorizer = self.kin.authorizer.as_ref()?;
        let told = &self.owner.told;
        Some(authorizer.owner_of(self.owner.whose.principal().or(told.account.as_ref())))
    }

    /// Returns true if the owner of its grant has logged in, or is about to, and no other login is
    /// needed.
    pub(in crate::upstream) fn has_logged_in(&self) -> bool {
        let owner = self.grant_owner();
        let authorizer = self.kin.authorizer.as_ref();
        owner.zip(authorizer).is_some_and(|(owner, authorizer)| {
            let is_in = authorizer.has_grant(&owner) && authorizer.open_login(&owner).is_none();
            is_in || authorizer.is_exchanging(&owner)
        })
    }

    /// Returns true if the owner of its grant has a link to log in by.
    fn has_link(&self) -> bool {
        let owner = self.grant_owner();
        let authorizer = self.kin.authorizer.as_ref();
        owner.zip(authorizer).is_some_and(|(owner, it)| it.open_login(&owner).is_some())
    }

    /// Waits until the instance is ready. Returns false if it fails, or is not ready in time.
    pub(in crate::upstream) async fn is_ready_within(&self, patience: Duration) -> bool {
        let mut state = self.state.subscribe();
        let verdict = |state: &LifeState| !matches!(state, LifeState::Idle | LifeState::Connecting);
        let verdict = timeout(patience, state.wait_for(verdict)).await;
        matches!(verdict, Ok(Ok(state)) if *state == LifeState::Ready)
    }

    /// Returns the connection that replaces the lost one.
    async fn connected_after(
        &self,
        lost: &Arc<ServerConnection>,
    ) -> Result<Arc<ServerConnection>, UpstreamError> {
        let is_gone = |_: &LifeState| {
            let current = self.connection.load();
            !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, lost))
        };
        let _ = timeout(SOON, self.state.subscribe().wait_for(is_gone)).await;
        self.connected().await
    }

    /// Returns true if an idle instance has a reason to start.
    pub(in crate::upstream) fn is_wanted(&self) -> bool {
        self.unlisted.swap(false, Ordering::SeqCst) || self.is_in_use()
    }

    /// Returns true if the instance has calls in flight or active subscriptions.
    pub(in crate::upstream) fn is_in_use(&self) -> bool {
        self.has_calls() || self.inbox.subscriptions.are_wanted()
    }

    /// Returns true if a client waits for the instance to start. Every instance other than the main
    /// one is opened for a client.
    pub(in crate::upstream) fn is_awaited(&self) -> bool {
        !self.is_main() || self.has_calls() || self.list_requests.load(Ordering::Relaxed) > 0
    }

    /// Returns true if there has been a call.
    pub(in crate::upstream) fn was_called(&self) -> bool {
        self.was_called.load(Ordering::SeqCst)
    }

    fn has_calls(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > 0
    }

    /// Waits until no calls are in flight.
    pub(in crate::upstream) async fn unused(&self) {
        while self.has_calls() {
            self.freed.notified().await;
        }
    }

    /// Returns the time to stop the instance if it stays unused, or `None` for never.
    pub(in crate::upstream) fn idle_at(&self) -> Option<Instant> {
        let config = self.config();
        let is_child = matches!(config.target, ServerKind::Command(_));
        let allowed = if self.is_main() {
            config.idle_stop.filter(|_| is_child)?
        } else if !is_child
            && matches!(self.owner.whose, crate::upstream::InstanceScope::Session { .. })
        {
            // An HTTP session costs almost nothing, and closing it would lose the server's state
            // for its client. It ends with the client's session.
            return None;
        } else {
            self.idle_limit()
        };
        let allowed = if self.has_found_out() { Duration::ZERO } else { allowed };
        let is_kept = self.is_in_use() || config.idle_stop.is_none() && self.has_listeners();
        let used = if is_kept { clock::now() } else { self.last_used() };
        let listed = self.notes().listed_at.filter(|_| self.is_main());
        Some(listed.map_or(used, |listed| listed.max(used)) + allowed)
    }

    /// Returns true if a client that has called the instance keeps a stream open.
    fn has_listeners(&self) -> bool {
        self.callers.are_listening(&self.kin.surroundings.hub)
    }

    /// Returns the time that an instance other than the main one may be idle.
    fn idle_limit(&self) -> Duration {
        let (config, owner) = (self.config(), &self.owner);
        // A server of both eras also has one for clients without capabilities.
        let is_for_capabilities = owner.lists() && owner.told.other_era.is_none();
        let most = if is_for_capabilities { config.capability_idle } else { Duration::MAX };
        most.min(config.instance_idle).min(config.idle_stop.unwrap_or(Duration::MAX))
    }

    /// Returns the time of the instance's creation.
    pub(in crate::upstream) fn created(&self) -> Instant {
        self.used.created()
    }

    /// Returns the time of the instance's last use.
    pub(in crate::upstream) fn last_used(&self) -> Instant {
        self.used.last()
    }

    /// Records a use.
    pub(in crate::upstream) fn touch(&self) {
        self.used.touch(clock::now());
    }

    pub(in crate::upstream) fn notes(&self) -> MutexGuard<'_, InstanceHistory> {
        self.notes.lock()
    }

    pub(in crate::upstream) fn fail(&self, fault: UpstreamError) -> Failure {
        let text = fault.chain_without(&self.config().secrets);
        tracing::debug!(server = %self.name(), fault = text, "a call failed");
        fault.into_failure(self.name(), &self.config().secrets)
    }

    /// Returns the era of an instance that is not the main one. Each client's account is listed in
    /// the era of the main instance. Otherwise only servers that speak Legacy have further
    /// instances.
    pub(in crate::upstream) fn further_era(&self) -> Option<Era> {
        let told = &self.owner.told;
        if told.account.is_some() && told.other_era.is_none() {
            return self.kin.version().map(ProtocolVersion::era);
        }
        Some(Era::Legacy)
    }

    /// Returns a summary for status pages.
    pub(in crate::upstream) fn view(&self) -> InstanceView {
        let state = self.state.borrow().clone();
        let connected = self.connection.load().as_ref().map(|it| it.peer().era());
        let further = || (!self.is_main()).then(|| self.further_era()).flatten();
        let era = connected.or_else(further);
        let told = match era {
            Some(Era::Legacy) => self.declared_owner().told.clone(),
            _ => self.owner.told.clone(),
        };
        let finds_out = self.finds_out();
        let notes = self.notes();
        InstanceView {
            owner: Arc::clone(&self.owner),
            told,
            era,
            finds_out,
            state,
            since: notes.since.unwrap_or_else(clock::wall_now),
            pid: notes.pid,
            calls: self.calls.load(Ordering::Relaxed),
            last_error: notes.last_error.clone(),
        }
    }
}

/// A call in flight: keeps its instance from being stopped.
pub(in crate::upstream) struct InUse {
    instance: Arc<Instance>,
    _hold: StopGuard,
}

impl InUse {
    /// Counts the call. Must precede the lookup of the connection: see
    /// `Life::rest`.
    pub(in crate::upstream) fn begin(instance: &Arc<Instance>) -> Self {
        instance.calls.fetch_add(1, Ordering::SeqCst);
        instance.was_called.store(true, Ordering::SeqCst);
        Self { instance: Arc::clone(instance), _hold: instance.kin.hold() }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.instance.touch();
        if self.instance.calls.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.instance.freed.notify_one();
        }
    }
}

/// Maximum time that a call waits for the start of a server that it finds in backoff.
const RETRY_PATIENCE: Duration = Duration::from_secs(4);
/// Maximum time that a call waits until a lost connection is noticed, and that a subscription waits
/// for its instance.
pub(in crate::upstream) const SOON: Duration = Duration::from_secs(2);
