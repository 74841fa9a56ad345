//! The mapping between native and public URIs.
//!
//! A public URI is either the server's own, or the server's own after the prefix `mcp://SERVER/`,
//! byte for byte. So templates remain templates, an expansion of a public template is a public URI,
//! and removing the prefix gives the native URI. With [`UriMode::Original`] a URI keeps its native
//! form if that identifies its server.
//!
//! `ui://` URIs (MCP Apps) keep their scheme in every mode, because clients look for it: they are
//! unchanged, and if two servers have the same one, the later server's gets the prefix
//! `ui://mcp.SERVER/`.

mod candidates;
mod guarded;
mod listed;
mod origin;
mod pattern;

pub(super) use listed::{ShownResource, prefix_uri};
pub use origin::ReleasedCheck;
pub use pattern::{ElementSpellings, UriPattern, split_public};

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use candidates::ResourceCandidate;
use guarded::GuardedUris;

use trunkline_protocol::call::{Named, ServerName};

use crate::elements::held::{HeldDefinitions, HeldName};
use crate::elements::item::CatalogItem;
use crate::kind::Kind;
use crate::lists::merge::{ElementOrigin, MergeFault, MergeSource};
use crate::selection::Scope;
use crate::uri_forms::climbing::{has_absolute_value, has_dot_segment};
use crate::uri_forms::{BoundTemplate, UriTemplate};

/// The URIs that clients see (`uris` in the configuration).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UriMode {
    /// Always with the server's prefix.
    Prefix,
    /// The server's own, if it is absolute and identifies the server.
    Original,
}

/// The URI mapping of one catalog.
#[derive(Debug)]
pub struct CatalogUris {
    mode: UriMode,
    /// The visible part of the catalog.
    scope: Scope,
    servers: Named<ServerName, ResourceServer>,
    /// The only server with resources; `None` if there are several or none.
    only: Option<ServerName>,
    /// The servers that native URIs belong to.
    claims: HashMap<String, UriClaim>,
    /// The servers that skills' directories, and everything in them, belong to.
    skills: HashMap<String, UriClaim>,
    /// The URIs and templates shown to clients.
    shown: HashMap<String, PublicReference>,
}

/// The resources of one server.
#[derive(Debug, Default)]
struct ResourceServer {
    /// True if the server may have resources, as far as is known.
    readable: bool,
    /// True if the configuration binds variables of its templates, so that clients may only read
    /// listed URIs and those that its templates still cover.
    confined: bool,
    /// True if it lists a resource whose URI has no scheme.
    lists_relative: bool,
    /// The URIs of its tools' user interfaces, which need not be listed.
    interfaces: HashSet<String>,
    /// The user interfaces of the tools in scope.
    shown_interfaces: HashSet<String>,
    templates: Vec<OwnedTemplate>,
    /// The elements that are withheld from clients for now.
    held: Arc<HeldDefinitions>,
    /// Set if a rule or a hold can concern its resources.
    guard: Option<GuardedUris>,
}

/// A template, and its form for clients once its variables are bound.
#[derive(Debug)]
struct OwnedTemplate {
    native: UriTemplate,
    seen: Option<UriTemplate>,
    /// The form for clients, without a prefix.
    text: String,
    /// The state of its name; `None` if it is not held.
    hold: Option<HeldName>,
}

impl OwnedTemplate {
    fn seen(&self) -> &UriTemplate {
        self.seen.as_ref().unwrap_or(&self.native)
    }
}

#[derive(Debug)]
struct UriClaim {
    first: ServerName,
    /// True if other servers have the same URI.
    shared: bool,
}

/// The target of a public URI or template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicReference {
    /// The server, and its own URI or template.
    pub origin: ElementOrigin,
    /// The variables of the template that the configuration binds.
    pub bound: Arc<[(String, String)]>,
}

/// The resources that a catalog shows.
pub(super) struct VisibleResources<'a> {
    pub(super) scope: &'a Scope,
    /// The interfaces of visible tools, which are visible with them, even if the scope shows no
    /// resources.
    pub(super) interfaces: HashSet<(&'a ServerName, &'a str)>,
}

