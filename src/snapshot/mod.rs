//! Everything compiled from one configuration and one set of server lists.
//!
//! A call loads the snapshot once and uses it to its end, so that no call sees half of a reload. A
//! snapshot is immutable; [`Snapshots`] publishes the next one. State that survives a reload
//! (server processes, connections, rate buckets) is shared between snapshots and not owned by them.
//!
//! Clients see different parts of the catalog: a [`View`] is the catalog for one [`ViewKey`]. The
//! view without a profile, a query, rights or lists for certain clients is compiled with the
//! snapshot, the others when they are first needed. `identity` authenticates callers, and `policy` admits calls.

mod consequences;
mod diff;
mod disabled;
mod embeddings;
mod endpoint;
mod losses;
mod measures;
mod publish;
mod shared_disabled;
mod views;

pub use consequences::{
    AffectedServer, CallReplay, ChangedDecision, ClientToolChanges, ConfigConsequences,
    ProfileTokenChange, RecordedCall, RecordedTool, RecordedToolNames, ReplayReport,
};
pub use diff::{ReloadPlan, plan};
pub use disabled::{
    DisabledAtStart, DisabledFile, DisabledFileError, DisabledServer, DisabledServers,
};
pub use embeddings::{Embedder, EmbedderReport};
pub use losses::{LossFault, ProtectionLoss, find_losses};
pub use measures::operations::Operations;
pub use measures::tokens::{ProfileTokens, ServerTokens, TokenReport, ToolTokens};
pub use publish::{
    DisablingError, ServerActionError, Snapshots, StartUp, TestedCall, TrialInstance, TrialReport,
    TrialStep,
};
pub use shared_disabled::{SharedDisabled, SharedDisabledError};
pub use views::discovery::{AskedSearch, Discovery, FoundElement, MetaToolList};
pub use views::listing::PreparedListing;
pub use views::view::{Digests, View, ViewKey};

use std::sync::Arc;

use crate::call::{Abilities, Context, Endpoint, Named, Principal, ProfileName, ServerName};
use crate::catalog::{CacheScope, ToolEntry};
use crate::clock;
use crate::config::{self, Config};
use crate::identity::Identity;
use crate::mcp::Era;
use crate::oauth::{GrantBook, LoginRelays};
use crate::policy::{DefinitionScreen, Policy, RequestedElement};
use crate::telemetry::metrics::{CallMetrics, ServerMetrics, ToolMetrics};
use crate::upstream;

use measures::counts::PrincipalCounts;
use views::departed_tools::DepartedTools;
use views::view::ViewedTool;
use views::view_cache::{
    ScreenedLists, ServerLists, VersionedKey, ViewBuilder, ViewCache, ViewLimits,
};

/// The state that one call uses from its start to its end.
pub struct Snapshot {
    /// The configuration that the snapshot was compiled from.
    pub config: Arc<Config>,
    /// Authenticates callers.
    pub identity: Arc<Identity>,
    /// The view of all servers' lists, without a profile.
    pub plain: Arc<View>,
    views: ViewCache,
    departed: Arc<DepartedTools>,
    /// The grants at servers with OAuth.
    pub grants: Arc<GrantBook>,
    /// Passes logins of clients on to issuers.
    pub logins: Arc<LoginRelays>,
    counts: PrincipalCounts,
    /// The limits and checks that calls pass.
    pub policy: Policy,
    /// Decides which definitions clients see.
    pub screen: Arc<DefinitionScreen>,
    /// All servers, by name.
    servers: Named<ServerName, SnapshotServer>,
    /// The servers of the configuration that an operator has disabled. They are not in `servers`.
    pub disabled: Arc<DisabledServers>,
    /// Keeps their metrics.
    #[allow(dead_code, reason = "held for its drop")]
    disabled_metrics: Vec<Arc<ServerMetrics>>,
    /// The number of configurations loaded so far, including this one.
    pub generation: u64,
    /// Makes vectors for search by meaning; `None` if search goes by words alone.
    pub embedder: Option<Arc<Embedder>>,
    /// True if a profile has meta-tools.
    has_meta_tools: bool,
    /// The version of lists that depend on client abilities.
    lists_version: u64,
}

/// One server in a snapshot.
#[derive(Clone)]
pub struct SnapshotServer {
    /// The running server.
    pub server: Arc<upstream::Server>,
    /// The server's part of this snapshot's configuration: newer than the one that it was started
    /// with, if a change required no restart.
    pub config: Arc<config::ServerConfig>,
    /// Its metric handles.
    pub metrics: Arc<ServerMetrics>,
    /// Metric handles of the methods that are sent to it.
    pub operations: Arc<Operations>,
    /// Keeps the server alive for calls that have been routed to it but not
    /// sent yet, even if a later snapshot no longer contains it. `None` if other snapshots decide
    /// about its end.
    hold: Option<upstream::StopGuard>,
}

