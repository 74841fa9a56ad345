//! Publishing: the only place that replaces the current snapshot.

mod one_server;
mod operations;
mod parts;
mod trial;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, SystemTime};

use arc_swap::{ArcSwap, Guard};
use bytes::Bytes;
use tokio::sync::{Mutex, Notify, watch};
use tokio::task::{JoinSet, spawn_blocking};

use crate::call::{Abilities, ServerName};
use crate::catalog::{Kind, MergeFault};
use crate::child::Guardian;
use crate::clock;
use crate::config::{Config, ServerConfig};
use crate::identity::Identity;
use crate::oauth::{GrantBook, LoginRelays};
use crate::policy::{DefinitionGuard, DefinitionNews, LimitRegistry, QuotaLedger, SharedLimits};
use crate::telemetry::events::{EventSender, EventType, LifecycleEvent, MAX_EVENT_SERVERS};
use crate::telemetry::metrics::Metrics;
use crate::text::{clip, escape_controls};
use crate::upstream::{self, ServerContext, ServerJournal, SubscriptionHub};

use super::disabled::{DisabledAtStart, DisabledFile};
use super::shared_disabled::SharedDisabled;
use super::views::view_cache::ViewBuilder;
use super::{ReloadPlan, Snapshot, plan};

pub use operations::{DisablingError, ServerActionError};
pub use trial::{TestedCall, TrialInstance, TrialReport, TrialStep};

use parts::SnapshotParts;

/// The parts of the first snapshot.
pub struct StartUp {
    /// The configuration.
    pub config: Config,
    /// The gateway's services that servers use.
    pub surroundings: ServerContext,
    /// The gateway's raw `serverInfo`.
    pub info: Bytes,
    /// The accepted definitions of servers.
    pub definitions: DefinitionGuard,
    /// Counts of quotas.
    pub quotas: Arc<QuotaLedger>,
    /// Limits that replicas share; `None` if the gateway is alone.
    pub shared_limits: Option<SharedLimits>,
    /// Servers that were disabled in an earlier run.
    pub disabled: DisabledAtStart,
}

/// The current snapshot, and the state for building the next one.
pub struct Snapshots {
    current: ArcSwap<Snapshot>,
    surroundings: ServerContext,
    registry: LimitRegistry,
    metrics: Arc<Metrics>,
    maker: ViewBuilder,
    definitions: DefinitionGuard,
    /// Notified when definitions may have been approved.
    approved: Notify,
    /// Serializes the building of snapshots.
    making: Mutex<Warned>,
    /// Serializes the application of configurations. It may be held until servers are ready.
    loading: Mutex<()>,
    /// Serializes changes of the servers and of the disabled ones. It is held for a moment only, so
    /// that no change waits for the start of a server.
    operating: Mutex<()>,
    /// Serializes the restarts of each server.
    restarts: parking_lot::Mutex<HashMap<ServerName, Arc<Mutex<()>>>>,
    /// Counts the changes of clients' lists: each client compares its own lists.
    changes: watch::Sender<u64>,
    loaded_at: watch::Sender<SystemTime>,
    changed_at: watch::Sender<SystemTime>,
    /// Keeps the disabled servers for the next run.
    disabled_file: Option<DisabledFile>,
    /// The disabled servers of all replicas; `None` if the gateway is alone.
    shared_disabled: Option<SharedDisabled>,
    /// True if the disabled servers could not be stored.
    disabled_unsaved: AtomicBool,
    /// Serializes the tests of servers.
    testing: Mutex<()>,
    /// Servers that are finishing their last calls.
    leaving: Mutex<JoinSet<()>>,
}

/// Warnings already logged, so that none repeats with every list.
type Warned = Vec<MergeFault>;

impl Snapshots {
    /// Starts all servers concurrently, and publishes a first snapshot without
    /// waiting for any of them.
    pub fn start(startup: StartUp) -> Arc<Self> {
        let StartUp { config, surroundings, disabled, .. } = &startup;
        surroundings.set_limits(config);
        let servers = config.servers.iter().filter(|it| disabled.servers.find(&it.name).is_none());
        let servers = servers
            .map(|config| {
                (config.name.clone(), upstream::Server::start(Arc::clone(config), surroundings))
            })
            .collect();
        Self::with_servers(startup, servers, true)
    }

