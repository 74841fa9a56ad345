//! The consequences of a configuration, before it is applied.
//!
//! [`Snapshot::preview`] compares a configuration with the running one and changes nothing: the
//! servers that a reload would start or stop, the tools that clients would gain or lose, the tokens
//! of profiles, and the protections that are weakened. [`CallReplay`] decides recorded calls under
//! both configurations. It differs from `diff` and `losses`, which a reload itself uses.

mod listed_tools;
mod recorded_tools;
mod replay;
#[cfg(test)]
mod tests;

pub use listed_tools::{ClientToolChanges, ProfileTokenChange};
pub use recorded_tools::{RecordedTool, RecordedToolNames};
pub use replay::{CallReplay, ChangedDecision, RecordedCall, ReplayReport};

use std::collections::BTreeSet;

use schemars::JsonSchema;
use serde::Serialize;

use crate::call::ServerName;
use crate::config::{Config, ServerKind};

use super::{ReloadPlan, Snapshot, find_losses, plan};
use recorded_tools::RunningTools;

/// The consequences of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConfigConsequences {
    /// Servers that are started. Their tools are not known before.
    pub added: Vec<String>,
    /// Servers that are started again, and replaced then. They are assumed to list the same tools.
    pub restarted: Vec<AffectedServer>,
    /// The children that are started by replicas; none without `[cluster]`.
    pub children: Vec<PlannedChild>,
    /// Servers that are stopped.
    pub removed: Vec<AffectedServer>,
    /// The tools that clients gain, lose, or see under another name.
    pub clients: Vec<ClientToolChanges>,
    /// Issuers whose users may call. They are not known one by one, so `clients` does not have them.
    pub users_of: Vec<String>,
    /// The tokens of profiles that change.
    pub profiles: Vec<ProfileTokenChange>,
    /// Protections that are weakened.
    pub weakened: Vec<String>,
}

/// A child process that replicas start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct PlannedChild {
    /// The name of its server.
    pub server: String,
    /// `each` replica starts one, or `one` of them.
    pub instances: &'static str,
}

/// A server that a configuration stops. One that is disabled has no sessions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AffectedServer {
    /// Its name.
    pub name: String,
    /// Sessions of clients with an instance of their own.
    pub sessions: usize,
    /// Calls in flight.
    pub calls: usize,
}

impl Snapshot {
    /// Returns the consequences of a configuration. Counts tokens of definitions, which blocks for
    /// up to some seconds.
    pub fn preview(&self, after: &Config) -> ConfigConsequences {
        let changes = plan(&self.config, after);
        let names = |names: &[ServerName]| names.iter().map(ToString::to_string).collect();
        let affected =
            |names: &[ServerName]| names.iter().map(|name| self.affected_server(name)).collect();
        let losses = find_losses(&self.config, after);
        ConfigConsequences {
            added: names(&changes.added),
            restarted: affected(&changes.replaced),
            children: find_started_children(&changes, after),
            removed: affected(&changes.removed),
            clients: self.preview_clients(after),
            users_of: self.find_token_issuers(after),
            profiles: self.preview_profiles(after),
            weakened: losses.iter().map(ToString::to_string).collect(),
        }
    }

    /// Returns the issuers of both configurations; none if nothing changes.
    fn find_token_issuers(&self, after: &Config) -> Vec<String> {
        if *self.config == *after {
            return Vec::new();
        }
        let issuers = [&*self.config, after].into_iter().flat_map(|config| &config.issuers);
        let names: BTreeSet<_> = issuers.map(|issuer| issuer.name.to_string()).collect();
        names.into_iter().collect()
    }

    /// Starts a comparison of recorded calls under the running configuration and another one.
    pub fn replay_calls<'a>(&'a self, after: &'a Config) -> CallReplay<'a> {
        CallReplay::new(&self.config, after, RunningTools::of(self))
    }

    fn affected_server(&self, name: &ServerName) -> AffectedServer {
        let limits = self.policy.server(name);
        let (sessions, calls) = match self.server(name) {
            Some(member) => member.server.count_use(),
            None => (0, limits.map_or(0, |limits| limits.gate().in_flight())),
        };
        AffectedServer { name: name.to_string(), sessions, calls }
    }
}

/// Returns the children that a reload of a replica starts.
fn find_started_children(changes: &ReloadPlan, after: &Config) -> Vec<PlannedChild> {
    if after.cluster.is_none() {
        return Vec::new();
    }
    let is_started = |name| changes.added.contains(name) || changes.replaced.contains(name);
    let servers = after.servers.iter().filter(|server| is_started(&server.name));
    let children = servers.filter(|server| matches!(server.target, ServerKind::Command(_)));
    let planned = children.map(|server| PlannedChild {
        server: server.name.to_string(),
        instances: server.instances.as_str(),
    });
    planned.collect()
}
