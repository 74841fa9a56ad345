//! One server as the rest of the gateway sees it.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwapOption;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::call::{Call, Failure, Reply, ServerName};
use crate::catalog::{Kind, ServerList};
use crate::config::{Server as ServerConfig, Start, Target};
use crate::mcp::{Era, ProtocolVersion};
use crate::policy::Permitted;
use crate::telemetry::metrics::{Availability, ServerMetrics};

use super::LinkFault;
use super::connection::{Connection, transport_name};
use super::news::{Held, Inbox, Mailbox, Topic};
use super::peer::Peer;
use super::supervisor::{Surroundings, supervise};

/// Where a server is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Not started yet, or stopped because nobody needed it.
    Idle,
    /// Being started, probed and listed.
    Connecting,
    /// Listed; calls go to it.
    Ready,
    /// Failed; the next try comes then.
    Backoff {
        /// When.
        until: Instant,
    },
    /// Failed too often; left alone until the restart window is over or the
    /// configuration changes.
    Failed,
    /// Stopped for good.
    Stopped,
}

impl State {
    /// The state's name in status and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Backoff { .. } => "backoff",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// What can be told of a server at a glance.
#[derive(Debug, Clone)]
pub struct View {
    /// Where it is in its life.
    pub state: State,
    /// Since when.
    pub since: SystemTime,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Who it is, while it is connected.
    pub peer: Option<Peer>,
    /// What went wrong last, and when.
    pub last_error: Option<(SystemTime, String)>,
    /// How often it was started again.
    pub restarts: u32,
    /// Its process, while it has one.
    pub pid: Option<u32>,
    /// What its list has that cannot be used.
    pub warnings: Vec<String>,
    /// When it was first ready, or first failed.
    pub first_verdict: Option<SystemTime>,
}

/// What the supervisor tells of itself.
#[derive(Debug, Default)]
pub(super) struct Notes {
    pub(super) since: Option<SystemTime>,
    pub(super) last_error: Option<(SystemTime, String)>,
    /// The same as clients may know it.
    pub(super) told: Option<String>,
    pub(super) pid: Option<u32>,
    pub(super) warnings: Vec<String>,
    pub(super) listed_at: Option<Instant>,
    pub(super) first_verdict: Option<SystemTime>,
}

/// A server with its whole life. Lives across snapshots, for as long as its
/// part of the configuration stays the same.
pub struct Server {
    pub(super) config: Arc<ServerConfig>,
    pub(super) connection: ArcSwapOption<Connection>,
    pub(super) list: ArcSwapOption<ServerList>,
    pub(super) state: watch::Sender<State>,
    pub(super) notes: Mutex<Notes>,
    /// Somebody may want it started: see `is_wanted`.
    pub(super) demand: Notify,
    /// A listing wants it started.
    pub(super) unlisted: AtomicBool,
    /// Its list may be another.
    pub(super) changed: Arc<Notify>,
    /// What it tells outside of its answers.
    pub(super) inbox: Arc<Inbox>,
    pub(super) stop: CancellationToken,
    pub(super) restarts: AtomicU32,
    pub(super) metrics: Arc<ServerMetrics>,
    /// Snapshots and calls that count on it.
    users: TaskTracker,
    /// A snapshot names it: it is the one of its name that the metrics show.
    shown: AtomicBool,
    /// Calls under way, and when the last one began, in milliseconds of `born`.
    pub(super) calls: AtomicU32,
    pub(super) last_call: AtomicU64,
    pub(super) born: Instant,
    supervisor: Mutex<Option<JoinHandle<()>>>,
}

impl Server {
    /// Starts the server's life.
    pub fn start(config: Arc<ServerConfig>, surroundings: &Surroundings) -> Arc<Self> {
        let changed = Arc::new(Notify::new());
        let metrics = surroundings.metrics.server(config.name.as_str());
        let subscriptions = surroundings.hub.at(&config.name);
        let inbox = Inbox::new(Arc::clone(&changed), subscriptions);
        inbox.count_in(&metrics);
        let server = Arc::new(Self {
            metrics: surroundings.metrics.server(config.name.as_str()),
            unlisted: AtomicBool::new(false),
            users: TaskTracker::new(),
            shown: AtomicBool::new(false),
            config,
            connection: ArcSwapOption::empty(),
            list: ArcSwapOption::empty(),
            state: watch::Sender::new(State::Idle),
            notes: Mutex::default(),
            demand: Notify::new(),
            changed,
            inbox,
            stop: surroundings.stop.child_token(),
            restarts: AtomicU32::new(0),
            calls: AtomicU32::new(0),
            last_call: AtomicU64::new(0),
            born: Instant::now(),
            supervisor: Mutex::new(None),
        });
        let life = supervise(Arc::clone(&server), surroundings.clone());
        let task = surroundings.alive.spawn(life);
        *server.supervisor.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        server
    }