impl CatalogUris {
    /// Assigns public URIs to all resources and templates, in listing order.
    pub(super) fn build_from<'a>(
        mode: UriMode,
        sources: &[MergeSource<'a>],
        visible: &VisibleResources<'_>,
        warnings: &mut Vec<MergeFault>,
    ) -> (Self, Vec<ShownResource<'a>>, Vec<ShownResource<'a>>) {
        let VisibleResources { scope, ref interfaces } = *visible;
        let mut uris = Self {
            mode,
            scope: scope.clone(),
            servers: Named::default(),
            only: only_resource_server(sources),
            claims: HashMap::new(),
            skills: HashMap::new(),
            shown: HashMap::new(),
        };
        let (mut resources, mut templates) = (Vec::new(), Vec::new());
        for source in sources {
            uris.gather_candidates(source, &mut resources, &mut templates, warnings);
        }
        for (server, uri) in interfaces.iter().filter(|(_, uri)| uri.starts_with(UI_SCHEME)) {
            let holder = uris.servers.entry((*server).clone()).or_default();
            holder.shown_interfaces.insert((*uri).to_owned());
        }
        uris.bar_candidates(&templates, &resources);
        let resources = resources.into_iter();
        let resources =
            resources.filter_map(|one| uris.publish_candidate(Kind::Resources, one)).collect();
        let templates = templates.into_iter();
        let templates =
            templates.filter_map(|one| uris.publish_candidate(Kind::Templates, one)).collect();
        uris.show_templates_to_guards();
        (uris, resources, templates)
    }

