//! One instance of a server: a child process, or a connection or session over
//! HTTP, with its own life.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

use crate::call::{Call, Failure, Reply, ServerName};
use crate::config::{ServerConfig, ServerKind};
use crate::mcp::Era;
use crate::policy::Permitted;

use crate::upstream::UpstreamError;
use crate::upstream::notifications::Inbox;
use crate::upstream::owner::InstanceKey;
use crate::upstream::supervisor::kin::{ServerShared, StopGuard};
use crate::upstream::supervisor::life::live;
use crate::upstream::supervisor::state::{InstanceHistory, InstanceView, LifeState};
use crate::upstream::transport::connection::ServerConnection;

/// One instance of a server.
pub(in crate::upstream) struct Instance {
    pub(in crate::upstream) kin: Arc<ServerShared>,
    /// Whose it is, and what the server was told.
    pub(in crate::upstream) owner: Arc<InstanceKey>,
    pub(in crate::upstream) connection: ArcSwapOption<ServerConnection>,
    pub(in crate::upstream) state: watch::Sender<LifeState>,
    pub(in crate::upstream) notes: Mutex<InstanceHistory>,
    /// Somebody may want it started: see `is_wanted`.
    pub(in crate::upstream) demand: Notify,
    /// A listing wants it started.
    pub(in crate::upstream) unlisted: AtomicBool,
    /// The server's list may be another.
    pub(in crate::upstream) changed: Arc<Notify>,
    /// What the server tells outside of its answers.
    pub(in crate::upstream) inbox: Arc<Inbox>,
    pub(in crate::upstream) stop: CancellationToken,
    pub(in crate::upstream) restarts: AtomicU32,
    /// Calls under way, and when the last one ended, in milliseconds of `born`.
    calls: AtomicU32,
    used: AtomicU64,
    /// Told when the last call under way ends.
    freed: Notify,
    pub(in crate::upstream) born: Instant,
}

