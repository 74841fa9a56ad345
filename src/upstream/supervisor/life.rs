//! Life cycle of one instance, as one task: start, serve, fail, back off, restart, until it is
//! stopped.

mod start_wait;

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::clock;
use crate::config::{ServerKind, StartChoice};
use crate::mcp::Era;
use crate::telemetry::log::FaultLog;
use crate::telemetry::metrics::ServerMetric;

use crate::child::Child;
use crate::upstream::lists::EVERY_KIND;
use crate::upstream::lists::ListingPart;
use crate::upstream::lists::dependence::ListDependence;
use crate::upstream::lists::pace::{RelistCauses, RelistPace};
use crate::upstream::quoted_output::FirstPrinted;
use crate::upstream::supervisor::instance::Instance;
use crate::upstream::supervisor::legacy_side::{LegacyDoubt, LegacySupport};
use crate::upstream::supervisor::opening::lease_ended;
use crate::upstream::supervisor::restart::RestartPolicy;
use crate::upstream::supervisor::state::LifeState;
use crate::upstream::transport::connection::ServerConnection;
use crate::upstream::{ChildExit, ExitCause, UpstreamError};

use start_wait::FailureReason;

/// End of an instance's run.
enum LossReason {
    Stopped,
    Idle,
    Lost(UpstreamError),
}

/// Runs an instance until it is stopped.
pub(super) async fn live(instance: Arc<Instance>) {
    let counted = (!instance.is_main())
        .then(|| instance.shared().metrics().level(ServerMetric::Instances).enter());
    let mut life = Life::new(&instance);
    loop {
        tokio::select! {
            biased;
            // Dropping its life kills a child that is being started or stopped.
            end = lease_ended(&instance) => life.leave_place(end).await,
            () = instance.life().cancelled() => break,
            () = life.live() => break,
        }
    }
    let child = life.child.take();
    let closing = async {
        match (instance.life().disconnect(), child) {
            (Some(connection), child) => connection.close(child).await,
            (None, Some(child)) => drop(child.stop().await),
            (None, None) => {}
        }
    };
    tokio::select! {
        biased;
        _ = lease_ended(&instance) => {}
        () = closing => {}
    }
    release_lease(&instance).await;
    instance.shared().pool().remove(&instance);
    instance.forget_own_list();
    enter(&instance, LifeState::Stopped);
    drop(counted);
}

/// State of the task that runs an instance.
pub(crate) struct Life<'a> {
    pub(crate) instance: &'a Arc<Instance>,
    restarts: RestartPolicy,
    /// Its faults in the log.
    faults: FaultLog,
    /// Time at which the last start began.
    tried_at: Instant,
    dice: fastrand::Rng,
    /// Era of the server, kept across restarts (2026-07-28, Versioning: the verdict belongs to the
    /// server) and forgotten on failure.
    pub(crate) known: Option<Era>,
    pub(crate) child: Option<Child>,
    /// The first line of the child's output that is no message.
    pub(crate) first_printed: Arc<FirstPrinted>,
    /// Time at which the instance became ready in this run, or `None` if it did not.
    ready_since: Option<std::time::Instant>,
    /// True if the instance was ready in any run.
    has_been_ready: bool,
    /// Reason of the last failure that no further attempt can mend.
    last_reason: Option<FailureReason>,
    /// Notifies of logins since the last start began.
    login_ends: Option<watch::Receiver<u64>>,
}

impl<'a> Life<'a> {
    fn new(instance: &'a Arc<Instance>) -> Self {
        let config = instance.config();
        let budget = match config.target {
            ServerKind::Command(_) => config.max_restarts as usize,
            // A connection attempt costs almost nothing, and only an attempt shows that the server
            // is back.
            ServerKind::Http(_) | ServerKind::OpenApi(_) => usize::MAX,
        };
        Self {
            known: if instance.is_main() {
                instance.shared().era().assumed_era(clock::unix_now().as_secs())
            } else {
                instance.further_era()
            },
            instance,
            restarts: RestartPolicy::new(budget, config.restart_window),
            faults: FaultLog::default(),
            tried_at: clock::now(),
            dice: fastrand::Rng::new(),
            child: None,
            first_printed: Arc::default(),
            ready_since: None,
            has_been_ready: false,
            last_reason: None,
            login_ends: None,
        }
    }

