//! The consequences of a configuration, before it is applied.
//!
//! [`Snapshot::preview`] compares a configuration with the running one and changes nothing: the
//! servers that a reload would start or stop, the tools that clients would gain or lose, the tokens
//! of profiles, and the protections that are weakened. [`CallReplay`] decides recorded calls under
//! both configurations. It differs from `diff` and `losses`, which a reload itself uses.

mod listed_tools;
mod replay;
#[cfg(test)]
mod tests;

pub use listed_tools::{ClientToolChanges, ProfileTokenChange};
pub use replay::{CallReplay, ChangedDecision, RecordedCall, ReplayReport};

use schemars::JsonSchema;
use serde::Serialize;

use crate::call::ServerName;
use crate::config::Config;
use crate::upstream::InstanceScope;

use super::{Snapshot, find_losses, plan};

/// The consequences of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ConfigConsequences {
    /// Servers that are started. Their tools are not known before.
    pub added: Vec<String>,
    /// Servers that are started again, and replaced then.
    pub restarted: Vec<AffectedServer>,
    /// Servers that are stopped.
    pub removed: Vec<AffectedServer>,
    /// The tools that clients gain, lose, or see under another name.
    pub clients: Vec<ClientToolChanges>,
    /// The tokens of profiles that change.
    pub profiles: Vec<ProfileTokenChange>,
    /// Protections that are weakened.
    pub weakened: Vec<String>,
}

/// A running server that a configuration stops.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct AffectedServer {
    /// Its name.
    pub name: String,
    /// Sessions of clients with an instance of their own.
    pub sessions: usize,
    /// Calls in flight.
    pub calls: u32,
}

impl Snapshot {
    /// Returns the consequences of a configuration. Counts tokens of definitions, which blocks for
    /// up to some seconds.
    pub fn preview(&self, after: &Config) -> ConfigConsequences {
        let changes = plan(&self.config, after);
        let names = |names: &[ServerName]| names.iter().map(ToString::to_string).collect();
        let affected = |names: &[ServerName]| {
            names.iter().filter_map(|name| self.affected_server(name)).collect()
        };
        let losses = find_losses(&self.config, after);
        ConfigConsequences {
            added: names(&changes.added),
            restarted: affected(&changes.replaced),
            removed: affected(&changes.removed),
            clients: self.preview_clients(after),
            profiles: self.preview_profiles(after),
            weakened: losses.iter().map(ToString::to_string).collect(),
        }
    }

    fn affected_server(&self, name: &ServerName) -> Option<AffectedServer> {
        let view = self.server(name)?.server.view();
        let of_sessions = view
            .instances
            .iter()
            .filter(|it| matches!(it.owner.whose, InstanceScope::Session { .. }));
        let calls = view.instances.iter().map(|instance| instance.calls).sum();
        Some(AffectedServer { name: name.to_string(), sessions: of_sessions.count(), calls })
    }
}
