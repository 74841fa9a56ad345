//! The life of one server, as one task tells it: start, serve, fail, wait,
//! start again, until it is stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::catalog::{HeaderRules, Kind, ServerList};
use crate::config::{Command, EraChoice, Start, Target};
use crate::mcp::Era;
use crate::telemetry::metrics::Metrics;

use super::LinkFault;
use super::backoff::{Backoff, Next, RestartBudget, RestartPolicy};
use super::child::{Child, ChildSpec, Guardian};
use super::connection::Connection;
use super::http::{self, Http};
use super::listing::{self, Bounds};
use super::news::Hub;
use super::pace::Pace;
use super::server::{Server, State};
use super::stdio::{self, Stdio};

/// What a server's life needs of the gateway around it.
#[derive(Clone)]
pub struct Surroundings {
    /// Ends the children if the gateway is killed.
    pub guardian: Guardian,
    /// Told whenever a server's list has changed.
    pub listed: Arc<Notify>,
    /// Where the handles of metrics come from.
    pub metrics: Arc<Metrics>,
    /// Stops all servers at once, also those that no snapshot names.
    pub stop: CancellationToken,
    /// The lives of all servers.
    pub alive: TaskTracker,
    /// What clients are subscribed to at all servers.
    pub hub: Arc<Hub>,
}

impl Surroundings {
    /// Surroundings of a gateway without servers yet.
    pub fn new(guardian: Guardian, metrics: Arc<Metrics>) -> Self {
        Self {
            guardian,
            metrics,
            listed: Arc::new(Notify::new()),
            stop: CancellationToken::new(),
            alive: TaskTracker::new(),
            hub: Arc::default(),
        }
    }
}

/// Why a server that ran no longer does.
enum Ended {
    Stopped,
    Idle,
    Lost(LinkFault),
}

/// How much of its lists a server gave.
enum Listed {
    /// All that there is to be had.
    Whole,
    /// Not all: another try may bring more.
    InPart,
}

pub(super) async fn supervise(server: Arc<Server>, surroundings: Surroundings) {
    let stop = server.stop.clone();
    let mut life = Life::new(&server, surroundings);
    tokio::select! {
        () = stop.cancelled() => {}
        () = life.live() => {}
    }
    if let Some(connection) = server.connection.swap(None) {
        connection.close(life.child.take()).await;
    } else if let Some(child) = life.child.take() {
        child.stop().await;
    }
    enter(&server, State::Stopped);
}

struct Life<'a> {
    server: &'a Arc<Server>,
    surroundings: Surroundings,
    restarts: RestartPolicy,
    dice: fastrand::Rng,
    /// The era it turned out to be of, kept over restarts (2026-07-28,
    /// Versioning: the verdict belongs to the server) and forgotten when it fails.
    known: Option<Era>,
    child: Option<Child>,
    /// Since when it takes calls; `None` where it has not come so far.
    ready_since: Option<std::time::Instant>,
}

impl<'a> Life<'a> {
    fn new(server: &'a Arc<Server>, surroundings: Surroundings) -> Self {
        let config = &server.config;
        let budget = match config.target {
            Target::Command(_) => config.max_restarts as usize,
            // To dial once more costs nothing, and nobody but the gateway
            // would notice that the server is back.
            Target::Http(_) => usize::MAX,
        };
        let restarts = RestartPolicy {
            backoff: Backoff::new(FIRST_DELAY, LAST_DELAY, config.restart_window),
            budget: RestartBudget::new(budget, config.restart_window),
        };
        Self {
            server,
            surroundings,
            restarts,
            dice: fastrand::Rng::new(),
            known: None,
            child: None,
            ready_since: None,
        }
    }

    async fn live(&mut self) {
        let mut wait_for_demand = self.server.config.start == Start::Lazy;
        loop {
            if wait_for_demand {
                enter(self.server, State::Idle);
                // Told of calls that were served long ago, too: hence the loop.
                while !self.server.is_wanted() {
                    self.server.demand.notified().await;
                }
            }
            self.ready_since = None;
            wait_for_demand = match self.run().await {
                Ended::Stopped => return,
                Ended::Idle => true,
                Ended::Lost(fault) => {
                    self.note(&fault);
                    self.pause().await;
                    false
                }
            };
        }
    }