    /// Runs until stopped. The main instance becomes idle when unused. The others end.
    async fn live(&mut self) {
        let instance = self.instance;
        let is_main = instance.is_main();
        let mut wait_for_demand = is_main && instance.config().start == StartChoice::Lazy;
        if is_main && !wait_for_demand {
            self.delay_first_start().await;
        }
        loop {
            if wait_for_demand {
                enter(instance, LifeState::Idle);
                // The permit may be from a call that has ended, hence the loop.
                while !instance.is_wanted() {
                    instance.demand().start_requested().await;
                }
            }
            self.ready_since = None;
            let ended = self.run().await;
            release_lease(instance).await;
            wait_for_demand = match ended {
                LossReason::Stopped => return,
                LossReason::Idle if !is_main => return,
                LossReason::Idle => true,
                LossReason::Lost(_) if self.is_of_refuted_era() => {
                    instance.shared().lists().failed(&instance.owner().list_declaration());
                    instance.inbox().subscriptions.refuse_all();
                    return;
                }
                LossReason::Lost(fault) => {
                    self.recover(&fault).await;
                    if !is_main && instance.shared().pool().leave(instance) {
                        return;
                    }
                    instance.life().count_restart();
                    instance.shared().metrics().count(ServerMetric::Restarts);
                    false
                }
            };
        }
    }

    /// Waits a moment before the first start, if the delay has a benefit.
    async fn delay_first_start(&self) {
        let instance = self.instance;
        if instance.shared().lists().is_restored() {
            // Clients can list already. Starting programs would only slow that down.
            let _ = timeout(HEAD_START, instance.demand().start_requested()).await;
        } else {
            instance.shared().await_sole_client().await;
        }
    }

    /// Records that an instance of the other era did not become ready.
    fn doubt_other_era(&self, fault: &UpstreamError) {
        let (instance, owner) = (self.instance, self.instance.owner());
        if owner.told.other_era.is_none() {
            return;
        }
        match instance.shared().legacy_side().doubt(owner, fault) {
            LegacyDoubt::None => return,
            LegacyDoubt::Unclear => {
                let holder = instance.shared().lists().holder(&owner.list_declaration());
                return holder.iter().for_each(|holder| instance.shared().try_legacy(holder));
            }
            LegacyDoubt::Refuted => {}
        }
        let fault = fault.chain_without(&instance.config().secrets);
        tracing::info!(
            server = %instance.name(), fault,
            "the server cannot be used as a Legacy server: the gateway adapts it for Legacy clients"
        );
        instance.shared().announce_lists();
        instance.shared().keep_soon();
    }

    /// Returns true if the instance is of an era that the server does not speak.
    fn is_of_refuted_era(&self) -> bool {
        let shared = self.instance.shared();
        self.instance.owner().told.other_era.is_some()
            && shared.legacy_side().support() == LegacySupport::Refuted
    }

