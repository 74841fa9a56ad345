//! The state of a server and its instances, and their summaries for status
//! pages.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::call::ServerFault;
use crate::mcp::Era;
use crate::upstream::lists::dependence::DependenceVerdict;
use crate::upstream::owner::{ClientDeclaration, InstanceKey};
use crate::upstream::transport::peer::Peer;

/// The state of a server or one of its instances.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifeState {
    /// Not started yet, or stopped because it was unused.
    Idle,
    /// Waiting for its turn to start, or being started, probed and listed.
    Connecting,
    /// Listed, and accepting calls.
    Ready,
    /// Failed; a restart is scheduled.
    Backoff {
        /// When it restarts.
        until: Instant,
    },
    /// The server asks for a login, which somebody has to make first.
    AwaitsLogin,
    /// Failed too often, and not ready since; it is restarted once in each
    /// restart window.
    Failed,
    /// Stopped for good.
    Stopped,
}

impl LifeState {
    /// The state's name in status and metrics.
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

/// A summary of a server for status pages.
#[derive(Debug, Clone)]
pub struct ServerOverview {
    /// The state of its main instance.
    pub state: LifeState,
    /// When it entered this state.
    pub since: SystemTime,
    /// `stdio` or `http`.
    pub transport: &'static str,
    /// Its identity, while it is connected.
    pub peer: Option<Peer>,
    /// The eras that it is known to speak, while it is connected: first that
    /// of its main instance.
    pub eras: Vec<Era>,
    /// The last error, and when it occurred.
    pub last_error: Option<(SystemTime, String)>,
    /// Where the operator logs in to the server, if it asks for that.
    pub login: Option<Arc<str>>,
    /// Whether the gateway has no account at it, and clients use their own.
    pub own_accounts_only: bool,
    /// The number of restarts.
    pub restarts: u32,
    /// The process id, while a child runs.
    pub pid: Option<u32>,
    /// Problems in its lists.
    pub warnings: Vec<String>,
    /// When it was first ready, or first failed.
    pub first_verdict: Option<SystemTime>,
    /// Whether its lists depend on the capabilities of clients.
    pub list_dependence: DependenceVerdict,
    /// Its instances: the main one, then the others, oldest first, at most a hundred.
    pub instances: Vec<InstanceView>,
    /// The number of those besides the main one.
    pub instance_count: usize,
}

/// A summary of an instance.
#[derive(Debug, Clone)]
pub struct InstanceView {
    /// Its key.
    pub owner: Arc<InstanceKey>,
    /// What the server was told of its clients.
    pub told: ClientDeclaration,
    /// The era that is spoken with it; `None` while the main one is not connected.
    pub era: Option<Era>,
    /// Whether it is there only to find out whether lists depend on capabilities.
    pub finds_out: bool,
    /// Its state.
    pub state: LifeState,
    /// When it entered this state.
    pub since: SystemTime,
    /// The process id, while a child runs.
    pub pid: Option<u32>,
    /// Calls in flight.
    pub calls: u32,
    /// The last error, and when it occurred.
    pub last_error: Option<(SystemTime, String)>,
}

/// What has happened to an instance so far.
#[derive(Debug, Default)]
pub(in crate::upstream) struct InstanceHistory {
    pub(in crate::upstream) since: Option<SystemTime>,
    pub(in crate::upstream) last_error: Option<(SystemTime, String)>,
    /// The last error as clients may see it.
    pub(in crate::upstream) told: Option<ServerFault>,
    pub(in crate::upstream) pid: Option<u32>,
    pub(in crate::upstream) warnings: Vec<String>,
    pub(in crate::upstream) listed_at: Option<Instant>,
    /// When the first start began.
    pub(in crate::upstream) first_start: Option<Instant>,
    pub(in crate::upstream) first_verdict: Option<SystemTime>,
}

/// The most instances that a summary lists.
pub(in crate::upstream) const SHOWN: usize = 100;
