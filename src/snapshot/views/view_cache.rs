//! The cache of views, each built when it is first requested.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::call::{Context, Named, ServerName};
use crate::catalog::{
    self, ByKind, CacheScope, Catalog, ElementFilter, Freshness, Kind, MergeFault, MergeSource,
    Naming, Scope, Selection, ServerList, ServerRules,
};
use crate::config::{self, Config, ProfileConfig, TransformSettings, UriChoice};
use crate::policy::{CallerRights, DefinitionScreen};
use crate::shares::Holder;
use crate::telemetry::metrics::Metrics;

use super::discovery::Discovery;
use super::view::ViewedTool;
use crate::snapshot::embeddings::EmbedderCell;
use crate::snapshot::measures::tokens::TokenLedger;
use crate::snapshot::{PreparedListing, View, ViewKey};

/// The last known list of each server that has listed.
pub(crate) type ServerLists = Named<ServerName, Arc<ServerList>>;

/// Limits of a view: a profile, the query of a URL, and the rights of its clients.
#[derive(Clone, Copy, Default)]
pub(crate) struct ViewLimits<'a> {
    pub(crate) profile: Option<&'a ProfileConfig>,
    /// The query of a URL.
    pub(crate) narrowing: Option<&'a str>,
    pub(crate) rights: Option<&'a CallerRights>,
}

/// The lists of a view's servers, and the screen that holds definitions back.
pub(crate) struct ScreenedLists<'a> {
    pub(crate) lists: &'a ServerLists,
    pub(crate) screen: &'a DefinitionScreen,
}

/// Builds views.
#[derive(Clone)]
pub(crate) struct ViewBuilder {
    pub(crate) metrics: Arc<Metrics>,
    /// The gateway's raw `serverInfo`.
    pub(crate) info: Bytes,
    /// The tokens of definitions.
    pub(crate) tokens: Arc<TokenLedger>,
    /// The vectors of definitions.
    pub(crate) embedders: Arc<EmbedderCell>,
}

impl ViewBuilder {
    /// Builds the view of these lists for a profile, narrowed by a query and by the rights of its
    /// clients; without any, the view of everything. `audience` is the cache scope of these lists.
    /// It becomes private if clients authenticate or have rights.
    pub(crate) fn build_view(
        &self,
        config: &Config,
        limits: ViewLimits<'_>,
        lists: &ScreenedLists<'_>,
        audience: CacheScope,
    ) -> (View, Vec<MergeFault>) {
        let ViewLimits { profile, narrowing, rights } = limits;
        let ScreenedLists { lists, screen } = lists;
        let inner = profile.map(Selection::from_profile).unwrap_or_default();
        // Names and URIs are resolved among the profile's own servers. A client that narrows the
        // profile sees a subset of the same names.
        let lists: ServerLists = lists
            .iter()
            .filter(|(name, _)| inner.admits_server(name))
            .map(|(name, list)| (name.clone(), Arc::clone(list)))
            .collect();
        // The query was validated when the endpoint was resolved.
        let outer = narrowing.map(|query| Selection::parse(query).unwrap_or_default());
        let servers = config.servers.iter().filter(|server| inner.admits_server(&server.name));
        let rules_of = |config: &Arc<config::ServerConfig>| {
            let held = match lists.get(&config.name) {
                Some(list) => screen.held_in(list),
                None => screen.held_before_list(&config.name),
            };
            rules(config).with_held(held)
        };
        let servers: Vec<_> = servers.map(|config| (config, rules_of(config))).collect();
        let sources: Vec<_> = servers
            .iter()
            .map(|(config, rules)| MergeSource {
                server: &config.name,
                rules,
                list: lists.get(&config.name).map(|list| &**list),
            })
            .collect();
        let audience = if rights.is_some() { CacheScope::Private } else { audience };
        let filter = rights.map(|rights| Arc::new(rights.clone()) as Arc<dyn ElementFilter>);
        let scope = Scope::new([inner].into_iter().chain(outer)).with_rights(filter);
        let (catalog, warnings) = Catalog::merge(&made_by(config, profile), &sources, &scope);
        let audience = if config.authenticates() { CacheScope::Private } else { audience };
        let most = Freshness { ttl: config.gateway.list_ttl, scope: audience };
        let listings = ByKind::from_fn(|kind| {
            PreparedListing::prepare(kind, catalog.list(kind), most, &self.info)
        });
        let tools = catalog.entries().map(|entry| {
            let handle = self.metrics.tool(entry.server.as_str(), entry.native().as_str());
            (entry.public.clone(), ViewedTool::new(handle))
        });
        let (tools, rights) = (tools.collect(), rights.cloned());
        let infos = lists
            .iter()
            .filter_map(|(name, list)| Some((name.clone(), screen.info_instead(list)?)));
        let infos = infos.collect();
        let discovery = Discovery::of(profile, most, &self.info);
        let refers_to_repeats = profile.is_some_and(ProfileConfig::refers_to_repeats);
        let view = View {
            catalog,
            listings,
            lists,
            infos,
            discovery,
            refers_to_repeats,
            tools,
            rights,
            scope,
            audience,
        };
        (view, warnings)
    }
}