    /// Its name.
    pub fn name(&self) -> &ServerName {
        &self.config.name
    }

    /// Its last known list; none while it has never listed.
    pub fn list(&self) -> Option<Arc<ServerList>> {
        self.list.load_full()
    }

    /// Gives it the list of the one it takes over from, until it has its own.
    pub fn inherit(&self, list: Option<Arc<ServerList>>) {
        // In one step: its own list may come this very moment, and stays.
        self.list.compare_and_swap(&None::<Arc<ServerList>>, list);
    }

    /// Keeps it from being stopped for good, for as long as the answer lives:
    /// a snapshot that names a server holds it.
    pub fn hold(&self) -> Hold {
        Hold(self.users.token())
    }

    /// Lets the metrics show how it is, from now until it is told to stop: the
    /// one that it takes over from, or that takes over, has the same name.
    pub fn show(&self) {
        self.shown.store(true, Ordering::SeqCst);
        self.show_availability();
    }

    pub(super) fn show_availability(&self) {
        if !self.shown.load(Ordering::SeqCst) || self.users.is_closed() {
            return;
        }
        // One at rest can take calls: the next one starts it.
        let takes_calls = matches!(*self.state.borrow(), State::Idle | State::Ready);
        let availability = if takes_calls { Availability::Up } else { Availability::Down };
        self.metrics.set_availability(availability);
    }

    /// Who it is, while it is connected.
    pub fn peer(&self) -> Option<Peer> {
        self.connection.load().as_ref().map(|connection| connection.peer().clone())
    }

    /// The version agreed with it, while it is connected.
    pub fn version(&self) -> Option<ProtocolVersion> {
        self.connection.load().as_ref().map(|connection| connection.peer().version)
    }

    /// Whether it is a child process.
    pub fn is_child(&self) -> bool {
        matches!(self.config.target, Target::Command(_))
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
        self: &Arc<Self>,
        mut permitted: Permitted<Call>,
        config: &ServerConfig,
    ) -> Result<Reply, Failure> {
        let in_use = InUse::begin(self);
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
            Err(LinkFault::Exited(_)) => match self.connected_after(&connection).await {
                Ok(next) => next.call(call, target, config).await,
                Err(fault) => Err(fault),
            },
            reply => reply,
        };
        let reply = reply.map_err(|fault| self.fail(fault))?.holding((slot, in_use));
        Ok(match reading.filter(|_| connection.peer().era() == Era::Modern) {
            Some(reading) => reads.keep(reading, reply),
            None => reply,
        })
    }

    /// Subscribes a client to a topic, and has the server started if it is
    /// waiting to be needed. Does not wait for it; `None` where there are
    /// `limit` subscriptions at all servers together.
    pub fn subscribe(
        &self,
        topic: &Permitted<Topic>,
        mailbox: &Arc<Mailbox>,
        limit: usize,
    ) -> Option<Held> {
        let held = self.inbox.subscriptions.add(topic.get().clone(), mailbox, limit);
        self.demand.notify_one();
        held
    }

    /// Has the server started if it is waiting to be needed, and has its lists
    /// fetched again if that of this kind is no longer fresh. Does not wait.
    pub fn wake(&self, kind: Kind) {
        match &*self.state.borrow() {
            State::Idle if self.list.load().is_none() => {
                self.unlisted.store(true, Ordering::SeqCst);
                self.demand.notify_one();
            }
            State::Ready if self.is_stale(kind) => self.changed.notify_one(),
            _ => {}
        }
    }

    /// Waits until it is ready or has failed for the first time.
    pub async fn settled(&self) {
        if self.config.start == Start::Lazy {
            return;
        }
        let mut state = self.state.subscribe();
        let verdict = |state: &State| !matches!(state, State::Idle | State::Connecting);
        // The sender is part of `self`: it cannot be gone.
        let _ = state.wait_for(verdict).await;
    }

