//! One server as the rest of the gateway sees it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout};

use crate::call::{Abilities, Call, Context, Failure, Reply, ServerName};
use crate::catalog::{Kind, ServerList};
use crate::config::{ServerConfig, ServerKind, StartChoice};
use crate::mcp::{Era, ProtocolVersion};
use crate::policy::Permitted;

use crate::upstream::UpstreamError;
use crate::upstream::lists::ListFreshness;
use crate::upstream::notifications::{Mailbox, SubscriptionGuard, Topic};
use crate::upstream::owner::InstanceKey;
use crate::upstream::supervisor::instance::{InUse, Instance, SOON};
use crate::upstream::supervisor::kin::{ServerContext, ServerShared, StopGuard};
use crate::upstream::supervisor::state::{LifeState, ServerOverview};
use crate::upstream::transport::connection::transport_name;
use crate::upstream::transport::peer::Peer;

/// A configured server with its whole life. Lives across snapshots, for as
/// long as its part of the configuration stays the same.
///
/// Its first instance answers for it: what it is, what it lists, how it fares.
/// Where one will not do for all clients, there are more of them.
pub struct Server {
    main: Arc<Instance>,
    kin: Arc<ServerShared>,
}

impl Server {
    /// Starts the server's life.
    pub fn start(config: Arc<ServerConfig>, surroundings: &ServerContext) -> Arc<Self> {
        let kin = Arc::new(ServerShared::new(config, surroundings));
        Arc::new(Self { main: Instance::start(&kin, InstanceKey::main()), kin })
    }

    /// Its name.
    pub fn name(&self) -> &ServerName {
        self.main.name()
    }

    /// Its last known list, as it gives it to clients that can do nothing for
    /// it; none while it has never listed.
    pub fn list(&self) -> Option<Arc<ServerList>> {
        self.kin.lists.base.load_full()
    }

    /// Its last known list for clients with these abilities, where that is
    /// another than the one for all.
    pub fn list_for(&self, abilities: &Abilities) -> Option<Arc<ServerList>> {
        self.told(abilities).and_then(|told| self.kin.lists.of(&told))
    }

    /// Changes whenever a list for some abilities does.
    pub fn lists_version(&self) -> u64 {
        self.kin.lists.version()
    }

    /// Gives it the lists of the one it takes over from, until it has its own.
    pub fn inherit(&self, from: &Self) {
        self.kin.lists.inherit(&from.kin.lists);
    }

    /// Has it asked for its lists for clients with these abilities, if that is
    /// due. Does not wait: what is given back does, until it has answered or
    /// failed for the first time; not where it is not there at all. The caller
    /// bounds the time.
    pub fn list_on_behalf(
        &self,
        abilities: &Abilities,
        kind: Kind,
    ) -> impl Future<Output = ()> + Send + use<> {
        let told = self.told(abilities).filter(|_| self.list().is_some());
        let asked = told.map(|told| {
            let standing = self.kin.lists.ask(&told);
            self.have_listed(&told, standing, kind);
            (told, standing)
        });
        let kin = Arc::clone(&self.kin);
        async move {
            if let Some((told, ListFreshness::New)) = asked {
                kin.lists.tried(&told).await;
            }
        }
    }

    /// What the server is told of clients with these abilities; none where
    /// that is nothing, or not known yet.
    fn told(&self, abilities: &Abilities) -> Option<Bytes> {
        let version = self.kin.version()?;
        let told = match version.era() {
            Era::Modern => abilities.raw().clone(),
            Era::Legacy => InstanceKey::lister(version, abilities).told,
        };
        (told != "{}" && self.kin.config.max_instances() > 0).then_some(told)
    }