    /// From start to end, once.
    async fn run(&mut self) -> Ended {
        enter(self.server, State::Connecting);
        let server = Arc::clone(self.server);
        let limit = server.config.start_timeout;
        let connection = match timeout(limit, self.connect()).await {
            Ok(Ok(connection)) => Arc::new(connection),
            Ok(Err(fault)) => return self.lost(fault).await,
            Err(_) => return self.lost(LinkFault::Timeout { after: limit }).await,
        };
        match self.list(&connection).await {
            Ok(Listed::Whole) => {}
            Ok(Listed::InPart) => server.changed.notify_one(),
            Err(fault) => {
                connection.close(self.child.take()).await;
                return Ended::Lost(fault);
            }
        }
        let opened = std::time::Instant::now();
        self.ready_since = Some(opened);
        // Whoever it is now, it may know something else.
        server.inbox.reads.clear();
        server.connection.store(Some(Arc::clone(&connection)));
        enter(&server, State::Ready);
        self.greet(&connection);
        let ended = loop {
            match self.serve(&connection).await {
                Ended::Idle if !self.rest(&connection) => {}
                ended => break ended,
            }
        };
        if let Ended::Lost(fault) = &ended {
            // Told before it is closed, which may take its time: calls that
            // come meanwhile wait for the next start.
            server.notes().told = Some(fault.public());
            enter(&server, State::Connecting);
            server.connection.store(None);
        }
        connection.close(self.child.take()).await;
        if connection.peer().era() == Era::Legacy {
            server.metrics.session_ended(opened.elapsed());
        }
        server.notes().pid = None;
        ended
    }

    /// Takes the connection away from a server without calls; false where a
    /// call has come just then, and has it. The call counts itself before it
    /// looks for the connection, this takes it before it looks for calls: one
    /// of the two sees the other.
    fn rest(&self, connection: &Arc<Connection>) -> bool {
        let server = self.server;
        let pid = server.notes().pid.take();
        enter(server, State::Idle);
        server.connection.store(None);
        if server.is_in_use() {
            server.notes().pid = pid;
            server.connection.store(Some(Arc::clone(connection)));
            enter(server, State::Ready);
            return false;
        }
        tracing::info!(server = %server.name(), "stopped until it is needed again");
        true
    }

    async fn connect(&mut self) -> Result<Connection, LinkFault> {
        let config = Arc::clone(&self.server.config);
        let era = match (config.era, self.known) {
            (EraChoice::Auto, Some(Era::Legacy)) => EraChoice::Legacy,
            (era, _) => era,
        };
        let opened = match &config.target {
            Target::Command(command) => self.start_child(command, era).await,
            Target::Http(http) => {
                let opening = http::Opening {
                    server: config.name.clone(),
                    config: http,
                    era,
                    connect_timeout: config.connect_timeout,
                    patience: config.start_timeout / 3,
                    limit: config.max_response,
                    forward: config.forward_headers.clone(),
                    inbox: Arc::clone(&self.server.inbox),
                };
                Http::open(opening).await.map(Connection::Http)
            }
        };
        self.known = match &opened {
            Ok(connection) => Some(connection.peer().era()),
            // Some Legacy children end themselves at a method they do not know.
            Err(LinkFault::Exited(_)) if era == EraChoice::Auto => Some(Era::Legacy),
            Err(_) => None,
        };
        opened
    }