/// The route of a public tool name.
#[derive(Clone, Copy)]
pub struct ToolRoute<'a> {
    /// The tool.
    pub entry: &'a ToolEntry,
    /// Its server.
    pub member: &'a SnapshotServer,
    /// Its metric handle.
    pub metrics: &'a Arc<ToolMetrics>,
    viewed: &'a ViewedTool,
}

impl ToolRoute<'_> {
    /// Returns the tool in the form that rules use, with their decisions for the clients of this
    /// view; `None` if there are no rules.
    pub fn requested(&self, view: &View) -> Option<Arc<RequestedElement>> {
        let rights = view.rights.as_ref()?;
        Some(Arc::clone(self.viewed.requested(rights, self.entry)))
    }
}

impl Snapshot {
    /// Returns the view for this key: built when first requested, and cached within limits for as
    /// long as the snapshot. A view that follows from a client's query or abilities, not from the
    /// configuration alone, is charged to the client of `context`.
    pub fn view(&self, key: &ViewKey, context: &Context) -> Arc<View> {
        match self.policy.rights_of(context) {
            None => self.view_of(key, context),
            rights => self.view_of(&ViewKey { rights, ..key.clone() }, context),
        }
    }

    /// Completes the key with the rights of a caller, so that it has everything that its lists
    /// depend on.
    pub fn key_with_rights(&self, key: &ViewKey, context: &Context) -> ViewKey {
        ViewKey { rights: self.policy.rights_of(context), ..key.clone() }
    }

    /// Returns true if a profile has meta-tools.
    #[inline]
    pub fn has_meta_tools(&self) -> bool {
        self.has_meta_tools
    }

    /// Returns the view that a client would have without rules, to identify the rule that hides an
    /// element.
    pub fn view_without_rules(&self, key: &ViewKey, context: &Context) -> Arc<View> {
        self.view_of(&ViewKey { rights: None, ..key.clone() }, context)
    }

    /// Returns the view for this key, with the rights in it.
    fn view_of(&self, key: &ViewKey, context: &Context) -> Arc<View> {
        let profile = self.profile(key.endpoint.profile());
        let narrowing = key.endpoint.narrowing.as_deref();
        if key.abilities.is_none() && key.era.is_none() && key.account.is_none() {
            if profile.is_none() && narrowing.is_none() && key.rights.is_none() {
                return Arc::clone(&self.plain);
            }
            return self.views.find(VersionedKey { key, version: 0 }, Some(context), |maker| {
                self.build_plain(maker, key)
            });
        }
        // Lists for certain clients change within a snapshot.
        let of_servers = self.servers().map(|member| member.server.lists_version());
        // After a logout, the lists for the account are no longer valid.
        let of_accounts = key.account.iter().map(|_| self.grants.version());
        let version = of_servers.chain(of_accounts).sum();
        self.views.find(VersionedKey { key, version }, Some(context), |maker| {
            match self.lists_for(key) {
                None => self.view_of(
                    &ViewKey { abilities: None, era: None, account: None, ..key.clone() },
                    context,
                ),
                Some(lists) => {
                    let limits = ViewLimits { profile, narrowing, rights: key.rights.as_ref() };
                    let lists = ScreenedLists { lists: &lists, screen: &self.screen };
                    Arc::new(maker.build_view(&self.config, limits, &lists, CacheScope::Private).0)
                }
            }
        })
    }

    /// Returns the view for a key that the configuration alone determines, with the lists for all
    /// clients.
    fn configured_view(&self, key: &ViewKey) -> Arc<View> {
        if key.endpoint.profile.is_none() {
            return Arc::clone(&self.plain);
        }
        self.views
            .find(VersionedKey { key, version: 0 }, None, |maker| self.build_plain(maker, key))
    }

    /// Builds a view from the lists for all clients.
    fn build_plain(&self, maker: &ViewBuilder, key: &ViewKey) -> Arc<View> {
        let profile = self.profile(key.endpoint.profile());
        let narrowing = key.endpoint.narrowing.as_deref();
        let limits = ViewLimits { profile, narrowing, rights: key.rights.as_ref() };
        let lists = ScreenedLists { lists: &self.plain.lists, screen: &self.screen };
        Arc::new(maker.build_view(&self.config, limits, &lists, CacheScope::Public).0)
    }