    /// Performs one run, from start to end.
    async fn run(&mut self) -> LossReason {
        let instance = Arc::clone(self.instance);
        // A server that has failed too often stays marked until it is ready.
        if !instance.has_failed() {
            enter(&instance, LifeState::Connecting);
        }
        let connection = match self.start().await {
            Ok(connection) => connection,
            Err(fault) => {
                self.doubt_other_era(&fault);
                return self.lost(fault).await;
            }
        };
        if instance.owner().told.other_era.is_some()
            && instance.shared().legacy_side().confirm(connection.peer().version)
        {
            instance.shared().announce_lists();
            // Restores the subscriptions from before the refutation.
            instance.shared().resume();
        }
        let opened = clock::now().into_std();
        self.ready_since = Some(opened);
        (self.has_been_ready, self.last_reason) = (true, None);
        self.faults.clear();
        // A restarted server may return other results.
        instance.inbox().reads.clear();
        instance.life().connect_to(&connection);
        enter(&instance, LifeState::Ready);
        self.greet(&connection);
        let ended = loop {
            match self.serve(&connection).await {
                LossReason::Idle if !self.rest(&connection) => {}
                ended => break ended,
            }
        };
        if let LossReason::Lost(fault) = &ended {
            // Set before the connection is closed, which may take time, so that calls in the
            // meantime wait for the next start.
            let told = fault.without(&instance.config().secrets).public();
            instance.life().history().told = Some(told);
            self.end_run();
        }
        connection.close(self.child.take()).await;
        if connection.peer().era() == Era::Legacy {
            instance.shared().metrics().record_session(opened.elapsed());
        }
        instance.life().history().pid = None;
        ended
    }

    /// Removes the connection, and returns it. Calls wait for the next one.
    pub(super) fn end_run(&self) -> Option<Arc<ServerConnection>> {
        enter(self.instance, LifeState::Connecting);
        self.instance.life().disconnect()
    }

    /// Connects and lists. A child process waits for its turn.
    async fn start(&mut self) -> Result<Arc<ServerConnection>, UpstreamError> {
        let config = Arc::clone(self.instance.config());
        if !matches!(config.target, ServerKind::Command(_)) {
            return Box::pin(self.connect_and_list()).await;
        }
        let instance = Arc::downgrade(self.instance);
        let is_awaited = move || instance.upgrade().is_some_and(|it| it.is_awaited());
        let place = self.instance.shared().context().starts.take_place(is_awaited).await;
        let start = Box::pin(self.connect_and_list());
        match place {
            Some(place) => place.hold_during(start, config.start_timeout / 3).await,
            None => start.await,
        }
    }

    async fn connect_and_list(&mut self) -> Result<Arc<ServerConnection>, UpstreamError> {
        self.tried_at = clock::now();
        self.watch_logins();
        let instance = Arc::clone(self.instance);
        let limit = instance.config().start_timeout;
        let opened = timeout(limit, self.connect()).await;
        let connection = opened.unwrap_or_else(|_| Err(self.explain_timeout(limit)))?;
        let connection = Arc::new(connection);
        instance.life().history().opened_at = Some(clock::now());
        let is_first =
            instance.owner().told.account.is_some() && instance.shared().version().is_none();
        if is_first {
            // The gateway itself has no account with which to detect it.
            instance.shared().era().confirm(connection.peer());
        }
        if instance.is_main() {
            instance.shared().note_account(None);
            if instance.shared().era().is_of_other_server(connection.peer()) {
                instance.shared().lists().set_dependence(ListDependence::Unknown);
            }
            if instance.shared().era().confirm(connection.peer()) {
                instance.shared().announce_lists();
            }
            instance.shared().resume();
        }
        // All lists are requested now, so earlier announcements do not matter.
        instance.changes().clear();
        match instance.list(&connection, &EVERY_KIND).await {
            Ok(listed) if listed.part == ListingPart::Whole => {}
            Ok(_) => instance.changes().mark_all(),
            Err(fault) => {
                connection.close(self.child.take()).await;
                return Err(fault);
            }
        }
        Ok(connection)
    }

    /// Returns the fault of a start that took too long. Text in place of a message is its likely
    /// reason.
    fn explain_timeout(&self, after: Duration) -> UpstreamError {
        match self.first_printed.line() {
            Some(line) => UpstreamError::NoMessage { after, first_line: line.into() },
            None => UpstreamError::Timeout { after },
        }
    }

