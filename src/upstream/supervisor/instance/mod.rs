//! One instance of a server: a child process, or an HTTP connection or session, with its own life
//! cycle.

mod callers;
mod demand;
mod life;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::call::{Call, Failure, Reply, ServerFault, ServerName};
use crate::clock;
use crate::config::{ServerConfig, ServerKind, StartChoice};
use crate::mcp::{Era, ProtocolVersion};
use crate::policy::Permitted;

use crate::oauth::GrantOwner;
use crate::upstream::UpstreamError;
use crate::upstream::lists::FinishedListing;
use crate::upstream::notifications::Inbox;
use crate::upstream::notifications::changes::ChangedLists;
use crate::upstream::owner::InstanceKey;
use crate::upstream::peer::Peer;
use crate::upstream::supervisor::instance::demand::InstanceDemand;
use crate::upstream::supervisor::instance::life::InstanceLife;
use crate::upstream::supervisor::life::live;
use crate::upstream::supervisor::shared::{ServerShared, StopGuard};
use crate::upstream::supervisor::state::{InstanceView, LifeState};
use crate::upstream::transport::caller_headers::check_claims;
use crate::upstream::transport::connection::ServerConnection;

/// One instance of a server.
pub(crate) struct Instance {
    /// State that it shares with the other instances of its server.
    shared: Arc<ServerShared>,
    /// Its scope, and the capabilities that were declared to the server.
    owner: Arc<InstanceKey>,
    life: InstanceLife,
    demand: InstanceDemand,
    /// The last list request that has ended.
    listings: watch::Sender<Option<FinishedListing>>,
    /// The server's lists that may have changed.
    changes: Arc<ChangedLists>,
    /// Receives the server's messages outside responses.
    inbox: Arc<Inbox>,
}

impl Instance {
    /// Starts an instance and its task.
    pub(crate) fn start(shared: &Arc<ServerShared>, owner: InstanceKey) -> Arc<Self> {
        let changes = Arc::new(ChangedLists::default());
        let config = shared.config();
        let subscriptions = shared.context().hub.of(&config.name, &owner);
        let inbox = Inbox::new(Arc::clone(&changes), subscriptions);
        inbox.keep_secret(&config.secrets);
        inbox.count_in(shared.metrics());
        let instance = Arc::new(Self {
            inbox,
            shared: Arc::clone(shared),
            owner: Arc::new(owner),
            life: InstanceLife::new(shared.child_stop()),
            demand: InstanceDemand::new(),
            listings: watch::Sender::new(None),
            changes,
        });
        shared.spawn(live(Arc::clone(&instance)));
        instance
    }

    /// Returns the state that all instances of the server share.
    #[inline]
    pub(crate) fn shared(&self) -> &Arc<ServerShared> {
        &self.shared
    }

    /// Returns the instance's key.
    #[inline]
    pub(crate) fn owner(&self) -> &Arc<InstanceKey> {
        &self.owner
    }

    /// Returns the state of its life.
    #[inline]
    pub(crate) fn life(&self) -> &InstanceLife {
        &self.life
    }

    /// Returns the demand for it.
    #[inline]
    pub(crate) fn demand(&self) -> &InstanceDemand {
        &self.demand
    }

    /// Returns the receiver of messages outside responses.
    #[inline]
    pub(crate) fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    /// Returns the lists that may have changed.
    pub(crate) fn changes(&self) -> &Arc<ChangedLists> {
        &self.changes
    }

    /// Returns the last list request that has ended, to wait for the next one.
    pub(crate) fn finished_listings(&self) -> watch::Receiver<Option<FinishedListing>> {
        self.listings.subscribe()
    }

    /// Records the end of a request for all lists.
    pub(super) fn note_listing(&self, finished: FinishedListing) {
        self.listings.send_replace(Some(finished));
    }

    pub(crate) fn name(&self) -> &ServerName {
        &self.shared.config().name
    }

    pub(crate) fn config(&self) -> &Arc<ServerConfig> {
        self.shared.config()
    }

    /// Returns true if this is the main instance, which lives as long as its server.
    pub(crate) fn is_main(&self) -> bool {
        self.owner.is_main()
    }

    /// Returns the owner, with the declaration for opening a Legacy connection.
    pub(super) fn declared_owner(&self) -> Arc<InstanceKey> {
        if !self.is_main() {
            return Arc::clone(&self.owner);
        }
        let told = self.shared.main_declaration(ProtocolVersion::LATEST_LEGACY);
        Arc::new(InstanceKey { whose: self.owner.whose.clone(), told })
    }