    /// Returns the lists that servers have for clients with this key; `None` if they are the same
    /// as for all clients.
    fn lists_for(&self, key: &ViewKey) -> Option<ServerLists> {
        let plain = &self.plain.lists;
        let era = key.era.unwrap_or(Era::Modern);
        let none = Abilities::none();
        let abilities = key.abilities.as_ref().unwrap_or(&none);
        let own = self.servers.iter().filter_map(|(name, member)| {
            let own = member.server.list_for(era, abilities, key.account.as_ref())?;
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

    /// Returns the metric handles of a principal and of its endpoint.
    pub fn counts(&self, who: &Principal, at: &Endpoint) -> [Option<Arc<CallMetrics>>; 2] {
        [self.counts.client(who).cloned(), self.counts.profile(at.profile()).cloned()]
    }

    /// Returns the metric handle of a principal. The users of an issuer have one together.
    pub fn client_counts(&self, who: &Principal) -> Option<&Arc<CallMetrics>> {
        self.counts.client(who)
    }

    /// Returns the route of a public tool name in a view; `None` if its catalog has no such tool:
    /// the same for unknown tools and for hidden ones.
    pub fn find_tool<'a>(&'a self, view: &'a View, public: &str) -> Option<ToolRoute<'a>> {
        let entry = view.catalog.find_tool(public)?;
        let member = self.servers.get(&entry.server)?;
        let viewed = view.tools.get(&entry.public)?;
        Some(ToolRoute { entry, member, metrics: &viewed.metrics, viewed })
    }

    /// Returns true if a server has never listed.
    pub fn lacks_lists(&self) -> bool {
        self.plain.lists.len() < self.servers.len()
    }

    /// Returns true if a server has a newer list.
    pub fn is_outdated(&self) -> bool {
        self.servers.iter().any(|(name, member)| {
            let known = self.plain.list(name).map(Arc::as_ptr);
            member.server.list().is_some_and(|newest| known != Some(Arc::as_ptr(&newest)))
        })
    }

    /// Returns the servers that a view may show, in the order of the configuration file.
    pub fn servers_of<'a>(&'a self, view: &'a View) -> impl Iterator<Item = &'a SnapshotServer> {
        self.servers().filter(|member| view.scope().admits_server(&member.config.name))
    }

    /// Returns true if a view of this key showed a tool to this caller until a moment ago.
    pub fn showed_tool(&self, key: &ViewKey, context: &Context, public: &str) -> bool {
        let key = self.key_with_rights(key, context);
        self.departed.has(&key, &context.principal, public, clock::now())
    }

    /// Returns all views that were built, by their keys.
    fn built_views(&self) -> Vec<(ViewKey, Arc<View>)> {
        let mut built = self.views.all();
        if self.profile(ProfileName::DEFAULT).is_none() {
            built.push((ViewKey::default(), Arc::clone(&self.plain)));
        }
        built
    }

    /// Builds views, up to a limit, of clients that servers have lists of their own for, by
    /// capabilities, era or account: for each of these lists, and each profile, by its name.
    pub(crate) fn views_of_some_clients(&self, most: usize) -> Vec<(String, View)> {
        let configured = self.config.profiles.iter().map(|profile| profile.name.to_string());
        let default = ProfileName::default().to_string();
        let default = self.profile(&default).is_none().then_some(default);
        let profiles: Vec<_> = configured.chain(default).collect();
        let members = self.servers().flat_map(|member| {
            let further = member.server.known_lists().into_iter().skip(1);
            further.map(move |list| (member.config.name.clone(), list))
        });
        let builds = members.flat_map(|own| {
            let mut lists = self.plain.lists.clone();
            lists.extend([own]);
            profiles.iter().map(move |name| (name.clone(), lists.clone()))
        });
        let build = |(name, lists): (String, ServerLists)| {
            let limits = ViewLimits { profile: self.profile(&name), ..ViewLimits::default() };
            let lists = ScreenedLists { lists: &lists, screen: &self.screen };
            let maker = self.views.maker();
            let view = maker.build_view(&self.config, limits, &lists, CacheScope::Private).0;
            (name, view)
        };
        builds.take(most).map(build).collect()
    }

    /// Returns all servers but the disabled ones, in the order of the configuration file.
    pub fn servers(&self) -> impl Iterator<Item = &SnapshotServer> {
        self.config.servers.iter().filter_map(|server| self.servers.get(&server.name))
    }

    /// Returns one server, unless it is disabled.
    pub fn server(&self, name: &ServerName) -> Option<&SnapshotServer> {
        self.servers.get(name)
    }
}