    async fn start_child(
        &mut self,
        command: &Command,
        era: EraChoice,
    ) -> Result<Connection, LinkFault> {
        let config = &self.server.config;
        let spec = self.spec(command);
        let (mut child, input, output) =
            Child::spawn(&config.name, &spec, &self.surroundings.guardian)
                .map_err(LinkFault::Spawn)?;
        self.server.notes().pid = u32::try_from(child.id()).ok();
        let opening = stdio::Opening {
            server: config.name.clone(),
            era,
            patience: config.start_timeout / 3,
            limit: config.max_response,
            inbox: Arc::clone(&self.server.inbox),
        };
        let opened = tokio::select! {
            opened = Stdio::open(opening, input, output) => opened,
            status = child.exited() => Err(LinkFault::Exited(status.to_string())),
        };
        match opened {
            Ok(stdio) => {
                self.child = Some(child);
                Ok(Connection::Stdio(stdio))
            }
            Err(fault) => Err(self.bury(child, fault).await),
        }
    }

    /// Ends a child that cannot be used; adds what it said last to the fault.
    async fn bury(&self, child: Child, fault: LinkFault) -> LinkFault {
        let fault = match fault {
            LinkFault::Exited(how) => LinkFault::Exited(
                child
                    .last_words()
                    .last()
                    .map_or(how.clone(), |words| format!("{how}; it said: {words}")),
            ),
            other => other,
        };
        child.stop().await;
        fault
    }

    fn spec(&self, command: &Command) -> ChildSpec {
        let env = command.env.iter();
        ChildSpec {
            program: command.program.clone(),
            args: command.args.clone(),
            env: env.map(|(name, value)| (name.clone(), value.expose().to_owned())).collect(),
            pass_env: command.pass_env.clone(),
            cwd: command.cwd.clone(),
            stop_timeout: self.server.config.stop_timeout,
        }
    }

    /// Fetches the lists and, where they are others, tells the gateway.
    async fn list(&mut self, connection: &Connection) -> Result<Listed, LinkFault> {
        let server = self.server;
        let config = &server.config;
        let time = config.start_timeout;
        let bounds = Bounds { items: config.max_tools, pages: config.max_pages, time };
        let listing = listing::fetch(connection, bounds).await?;
        let listed = if listing.is_worth_another() { Listed::InPart } else { Listed::Whole };
        let missing: Vec<_> = listing
            .failures
            .iter()
            .map(|(kind, fault)| format!("{}: {}", kind.method().as_str(), fault.chain()))
            .collect();
        // Modern clients reach every Modern server's tools through the
        // gateway by HTTP, where the rules for mirrored parameters hold.
        let rules = match connection.peer().era() {
            Era::Modern => HeaderRules::Enforce,
            Era::Legacy => HeaderRules::Ignore,
        };
        let (name, old) = (config.name.clone(), server.list.load_full());
        let offers = Arc::clone(&connection.peer().offers);
        // Compiling thousands of schemas takes a while: not on a thread that
        // serves calls.
        let built = tokio::task::spawn_blocking(move || {
            let (mut list, refused) =
                ServerList::build(name, &listing.lists, rules, old.as_deref());
            list.freshness = listing.freshness;
            list.offers = offers;
            (list, refused)
        });
        let (list, refused) = built
            .await
            .map_err(|error| LinkFault::Setup(format!("its list cannot be read: {error}")))?;
        let refused = refused.iter().map(|(kind, name, reason)| match kind {
            Kind::Tools => format!("{name}: {reason}"),
            kind => format!("{} {name}: {reason}", kind.noun()),
        });
        let warnings: Vec<_> = missing.into_iter().chain(refused).collect();
        let mut notes = server.notes();
        // Once, not with each listing.
        for warning in warnings.iter().filter(|warning| !notes.warnings.contains(warning)) {
            tracing::warn!(server = %config.name, "left out of the list: {warning}");
        }
        notes.warnings = warnings;
        notes.listed_at = Some(Instant::now());
        drop(notes);
        let same = server.list.load().as_ref().is_some_and(|old| old.is_same(&list));
        server.list.store(Some(Arc::new(list)));
        if !same {
            self.surroundings.listed.notify_one();
        }
        Ok(listed)
    }