    /// Has a list made that is not there, or may be stale.
    fn have_listed(&self, told: &Bytes, standing: ListFreshness, kind: Kind) {
        let lists = &self.kin.lists;
        let is_modern = self.kin.version().map(ProtocolVersion::era) == Some(Era::Modern);
        if is_modern {
            match (&*self.main.state.borrow(), standing) {
                (LifeState::Ready, ListFreshness::New) => lists.wanted.notify_one(),
                (LifeState::Idle, ListFreshness::New) => self.main.want_list(),
                (LifeState::Connecting, _) | (_, ListFreshness::Tried(_)) => {}
                _ => lists.failed(told),
            }
            return;
        }
        let owner = InstanceKey { told: told.clone(), ..InstanceKey::main() };
        let running = self.kin.pool.find(&owner);
        if let Some(running) = &running {
            running.touch();
        }
        let fresh = lists.of(told).filter(|_| running.is_some());
        let fresh =
            fresh.map_or(Duration::ZERO, |list| list.freshness.get(kind).ttl).max(LEAST_FRESH);
        if matches!(standing, ListFreshness::Tried(age) if age <= fresh) {
            return;
        }
        match self.kin.pool.open_for(&self.kin, owner) {
            Ok(lister) => lister.want_list(),
            Err(fault) => {
                tracing::warn!(server = %self.name(), fault = %fault.chain(), "no list for some clients");
                lists.failed(told);
            }
        }
    }

    /// Keeps it from being stopped for good, for as long as the answer lives:
    /// a snapshot that names a server holds it.
    pub fn hold(&self) -> StopGuard {
        self.kin.hold()
    }

    /// Lets the metrics show how it is, from now until it is told to stop: the
    /// one that it takes over from, or that takes over, has the same name.
    pub fn show(&self) {
        self.kin.show(&self.main.state.borrow());
    }

    /// Who it is, while it is connected.
    pub fn peer(&self) -> Option<Peer> {
        self.main.connection.load().as_ref().map(|connection| connection.peer().clone())
    }

