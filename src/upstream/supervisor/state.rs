//! State of a server and its instances, and their summaries for status pages.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::call::ServerFault;
use crate::cluster::ReplicaId;
use crate::mcp::Era;
use crate::upstream::lists::dependence::DependenceVerdict;
use crate::upstream::owner::{ClientDeclaration, InstanceKey};
use crate::upstream::peer::Peer;

/// State of a server or one of its instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifeState {
    /// Not started yet, or stopped because it was unused.
    Idle,
    /// Waiting for its turn to start, or being started, probed and listed.
    Connecting,
    /// Listed, and accepting calls.
    Ready,
    /// Failed. A restart is scheduled.
    Backoff {
        /// Time of the restart.
        until: Instant,
    },
    /// The server requires a login, which a person has to make first.
    AwaitsLogin,
    /// Failed too often, or in a way that an operator has to mend, and not ready since. It is
    /// restarted rarely.
    Failed,
    /// Stopped for good.
    Stopped,
}

impl LifeState {
    /// Returns the state's name in status and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Connecting => "connecting",
            Self::Ready => "ready",
            Self::Backoff { .. } => "backoff",
            Self::AwaitsLogin => "login",
            Self::Failed => "failed",
            Self::Stopped => "stopped",
        }
    }
}

/// Summary of a server for status pages.
#[derive(Debug, Clone)]
pub struct ServerOverview {
    /// State of its main instance.
    pub state: LifeState,
    /// Time at which it entered this state.
    pub since: SystemTime,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Its identity, while it is connected.
    pub peer: Option<Peer>,
    /// Eras that it is known to speak, while it is connected. The first one is that of its main
    /// instance.
    pub eras: Vec<Era>,
    /// The last error, with its time.
    pub last_error: Option<(SystemTime, String)>,
    /// URL at which the operator logs in to the server, if it requires a login.
    pub login: Option<Arc<str>>,
    /// True if the gateway has no account at it, and clients use their own.
    pub own_accounts_only: bool,
    /// Number of restarts.
    pub restarts: u32,
    /// Wait before the next start, while it is failed.
    pub failed_wait: Option<FailedWait>,
    /// Process id, while a child runs.
    pub pid: Option<u32>,
    /// Replica that runs the child, if one of them does.
    pub replica: Option<ReplicaId>,
    /// Problems in its lists.
    pub warnings: Vec<String>,
    /// Time at which it was first ready, or first failed.
    pub first_verdict: Option<SystemTime>,
    /// Time at which its last connection was opened.
    pub opened_at: Option<Instant>,
    /// Time at which it was listed last.
    pub listed_at: Option<Instant>,
    /// Dependence of its lists on the capabilities of clients.
    pub list_dependence: DependenceVerdict,
    /// Its instances: the main one, then the others, oldest first, at most a hundred.
    pub instances: Vec<InstanceView>,
    /// Number of instances besides the main one.
    pub instance_count: usize,
}

impl ServerOverview {
    /// Returns the time of the next start of a server that has failed.
    pub fn next_try(&self) -> Option<Instant> {
        match self.state {
            LifeState::Backoff { until } => Some(until),
            _ => self.failed_wait.as_ref().map(|wait| wait.until),
        }
    }
}

/// Summary of an instance.
#[derive(Debug, Clone)]
pub struct InstanceView {
    /// Its key.
    pub owner: Arc<InstanceKey>,
    /// Declaration of its clients to the server.
    pub told: ClientDeclaration,
    /// Era of its connection. `None` while the main one is not connected.
    pub era: Option<Era>,
    /// True if it exists only to compare the lists for different capabilities.
    pub finds_out: bool,
    /// Its state.
    pub state: LifeState,
    /// Time at which it entered this state.
    pub since: SystemTime,
    /// Process id, while a child runs.
    pub pid: Option<u32>,
    /// Number of calls in flight.
    pub calls: u32,
    /// The last error, with its time.
    pub last_error: Option<(SystemTime, String)>,
}

/// Wait of a failed server before its next start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedWait {
    /// Time of the next start.
    pub until: Instant,
    /// The actions that end the wait.
    pub cure: String,
}

/// Past events of an instance.
#[derive(Debug, Default)]
pub(crate) struct InstanceHistory {
    pub(crate) since: Option<SystemTime>,
    pub(crate) last_error: Option<(SystemTime, String)>,
    /// The last error in the form for clients.
    pub(crate) told: Option<ServerFault>,
    /// The last wait as a failed instance.
    pub(crate) failed_wait: Option<FailedWait>,
    pub(crate) pid: Option<u32>,
    pub(crate) warnings: Vec<String>,
    /// Time at which the last connection was opened.
    pub(crate) opened_at: Option<Instant>,
    pub(crate) listed_at: Option<Instant>,
    /// Time at which the first start began.
    pub(crate) first_start: Option<Instant>,
    pub(crate) first_verdict: Option<SystemTime>,
}

/// Maximum number of instances in a summary.
pub(super) const MAX_SHOWN_INSTANCES: usize = 100;