    /// Removes the connection of an instance without calls. Returns false if a call has just
    /// arrived and uses it. The call is counted before it looks for the connection, and this
    /// removes the connection before it looks for calls, so one of the two sees the other.
    fn rest(&self, connection: &Arc<ServerConnection>) -> bool {
        let instance = self.instance;
        if !instance.is_main() {
            return instance.shared().pool().leave(instance);
        }
        let pid = instance.life().history().pid.take();
        enter(instance, LifeState::Idle);
        instance.life().disconnect();
        if instance.is_in_use() {
            instance.life().history().pid = pid;
            instance.life().connect_to(connection);
            enter(instance, LifeState::Ready);
            return false;
        }
        tracing::info!(server = %instance.name(), "stopped until it is needed again");
        true
    }

    fn greet(&self, connection: &ServerConnection) {
        let (instance, peer) = (self.instance, connection.peer());
        let (name, version) = peer.name_and_version();
        let greeting = format!("{name} {version}");
        let greeting = instance.config().secrets.hide_in(&greeting);
        if instance.is_main() {
            let tools =
                instance.shared().lists().base.load().as_ref().map_or(0, |list| list.tools.len());
            tracing::info!(
                server = %instance.name(), era = peer.era().as_str(), protocol = %peer.version,
                tools, "ready: {greeting}"
            );
        } else {
            tracing::debug!(
                server = %instance.name(), protocol = %peer.version,
                owner = instance.owner().whose.as_str(),
                "one more instance is ready: {greeting}"
            );
        }
    }

    /// Serves until the run ends.
    async fn serve(&mut self, connection: &Arc<ServerConnection>) -> LossReason {
        let instance = Arc::clone(self.instance);
        let mut pace = RelistPace::new();
        loop {
            let idle = instance.idle_at();
            let causes = RelistCauses {
                changes: instance.changes(),
                asked: instance.demand().operator_requests(),
            };
            tokio::select! {
                fault = connection.closed() => return LossReason::Lost(self.explain(fault).await),
                () = instance.life().cancelled() => return LossReason::Stopped,
                kinds = pace.due(causes) => {
                    if !instance.owner().lists() {
                        instance.shared().relist_for(&instance.owner().list_declaration());
                    }
                    let listed = instance.list(connection, &kinds).await;
                    pace.listed(listed.as_ref().ok());
                    instance.changes().settle();
                    if let Err(fault) = listed {
                        // The previous list stays in use, because calls may still work.
                        self.note_fault(&fault);
                    }
                }
                () = instance.shared().lists().wanted.notified(), if instance.is_main() => {
                    instance.list_untried(connection).await;
                }
                () = sleep_until(idle.unwrap_or_else(far_away)), if idle.is_some() => {
                    if instance.idle_at().is_some_and(|at| at <= clock::now()) {
                        return LossReason::Idle;
                    }
                }
            }
        }
    }

    /// Adds a child's exit status to the error.
    async fn explain(&mut self, fault: UpstreamError) -> UpstreamError {
        let Some(child) = &mut self.child else { return fault };
        match timeout(EXIT_PATIENCE, child.exited()).await {
            Ok(status) => {
                let last_line = child.last_words().pop();
                let cause = ExitCause::Status(status);
                let exit = ChildExit { cause, first_line: None, last_line };
                UpstreamError::Exited(Box::new(exit))
            }
            Err(_) => fault,
        }
    }

    async fn lost(&mut self, fault: UpstreamError) -> LossReason {
        if let Some(child) = self.child.take() {
            child.stop().await;
        }
        self.instance.life().history().pid = None;
        LossReason::Lost(fault)
    }
}

/// Lets other replicas run the child, which has ended here.
async fn release_lease(instance: &Instance) {
    if let Some(lease) = instance.shared().lease() {
        lease.release().await;
    }
}

fn enter(instance: &Instance, state: LifeState) {
    instance.life().enter(state);
    if instance.is_main() {
        instance.shared().show_availability(&instance.life().state());
    }
}

fn far_away() -> Instant {
    clock::now() + Duration::from_hours(1)
}

/// Time that a server with stored lists waits before its start, unless a call needs it.
const HEAD_START: Duration = Duration::from_millis(300);
/// Time to wait for the exit of a child that closed its output.
pub(super) const EXIT_PATIENCE: Duration = Duration::from_millis(500);