    /// Publishes a first snapshot of servers that run already.
    fn with_servers(
        startup: StartUp,
        servers: HashMap<ServerName, Arc<upstream::Server>>,
        holds_servers: bool,
    ) -> Arc<Self> {
        let StartUp { config, surroundings, info, definitions, quotas, shared_limits, disabled } =
            startup;
        let metrics = Arc::clone(&surroundings.metrics);
        let events = surroundings.events.clone();
        let registry =
            LimitRegistry::new(Arc::clone(&metrics), events, quotas).sharing(shared_limits);
        let DisabledAtStart { servers: disabled, file, shared } = disabled;
        let identity = Arc::new(Identity::new(&config, &Identity::default()));
        upstream::follow_issuers(&identity, &surroundings);
        let parts = SnapshotParts {
            logins: Arc::new(LoginRelays::new(&config, &LoginRelays::default())),
            config: Arc::new(config),
            identity,
            servers,
            generation: 1,
            departed: Arc::default(),
            grants: Arc::clone(&surroundings.grants),
            disabled: Arc::new(disabled),
            holds_servers,
        };
        let maker = ViewBuilder {
            metrics: Arc::clone(&metrics),
            info,
            tokens: Arc::default(),
            embedders: Arc::default(),
        };
        let (first, warnings, news) = parts.compile(&registry, &maker, &definitions);
        let first = Arc::new(first);
        follow_embedder(&first, &surroundings);
        report_definitions(&surroundings, &news);
        let now = clock::wall_now();
        metrics.record_config_load(now);
        Arc::new(Self {
            current: ArcSwap::new(first),
            surroundings,
            registry,
            metrics,
            maker,
            definitions,
            approved: Notify::new(),
            making: Mutex::new(warnings),
            loading: Mutex::new(()),
            operating: Mutex::new(()),
            restarts: parking_lot::Mutex::default(),
            changes: watch::Sender::new(0),
            loaded_at: watch::Sender::new(now),
            changed_at: watch::Sender::new(now),
            disabled_file: file,
            shared_disabled: shared,
            disabled_unsaved: AtomicBool::new(false),
            testing: Mutex::new(()),
            leaving: Mutex::new(JoinSet::new()),
        })
    }

    /// Returns the current snapshot.
    pub fn load(&self) -> Guard<Arc<Snapshot>> {
        self.current.load()
    }