    /// Sends a call.
    pub(crate) async fn call(
        &self,
        mut permitted: Permitted<Call>,
        config: &ServerConfig,
        in_use: InUse,
    ) -> Result<Reply, Failure> {
        let slot = permitted.take_slot();
        if let (false, Some(session)) = (self.is_main(), &permitted.get().context.session) {
            self.demand.add_caller(session, &self.shared.context().hub);
        }
        let reads = &self.inbox.reads;
        check_claims(&config.call_headers, &permitted.get().context)?;
        // Credentials of the client may affect the result, so it is not cached.
        let has_own_credentials = !config.forward_headers.is_empty()
            || !config.call_headers.is_empty()
            || self.shared.authorizer().is_some_and(|it| it.tells_clients_apart());
        let most = config.read_cache.filter(|_| !has_own_credentials);
        let reading = match reads.find(permitted.get(), permitted.target(), most) {
            Ok(known) => return Ok(known),
            Err(reading) => reading,
        };
        let context = &permitted.get().context;
        self.shared.note_caller(context);
        let connection = match self.connected().await {
            Ok(connection) => connection,
            Err(fault) => {
                let explained = Box::pin(self.shared.explain_down(fault, context));
                return Err(self.fail(explained.await));
            }
        };
        let (call, target) = (permitted.get(), permitted.target());
        let reply = match connection.call(call, target, config).await {
            // The child was lost before the call was sent, or the replica with it. The next one
            // receives the call.
            Err(UpstreamError::Exited(_) | UpstreamError::Replica(_)) => {
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
    pub(crate) fn start_unlisted(&self) {
        let is_lazy = self.config().start == StartChoice::Lazy;
        if is_lazy && self.shared.lists().base.load().is_none() {
            self.demand.request_start_for_list();
        }
    }

    /// Requests the lists, starting the instance if necessary. Does not wait.
    pub(crate) fn want_list(&self) {
        self.want_list_by(|| self.changes.mark_all());
    }

    /// Requests the lists for an operator, independent of the server's pace. Ends the wait of a
    /// failed instance.
    pub(crate) fn refresh_list(&self) {
        if self.has_failed() {
            self.demand.request_retry();
        }
        self.want_list_by(|| self.demand.operator_requests().notify_one());
    }

    fn want_list_by(&self, cause: impl FnOnce()) {
        self.demand.touch();
        if self.life.is_in(&LifeState::Ready) {
            cause();
        } else {
            self.demand.request_start_for_list();
        }
    }

    /// Returns true if the instance has failed too often and has not been ready since.
    pub(crate) fn has_failed(&self) -> bool {
        self.life.is_in(&LifeState::Failed)
    }

    /// Returns the connection. Waits if a start is due or in progress. In backoff, this makes a
    /// start due.
    pub(crate) async fn connected(&self) -> Result<Arc<ServerConnection>, UpstreamError> {
        if let Some(connection) = self.life.current() {
            return Ok(connection);
        }
        let mut state = self.life.watch_state();
        let before = self.life.restarts();
        let is_in_backoff = matches!(*state.borrow(), LifeState::Backoff { .. });
        self.demand.request_start();
        let verdict = |state: &LifeState| match state {
            LifeState::Ready | LifeState::Failed | LifeState::Stopped => true,
            // After a login the start follows soon.
            LifeState::AwaitsLogin => self.has_link(),
            // The start that this call made due has failed.
            LifeState::Backoff { .. } => self.life.restarts() != before,
            LifeState::Idle | LifeState::Connecting => false,
        };
        let limit = self.config().start_timeout;
        let patience = if is_in_backoff { limit.min(RETRY_PATIENCE) } else { limit };
        let _ = timeout(patience, state.wait_for(verdict)).await;
        self.life.current().ok_or_else(|| {
            let fault = self.life.history().told.clone();
            UpstreamError::Down(Box::new(fault.unwrap_or(ServerFault::NotRunning)))
        })
    }

    /// Returns the owner of the instance's grant, for requests that belong to no single client.
    pub(in crate::upstream) fn grant_owner(&self) -> Option<GrantOwner> {
        let authorizer = self.shared.authorizer()?;
        let told = &self.owner.told;
        Some(authorizer.owner_of(self.owner.whose.principal().or(told.account.as_ref())))
    }

    /// Returns true if the owner of its grant has logged in, or is about to, and no other login is
    /// needed.
    pub(crate) fn has_logged_in(&self) -> bool {
        let owner = self.grant_owner();
        let authorizer = self.shared.authorizer();
        owner.zip(authorizer).is_some_and(|(owner, authorizer)| {
            let is_in = authorizer.has_grant(&owner) && authorizer.open_login(&owner).is_none();
            is_in || authorizer.is_exchanging(&owner)
        })
    }

    /// Returns true if the owner of its grant has a link to log in by.
    fn has_link(&self) -> bool {
        let owner = self.grant_owner();
        let authorizer = self.shared.authorizer();
        owner.zip(authorizer).is_some_and(|(owner, it)| it.open_login(&owner).is_some())
    }

    /// Waits until the instance is ready. Returns false if it fails, or is not ready in time.
    pub(crate) async fn is_ready_within(&self, patience: Duration) -> bool {
        let mut state = self.life.watch_state();
        let verdict = |state: &LifeState| !matches!(state, LifeState::Idle | LifeState::Connecting);
        let verdict = timeout(patience, state.wait_for(verdict)).await;
        matches!(verdict, Ok(Ok(state)) if *state == LifeState::Ready)
    }

    /// Returns the connection that replaces the lost one.
    async fn connected_after(
        &self,
        lost: &Arc<ServerConnection>,
    ) -> Result<Arc<ServerConnection>, UpstreamError> {
        let is_gone = |_: &LifeState| !self.life.is_current(lost);
        let _ = timeout(REPLACEMENT_TIMEOUT, self.life.watch_state().wait_for(is_gone)).await;
        self.connected().await
    }

    /// Returns true if an idle instance has a reason to start.
    pub(super) fn is_wanted(&self) -> bool {
        self.demand.take_list_request() || self.is_in_use()
    }

    /// Returns true if the instance has calls in flight or active subscriptions.
    pub(super) fn is_in_use(&self) -> bool {
        self.demand.has_calls() || self.inbox.subscriptions.are_wanted()
    }

    /// Returns true if a client waits for the instance to start. Every instance other than the main
    /// one is opened for a client.
    pub(super) fn is_awaited(&self) -> bool {
        !self.is_main() || self.demand.is_awaited()
    }

    /// Returns the time to stop the instance if it stays unused, or `None` for never.
    pub(super) fn idle_at(&self) -> Option<Instant> {
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
        let used = if is_kept { clock::now() } else { self.demand.last_used() };
        let listed = self.life.history().listed_at.filter(|_| self.is_main());
        Some(listed.map_or(used, |listed| listed.max(used)) + allowed)
    }

    /// Returns true if a client that has called the instance keeps a stream open.
    fn has_listeners(&self) -> bool {
        self.demand.has_listeners(&self.shared.context().hub)
    }

    /// Returns the time that an instance other than the main one may be idle.
    fn idle_limit(&self) -> Duration {
        let (config, owner) = (self.config(), &self.owner);
        // A server of both eras also has one for clients without capabilities.
        let is_for_capabilities = owner.lists() && owner.told.other_era.is_none();
        let most = if is_for_capabilities { config.capability_idle } else { Duration::MAX };
        most.min(config.instance_idle).min(config.idle_stop.unwrap_or(Duration::MAX))
    }

    pub(crate) fn fail(&self, fault: UpstreamError) -> Failure {
        let text = fault.chain_without(&self.config().secrets);
        tracing::debug!(server = %self.name(), fault = text, "a call failed");
        fault.into_failure(self.name(), &self.config().secrets)
    }

    /// Returns the era of an instance that is not the main one. Each client's account is listed in
    /// the era of the main instance. Otherwise only servers that speak Legacy have further
    /// instances.
    pub(super) fn further_era(&self) -> Option<Era> {
        let told = &self.owner.told;
        if told.account.is_some() && told.other_era.is_none() {
            return self.shared.version().map(ProtocolVersion::era);
        }
        Some(Era::Legacy)
    }

    /// Returns a summary for status pages.
    pub(crate) fn view(&self) -> InstanceView {
        let state = self.life.state();
        let connected = self.life.read_peer(Peer::era);
        let further = || (!self.is_main()).then(|| self.further_era()).flatten();
        let era = connected.or_else(further);
        let told = match era {
            Some(Era::Legacy) => self.declared_owner().told.clone(),
            _ => self.owner.told.clone(),
        };
        let finds_out = self.finds_out();
        let notes = self.life.history();
        InstanceView {
            owner: Arc::clone(&self.owner),
            told,
            era,
            finds_out,
            state,
            since: notes.since.unwrap_or_else(clock::wall_now),
            pid: notes.pid,
            calls: self.demand.count_calls(),
            last_error: notes.last_error.clone(),
        }
    }
}

/// A call in flight: keeps its instance from being stopped.
pub(crate) struct InUse {
    instance: Arc<Instance>,
    _hold: StopGuard,
}

impl InUse {
    /// Counts the call. Must precede the lookup of the connection: see
    /// `Life::rest`.
    pub(crate) fn begin(instance: &Arc<Instance>) -> Self {
        instance.demand.begin_call();
        Self { instance: Arc::clone(instance), _hold: instance.shared.hold() }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.instance.demand.end_call();
    }
}

/// Maximum time that a call waits for the start of a server that it finds in backoff.
const RETRY_PATIENCE: Duration = Duration::from_secs(4);
/// Maximum time that a call waits until a lost connection is noticed, and that a subscription waits
/// for its instance.
pub(crate) const REPLACEMENT_TIMEOUT: Duration = Duration::from_secs(2);