    /// Stops it for good, once nobody holds it and its calls have ended, or
    /// `patience` is over.
    pub async fn stop(&self, patience: Duration) {
        self.users.close();
        tokio::select! {
            _ = timeout(patience, self.users.wait()) => {}
            () = self.stop.cancelled() => {}
        }
        self.stop.cancel();
        let task = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            let _ = task.await;
        }
    }

    /// What can be told of it at a glance.
    pub fn view(&self) -> View {
        let state = self.state.borrow().clone();
        let notes = self.notes();
        View {
            first_verdict: notes.first_verdict,
            since: notes.since.unwrap_or_else(SystemTime::now),
            transport: transport_name(&self.config.target),
            peer: self.peer(),
            last_error: notes.last_error.clone(),
            restarts: self.restarts.load(Ordering::Relaxed),
            pid: notes.pid,
            warnings: notes.warnings.clone(),
            state,
        }
    }

    pub(super) fn notes(&self) -> std::sync::MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody's listing should have it listed anew.
    fn is_stale(&self, kind: Kind) -> bool {
        let list = self.list.load();
        let ttl = list.as_ref().map_or(Duration::ZERO, |list| list.freshness.get(kind).ttl);
        let listed_at = self.notes().listed_at;
        listed_at.is_some_and(|at| at.elapsed() > ttl.max(LEAST_FRESH))
    }

    /// The connection, waiting for it where it can be had soon.
    async fn connected(&self) -> Result<Arc<Connection>, LinkFault> {
        if let Some(connection) = self.connection.load_full() {
            return Ok(connection);
        }
        let mut state = self.state.subscribe();
        self.demand.notify_one();
        let soon = Instant::now() + SOON;
        let verdict = |state: &State| match state {
            State::Ready | State::Failed | State::Stopped => true,
            State::Backoff { until } => *until > soon,
            State::Idle | State::Connecting => false,
        };
        let _ = timeout(self.config.start_timeout, state.wait_for(verdict)).await;
        self.connection.load_full().ok_or_else(|| {
            let reason = self.notes().told.clone();
            LinkFault::Down(reason.unwrap_or_else(|| "it is not running".into()))
        })
    }

    /// The connection that follows one which is lost.
    async fn connected_after(&self, lost: &Arc<Connection>) -> Result<Arc<Connection>, LinkFault> {
        let is_gone = |_: &State| {
            let current = self.connection.load();
            !current.as_ref().is_some_and(|current| Arc::ptr_eq(current, lost))
        };
        let _ = timeout(SOON, self.state.subscribe().wait_for(is_gone)).await;
        self.connected().await
    }

    /// Whether a server at rest has a reason to start.
    pub(super) fn is_wanted(&self) -> bool {
        self.unlisted.swap(false, Ordering::SeqCst) || self.is_in_use()
    }

    /// Whether calls to it are under way, or somebody counts on hearing of
    /// its changes.
    pub(super) fn is_in_use(&self) -> bool {
        self.calls.load(Ordering::SeqCst) > 0 || self.inbox.subscriptions.are_wanted()
    }

    fn fail(&self, fault: LinkFault) -> Failure {
        tracing::debug!(server = %self.name(), fault = %fault.chain(), "a call failed");
        fault.into_failure(self.name())
    }
}

/// Keeps a server from being stopped for good.
#[derive(Clone)]
pub struct Hold(#[allow(dead_code, reason = "held for its drop")] TaskTrackerToken);

/// A call under way: keeps the server from being stopped beneath it.
struct InUse {
    server: Arc<Server>,
    _hold: Hold,
}

impl InUse {
    fn begin(server: &Arc<Server>) -> Self {
        // Before the connection is looked for: see `Life::rest`.
        server.calls.fetch_add(1, Ordering::SeqCst);
        Self { server: Arc::clone(server), _hold: server.hold() }
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        let server = &self.server;
        let now = u64::try_from(server.born.elapsed().as_millis()).unwrap_or(u64::MAX);
        server.last_call.store(now, Ordering::Relaxed);
        server.calls.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A wait for a restart that a call puts up with.
const SOON: Duration = Duration::from_secs(2);
/// A list is never fetched again for a client sooner than this.
const LEAST_FRESH: Duration = Duration::from_secs(5);
