//! Everything compiled from one configuration and one set of server lists.
//!
//! A call loads the snapshot once and uses it to its end, so that no call sees
//! half of a reload. A snapshot is immutable; [`Snapshots`] publishes the next one.
//! State that survives a reload (server processes, connections, rate buckets) is
//! shared between snapshots and not owned by them.
//!
//! Clients see different parts of the catalog: a [`View`] is the catalog for one
//! [`ViewKey`]. The view of a client without a profile is compiled with the
//! snapshot, the others when they are first needed. Who may call is decided in
//! `identity`, whether a call may be sent in `policy`.

mod counts;
mod diff;
mod endpoint;
mod listing;
mod operations;
mod publish;
mod view;
mod views;

pub use diff::{ReloadPlan, plan};
pub use listing::PreparedListing;
pub use operations::Operations;
pub use publish::{Snapshots, StartUp};
pub use view::{Digests, View, ViewKey};

use std::sync::Arc;

use crate::call::{Abilities, Endpoint, Named, Principal, ServerName};
use crate::catalog::ToolEntry;
use crate::config::{self, Config};
use crate::identity::Identity;
use crate::policy::Policy;
use crate::telemetry::metrics::{CallMetrics, ServerMetrics, ToolMetrics};
use crate::upstream;

use counts::PrincipalCounts;
use views::{ServerLists, Views};

/// What one call lives in.
pub struct Snapshot {
    /// The configuration that all of it was compiled from.
    pub config: Arc<Config>,
    /// Who may call.
    pub identity: Arc<Identity>,
    /// Everything that there is, before profiles select from it.
    pub plain: Arc<View>,
    views: Views,
    counts: PrincipalCounts,
    /// What calls have to pass.
    pub policy: Policy,
    /// All servers, by name.
    servers: Named<ServerName, SnapshotServer>,
    /// Counts the configurations loaded, this one included.
    pub generation: u64,
    /// The versions of what servers list for some clients only.
    lists_version: u64,
}

/// One server in a snapshot.
#[derive(Clone)]
pub struct SnapshotServer {
    /// The server with its life.
    pub server: Arc<upstream::Server>,
    /// Its part of this snapshot's configuration: newer than the one it was
    /// started with where a change needed no restart.
    pub config: Arc<config::ServerConfig>,
    /// Its metric handles.
    pub metrics: Arc<ServerMetrics>,
    /// The handles for what it is asked.
    pub operations: Arc<Operations>,
    /// A call that has found its way here may still be on its way to the
    /// server when a later snapshot no longer names it.
    _hold: upstream::StopGuard,
}

/// Where a public name leads.
#[derive(Clone, Copy)]
pub struct ToolRoute<'a> {
    /// The tool.
    pub entry: &'a ToolEntry,
    /// Its server.
    pub member: &'a SnapshotServer,
    /// Its metric handle.
    pub metrics: &'a Arc<ToolMetrics>,
}

impl Snapshot {
    /// The view of those who have this key: made when it is first asked for,
    /// and kept, within bounds, as long as the snapshot.
    pub fn view(&self, key: &ViewKey) -> Arc<View> {
        let profile = self.profile(key.endpoint.profile());
        let narrowing = key.endpoint.narrowing.as_deref();
        let Some(abilities) = &key.abilities else {
            if profile.is_none() && narrowing.is_none() {
                return Arc::clone(&self.plain);
            }
            return self.views.find((key, 0), |maker| {
                Arc::new(maker.build_view(&self.config, (profile, narrowing), &self.plain.lists).0)
            });
        };
        // What servers list for some clients comes and goes within a snapshot.
        let version = self.servers().map(|member| member.server.lists_version()).sum();
        self.views.find((key, version), |maker| match self.lists_for(abilities) {
            None => self.view(&ViewKey { abilities: None, ..key.clone() }),
            Some(lists) => Arc::new(maker.build_view(&self.config, (profile, narrowing), &lists).0),
        })
    }

    /// What servers list for clients with these abilities; `None` where that
    /// is the same as for all.
    fn lists_for(&self, abilities: &Abilities) -> Option<ServerLists> {
        let plain = &self.plain.lists;
        let own = self.servers.iter().filter_map(|(name, member)| {
            let own = member.server.list_for(abilities)?;
            let same = plain.get(name).is_some_and(|list| Arc::ptr_eq(list, &own));
            (!same).then(|| (name.clone(), own))
        });
        let own: Vec<_> = own.collect();
        if own.is_empty() {
            return None;
        }
        let mut lists = plain.clone();
        lists.extend(own);
        Some(lists)
    }

    /// The metric handles of a principal and of the endpoint that it uses.
    pub fn counts(&self, who: &Principal, at: &Endpoint) -> [Option<Arc<CallMetrics>>; 2] {
        [self.counts.client(who).cloned(), self.counts.profile(at.profile()).cloned()]
    }

    /// Where a public tool name leads in a view; `None` for one that is not in
    /// its catalog, whether it never was or is hidden.
    pub fn find_tool<'a>(&'a self, view: &'a View, public: &str) -> Option<ToolRoute<'a>> {
        let entry = view.catalog.find_tool(public)?;
        let member = self.servers.get(&entry.server)?;
        let metrics = view.tools.get(&entry.public)?;
        Some(ToolRoute { entry, member, metrics })
    }

    /// All servers, in the order of the file.
    pub fn servers(&self) -> impl Iterator<Item = &SnapshotServer> {
        self.config.servers.iter().filter_map(|server| self.servers.get(&server.name))
    }

    /// One server.
    pub fn server(&self, name: &ServerName) -> Option<&SnapshotServer> {
        self.servers.get(name)
    }
}