/// The cached views of one snapshot, within limits.
///
/// A view that the configuration alone determines has no holder. The others are charged to the
/// client that first requested them, because clients can make up any number of queries and
/// abilities: a client's new views evict its own views before those of others.
pub(crate) struct ViewCache {
    maker: ViewBuilder,
    /// Limit of the views of one holder.
    each: usize,
    made: Mutex<CachedViews>,
}

#[derive(Default)]
struct CachedViews {
    /// Bounded, so that a client that makes up keys with equal hashes gains little.
    views: HashMap<ViewKey, CachedView, foldhash::fast::RandomState>,
    /// Counts the uses of all views.
    uses: u64,
    /// The total size of the views.
    held: usize,
}

struct CachedView {
    view: Arc<View>,
    version: u64,
    holder: Option<Holder>,
    size: usize,
    /// The number of its last use.
    used: u64,
}

/// The key of a view, and the version of the lists that it needs.
#[derive(Clone, Copy)]
pub(crate) struct VersionedKey<'a> {
    pub(crate) key: &'a ViewKey,
    pub(crate) version: u64,
}

impl ViewCache {
    /// Returns the builder of the views.
    pub(crate) fn maker(&self) -> &ViewBuilder {
        &self.maker
    }

    pub(crate) fn new(maker: ViewBuilder, config: &Config) -> Self {
        let each = if config.share_of(MAX_CACHED_VIEWS) < MAX_CACHED_VIEWS {
            MAX_VIEWS_PER_CLIENT
        } else {
            MAX_CACHED_VIEWS
        };
        Self { maker, each, made: Mutex::default() }
    }

    /// Returns the view of a key, of this version or a newer one. Concurrent callers may build it
    /// twice. Only a view that the configuration determines may have no `context`.
    pub(crate) fn find(
        &self,
        versioned: VersionedKey<'_>,
        context: Option<&Context>,
        make: impl FnOnce(&ViewBuilder) -> Arc<View>,
    ) -> Arc<View> {
        let VersionedKey { key, version } = versioned;
        if let Some(view) = self.made().find(key, version) {
            return view;
        }
        let view = make(&self.maker);
        let is_configured = is_configured(key);
        let asker = context.filter(|_| !is_configured);
        let holder = asker.map(|asker| Holder::identify(&asker.principal, asker.address));
        self.made().add(versioned, &view, holder, self.each);
        view
    }

    pub(crate) fn token_ledger(&self) -> &TokenLedger {
        &self.maker.tokens
    }

    /// Returns all views, by their keys.
    pub(crate) fn all(&self) -> Vec<(ViewKey, Arc<View>)> {
        let made = self.made();
        made.views.iter().map(|(key, cached)| (key.clone(), Arc::clone(&cached.view))).collect()
    }

    fn made(&self) -> parking_lot::MutexGuard<'_, CachedViews> {
        self.made.lock()
    }
}

impl CachedViews {
    fn find(&mut self, key: &ViewKey, version: u64) -> Option<Arc<View>> {
        let cached = self.views.get_mut(key).filter(|cached| cached.version >= version)?;
        self.uses += 1;
        cached.used = self.uses;
        Some(Arc::clone(&cached.view))
    }

    fn add(
        &mut self,
        versioned: VersionedKey<'_>,
        view: &Arc<View>,
        holder: Option<Holder>,
        each: usize,
    ) {
        let VersionedKey { key, version } = versioned;
        // A shared view costs no memory of its own.
        let shared = Arc::strong_count(view) > 1;
        let size = key_size(key) + if shared { MIN_VIEW_WEIGHT } else { size(view) };
        let before = self.remove(key);
        // A newer version is charged to the client that requested the first one.
        let holder = before.map_or(holder, |before| before.holder);
        self.make_room(size, holder.as_ref(), each);
        self.uses += 1;
        self.held += size;
        let cached = CachedView { view: Arc::clone(view), version, holder, size, used: self.uses };
        self.views.insert(key.clone(), cached);
    }