    /// The public form of a server's URI, listed or not.
    pub fn public_uri<'a>(&self, server: &ServerName, native: &'a str) -> Cow<'a, str> {
        if self.keeps_native_uris(server) || self.leads_back(server, native) {
            return Cow::Borrowed(native);
        }
        Cow::Owned(prefix_uri(server, native))
    }

    /// Returns true if all URIs of this server are public in their native form.
    #[inline]
    pub fn keeps_native_uris(&self, server: &ServerName) -> bool {
        let holder = self.servers.get(server).filter(|holder| holder.readable);
        holder.is_none_or(|holder| self.shows_own_uris(server, holder))
    }

    /// Returns true if URIs in results of this server are replaced or remembered.
    pub fn treats_uris(&self, server: &ServerName) -> bool {
        self.servers.get(server).is_some_and(|holder| {
            holder.guard.is_some() || holder.readable && !self.shows_own_uris(server, holder)
        })
    }

    /// Returns true if clients see all URIs of a server with resources in their native form.
    fn shows_own_uris(&self, server: &ServerName, holder: &ResourceServer) -> bool {
        let is_only = self.mode == UriMode::Original && self.only.as_ref() == Some(server);
        is_only && !holder.lists_relative
    }

    /// Adds the elements that a server lists, with configured variables filled in.
    fn gather_candidates<'a>(
        &mut self,
        source: &MergeSource<'a>,
        resources: &mut Vec<ResourceCandidate<'a>>,
        templates: &mut Vec<ResourceCandidate<'a>>,
        warnings: &mut Vec<MergeFault>,
    ) {
        let (server, rules) = (source.server, source.rules);
        let holder = self.servers.entry(server.clone()).or_default();
        holder.held = Arc::clone(rules.held());
        holder.confined = rules.variables().next().is_some();
        let is_guarded = rules.held().guards_uris() || self.scope.guards_resources(server);
        holder.guard = is_guarded.then(GuardedUris::default);
        let Some(list) = source.list else {
            // The server may have some; the first read shows if it has.
            holder.readable = true;
            return;
        };
        holder.readable = list.offers.offers_list(Kind::Resources);
        let shown = |kind, item: &&Arc<CatalogItem>| rules.shows(kind, item.native.as_str());
        let first = resources.len();
        for item in list.resources.iter().filter(|item| shown(Kind::Resources, item)) {
            let (native, template) = (Cow::Borrowed(item.native.as_str()), &item.native);
            let bound = Arc::default();
            resources.push(ResourceCandidate {
                server,
                item,
                field: None,
                native,
                template,
                bound,
                hold: rules.held().name_of(Kind::Resources, item.native.as_str()),
            });
        }
        for item in list.templates.iter().filter(|item| shown(Kind::Templates, item)) {
            let parsed = UriTemplate::parse(item.native.as_str());
            let bound: Arc<[_]> = parsed
                .variable_names()
                .filter_map(|name| Some((name.to_owned(), rules.variable(name)?.to_owned())))
                .collect();
            let hold = rules.held().name_of(Kind::Templates, item.native.as_str());
            let seen = parsed.bind_variables(|name| rules.variable(name));
            let candidate = |native, field| {
                let (template, bound) = (&item.native, Arc::clone(&bound));
                ResourceCandidate { server, item, field, native, template, bound, hold }
            };
            let (seen, text) = match seen {
                BoundTemplate::Untouched => {
                    templates.push(candidate(Cow::Borrowed(item.native.as_str()), None));
                    (None, item.native.to_string())
                }
                BoundTemplate::Partly(text) => {
                    let smaller = UriTemplate::parse(&text);
                    templates.push(candidate(Cow::Owned(text.clone()), None));
                    (Some(smaller), text)
                }
                BoundTemplate::Whole(uri) => {
                    let listed = resources.iter().skip(first).any(|one| one.native == uri);
                    let whole = UriTemplate::parse(&uri);
                    if !listed {
                        let uri = Cow::Owned(uri.clone());
                        resources.push(candidate(uri, Some(Kind::Resources.key())));
                    }
                    (Some(whole), uri)
                }
            };
            holder.templates.push(OwnedTemplate { native: parsed, seen, text, hold });
        }
        let known = |name: &str| {
            holder.templates.iter().any(|held| held.native.variable_names().any(|one| one == name))
        };
        for name in rules.variables().filter(|name| !known(name)) {
            let (server, name) = (server.clone(), name.to_owned());
            warnings.push(MergeFault::NoSuchVariable { server, name });
        }
        holder.lists_relative = resources.iter().skip(first).any(|one| !has_scheme(&one.native));
        let interfaces = list
            .tools
            .iter()
            .filter(|tool| rules.names(Kind::Tools, tool.native.as_str()))
            .flat_map(|tool| tool.interface())
            .filter(|uri| uri.starts_with(UI_SCHEME));
        holder.interfaces = interfaces.map(ToOwned::to_owned).collect();
        let interfaces = holder.interfaces.iter().map(String::as_str);
        let is_named = |one: &ResourceCandidate<'_>| one.hold != Some(HeldName::Unclaimed);
        let listed = resources.iter().skip(first).map(|one| (&*one.native, is_named(one)));
        for (uri, is_named) in listed.chain(interfaces.map(|uri| (uri, true))) {
            if is_named {
                claim_uri(&mut self.claims, server, uri);
            }
            if let Some(guard) = &mut holder.guard {
                guard.add_listed(uri);
            }
        }
        let named = |skill: &&Arc<CatalogItem>| rules.names(Kind::Skills, skill.native.as_str());
        for skill in list.skills.iter().filter(named) {
            let uri = skill.native.as_str();
            let directory = uri.rsplit_once('/').map_or(uri, |(directory, _)| directory);
            claim_uri(&mut self.skills, server, directory);
            if let Some(guard) = &mut holder.guard {
                guard.add_skill(uri);
            }
        }
    }

    fn public_template(&self, server: &ServerName, native: &str) -> String {
        if self.keeps_native_uris(server) || self.keeps_template(server, native) {
            native.to_owned()
        } else {
            prefix_uri(server, native)
        }
    }

    /// Returns true if the unprefixed native URI identifies this server.
    fn leads_back(&self, server: &ServerName, native: &str) -> bool {
        let claim = self.claim_of(native);
        if native.starts_with(UI_SCHEME) {
            // Unique, or the first server's: clients find it by its scheme.
            return self.split_prefix(native).is_none()
                && claim.is_none_or(|claim| claim.first == *server);
        }
        // Clients that parse URIs, as those of the Python SDK 1.x, refuse a list with a relative one.
        let is_relative = !has_scheme(native);
        if self.mode == UriMode::Prefix || is_relative || self.split_prefix(native).is_some() {
            return false;
        }
        match claim {
            Some(claim) => {
                let others = self.servers.iter().filter(|(name, _)| *name != server);
                claim.first == *server
                    && !claim.shared
                    && !others
                        .flat_map(|(_, holder)| holder.named_templates())
                        .any(|t| t.covers(native))
            }
            None => self.find_owner(native) == Some(server),
        }
    }

    /// Returns true if clients may have a template in its native form: no URI that it covers could
    /// come from another server's template.
    fn keeps_template(&self, server: &ServerName, native: &str) -> bool {
        let one = UriTemplate::parse(native);
        let others = self.servers.iter().filter(|(name, _)| *name != server);
        let mut others = others.flat_map(|(_, holder)| holder.named_templates());
        (self.mode == UriMode::Original || native.starts_with(UI_SCHEME))
            && self.split_prefix(native).is_none()
            && !others.any(|other| one.may_overlap(other.seen()))
    }

    /// The claim to a URI. A skill's files belong together, because hosts resolve references
    /// between them: its directory's claim takes precedence over that of a file.
    fn claim_of(&self, native: &str) -> Option<&UriClaim> {
        let directories =
            std::iter::successors(Some(native), |path| Some(path.rsplit_once('/')?.0));
        let mut directories = directories.take(MAX_DIRECTORIES);
        let skill = if self.skills.is_empty() {
            None
        } else {
            directories.find_map(|directory| self.skills.get(directory))
        };
        skill.or_else(|| self.claims.get(native))
    }

    /// The owner of an unprefixed URI: the only server with a matching template or, if no template
    /// matches, the only server with resources.
    fn find_owner(&self, native: &str) -> Option<&ServerName> {
        if self.mode == UriMode::Prefix && !native.starts_with(UI_SCHEME) {
            return None;
        }
        if let Some(claim) = self.claim_of(native) {
            return (!claim.shared || native.starts_with(UI_SCHEME)).then_some(&claim.first);
        }
        let covers =
            |holder: &ResourceServer| holder.named_templates().any(|held| held.covers(native));
        let mut fitting = self.servers.iter().filter(|(_, holder)| covers(holder));
        match (fitting.next(), fitting.next()) {
            (Some((name, _)), None) => Some(name),
            (None, _) => self.only.as_ref(),
            (Some(_), Some(_)) => None,
        }
    }

    /// The server named in a URI's prefix, and the native URI.
    fn split_prefix<'a>(&self, public: &'a str) -> Option<(&ServerName, &'a str)> {
        let rest =
            public.strip_prefix(PUBLIC_URI_PREFIX).or_else(|| public.strip_prefix(UI_PREFIX))?;
        let (name, native) = rest.split_once('/')?;
        // Some clients lower-case the authority of a URI.
        let found = self.servers.get_key_value(name).or_else(|| {
            let mut alike =
                self.servers.iter().filter(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
            alike.next().filter(|_| alike.next().is_none())
        });
        let (server, _) = found.filter(|(_, holder)| holder.readable && !native.is_empty())?;
        Some((server, native))
    }
}