impl Instance {
    /// Starts an instance's life.
    pub(in crate::upstream) fn start(kin: &Arc<ServerShared>, owner: InstanceKey) -> Arc<Self> {
        let changed = Arc::new(Notify::new());
        let subscriptions = kin.surroundings.hub.of(&kin.config.name, &owner);
        let inbox = Inbox::new(Arc::clone(&changed), subscriptions);
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
            changed,
            stop: kin.stop.child_token(),
            restarts: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            used: AtomicU64::new(0),
            freed: Notify::new(),
            born: Instant::now(),
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

    /// Whether it is the first one, which lives as long as its server.
    pub(in crate::upstream) fn is_main(&self) -> bool {
        self.owner.is_main()
    }

    /// Sends a call.
    pub(in crate::upstream) async fn call(
        &self,
        mut permitted: Permitted<Call>,
        config: &ServerConfig,
        in_use: InUse,
    ) -> Result<Reply, Failure> {
        let slot = permitted.take_slot();
        let reads = &self.inbox.reads;
        // Credentials of the client's own may decide what it is told.
        let most = config.read_cache.filter(|_| config.forward_headers.is_empty());
        let reading = match reads.find(permitted.get(), permitted.target(), most) {
            Ok(known) => return Ok(known),
            Err(reading) => reading,
        };
        let connection = self.connected().await.map_err(|fault| self.fail(fault))?;
        let (call, target) = (permitted.get(), permitted.target());
        let reply = match connection.call(call, target, config).await {
            // Lost before it was sent anything: the next child gets the call.
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

    /// Has it listed, also if that means to start it. Does not wait.
    pub(in crate::upstream) fn want_list(&self) {
        self.touch();
        if *self.state.borrow() == LifeState::Ready {
            self.changed.notify_one();
        } else {
            self.unlisted.store(true, Ordering::SeqCst);
            self.demand.notify_one();
        }
    }

    /// The connection, waiting for it where it can be had soon.
    pub(in crate::upstream) async fn connected(
        &self,
    ) -> Result<Arc<ServerConnection>, UpstreamError> {
        if let Some(connection) = self.connection.load_full() {
            return Ok(connection);
        }
        let mut state = self.state.subscribe();
        self.demand.notify_one();
        let soon = Instant::now() + SOON;
        let verdict = |state: &LifeState| match state {
            LifeState::Ready | LifeState::Failed | LifeState::Stopped => true,
            LifeState::Backoff { until } => *until > soon,
            LifeState::Idle | LifeState::Connecting => false,
        };
        let _ = timeout(self.config().start_timeout, state.wait_for(verdict)).await;
        self.connection.load_full().ok_or_else(|| {
            let reason = self.notes().told.clone();
            UpstreamError::Down(reason.unwrap_or_else(|| "it is not running".into()))
        })
    }

    /// The connection that follows one which is lost.
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

    /// Whether one at rest has a reason to start.
    pub(in crate::upstream) fn is_wanted(&self) -> bool {
        self.unlisted.swap(false, Ordering::SeqCst) || self.is_in_use()
    }

    /// Whether calls to it are under way, or somebody counts on hearing of
    /// its changes.
    pub(in crate::upstream) fn is_in_use(&self) -> bool {
        self.has_calls() || self.inbox.subscriptions.are_wanted()
    }

    fn has_calls(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > 0
    }

    /// Waits until no calls to it are under way.
    pub(in crate::upstream) async fn unused(&self) {
        while self.has_calls() {
            self.freed.notified().await;
        }
    }

    /// When one without calls is to be stopped; `None` where it is not.
    pub(in crate::upstream) fn idle_at(&self) -> Option<Instant> {
        let config = self.config();
        let is_child = matches!(config.target, ServerKind::Command(_));
        let allowed = if self.is_main() {
            config.idle_stop.filter(|_| is_child)?
        } else if !is_child
            && matches!(self.owner.whose, crate::upstream::InstanceScope::Session { .. })
        {
            // Costs next to nothing, and what the server remembers of its
            // client is lost with it: it goes when the client does.
            return None;
        } else {
            config.idle_stop.map_or(config.instance_idle, |stop| stop.min(config.instance_idle))
        };
        let used = if self.is_in_use() { Instant::now() } else { self.last_used() };
        let listed = self.notes().listed_at.filter(|_| self.is_main());
        Some(listed.map_or(used, |listed| listed.max(used)) + allowed)
    }

    /// When it was used last.
    pub(in crate::upstream) fn last_used(&self) -> Instant {
        self.born + Duration::from_millis(self.used.load(Ordering::Relaxed))
    }

    /// Notes that it is used.
    pub(in crate::upstream) fn touch(&self) {
        let now = u64::try_from(self.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.used.store(now, Ordering::Relaxed);
    }

    pub(in crate::upstream) fn notes(&self) -> MutexGuard<'_, InstanceHistory> {
        self.notes.lock()
    }

    pub(in crate::upstream) fn fail(&self, fault: UpstreamError) -> Failure {
        tracing::debug!(server = %self.name(), fault = %fault.chain(), "a call failed");
        fault.into_failure(self.name())
    }

    /// What can be told of it at a glance.
    pub(in crate::upstream) fn view(&self) -> InstanceView {
        let state = self.state.borrow().clone();
        let notes = self.notes();
        InstanceView {
            owner: Arc::clone(&self.owner),
            state,
            since: notes.since.unwrap_or_else(SystemTime::now),
            pid: notes.pid,
            calls: self.calls.load(Ordering::Relaxed),
            last_error: notes.last_error.clone(),
        }
    }
}

/// A call under way: keeps the instance from being stopped beneath it.
pub(in crate::upstream) struct InUse {
    instance: Arc<Instance>,
    _hold: StopGuard,
}

impl InUse {
    /// Before the connection is looked for: see `Life::rest`.
    pub(in crate::upstream) fn begin(instance: &Arc<Instance>) -> Self {
        instance.calls.fetch_add(1, Ordering::SeqCst);
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

/// A wait for a restart that a call puts up with.
pub(in crate::upstream) const SOON: Duration = Duration::from_secs(2);