    /// Removes views until another one of this size and holder may be added.
    fn make_room(&mut self, size: usize, holder: Option<&Holder>, each: usize) {
        let is_own = |cached: &CachedView| holder.is_some() && cached.holder.as_ref() == holder;
        while self.views.values().filter(|cached| is_own(cached)).count() >= each {
            self.remove_oldest(is_own);
        }
        while self.views.len() >= MAX_CACHED_VIEWS || self.held + size > MAX_VIEW_BYTES {
            let removed = self.remove_oldest(is_own)
                || self.remove_oldest(|cached| cached.holder.is_some())
                || self.remove_oldest(|_| true);
            if !removed {
                return;
            }
        }
    }

    /// Removes the least recently used of these views. Returns false if there is none.
    fn remove_oldest(&mut self, of: impl Fn(&CachedView) -> bool) -> bool {
        let all = self.views.iter().filter(|(_, cached)| of(cached));
        let oldest = all.min_by_key(|(_, cached)| cached.used).map(|(key, _)| key.clone());
        oldest.and_then(|key| self.remove(&key)).is_some()
    }

    fn remove(&mut self, key: &ViewKey) -> Option<CachedView> {
        let removed = self.views.remove(key)?;
        self.held -= removed.size;
        Some(removed)
    }
}

/// Returns true if the configuration alone determines a view: neither a query, nor a client's
/// abilities, account or rights.
pub(crate) fn is_configured(key: &ViewKey) -> bool {
    let is_own = key.abilities.is_some() || key.account.is_some() || key.rights.is_some();
    key.endpoint.narrowing.is_none() && !is_own
}

/// Returns the bytes of a key that the client chose.
fn key_size(key: &ViewKey) -> usize {
    let narrowing = key.endpoint.narrowing.as_ref().map_or(0, |query| query.len());
    narrowing + key.abilities.as_ref().map_or(0, |abilities| abilities.raw().len())
}

/// Returns the approximate size of a view: its lists are stored twice, once for each era.
fn size(view: &View) -> usize {
    let lists = Kind::ALL.map(|kind| 2 * view.catalog.list(kind).bytes().len());
    // A search index is about as large as its texts.
    let searched = if view.discovery.is_some() { 2 } else { 1 };
    lists.iter().sum::<usize>() * searched + MIN_VIEW_WEIGHT
}

impl fmt::Debug for ViewCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewCache").field("made", &self.made().views.len()).finish_non_exhaustive()
    }
}

/// Returns a profile of a configuration.
pub(crate) fn profile<'a>(config: &'a Config, name: &str) -> Option<&'a ProfileConfig> {
    config.profiles.iter().find(|profile| profile.name.as_str() == name)
}

fn made_by(config: &Config, profile: Option<&ProfileConfig>) -> catalog::Rules {
    let naming = Naming::new(&config.gateway);
    let uris = profile.and_then(|profile| profile.uris).unwrap_or(config.gateway.uris);
    let uris = match uris {
        UriChoice::Prefix => catalog::UriMode::Prefix,
        UriChoice::Original => catalog::UriMode::Original,
    };
    let has_meta_tools = profile.is_some_and(ProfileConfig::has_meta_tools);
    catalog::Rules { naming, uris, own_tools: config.tools.clone(), has_meta_tools }
}

fn rules(config: &Arc<config::ServerConfig>) -> ServerRules {
    let complete = |own: &TransformSettings| {
        let settings = own.or_of_server(config);
        (!settings.is_empty()).then(|| Arc::new(settings))
    };
    let of_others = complete(&TransformSettings::default());
    let overrides: BTreeMap<_, _> = config
        .tools
        .overrides
        .iter()
        .map(|(native, tool)| {
            let change = catalog::ToolChange {
                name: tool.name.clone(),
                description: tool.description.clone(),
                transforms: complete(&tool.transforms),
            };
            (native.to_string(), change)
        })
        .collect();
    let config = Arc::clone(config);
    let variables = config.resource_vars.iter().cloned().collect();
    ServerRules::new(move |native| config.tools.admits_tool(native), overrides)
        .with_variables(variables)
        .with_transforms(of_others)
}