    /// The version agreed with it, while it is connected.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.main.connection.load().as_ref().map(|connection| connection.peer().version)
    }

    /// Whether it is a child process.
    pub fn is_child(&self) -> bool {
        matches!(self.kin.config.target, ServerKind::Command(_))
    }

    /// Sends a call. `config` may be newer than the one it was started with:
    /// its limits and times may change while it runs.
    ///
    /// # Errors
    /// [`Failure`] where the server cannot be had, or fails before it begins to
    /// answer. What fails later is in the reply.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub async fn call(
        &self,
        permitted: Permitted<Call>,
        config: &ServerConfig,
    ) -> Result<Reply, Failure> {
        let taken = self.instance_for(&permitted.get().context).await;
        let (instance, in_use) = taken.map_err(|fault| self.main.fail(fault))?;
        instance.call(permitted, config, in_use).await
    }

    /// Where a client's calls go, held open: for several of them that have to
    /// meet at the same place.
    ///
    /// # Errors
    /// [`Failure`] where there is no room for another instance, or nobody
    /// knows yet whether there has to be one.
    pub async fn reach(&self, context: &Context) -> Result<ServerAccess, Failure> {
        let taken = self.instance_for(context).await;
        let (instance, in_use) = taken.map_err(|fault| self.main.fail(fault))?;
        Ok(ServerAccess { instance, _in_use: in_use })
    }

    /// The instance that a call goes to, kept from being stopped.
    async fn instance_for(
        &self,
        context: &Context,
    ) -> Result<(Arc<Instance>, InUse), UpstreamError> {
        // Also while it may only have to say which era it is of.
        let first = InUse::begin(&self.main);
        let version = match self.kin.version() {
            Some(version) => version,
            None => self.main.connected().await?.peer().version,
        };
        let owner = self.owner(version, context);
        if owner.is_main() {
            return Ok((Arc::clone(&self.main), first));
        }
        self.kin.pool.take(&self.kin, owner)
    }

    fn owner(&self, version: ProtocolVersion, context: &Context) -> InstanceKey {
        let config = &self.kin.config;
        match config.max_instances() {
            0 => InstanceKey::main(),
            _ => InstanceKey::of(version, config.isolation(), context),
        }
    }

    /// Closes what a Legacy client's session had of its own here.
    pub fn client_left(&self, session: &str) {
        self.kin.pool.close_session(&self.kin, session);
    }

    /// Subscribes a client to a topic, at the instance that its calls go to,
    /// and has that started if it is waiting to be needed. Waits no longer than
    /// to find out which one that is; `None` where there are `limit`
    /// subscriptions at all servers together.
    ///
    /// # Errors
    /// [`Failure`] where there is no room for another instance.
    pub async fn subscribe(
        &self,
        context: &Context,
        topic: &Permitted<Topic>,
        mailbox: &Arc<Mailbox>,
        limit: usize,
    ) -> Result<Option<SubscriptionGuard>, Failure> {
        let found = timeout(SOON, self.instance_for(context)).await;
        let (instance, _in_use) = match found {
            Ok(Err(full @ UpstreamError::TooManyInstances { .. })) => {
                return Err(self.main.fail(full));
            }
            Ok(Ok(found)) => found,
            // Nobody knows what it is: it is asked when it is there.
            Ok(Err(_)) | Err(_) => (Arc::clone(&self.main), InUse::begin(&self.main)),
        };
        let held = instance.inbox.subscriptions.add(topic.get().clone(), mailbox, limit);
        instance.demand.notify_one();
        Ok(held)
    }

    /// Has the server started if it is waiting to be needed, and has its lists
    /// fetched again if that of this kind is no longer fresh. Does not wait.
    pub fn wake(&self, kind: Kind) {
        match &*self.main.state.borrow() {
            LifeState::Idle if self.kin.lists.base.load().is_none() => {
                self.main.unlisted.store(true, Ordering::SeqCst);
                self.main.demand.notify_one();
            }
            LifeState::Ready if self.is_stale(kind) => self.main.changed.notify_one(),
            _ => {}
        }
    }

    /// Waits until it is ready or has failed for the first time.
    pub async fn settled(&self) {
        if self.kin.config.start == StartChoice::Lazy {
            return;
        }
        let mut state = self.main.state.subscribe();
        let verdict = |state: &LifeState| !matches!(state, LifeState::Idle | LifeState::Connecting);
        // The sender is part of `self`: it cannot be gone.
        let _ = state.wait_for(verdict).await;
    }

    /// Stops it for good, once nobody holds it and its calls have ended, or
    /// `patience` is over.
    pub async fn stop(&self, patience: Duration) {
        self.kin.users.close();
        tokio::select! {
            _ = timeout(patience, self.kin.users.wait()) => {}
            () = self.kin.stop.cancelled() => {}
        }
        self.kin.stop.cancel();
        self.kin.lives.close();
        self.kin.lives.wait().await;
    }

    /// What can be told of it at a glance.
    pub fn view(&self) -> ServerOverview {
        let main = self.main.view();
        let (instances, instance_count) = self.kin.pool.view();
        let notes = self.main.notes();
        ServerOverview {
            state: main.state,
            since: main.since,
            transport: transport_name(&self.kin.config.target),
            peer: self.peer(),
            last_error: main.last_error,
            restarts: self.main.restarts.load(Ordering::Relaxed),
            pid: main.pid,
            warnings: notes.warnings.clone(),
            first_verdict: notes.first_verdict,
            instances,
            instance_count,
        }
    }

    /// Whether somebody's listing should have it listed anew.
    fn is_stale(&self, kind: Kind) -> bool {
        let ttl = self.list().map_or(Duration::ZERO, |list| list.freshness.get(kind).ttl);
        let listed_at = self.main.notes().listed_at;
        listed_at.is_some_and(|at| Instant::now() - at > ttl.max(LEAST_FRESH))
    }

    #[cfg(test)]
    pub(super) fn main(&self) -> &Arc<Instance> {
        &self.main
    }
}

/// Where one client's calls to a server go, held open.
pub struct ServerAccess {
    instance: Arc<Instance>,
    _in_use: InUse,
}

impl ServerAccess {
    /// Sends a call, as [`Server::call`] does.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the call.
    pub async fn call(
        &self,
        permitted: Permitted<Call>,
        config: &ServerConfig,
    ) -> Result<Reply, Failure> {
        self.instance.call(permitted, config, InUse::begin(&self.instance)).await
    }
}

/// A list is never fetched again for a client sooner than this.
const LEAST_FRESH: Duration = Duration::from_secs(5);