    /// Returns the current snapshot, to be held across an await.
    pub fn load_full(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Records a client's declared capabilities before serving it.
    pub fn meet_client(&self, abilities: &Abilities) {
        self.surroundings.meet_client(abilities);
    }

    /// Returns the counts of quotas.
    pub fn quotas(&self) -> &Arc<QuotaLedger> {
        self.registry.quotas()
    }

    /// Notifies of every change of the lists that clients see.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    /// Notifies of every configuration that replaces another.
    pub fn load_count(&self) -> watch::Receiver<SystemTime> {
        self.loaded_at.subscribe()
    }

    /// Returns the time when the running configuration was loaded.
    pub fn loaded_at(&self) -> SystemTime {
        *self.loaded_at.borrow()
    }

    /// Returns the time of the last change of clients' lists.
    pub fn changed_at(&self) -> SystemTime {
        *self.changed_at.borrow()
    }

    /// Publishes a new snapshot whenever a server's list has changed. Runs
    /// until it is dropped.
    pub async fn follow(self: Arc<Self>) {
        loop {
            while self.definitions.save_changes().await {
                self.publish(SnapshotParts::of).await;
            }
            tokio::select! {
                () = self.surroundings.listed.notified() => {
                    self.publish(SnapshotParts::of).await;
                }
                () = self.approved.notified() => self.definitions.read_files_again(),
                () = self.definitions.comparison_due() => self.follow_disabled().await,
            }
        }
    }

    /// Triggers a new read of the stored baselines: an operator may have approved definitions.
    pub fn read_approvals(&self) {
        self.approved.notify_one();
    }

    /// Returns the accepted definitions of servers.
    pub fn definitions(&self) -> &DefinitionGuard {
        &self.definitions
    }

    /// Returns the grants at servers with OAuth.
    pub fn grants(&self) -> &Arc<GrantBook> {
        &self.surroundings.grants
    }

    /// Returns the guardian, which ends child processes if this process is killed.
    pub fn guardian(&self) -> &Guardian {
        &self.surroundings.guardian
    }

    /// Returns the sender of lifecycle events.
    pub fn events(&self) -> &EventSender {
        &self.surroundings.events
    }

    /// Returns the faults and the output of a configured server.
    pub fn journal(&self, server: &ServerName) -> Arc<ServerJournal> {
        self.surroundings.journals.of(server)
    }

    /// Returns the subscriptions of clients at all servers.
    pub fn hub(&self) -> &SubscriptionHub {
        &self.surroundings.hub
    }

    /// Returns true if a server has other lists for Legacy clients than for Modern ones.
    pub fn has_lists_by_era(&self) -> bool {
        self.surroundings.has_lists_by_era()
    }

    /// Applies a configuration: starts new servers, waits until the replaced
    /// ones are ready or have failed, swaps the snapshot, and lets removed
    /// servers finish their calls.
    pub async fn apply(self: &Arc<Self>, config: Config) -> ReloadPlan {
        let _turn = self.loading.lock().await;
        self.surroundings.set_limits(&config);
        let before = self.current.load_full();
        let (plan, config) = (plan(&before.config, &config), Arc::new(config));
        let is_new = |it: &&Arc<ServerConfig>| {
            before.disabled.find(&it.name).is_none()
                && !(plan.kept.contains(&it.name) && before.server(&it.name).is_some())
        };
        let new = config.servers.iter().filter(is_new);
        let started: HashMap<_, _> = new
            .map(|it| {
                (it.name.clone(), upstream::Server::start(Arc::clone(it), &self.surroundings))
            })
            .collect();
        // Holding the snapshot would keep servers that are disabled meanwhile from being stopped.
        drop(before);
        settle_all(plan.replaced.iter().filter_map(|name| started.get(name))).await;
        self.take_over(&config, &plan, started).await;
        self.loaded_at.send_replace(clock::wall_now());
        self.metrics.record_config_load(self.loaded_at());
        plan
    }

    /// Swaps the snapshot for one with the servers that were started for a configuration. Operators
    /// may have changed the others meanwhile. A replacement that has failed takes over all the same,
    /// because it is configured so, with its predecessor's list until it has its own.
    async fn take_over(
        &self,
        config: &Arc<Config>,
        plan: &ReloadPlan,
        mut started: HashMap<ServerName, Arc<upstream::Server>>,
    ) {
        let _turn = self.operating.lock().await;
        let before = self.current.load_full();
        let disabled = self.edit_disabled(&before, config, |all| all).await;
        let disabled = disabled.unwrap_or_else(|_| before.disabled.of_config(config));
        let mut servers = HashMap::new();
        for config in config.servers.iter().filter(|it| disabled.find(&it.name).is_none()) {
            let old = before.server(&config.name).map(|member| &member.server);
            let kept = old.filter(|_| plan.kept.contains(&config.name)).cloned();
            let server = kept.unwrap_or_else(|| {
                let server = started.remove(&config.name).unwrap_or_else(|| {
                    upstream::Server::start(Arc::clone(config), &self.surroundings)
                });
                if let Some(old) = old {
                    server.inherit(old);
                }
                server
            });
            servers.insert(config.name.clone(), server);
        }
        let gone = before.servers().map(|member| &member.config.name);
        let gone: Vec<_> = gone
            .filter(|name| !plan.kept.contains(name) || disabled.find(name).is_some())
            .cloned()
            .collect();
        let identity = Arc::new(Identity::new(config, &before.identity));
        upstream::follow_issuers(&identity, &self.surroundings);
        let parts = SnapshotParts {
            logins: Arc::new(LoginRelays::new(config, &before.logins)),
            config: Arc::clone(config),
            identity,
            servers,
            generation: before.generation + 1,
            departed: Arc::clone(&before.departed),
            grants: Arc::clone(&before.grants),
            disabled: Arc::new(disabled),
            holds_servers: true,
        };
        self.publish(|_| parts).await;
        self.stop_removed(&before, &gone).await;
        // Disabled while they started.
        let needless = started.into_values().map(|server| (server, Duration::ZERO));
        self.stop_later(needless.collect()).await;
    }

    /// Publishes the servers' newest lists now, unless the current snapshot has them.
    pub async fn catch_up(&self) {
        let mut warned = self.making.lock().await;
        if self.load().is_outdated() {
            self.publish_next(&mut warned, SnapshotParts::of);
        }
    }

    /// Waits until every server has listed or failed.
    pub async fn settle(&self) {
        let snapshot = self.load_full();
        let servers: Vec<_> = snapshot.servers().map(|member| Arc::clone(&member.server)).collect();
        // Holding the snapshot would keep servers that are removed meanwhile from being stopped.
        drop(snapshot);
        settle_all(servers.iter()).await;
    }

    /// Stops all servers and waits until they have ended: those of the current
    /// snapshot, those that are finishing their last calls, and those that a
    /// reload has started and not published yet.
    pub async fn stop(&self) {
        self.surroundings.stop.cancel();
        self.surroundings.alive.close();
        self.surroundings.alive.wait().await;
    }

    /// Stops the servers of a snapshot that the next one does not have, after their calls in flight.
    async fn stop_removed(&self, before: &Snapshot, names: &[ServerName]) {
        let members = names.iter().filter_map(|name| before.server(name));
        // Only the server: a snapshot's entry for it would keep it alive.
        let servers = members.map(|member| (Arc::clone(&member.server), member.config.max_timeout));
        self.stop_later(servers.collect()).await;
    }

    /// Stops servers once their calls have finished, or this time has passed. Does not wait for them.
    async fn stop_later(&self, servers: Vec<(Arc<upstream::Server>, Duration)>) {
        let mut leaving = self.leaving.lock().await;
        while leaving.try_join_next().is_some() {}
        for (server, patience) in servers {
            leaving.spawn(async move { server.stop(patience).await });
        }
    }

    async fn publish(&self, parts: impl FnOnce(&Snapshot) -> SnapshotParts) {
        self.publish_next(&mut *self.making.lock().await, parts);
    }

    fn publish_next(&self, warned: &mut Warned, parts: impl FnOnce(&Snapshot) -> SnapshotParts) {
        let before = self.current.load_full();
        let parts = parts(&before);
        let (next, warnings, news) = parts.compile(&self.registry, &self.maker, &self.definitions);
        report_definitions(&self.surroundings, &news);
        for warning in warnings.iter().filter(|warning| !warned.contains(warning)) {
            tracing::warn!("{warning}");
        }
        *warned = warnings;
        let changed = next.plain.digests() != before.plain.digests();
        let for_some = next.lists_version != before.lists_version;
        let reselected = next.config.profiles != before.config.profiles
            || next.config.policy != before.config.policy
            || next.config.clients != before.config.clients;
        if changed || for_some || reselected {
            next.departed.note(&before, &next, clock::now());
        }
        let next = Arc::new(next);
        follow_embedder(&next, &self.surroundings);
        // A receiver of the event may list at once, and must find the new lists: the event is built
        // from the replaced snapshot, so it cannot precede the swap.
        let replaced = self.current.swap(Arc::clone(&next));
        if changed || for_some {
            send_list_changed(self.events(), &replaced, &next);
        }
        if changed {
            self.changed_at.send_replace(clock::wall_now());
        }
        if changed || for_some || reselected {
            self.changes.send_modify(|count| *count += 1);
        }
    }
}

/// Starts to fetch the vectors that a snapshot's searches need from a service.
fn follow_embedder(snapshot: &Arc<Snapshot>, surroundings: &ServerContext) {
    let Some(embedder) = snapshot.embedder.as_ref().filter(|embedder| embedder.asks_service())
    else {
        return;
    };
    embedder.follow(surroundings);
    if snapshot.has_meta_tools {
        let snapshot = Arc::clone(snapshot);
        spawn_blocking(move || snapshot.want_vectors());
    }
}

/// Logs and counts the findings in the definitions of servers.
fn report_definitions(surroundings: &ServerContext, news: &[DefinitionNews]) {
    for DefinitionNews { server, found } in news {
        let told = found.iter().take(MAX_LOGGED_DEFINITIONS).map(|one| {
            let reasons: Vec<_> = one.reasons.iter().map(ToString::to_string).collect();
            let name = escape_controls(clip(one.native.as_str(), 120));
            format!("{} {name} ({})", one.kind.noun(), reasons.join(", "))
        });
        let definitions = told.collect::<Vec<_>>().join(", ");
        let held = found.iter().filter(|one| one.held).count();
        let reported = found.len() - held;
        tracing::warn!(%server, held, reported, definitions, "definitions need attention");
        surroundings.metrics.count_definitions(server.as_str(), [held, reported]);
        let server = server.as_str();
        surroundings.events.send(&LifecycleEvent::DefinitionsFound { server, held, reported });
    }
}

/// Waits for all of these servers concurrently, each with its own time limit.
async fn settle_all(servers: impl Iterator<Item = &Arc<upstream::Server>>) {
    let mut settling = JoinSet::new();
    for server in servers {
        let server = Arc::clone(server);
        settling.spawn(async move { server.settled().await });
    }
    while settling.join_next().await.is_some() {}
}

/// Sends an event with the changed lists and their servers.
fn send_list_changed(events: &EventSender, before: &Snapshot, next: &Snapshot) {
    if !events.wants(EventType::ListChanged) {
        return;
    }
    let has_changed = |kind: &Kind| {
        let digest = |snapshot: &Snapshot| *snapshot.plain.catalog.list(*kind).digest();
        digest(before) != digest(next)
    };
    let lists: Vec<_> = Kind::ALL.into_iter().filter(has_changed).map(Kind::member).collect();
    let is_same = |name: &ServerName| {
        let lists = (before.plain.list(name), next.plain.list(name));
        matches!(lists, (None, None))
            || matches!(lists, (Some(old), Some(new)) if Arc::ptr_eq(old, new))
    };
    let gone = before.servers().filter(|member| next.server(&member.config.name).is_none());
    let servers = next.servers().chain(gone).map(|member| &member.config.name);
    let servers = servers.filter(|name| !is_same(name)).map(ServerName::as_str);
    let servers: Vec<_> = servers.take(MAX_EVENT_SERVERS).collect();
    events.send(&LifecycleEvent::ListChanged { lists: &lists, servers: &servers });
}

/// Limit of a server's definitions in one line of the log.
const MAX_LOGGED_DEFINITIONS: usize = 20;

#[cfg(test)]
mod tests;