/// Minimum size of a view.
const MIN_VIEW_WEIGHT: usize = 4096;
/// Limit of the views that one snapshot keeps: under rules, two for each set of rights.
const MAX_CACHED_VIEWS: usize = 1024;
/// Limit of the views of one client, where clients can be distinguished.
const MAX_VIEWS_PER_CLIENT: usize = 32;
/// Limit of their bytes; the newest view is always kept.
const MAX_VIEW_BYTES: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::call::{Abilities, Endpoint};
    use crate::upstream::tests::{call, config};

    fn key(number: usize) -> ViewKey {
        let narrowing = Some(format!("tools=t{number}").into());
        ViewKey { endpoint: Endpoint { profile: None, narrowing }, ..ViewKey::default() }
    }

    fn profile_key() -> ViewKey {
        let profile = Some(crate::call::ProfileName::new("p").unwrap());
        ViewKey { endpoint: Endpoint { profile, narrowing: None }, ..ViewKey::default() }
    }

    struct World {
        views: ViewCache,
        config: Config,
    }

    impl World {
        fn new(each: usize) -> Self {
            let maker = ViewBuilder {
                metrics: Arc::new(Metrics::new("0.0.0")),
                info: Bytes::from_static(b"{}"),
                tokens: Arc::default(),
                embedders: Arc::default(),
            };
            let config = config(&[("a", "")]);
            Self { views: ViewCache { each, ..ViewCache::new(maker, &config) }, config }
        }

        /// Returns true if the view is built for a client at this address instead of found.
        fn makes(&self, key: &ViewKey, address: [u8; 4]) -> bool {
            let context = Context { address: IpAddr::from(address), ..call("t").context };
            let mut made = false;
            self.views.find(VersionedKey { key, version: 0 }, Some(&context), |maker| {
                made = true;
                let lists = ServerLists::default();
                let lists = ScreenedLists { lists: &lists, screen: &DefinitionScreen::default() };
                let limits = ViewLimits::default();
                Arc::new(maker.build_view(&self.config, limits, &lists, CacheScope::Public).0)
            });
            made
        }
    }

    const ONE: [u8; 4] = [192, 0, 2, 1];
    const OTHER: [u8; 4] = [192, 0, 2, 2];

    #[test]
    fn no_more_views_are_kept_than_may_be_and_those_not_used_go_first() {
        let world = World::new(MAX_CACHED_VIEWS);
        assert!(world.makes(&profile_key(), ONE));
        for number in 0..MAX_CACHED_VIEWS {
            assert!(world.makes(&key(number), ONE) && !world.makes(&key(0), ONE), "{number}");
        }
        assert_eq!(world.views.made().views.len(), MAX_CACHED_VIEWS);
        assert!(world.makes(&key(1), ONE), "the least recently used is gone");
        assert!(world.makes(&key(MAX_CACHED_VIEWS), OTHER));
        assert!(!world.makes(&profile_key(), ONE), "it is not one client's");
        let mut made = world.views.made();
        assert_eq!(made.held, made.views.values().map(|cached| cached.size).sum::<usize>());
        made.make_room(MAX_VIEW_BYTES - 10 * MIN_VIEW_WEIGHT, None, MAX_CACHED_VIEWS);
        assert!(
            made.held <= 10 * MIN_VIEW_WEIGHT && !made.views.is_empty(),
            "large ones make room, too"
        );
    }

    #[test]
    fn views_of_one_client_push_out_none_of_another() {
        let world = World::new(MAX_VIEWS_PER_CLIENT);
        assert!(world.makes(&key(0), OTHER));
        for number in 1..=3 * MAX_CACHED_VIEWS {
            assert!(world.makes(&key(number), ONE));
        }
        assert!(!world.makes(&key(0), OTHER));
        assert_eq!(world.views.made().views.len(), 1 + MAX_VIEWS_PER_CLIENT);
    }

    #[test]
    fn large_views_of_one_client_push_out_none_of_another() {
        let world = World::new(MAX_VIEWS_PER_CLIENT);
        assert!(world.makes(&key(0), OTHER));
        for number in 1..=10 {
            assert!(world.makes(&key(number), ONE));
        }
        world.views.made().make_room(
            MAX_VIEW_BYTES - 3 * MIN_VIEW_WEIGHT,
            Some(&holder(ONE)),
            MAX_VIEWS_PER_CLIENT,
        );
        assert!(!world.makes(&key(0), OTHER));
        assert!(!world.makes(&key(10), ONE) && world.makes(&key(1), ONE));
    }

    #[test]
    fn text_of_clients_in_view_keys_counts() {
        let world = World::new(MAX_CACHED_VIEWS);
        let raw = format!("{{\"experimental\":{{\"x\":{{\"y\":\"{}\"}}}}}}", "z".repeat(4000));
        let abilities = Some(Abilities::parse(raw.as_bytes()));
        assert!(world.makes(&ViewKey { abilities, ..key(0) }, ONE));
        assert!(world.views.made().held > MIN_VIEW_WEIGHT + 4000);
    }

    fn holder(address: [u8; 4]) -> Holder {
        Holder::identify(&crate::call::Principal::Anonymous, address.into())
    }
}