    fn greet(&self, connection: &Connection) {
        let peer = connection.peer();
        let (name, version) = peer.name_and_version();
        let tools = self.server.list().map_or(0, |list| list.tools.len());
        tracing::info!(
            server = %self.server.name(), era = peer.era().as_str(), protocol = %peer.version,
            tools, "ready: {name} {version}"
        );
    }

    /// Serves until something ends it.
    async fn serve(&mut self, connection: &Arc<Connection>) -> Ended {
        let server = Arc::clone(self.server);
        let mut pace = Pace::new();
        loop {
            let idle = idle_at(&server);
            tokio::select! {
                fault = connection.closed() => return Ended::Lost(self.explain(fault).await),
                () = server.stop.cancelled() => return Ended::Stopped,
                () = pace.due(&server.changed) => {
                    let listed = self.list(connection).await;
                    pace.listed(matches!(listed, Ok(Listed::Whole)));
                    if let Err(fault) = listed {
                        // The list of before stays up: calls may still work.
                        self.note(&fault);
                    }
                }
                () = sleep_until(idle.unwrap_or_else(far_away)), if idle.is_some() => {
                    if idle_at(&server).is_some_and(|at| at <= Instant::now()) {
                        return Ended::Idle;
                    }
                }
            }
        }
    }

    /// What a child's exit status adds to the loss of its pipes.
    async fn explain(&mut self, fault: LinkFault) -> LinkFault {
        let Some(child) = &mut self.child else { return fault };
        match timeout(EXIT_PATIENCE, child.exited()).await {
            Ok(status) => {
                let said = child.last_words().last().map(|words| format!("; it said: {words}"));
                LinkFault::Exited(format!("{status}{}", said.unwrap_or_default()))
            }
            Err(_) => fault,
        }
    }

    async fn lost(&mut self, fault: LinkFault) -> Ended {
        if let Some(child) = self.child.take() {
            child.stop().await;
        }
        self.server.notes().pid = None;
        Ended::Lost(fault)
    }

    fn note(&self, fault: &LinkFault) {
        let text = fault.chain();
        tracing::warn!(server = %self.server.name(), "{text}");
        let mut notes = self.server.notes();
        notes.told = Some(fault.public());
        notes.last_error = Some((SystemTime::now(), text));
    }

    /// Waits before the next start: as the backoff says or, with the budget
    /// spent, until the window is over.
    async fn pause(&mut self) {
        let now = std::time::Instant::now();
        let wait = match self.restarts.after_failure(self.ready_since, now, &mut self.dice) {
            Next::After(wait) => {
                enter(self.server, State::Backoff { until: Instant::now() + wait });
                wait
            }
            Next::GiveUp => {
                enter(self.server, State::Failed);
                let name = self.server.name();
                tracing::error!(server = %name, "it failed too often and is left alone for a while");
                self.server.config.restart_window
            }
        };
        sleep(wait).await;
        self.server.restarts.fetch_add(1, Ordering::Relaxed);
        self.server.metrics.count_restart();
    }
}

/// When a server without calls is to be stopped.
fn idle_at(server: &Server) -> Option<Instant> {
    let allowed = server.config.idle_stop.filter(|_| server.is_child())?;
    if server.is_in_use() {
        return Some(Instant::now() + allowed);
    }
    let last = Duration::from_millis(server.last_call.load(Ordering::Relaxed));
    let listed = server.notes().listed_at.unwrap_or(server.born);
    Some((server.born + last).max(listed) + allowed)
}

fn enter(server: &Server, state: State) {
    let mut notes = server.notes();
    notes.since = Some(SystemTime::now());
    if !matches!(state, State::Idle | State::Connecting) {
        notes.first_verdict.get_or_insert_with(SystemTime::now);
    }
    drop(notes);
    server.state.send_replace(state);
    server.show_availability();
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_hours(1)
}

/// Delays between restarts.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LAST_DELAY: Duration = Duration::from_secs(30);
/// How long a child that closed its output may take to be gone.
const EXIT_PATIENCE: Duration = Duration::from_millis(500);
