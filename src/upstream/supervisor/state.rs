//! Where a server is in its life, and what can be told of it.

use std::sync::Arc;
use std::time::SystemTime;

use tokio::time::Instant;

use crate::upstream::owner::InstanceKey;
use crate::upstream::transport::peer::Peer;

/// Where a server, or one instance of it, is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifeState {
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

impl LifeState {
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
pub struct ServerOverview {
    /// Where it is in its life.
    pub state: LifeState,
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
    /// Its instances besides the first, those that have been there longest
    /// first; the first hundred of them.
    pub instances: Vec<InstanceView>,
    /// How many there are of them.
    pub instance_count: usize,
}

/// What can be told of one more instance of a server.
#[derive(Debug, Clone)]
pub struct InstanceView {
    /// Whose it is.
    pub owner: Arc<InstanceKey>,
    /// Where it is in its life.
    pub state: LifeState,
    /// Since when.
    pub since: SystemTime,
    /// Its process, while it has one.
    pub pid: Option<u32>,
    /// Calls it is working on.
    pub calls: u32,
    /// What went wrong last, and when.
    pub last_error: Option<(SystemTime, String)>,
}

/// What an instance's life tells of itself.
#[derive(Debug, Default)]
pub(in crate::upstream) struct InstanceHistory {
    pub(in crate::upstream) since: Option<SystemTime>,
    pub(in crate::upstream) last_error: Option<(SystemTime, String)>,
    /// The same as clients may know it.
    pub(in crate::upstream) told: Option<String>,
    pub(in crate::upstream) pid: Option<u32>,
    pub(in crate::upstream) warnings: Vec<String>,
    pub(in crate::upstream) listed_at: Option<Instant>,
    pub(in crate::upstream) first_verdict: Option<SystemTime>,
}

/// How many instances a view shows.
pub(in crate::upstream) const SHOWN: usize = 100;
