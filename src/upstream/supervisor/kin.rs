//! What the instances of one server have in common.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::config::{EraChoice, ServerConfig};
use crate::mcp::ProtocolVersion;
use crate::telemetry::metrics::{Availability, Metrics, ServerMetrics};

use crate::upstream::lists::OfferedLists;
use crate::upstream::notifications::SubscriptionHub;
use crate::upstream::supervisor::pool::Pool;
use crate::upstream::supervisor::state::LifeState;
use crate::upstream::transport::child::Guardian;
use crate::upstream::transport::http;

/// What a server's life needs of the gateway around it.
#[derive(Clone)]
pub struct ServerContext {
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
    pub hub: Arc<SubscriptionHub>,
}

impl ServerContext {
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

/// What all instances of one server share.
pub(in crate::upstream) struct ServerShared {
    pub(in crate::upstream) config: Arc<ServerConfig>,
    pub(in crate::upstream) surroundings: ServerContext,
    pub(in crate::upstream) metrics: Arc<ServerMetrics>,
    pub(in crate::upstream) lists: OfferedLists,
    /// The instances besides the first.
    pub(in crate::upstream) pool: Pool,
    pub(in crate::upstream) stop: CancellationToken,
    /// The lives of the instances.
    pub(in crate::upstream) lives: TaskTracker,
    /// The version agreed with the first instance last.
    version: Mutex<Option<ProtocolVersion>>,
    /// The HTTP client: one pool of connections for all sessions.
    client: Mutex<Option<Arc<http::HttpClient>>>,
    /// Snapshots and calls that count on the server.
    pub(in crate::upstream) users: TaskTracker,
    /// A snapshot names it: it is the one of its name that the metrics show.
    shown: AtomicBool,
}

impl ServerShared {
    pub(in crate::upstream) fn new(
        config: Arc<ServerConfig>,
        surroundings: &ServerContext,
    ) -> Self {
        let known = match config.era {
            EraChoice::Modern => Some(ProtocolVersion::LATEST_MODERN),
            EraChoice::Legacy => Some(ProtocolVersion::LATEST_LEGACY),
            EraChoice::Auto => None,
        };
        Self {
            metrics: surroundings.metrics.server(config.name.as_str()),
            config,
            surroundings: surroundings.clone(),
            lists: OfferedLists::default(),
            pool: Pool::default(),
            stop: surroundings.stop.child_token(),
            lives: TaskTracker::new(),
            version: Mutex::new(known),
            client: Mutex::default(),
            users: TaskTracker::new(),
            shown: AtomicBool::new(false),
        }
    }

    /// The version that the server spoke last, or has to speak as it is
    /// configured; none where nobody knows yet.
    pub(in crate::upstream) fn version(&self) -> Option<ProtocolVersion> {
        *self.version.lock()
    }

    /// Notes the version that the first instance speaks.
    pub(in crate::upstream) fn speaks(&self, version: ProtocolVersion) {
        *self.version.lock() = Some(version);
    }

    /// The HTTP client that all instances share.
    pub(in crate::upstream) fn client(
        &self,
    ) -> parking_lot::MutexGuard<'_, Option<Arc<http::HttpClient>>> {
        self.client.lock()
    }

    pub(in crate::upstream) fn hold(&self) -> StopGuard {
        StopGuard(self.users.token())
    }

    pub(in crate::upstream) fn show(&self, state: &LifeState) {
        self.shown.store(true, Ordering::SeqCst);
        self.show_availability(state);
    }

    pub(in crate::upstream) fn show_availability(&self, state: &LifeState) {
        if !self.shown.load(Ordering::SeqCst) || self.users.is_closed() {
            return;
        }
        // One at rest can take calls: the next one starts it.
        let takes_calls = matches!(state, LifeState::Idle | LifeState::Ready);
        let availability = if takes_calls { Availability::Up } else { Availability::Down };
        self.metrics.set_availability(availability);
    }
}

/// Keeps a server from being stopped for good.
#[derive(Clone)]
pub struct StopGuard(#[allow(dead_code, reason = "held for its drop")] TaskTrackerToken);
