//! The cache of views, each built when it is first requested.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::call::{Named, ServerName};
use crate::catalog::{
    self, ByKind, Catalog, Kind, MergeSource, MergeWarning, Scope, Selection, ServerList,
    ServerRules,
};
use crate::config::{self, Config, NamingChoice, ProfileConfig, UriChoice};
use crate::telemetry::metrics::Metrics;

use super::{PreparedListing, View, ViewKey};

/// The last known list of each server that has listed.
pub(super) type ServerLists = Named<ServerName, Arc<ServerList>>;

/// Builds views.
#[derive(Clone)]
pub(super) struct ViewBuilder {
    pub(super) metrics: Arc<Metrics>,
    /// The gateway's raw `serverInfo`.
    pub(super) info: Bytes,
}

impl ViewBuilder {
    /// Builds the view of these lists that a profile shows, narrowed by a
    /// query; without either, the view of everything.
    pub(super) fn build_view(
        &self,
        config: &Config,
        (profile, narrowing): (Option<&ProfileConfig>, Option<&str>),
        lists: &ServerLists,
    ) -> (View, Vec<MergeWarning>) {
        let inner = profile.map(Selection::from_profile).unwrap_or_default();
        // Names and URIs are settled among the profile's own servers. A client
        // that narrows the profile sees fewer of the same names.
        let lists: ServerLists = lists
            .iter()
            .filter(|(name, _)| inner.admits_server(name))
            .map(|(name, list)| (name.clone(), Arc::clone(list)))
            .collect();
        // The query was validated when the endpoint was resolved.
        let outer = narrowing.map(|query| Selection::parse(query).unwrap_or_default());
        let servers = config.servers.iter().filter(|server| inner.admits_server(&server.name));
        let servers: Vec<_> = servers.map(|config| (config, rules(config))).collect();
        let sources: Vec<_> = servers
            .iter()
            .map(|(config, rules)| MergeSource {
                server: &config.name,
                rules,
                list: lists.get(&config.name).map(|list| &**list),
            })
            .collect();
        let scope = Scope::new([inner].into_iter().chain(outer));
        let (catalog, warnings) = Catalog::merge(made_by(config, profile), &sources, &scope);
        let most = config.gateway.list_ttl;
        let listings = ByKind::from_fn(|kind| {
            PreparedListing::prepare(kind, catalog.list(kind), most, &self.info)
        });
        let tools = catalog.entries().map(|entry| {
            let handle = self.metrics.tool(entry.server.as_str(), entry.native().as_str());
            (entry.public.clone(), handle)
        });
        (View { tools: tools.collect(), catalog, listings, lists, scope }, warnings)
    }
}

/// The cached views of one snapshot, within bounds.
pub(super) struct ViewCache {
    maker: ViewBuilder,
    made: Mutex<CachedViews>,
}

#[derive(Default)]
struct CachedViews {
    views: HashMap<ViewKey, (u64, Arc<View>)>,
    /// The keys and sizes of the views, oldest first.
    order: VecDeque<(ViewKey, usize)>,
    held: usize,
}

impl ViewCache {
    pub(super) fn new(maker: ViewBuilder) -> Self {
        Self { maker, made: Mutex::default() }
    }

    /// The view of a key, of this version or a newer one. Concurrent callers
    /// may build it twice.
    pub(super) fn find(
        &self,
        (key, version): (&ViewKey, u64),
        make: impl FnOnce(&ViewBuilder) -> Arc<View>,
    ) -> Arc<View> {
        if let Some((made, view)) = self.made().views.get(key)
            && *made >= version
        {
            return Arc::clone(view);
        }
        let view = make(&self.maker);
        self.made().add(key.clone(), version, &view);
        view
    }

    fn made(&self) -> parking_lot::MutexGuard<'_, CachedViews> {
        self.made.lock()
    }
}