impl ResourceServer {
    /// Returns true if an unlisted URI may be requested. Without bound variables any may. With
    /// them, a template or a tool's user interface has to cover it, it must not lead out of that
    /// template, and no template may match it with other values than the bound ones.
    fn allows(&self, native: &str) -> bool {
        if !self.readable || !self.confined {
            return self.readable;
        }
        let mut matching = self.templates.iter().filter(|held| held.native.matches(native));
        let covered = self.interfaces.contains(native)
            || self.templates.iter().any(|held| held.confines(native));
        covered && matching.all(|held| held.covers(native))
    }
}

impl OwnedTemplate {
    /// Returns true if the template, as clients see it, can expand to this URI.
    fn covers(&self, native: &str) -> bool {
        self.seen().matches(native)
    }

    /// Returns true if the template covers this URI, and every server reads it as an expansion of
    /// the template: no dot segment leads out of it, and no value begins like an absolute path.
    fn confines(&self, native: &str) -> bool {
        confines(self.seen(), native)
    }
}

fn confines(template: &UriTemplate, native: &str) -> bool {
    template.matches(native)
        && !has_dot_segment(native)
        && !has_absolute_value(template.literal_prefix(), native)
}

/// Returns true if a URI begins with a scheme (RFC 3986 §3.1).
fn has_scheme(uri: &str) -> bool {
    let is_of_scheme = |byte: u8| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte);
    uri.split_once(':').is_some_and(|(scheme, _)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.bytes().all(is_of_scheme)
    })
}

fn claim_uri(claims: &mut HashMap<String, UriClaim>, server: &ServerName, uri: &str) {
    match claims.get_mut(uri) {
        Some(claim) => claim.shared |= claim.first != *server,
        None => {
            claims.insert(uri.to_owned(), UriClaim { first: server.clone(), shared: false });
        }
    }
}

fn only_resource_server(sources: &[MergeSource<'_>]) -> Option<ServerName> {
    let offers = |source: &&MergeSource<'_>| {
        source.list.is_some_and(|list| list.offers.offers_list(Kind::Resources))
    };
    let mut all = sources.iter().filter(offers);
    all.next().filter(|_| all.next().is_none()).map(|source| source.server.clone())
}

/// The most directories in which the skill of a file is searched.
const MAX_DIRECTORIES: usize = 32;
/// The prefix of public URIs, before the server's name.
const PUBLIC_URI_PREFIX: &str = "mcp://";
/// The scheme of MCP Apps' user interfaces.
const UI_SCHEME: &str = "ui://";
/// The prefix that keeps that scheme, before the server's name.
const UI_PREFIX: &str = "ui://mcp.";

#[cfg(test)]
mod tests;
