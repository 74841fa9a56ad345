//! One server, as the rest of the gateway sees it.

mod client_lists;
mod login;
mod refresh;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::call::{Abilities, Call, Context, Failure, Principal, Reply, ReplyWatch, ServerName};
use crate::catalog::{Kind, ServerList};
use crate::clock;
use crate::cluster::ServerLease;
use crate::config::{ServerConfig, ServerKind, StartChoice};
use crate::mcp::{Era, ProtocolVersion};
use crate::policy::Permitted;
use crate::shares::{Holder, ShareBounds};

use crate::upstream::UpstreamError;
use crate::upstream::notifications::{Mailbox, SubscriptionGuard, Topic};
use crate::upstream::owner::InstanceKey;
use crate::upstream::peer::Peer;
use crate::upstream::supervisor::instance::{InUse, Instance, REPLACEMENT_TIMEOUT};
use crate::upstream::supervisor::legacy_side::LegacySupport;
use crate::upstream::supervisor::lists::due_listing::DueListing;
use crate::upstream::supervisor::lists::first_list::{FirstList, ListPatience};
use crate::upstream::supervisor::shared::{ServerContext, ServerShared, StopGuard};
use crate::upstream::supervisor::state::{LifeState, ServerOverview};
use crate::upstream::transport::connection::transport_name;

use client_lists::MIN_REFRESH_INTERVAL;
pub use refresh::{ElementChanges, RefreshError};

/// A configured server with its whole life cycle. It outlives snapshots while its part of the
/// configuration stays the same.
///
/// Its main instance provides its identity, its lists and its state. If one instance cannot serve
/// all clients, there are further ones.
pub struct Server {
    main: Arc<Instance>,
    shared: Arc<ServerShared>,
}

impl Server {
    /// Starts the server.
    pub fn start(config: Arc<ServerConfig>, surroundings: &ServerContext) -> Arc<Self> {
        let shared = Arc::new(ServerShared::new(config, surroundings));
        shared.start_keeping();
        Arc::new(Self { main: Instance::start(&shared, InstanceKey::main()), shared })
    }

    /// Returns the name of the server.
    pub fn name(&self) -> &ServerName {
        self.main.name()
    }

    /// Returns the last list for clients without capabilities, or `None` if the server has never
    /// been listed.
    pub fn list(&self) -> Option<Arc<ServerList>> {
        self.shared.lists().base.load_full()
    }

    /// Returns the main list, followed by those for clients that declare more.
    pub fn known_lists(&self) -> Vec<Arc<ServerList>> {
        let further = self.shared.lists().further_lists();
        self.list().into_iter().flat_map(|main| [main].into_iter().chain(further.clone())).collect()
    }

    /// Returns the last list for clients of this era with these capabilities, if it may differ from
    /// the list for all. Until it is known, returns another one of the same era.
    pub fn list_for(
        &self,
        era: Era,
        abilities: &Abilities,
        account: Option<&Principal>,
    ) -> Option<Arc<ServerList>> {
        self.told(era, abilities, account).and_then(|told| self.shared.lists().known(&told))
    }

    /// Returns a number that changes with each list for particular capabilities.
    pub fn lists_version(&self) -> u64 {
        self.shared.lists().version()
    }

    /// Takes over the lists of the server that this one replaces, until it has its own.
    pub fn inherit(&self, from: &Self) {
        self.shared.lists().inherit(from.shared.lists());
    }

    /// Keeps the server from being stopped while the guard lives. A snapshot
    /// holds one for each of its servers.
    pub fn hold(&self) -> StopGuard {
        self.shared.hold()
    }

    /// Reports this server's state in the metrics from now until it is stopped. The server that it
    /// replaces, or its own replacement, has the same name.
    pub fn show(&self) {
        self.shared.show(&self.main.life().state());
    }

    /// Returns the server's identity, while it is connected.
    pub fn peer(&self) -> Option<Peer> {
        self.main.life().read_peer(Peer::clone)
    }