impl CachedViews {
    fn add(&mut self, key: ViewKey, version: u64, view: &Arc<View>) {
        // A view that is shared costs no memory of its own.
        let size = if Arc::strong_count(view) > 1 { LEAST } else { size(view) };
        if self.views.insert(key.clone(), (version, Arc::clone(view))).is_some()
            && let Some(at) = self.order.iter().position(|(other, _)| *other == key)
            && let Some((_, before)) = self.order.remove(at)
        {
            self.held -= before;
        }
        self.held += size;
        self.order.push_back((key, size));
        while self.order.len() > 1 && (self.order.len() > MOST || self.held > MOST_BYTES) {
            if let Some((oldest, size)) = self.order.pop_front() {
                self.views.remove(&oldest);
                self.held -= size;
            }
        }
    }
}

/// The approximate size of a view: its lists are stored twice, once for each
/// era.
fn size(view: &View) -> usize {
    let lists = Kind::ALL.map(|kind| 2 * view.catalog.list(kind).bytes().len());
    lists.iter().sum::<usize>() + LEAST
}

impl fmt::Debug for ViewCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ViewCache").field("made", &self.made().views.len()).finish_non_exhaustive()
    }
}

/// A profile of a configuration.
pub(super) fn profile<'a>(config: &'a Config, name: &str) -> Option<&'a ProfileConfig> {
    config.profiles.iter().find(|profile| profile.name.as_str() == name)
}

fn made_by(config: &Config, profile: Option<&ProfileConfig>) -> catalog::Rules {
    let naming = match config.gateway.naming {
        NamingChoice::Prefix => catalog::NamingScheme::Prefix,
        NamingChoice::Conflict => catalog::NamingScheme::Conflict,
        NamingChoice::None => catalog::NamingScheme::None,
    };
    let uris = profile.and_then(|profile| profile.uris).unwrap_or(config.gateway.uris);
    let uris = match uris {
        UriChoice::Prefix => catalog::UriMode::Prefix,
        UriChoice::Original => catalog::UriMode::Original,
    };
    catalog::Rules { naming, uris }
}

fn rules(config: &Arc<config::ServerConfig>) -> ServerRules {
    let overrides: BTreeMap<_, _> = config
        .tools
        .overrides
        .iter()
        .map(|(native, tool)| {
            let change = catalog::ToolChange {
                name: tool.name.clone(),
                description: tool.description.clone(),
            };
            (native.to_string(), change)
        })
        .collect();
    let config = Arc::clone(config);
    let variables = config.resource_vars.iter().cloned().collect();
    ServerRules::new(move |native| config.tools.admits_tool(native), overrides)
        .with_variables(variables)
}

/// The least size of a view.
const LEAST: usize = 4096;
/// The most views that one snapshot keeps.
const MOST: usize = 256;
/// The most bytes that they may hold; the newest view is kept in any case.
const MOST_BYTES: usize = 128 << 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Endpoint;
    use crate::upstream::tests::config;

    fn key(number: usize) -> ViewKey {
        let narrowing = Some(format!("tools=t{number}").into());
        ViewKey { endpoint: Endpoint { profile: None, narrowing }, ..ViewKey::default() }
    }

    #[test]
    fn no_more_views_are_kept_than_may_be_and_the_oldest_go_first() {
        let metrics = Arc::new(Metrics::new("0.0.0"));
        let views = ViewCache::new(ViewBuilder { metrics, info: Bytes::from_static(b"{}") });
        let config = config(&[("a", "")]);
        let find = |number| {
            let mut made = false;
            views.find((&key(number), 0), |maker| {
                made = true;
                Arc::new(maker.build_view(&config, (None, None), &ServerLists::default()).0)
            });
            made
        };
        for number in 0..=MOST {
            assert!(find(number) && !find(number), "{number} is made once");
        }
        let kept = views.made().views.len();
        assert_eq!(kept, MOST);
        assert!(find(0), "the oldest is gone");
        let mut made = views.made();
        assert_eq!(made.held, made.order.iter().map(|(_, size)| size).sum::<usize>());
        made.held = MOST_BYTES;
        let large = Arc::clone(&made.views.values().next().unwrap().1);
        made.add(key(MOST + 1), 0, &large);
        assert!(made.held <= MOST_BYTES, "large ones make room, too");
    }
}
