//! The life of one server, as one task tells it: start, serve, fail, wait,
//! start again, until it is stopped.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use crate::catalog::{HeaderRules, ServerList};
use crate::config::{Command, EraChoice, Start, Target};
use crate::mcp::Era;

use super::LinkFault;
use super::backoff::{Backoff, Next, RestartBudget, RestartPolicy};
use super::child::{Child, ChildSpec, Guardian};
use super::connection::Connection;
use super::http::{self, Http};
use super::listing::{self, Bounds};
use super::server::{Server, State};
use super::stdio::{self, Stdio};

/// What a server's life needs of the gateway around it.
#[derive(Clone)]
pub struct Surroundings {
    /// Ends the children if the gateway is killed.
    pub guardian: Guardian,
    /// Told whenever a server's list has changed.
    pub listed: Arc<Notify>,
}

/// Why a server that ran no longer does.
enum Ended {
    Stopped,
    Idle,
    Lost(LinkFault),
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
}

impl<'a> Life<'a> {
    fn new(server: &'a Arc<Server>, surroundings: Surroundings) -> Self {
        let config = &server.config;
        let restarts = RestartPolicy {
            backoff: Backoff::new(FIRST_DELAY, LAST_DELAY, config.restart_window),
            budget: RestartBudget::new(config.max_restarts as usize, config.restart_window),
        };
        Self {
            server,
            surroundings,
            restarts,
            dice: fastrand::Rng::new(),
            known: None,
            child: None,
        }
    }

    async fn live(&mut self) {
        let mut wait_for_demand = self.server.config.start == Start::Lazy;
        loop {
            if wait_for_demand {
                enter(self.server, State::Idle);
                self.server.demand.notified().await;
            }
            let started = std::time::Instant::now();
            wait_for_demand = match self.run().await {
                Ended::Stopped => return,
                Ended::Idle => true,
                Ended::Lost(fault) => {
                    self.note(&fault);
                    self.pause(started).await;
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
        let listed = timeout(limit, self.list(&connection)).await;
        if let Err(fault) = listed.unwrap_or(Err(LinkFault::Timeout { after: limit })) {
            connection.close(self.child.take()).await;
            return Ended::Lost(fault);
        }
        server.connection.store(Some(Arc::clone(&connection)));
        enter(&server, State::Ready);
        self.greet(&connection);
        let ended = self.serve(&connection).await;
        server.connection.store(None);
        if matches!(ended, Ended::Idle) {
            tracing::info!(server = %server.name(), "stopped until it is needed again");
        }
        connection.close(self.child.take()).await;
        server.notes().pid = None;
        ended
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
                    changed: Arc::clone(&self.server.changed),
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
            changed: Arc::clone(&self.server.changed),
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

    /// Fetches the list and, where it is another, tells the gateway.
    async fn list(&mut self, connection: &Connection) -> Result<(), LinkFault> {
        let server = self.server;
        let config = &server.config;
        let bounds = Bounds { tools: config.max_tools, pages: config.max_pages };
        let listing = listing::fetch(connection, bounds).await?;
        // Modern clients reach every Modern server's tools through the
        // gateway by HTTP, where the rules for mirrored parameters hold.
        let rules = match connection.peer().era() {
            Era::Modern => HeaderRules::Enforce,
            Era::Legacy => HeaderRules::Ignore,
        };
        let (name, old) = (config.name.clone(), server.list.load_full());
        // Compiling thousands of schemas takes a while: not on a thread that
        // serves calls.
        let built = tokio::task::spawn_blocking(move || {
            let (mut list, refused) =
                ServerList::build(name, &listing.tools, rules, old.as_deref());
            list.freshness = listing.freshness;
            (list, refused)
        });
        let (list, refused) = built
            .await
            .map_err(|error| LinkFault::Setup(format!("its list cannot be read: {error}")))?;
        for (tool, reason) in &refused {
            tracing::warn!(server = %config.name, tool, %reason, "a tool is left out");
        }
        server.list.store(Some(Arc::new(list)));
        let mut notes = server.notes();
        notes.warnings = refused.iter().map(|(tool, reason)| format!("{tool}: {reason}")).collect();
        notes.listed_at = Some(Instant::now());
        drop(notes);
        self.surroundings.listed.notify_one();
        Ok(())
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
        let limit = server.config.start_timeout;
        loop {
            let idle = idle_at(&server);
            tokio::select! {
                fault = connection.closed() => return Ended::Lost(self.explain(fault).await),
                () = server.stop.cancelled() => return Ended::Stopped,
                () = server.changed.notified() => {
                    let listed = timeout(limit, self.list(connection)).await;
                    if let Err(fault) = listed.unwrap_or(Err(LinkFault::Timeout { after: limit })) {
                        // The list of before stays up: calls may still work.
                        self.note(&fault);
                    }
                    sleep(LIST_PAUSE).await;
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
        self.server.notes().last_error = Some((SystemTime::now(), text));
    }

    /// Waits before the next start: as the backoff says, or, with the budget
    /// spent, until somebody asks for the server when the window is over.
    async fn pause(&mut self, started: std::time::Instant) {
        let now = std::time::Instant::now();
        let wait = match self.restarts.after_failure(Some(started), now, &mut self.dice) {
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
    }
}

/// When a server without calls is to be stopped.
fn idle_at(server: &Server) -> Option<Instant> {
    let allowed = server.config.idle_stop.filter(|_| server.is_child())?;
    if server.calls.load(Ordering::Relaxed) > 0 {
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
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_hours(1)
}

/// Delays between restarts.
const FIRST_DELAY: Duration = Duration::from_millis(200);
const LAST_DELAY: Duration = Duration::from_secs(30);
/// Between two listings of one server that keeps saying that it changed.
const LIST_PAUSE: Duration = Duration::from_millis(50);
/// How long a child that closed its output may take to be gone.
const EXIT_PATIENCE: Duration = Duration::from_millis(500);