    /// Returns the negotiated version, while the server is connected.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.main.life().read_peer(|peer| peer.version)
    }

    /// Returns the version in which clients of this era are served, while the server is connected.
    pub fn version_for(&self, era: Era) -> Option<ProtocolVersion> {
        let main = self.version()?;
        if self.shared.wants_legacy(main, era) {
            return self.shared.legacy_side().version().or(Some(main));
        }
        Some(main)
    }

    /// Returns true if the server is a child process.
    pub fn is_child(&self) -> bool {
        matches!(self.shared.config().target, ServerKind::Command(_))
    }

    /// Returns the lease of its child; `None` if each replica runs its own.
    pub fn lease(&self) -> Option<&Arc<ServerLease>> {
        self.shared.lease()
    }

    /// Waits until its child is ready, for a request of another replica. Returns false if the child is
    /// not started in time, or not here.
    pub async fn is_ready_for_replicas(&self) -> bool {
        let holds_lease = || self.lease().is_some_and(|lease| lease.is_held());
        holds_lease() && self.main.connected().await.is_ok() && holds_lease()
    }

    /// Sends a call. `config` may be newer than the configuration with which the server was
    /// started, because its limits and timeouts may change while it runs.
    ///
    /// # Errors
    /// [`Failure`] if the server is unavailable, or fails before it begins to respond. Later
    /// failures are part of the reply.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub async fn call(
        &self,
        mut permitted: Permitted<Call>,
        config: &ServerConfig,
    ) -> Result<Reply, Failure> {
        let watch = permitted.take_watch();
        let sent = match self.instance_for_call(permitted.get()).await {
            Ok((instance, in_use)) => instance.call(permitted, config, in_use).await,
            Err(fault) => Err(self.main.fail(fault)),
        };
        watch_reply(watch, sent)
    }

    /// Returns the instance for a client's call, held open for further calls that must reach the
    /// same instance.
    ///
    /// # Errors
    /// [`Failure`] if the limit of instances is reached, or if the server is unavailable and its
    /// version unknown.
    pub async fn reach(&self, call: &Call) -> Result<ServerAccess, Failure> {
        let taken = self.instance_for_call(call).await;
        let (instance, in_use) = taken.map_err(|fault| self.main.fail(fault))?;
        Ok(ServerAccess { instance, _in_use: in_use })
    }

    /// Returns the instance for a call, held open. A call with input that a Modern server has
    /// requested goes back to that server.
    async fn instance_for_call(
        &self,
        call: &Call,
    ) -> Result<(Arc<Instance>, InUse), UpstreamError> {
        if call.input.is_some()
            && let Some(version) = self.shared.version()
        {
            return self.instance_of_main_era(version, &call.context).await;
        }
        self.instance_for(&call.context).await
    }

    /// Returns the instance for a client's calls, held open.
    async fn instance_for(
        &self,
        context: &Context,
    ) -> Result<(Arc<Instance>, InUse), UpstreamError> {
        let version = match self.shared.version() {
            Some(version) => version,
            None => self.learn_version(context).await?,
        };
        if self.shared.wants_legacy(version, context.client.version.era())
            && let Some(taken) = Box::pin(self.legacy_instance_for(context)).await?
        {
            return Ok(taken);
        }
        self.instance_of_main_era(version, context).await
    }

    /// Returns the server's version, from the main instance or, if the gateway itself has no
    /// account, from that of the client.
    async fn learn_version(&self, context: &Context) -> Result<ProtocolVersion, UpstreamError> {
        // Held even if it is needed only to detect the server's era.
        let (instance, _in_use) = self.main_or_account(context).await?;
        let connected = instance.connected().await;
        let explain = async |fault| self.shared.explain_down(fault, context).await;
        match connected {
            Ok(connection) => Ok(connection.peer().version),
            Err(fault) => Err(Box::pin(explain(fault)).await),
        }
    }

    async fn instance_of_main_era(
        &self,
        version: ProtocolVersion,
        context: &Context,
    ) -> Result<(Arc<Instance>, InUse), UpstreamError> {
        let owner = InstanceKey::of(version, self.shared.config(), context);
        let is_of_main = owner.lists() && owner.told == self.shared.main_declaration(version);
        if owner.is_main() || is_of_main {
            return self.main_or_account(context).await;
        }
        let holder = Holder::of_context(context);
        self.shared.take_instance(owner, &holder)
    }

    /// Returns the main instance, held open, or the one with the client's own account, if the
    /// gateway has none at the server.
    async fn main_or_account(
        &self,
        context: &Context,
    ) -> Result<(Arc<Instance>, InUse), UpstreamError> {
        let main = (Arc::clone(&self.main), InUse::begin(&self.main));
        if self.main.life().is_connected() {
            return Ok(main);
        }
        match self.shared.account_key(&context.principal) {
            Some(own) if Box::pin(self.main.lacks_account()).await => {
                let holder = Holder::of_context(context);
                self.shared.take_instance(own, &holder)
            }
            _ => Ok(main),
        }
    }

    /// Returns the Legacy instance for a Legacy client, at a server with a Modern main instance.
    /// Returns `None` if the server does not speak Legacy, as far as is known in time.
    async fn legacy_instance_for(
        &self,
        context: &Context,
    ) -> Result<Option<(Arc<Instance>, InUse)>, UpstreamError> {
        let (config, support) = (self.shared.config(), self.shared.legacy_side().support());
        let holder = Holder::of_context(context);
        if support == LegacySupport::Refuted {
            self.shared.retry_legacy(&holder);
            return Ok(None);
        }
        let owner = InstanceKey::of_legacy_client(config, context);
        // A shared instance lists as soon as it is open.
        let _ = self.ask_for_list(&owner.list_declaration(), &holder);
        let taken = self.shared.take_instance(owner, &holder);
        if support != LegacySupport::Untried {
            return taken.map(Some);
        }
        let Ok((instance, in_use)) = taken else { return Ok(None) };
        let parts = if self.shared.legacy_side().was_spoken() { 1 } else { 3 };
        let is_ready = instance.is_ready_within(config.start_timeout / parts).await;
        Ok(is_ready.then_some((instance, in_use)))
    }

    /// Closes the instances of a Legacy client's session after its end.
    pub fn client_left(&self, session: &str) {
        self.shared.close_session(session);
    }

    /// Subscribes a client to a topic at the instance for its calls, and starts that instance if it
    /// is idle. Waits only until the instance is known.
    ///
    /// # Errors
    /// [`Failure`] if the limit of instances is reached, or one of `bounds`, which apply to the
    /// subscriptions at all servers together.
    pub async fn subscribe(
        &self,
        context: &Context,
        topic: &Permitted<Topic>,
        mailbox: &Arc<Mailbox>,
        bounds: ShareBounds,
    ) -> Result<SubscriptionGuard, Failure> {
        let holder = Holder::of_context(context);
        let place = self.shared.context().hub.take_place(&holder, bounds);
        let place = place
            .map_err(|reached| Failure::TooManySubscriptions { limit: bounds.reached(reached) })?;
        let era = context.client.version.era();
        let patience = match self.shared.version() {
            Some(version) if self.shared.wants_legacy(version, era) => {
                self.shared.config().start_timeout
            }
            _ => REPLACEMENT_TIMEOUT,
        };
        let found = timeout(patience, self.instance_for(context)).await;
        let (instance, _in_use) = match found {
            Ok(Err(full @ UpstreamError::TooManyInstances { .. })) => {
                return Err(self.main.fail(full));
            }
            Ok(Ok(found)) => found,
            // The version is unknown, so the main instance subscribes once it is ready.
            Ok(Err(_)) | Err(_) => (Arc::clone(&self.main), InUse::begin(&self.main)),
        };
        let held = instance.inbox().subscriptions.add(topic.get().clone(), mailbox, place);
        instance.demand().request_start();
        Ok(held)
    }

    /// Starts the server if it is idle and has never been listed, tries it again if it is in
    /// backoff, and requests its lists again if the list of this kind is stale. Does not wait.
    pub fn wake(&self, kind: Kind) {
        match self.main.life().state() {
            LifeState::Idle => self.main.start_unlisted(),
            LifeState::Backoff { .. } => self.main.demand().request_start(),
            LifeState::Ready if self.is_stale(kind) => self.main.changes().mark_all(),
            _ => {}
        }
    }

    /// Returns the server's first list, to wait for. Returns `None` if the server has listed or
    /// failed before, or if a request with this patience, or the server's own, has waited in vain.
    pub fn first_list(&self, patience: Option<&ListPatience>) -> Option<FirstList> {
        FirstList::pending(&self.main, patience)
    }

    /// Returns the due list requests of all instances of the server.
    pub fn due_listings(&self) -> Vec<DueListing> {
        let further = self.shared.pool().instances();
        [&self.main].into_iter().chain(&further).filter_map(DueListing::find).collect()
    }

    /// Waits until the server is ready or has failed for the first time, within a time limit. Its
    /// list may have to wait while those of other servers are built.
    pub async fn settled(&self) {
        if self.shared.config().start == StartChoice::Lazy {
            return;
        }
        let mut state = self.main.life().watch_state();
        let verdict = |state: &LifeState| !matches!(state, LifeState::Idle | LifeState::Connecting);
        // Time to connect, to list and to build the list.
        let patience = self.shared.config().start_timeout * 3;
        let _ = timeout(patience, state.wait_for(verdict)).await;
    }

    /// Waits until the server is ready, idle or stopped for good.
    pub async fn became_ready(&self) {
        let mut state = self.main.life().watch_state();
        let is_over = |state: &LifeState| {
            matches!(state, LifeState::Ready | LifeState::Idle | LifeState::Stopped)
        };
        // The sender is part of the instance, so it cannot be dropped.
        let _ = state.wait_for(is_over).await;
    }

    /// Stops the server for good, once its holders and calls are gone or `patience` has passed.
    pub async fn stop(&self, patience: Duration) {
        self.shared.shut_down(patience).await;
    }

    /// Waits until the server is being stopped, and nothing uses it any more.
    pub async fn released(&self) {
        self.shared.released().await;
    }

    /// Returns a summary for status pages.
    pub fn view(&self) -> ServerOverview {
        let main = self.main.view();
        let (mut instances, instance_count) = self.shared.pool().view();
        instances.insert(0, main.clone());
        let notes = self.main.life().history();
        let both = self.version().filter(|version| self.shared.wants_legacy(*version, Era::Legacy));
        let other = both.and_then(|_| self.shared.legacy_side().version());
        let versions = self.version().into_iter().chain(other);
        ServerOverview {
            failed_wait: notes.failed_wait.clone().filter(|_| main.state == LifeState::Failed),
            state: main.state,
            since: main.since,
            transport: transport_name(&self.shared.config().target),
            peer: self.peer(),
            eras: versions.map(ProtocolVersion::era).collect(),
            last_error: main.last_error,
            login: self.operator_link(),
            own_accounts_only: self.shared.has_no_account(),
            restarts: self.main.life().restarts(),
            pid: main.pid,
            replica: self.lease().and_then(|lease| lease.holder()),
            warnings: notes.warnings.clone(),
            first_verdict: notes.first_verdict,
            opened_at: notes.opened_at,
            listed_at: notes.listed_at,
            list_dependence: self.shared.lists().dependence_verdict(),
            instances,
            instance_count,
        }
    }

    /// Returns the number of clients' sessions with an instance of their own, and that of the calls in
    /// flight at all instances.
    pub fn count_use(&self) -> (usize, usize) {
        let further = self.shared.pool().instances();
        let has_session = |it: &&Arc<Instance>| it.owner().whose.session().is_some();
        let sessions = further.iter().filter(has_session).count();
        let all = further.iter().chain([&self.main]);
        let calls: u64 = all.map(|it| u64::from(it.demand().count_calls())).sum();
        (sessions, usize::try_from(calls).unwrap_or(usize::MAX))
    }

    /// Returns true if a client's list request should refresh the list.
    fn is_stale(&self, kind: Kind) -> bool {
        let ttl = self.list().map_or(Duration::ZERO, |list| list.freshness.get(kind).ttl);
        let listed_at = self.main.life().history().listed_at;
        listed_at.is_some_and(|at| clock::now() - at > ttl.max(MIN_REFRESH_INTERVAL))
    }

    #[cfg(test)]
    pub(super) fn main(&self) -> &Arc<Instance> {
        &self.main
    }
}

/// The instance for one client's calls, held open.
pub struct ServerAccess {
    instance: Arc<Instance>,
    _in_use: InUse,
}

impl ServerAccess {
    /// Sends a call, as [`Server::call`] does.
    ///
    /// # Errors
    /// As [`Server::call`].
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub async fn call(
        &self,
        mut permitted: Permitted<Call>,
        config: &ServerConfig,
    ) -> Result<Reply, Failure> {
        let watch = permitted.take_watch();
        let in_use = InUse::begin(&self.instance);
        watch_reply(watch, self.instance.call(permitted, config, in_use).await)
    }
}

/// Reports the end of a call to `watch`.
fn watch_reply(
    watch: Option<Box<dyn ReplyWatch>>,
    sent: Result<Reply, Failure>,
) -> Result<Reply, Failure> {
    let Some(watch) = watch else { return sent };
    match sent {
        Ok(reply) => Ok(reply.watched_by(watch)),
        Err(failure) => {
            watch.ended(Err(&failure));
            Err(failure)
        }
    }
}
