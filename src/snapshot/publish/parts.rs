//! Compilation of a snapshot from its parts.

use std::collections::HashMap;
use std::sync::Arc;

use crate::call::{Named, ServerName};
use crate::catalog::{CacheScope, MergeFault};
use crate::config::Config;
use crate::identity::Identity;
use crate::oauth::{GrantBook, LoginRelays};
use crate::policy::{
    Authorization, ConfirmRules, DefinitionGuard, DefinitionNews, LimitRegistry, Policy,
};
use crate::telemetry::metrics::{Availability, Metrics, ServerMetrics};
use crate::upstream;

use super::super::{Operations, Snapshot, SnapshotServer};
use crate::snapshot::disabled::DisabledServers;
use crate::snapshot::measures::counts::PrincipalCounts;
use crate::snapshot::views::departed_tools::DepartedTools;
use crate::snapshot::views::view_cache::{
    ScreenedLists, ServerLists, ViewBuilder, ViewCache, ViewLimits,
};

/// The inputs of a snapshot.
pub(super) struct SnapshotParts {
    pub(super) config: Arc<Config>,
    pub(super) identity: Arc<Identity>,
    pub(super) servers: HashMap<ServerName, Arc<upstream::Server>>,
    pub(super) generation: u64,
    pub(super) departed: Arc<DepartedTools>,
    pub(super) grants: Arc<GrantBook>,
    pub(super) logins: Arc<LoginRelays>,
    pub(super) disabled: Arc<DisabledServers>,
    /// True if the snapshot keeps its servers from being stopped.
    pub(super) holds_servers: bool,
}

impl SnapshotParts {
    /// Returns the parts of a snapshot, to compile it again with the current lists of its servers.
    pub(super) fn of(snapshot: &Snapshot) -> Self {
        let servers = snapshot.servers.iter();
        Self {
            config: Arc::clone(&snapshot.config),
            identity: Arc::clone(&snapshot.identity),
            servers: servers
                .map(|(name, member)| (name.clone(), Arc::clone(&member.server)))
                .collect(),
            generation: snapshot.generation,
            departed: Arc::clone(&snapshot.departed),
            grants: Arc::clone(&snapshot.grants),
            logins: Arc::clone(&snapshot.logins),
            disabled: Arc::clone(&snapshot.disabled),
            holds_servers: snapshot.servers().all(|member| member.hold.is_some()),
        }
    }

    /// Compiles the snapshot. Returns the warnings and the findings about its lists.
    pub(super) fn compile(
        self,
        registry: &LimitRegistry,
        maker: &ViewBuilder,
        definitions: &DefinitionGuard,
    ) -> (Snapshot, Vec<MergeFault>, Vec<DefinitionNews>) {
        let lists = self.servers.iter();
        let lists: ServerLists =
            lists.filter_map(|(name, server)| Some((name.clone(), server.list()?))).collect();
        // Read before the lists, so that the version is never newer than they are.
        let lists_version = self.servers.values().map(|server| server.lists_version()).sum();
        let known = self.servers.iter().map(|(name, server)| (name.clone(), server.known_lists()));
        let (screen, news) = definitions.observe_lists(&self.config, &known.collect());
        let (plain, warnings) = maker.build_view(
            &self.config,
            ViewLimits::default(),
            &ScreenedLists { lists: &lists, screen: &screen },
            CacheScope::Public,
        );
        let snapshot = Snapshot {
            plain: Arc::new(plain),
            views: ViewCache::new(maker.clone(), &self.config),
            departed: Arc::clone(&self.departed),
            grants: Arc::clone(&self.grants),
            logins: Arc::clone(&self.logins),
            counts: PrincipalCounts::new(&self.config, &maker.metrics),
            policy: Policy::new(registry.limits(&self.config))
                .with_authorization(Authorization::compile(&self.config))
                .with_confirmation(ConfirmRules::compile(&self.config))
                .with_scopes(&self.config),
            identity: Arc::clone(&self.identity),
            servers: self.members(&maker.metrics),
            disabled_metrics: self.show_disabled(&maker.metrics),
            disabled: Arc::clone(&self.disabled),
            generation: self.generation,
            embedder: maker.embedders.embedder(self.config.search.embeddings.as_ref()),
            has_meta_tools: self.config.has_meta_tools(),
            lists_version,
            screen,
            config: self.config,
        };
        (snapshot, warnings, news)
    }

    /// Reports the disabled servers in the metrics, for as long as the handles are held.
    fn show_disabled(&self, metrics: &Metrics) -> Vec<Arc<ServerMetrics>> {
        let disabled = self.disabled.names().map(|name| {
            let metrics = metrics.server(name);
            metrics.set_availability(Availability::Disabled);
            metrics
        });
        disabled.collect()
    }

    fn members(&self, metrics: &Metrics) -> Named<ServerName, SnapshotServer> {
        let members = self.config.servers.iter().filter_map(|config| {
            let server = Arc::clone(self.servers.get(&config.name)?);
            server.show();
            let metrics = metrics.server(config.name.as_str());
            let operations = Arc::new(Operations::new(|method| metrics.operation_metrics(method)));
            let config = Arc::clone(config);
            let hold = self.holds_servers.then(|| server.hold());
            let member = SnapshotServer { server, config, metrics, operations, hold };
            Some((member.config.name.clone(), member))
        });
        members.collect()
    }
}
