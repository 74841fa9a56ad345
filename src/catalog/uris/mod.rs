//! The URIs that clients know, and the ways back.
//!
//! A public URI is either the server's own or, in front of it, where it leads:
//! `mcp://SERVER/` and then the native one, byte for byte. So templates stay
//! templates, an expansion of a public template is a public URI, and the way
//! back is to take off what was put in front. With [`UriMode::Original`] a URI
//! stays as it is where it leads back to its server without that.
//!
//! `ui://` URIs (MCP Apps) keep their scheme whatever the mode, because clients
//! look for it: they stay as they are, and of two servers that have the same,
//! the later gets `ui://mcp.SERVER/` in front of its own.

mod rewrite;
mod template;

pub use rewrite::{Shape, rewrite};

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use super::item::Item;
use super::kind::Kind;
use super::merge::{Origin, Source, Warning};
use super::selection::{Scope, Selection};
use crate::call::{Named, NativeName, ServerName};
use template::{Bound, Template};

/// Which URIs clients see (`uris` in the configuration).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UriMode {
    /// Always with the server in front.
    Prefix,
    /// The server's own, wherever that leads back to it.
    Original,
}

/// All that is known about the URIs of one catalog.
#[derive(Debug)]
pub struct Uris {
    mode: UriMode,
    /// What of them is shown.
    scope: Scope,
    servers: Named<ServerName, Holder>,
    /// The only server that has resources, if there is only one.
    only: Option<ServerName>,
    /// Whose a native URI is.
    claims: HashMap<String, Claim>,
    /// The URIs and templates that clients are shown.
    shown: HashMap<String, Reference>,
}

/// A server as far as its resources go.
#[derive(Debug, Default)]
struct Holder {
    /// It can be asked for resources, as far as is known.
    readable: bool,
    templates: Vec<Held>,
}

/// A template, and what clients see of it once its variables are bound.
#[derive(Debug)]
struct Held {
    native: Template,
    seen: Option<Template>,
    /// As clients see it, but for what may stand before it.
    text: String,
}

impl Held {
    fn seen(&self) -> &Template {
        self.seen.as_ref().unwrap_or(&self.native)
    }
}

#[derive(Debug)]
struct Claim {
    first: ServerName,
    /// Others have the same.
    shared: bool,
}

/// What a public URI or template stands for at its server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The server, and its own URI or template.
    pub origin: Origin,
    /// The variables of the template that the configuration has bound.
    pub bound: Arc<[(String, String)]>,
}

/// A resource or a template on its way into a listing.
pub(super) struct Shown<'a> {
    pub(super) item: &'a Arc<Item>,
    /// Another name for its key field.
    pub(super) field: Option<&'static str>,
    pub(super) public: String,
}

/// One of these, before it has its public form.
struct Candidate<'a> {
    server: &'a ServerName,
    item: &'a Arc<Item>,
    field: Option<&'static str>,
    /// Its URI or template, with bound variables put in.
    native: Cow<'a, str>,
    /// What the server itself calls the template it comes from.
    template: &'a NativeName,
    bound: Arc<[(String, String)]>,
}

impl Uris {
    /// Finds the public form of all resources and templates, in listing order.
    pub(super) fn settle<'a>(
        mode: UriMode,
        sources: &[Source<'a>],
        scope: &Scope,
        warnings: &mut Vec<Warning>,
    ) -> (Self, Vec<Shown<'a>>, Vec<Shown<'a>>) {
        let mut uris = Self {
            mode,
            scope: scope.clone(),
            servers: Named::default(),
            only: only(sources),
            claims: HashMap::new(),
            shown: HashMap::new(),
        };
        let (mut resources, mut templates) = (Vec::new(), Vec::new());
        for source in sources {
            uris.gather(source, &mut resources, &mut templates, warnings);
        }
        let resources = resources.into_iter();
        let resources = resources.filter_map(|one| uris.show(Kind::Resources, one)).collect();
        let templates = templates.into_iter();
        let templates = templates.filter_map(|one| uris.show(Kind::Templates, one)).collect();
        (uris, resources, templates)
    }

    /// The form in which clients know a server's URI, listed or not.
    pub fn public<'a>(&self, server: &ServerName, native: &'a str) -> Cow<'a, str> {
        if self.is_plain(server) || self.leads_back(server, native) {
            return Cow::Borrowed(native);
        }
        Cow::Owned(prefixed(server, native))
    }

    /// Whether clients know all URIs of this server as the server does.
    pub fn is_plain(&self, server: &ServerName) -> bool {
        let only = self.mode == UriMode::Original && self.only.as_ref() == Some(server);
        only || !self.servers.get(server).is_some_and(|holder| holder.readable)
    }

    /// Where a client's URI leads. It need not be listed: templates stand for
    /// many, and servers have more than they list.
    pub fn route(&self, public: &str) -> Option<Origin> {
        if let Some(shown) = self.shown.get(public) {
            return Some(shown.origin.clone());
        }
        let (server, native) =
            self.unprefixed(public).or_else(|| Some((self.owner(public)?, public)))?;
        let holder = self.servers.get(server)?;
        let covering = |one: &Selection| {
            let mut covering = holder.templates.iter().filter(|held| held.covers(native));
            covering
                .any(|held| one.admits(Kind::Templates, &self.public_template(server, &held.text)))
        };
        let allowed = holder.allows(native) && self.scope.admits_uri(server, public, covering);
        allowed.then(|| Origin { server: server.clone(), native: NativeName::new(native) })
    }

    /// What a client's URI or template stands for, to be completed.
    pub fn reference(&self, public: &str) -> Option<Reference> {
        let shown = self.shown.get(public).cloned();
        shown.or_else(|| Some(Reference { origin: self.route(public)?, bound: Arc::default() }))
    }

    /// Adds what a server lists, its configured variables put in.
    fn gather<'a>(
        &mut self,
        source: &Source<'a>,
        resources: &mut Vec<Candidate<'a>>,
        templates: &mut Vec<Candidate<'a>>,
        warnings: &mut Vec<Warning>,
    ) {
        let (server, rules) = (source.server, source.rules);
        let holder = self.servers.entry(server.clone()).or_default();
        let Some(list) = source.list else {
            // It may have some; a read finds out.
            holder.readable = true;
            return;
        };
        holder.readable = list.offers.lists(Kind::Resources);
        let shown = |kind, item: &&Arc<Item>| rules.shows(kind, item.native.as_str());
        let first = resources.len();
        for item in list.resources.iter().filter(|item| shown(Kind::Resources, item)) {
            let (native, template) = (Cow::Borrowed(item.native.as_str()), &item.native);
            let bound = Arc::default();
            resources.push(Candidate { server, item, field: None, native, template, bound });
        }
        for item in list.templates.iter().filter(|item| shown(Kind::Templates, item)) {
            let parsed = Template::parse(item.native.as_str());
            let bound: Arc<[_]> = parsed
                .variables()
                .filter_map(|name| Some((name.to_owned(), rules.variable(name)?.to_owned())))
                .collect();
            let seen = parsed.bind(|name| rules.variable(name));
            let candidate = |native, field| {
                let (template, bound) = (&item.native, Arc::clone(&bound));
                Candidate { server, item, field, native, template, bound }
            };
            let (seen, text) = match seen {
                Bound::Untouched => {
                    templates.push(candidate(Cow::Borrowed(item.native.as_str()), None));
                    (None, item.native.to_string())
                }
                Bound::Partly(text) => {
                    let smaller = Template::parse(&text);
                    templates.push(candidate(Cow::Owned(text.clone()), None));
                    (Some(smaller), text)
                }
                Bound::Whole(uri) => {
                    let listed = resources.iter().skip(first).any(|one| one.native == uri);
                    let whole = Template::parse(&uri);
                    if !listed {
                        let uri = Cow::Owned(uri.clone());
                        resources.push(candidate(uri, Some(Kind::Resources.key())));
                    }
                    (Some(whole), uri)
                }
            };
            holder.templates.push(Held { native: parsed, seen, text });
        }
        let known = |name: &str| {
            holder.templates.iter().any(|held| held.native.variables().any(|one| one == name))
        };
        for name in rules.variables().filter(|name| !known(name)) {
            let (server, name) = (server.clone(), name.to_owned());
            warnings.push(Warning::NoSuchVariable { server, name });
        }
        let interfaces = list
            .tools
            .iter()
            .filter(|tool| rules.shows(Kind::Tools, tool.native.as_str()))
            .flat_map(|tool| tool.interface())
            .filter(|uri| uri.starts_with(UI));
        let listed = resources.iter().skip(first).map(|one| &*one.native);
        for uri in listed.chain(interfaces) {
            claim(&mut self.claims, server, uri);
        }
    }

    /// Gives one its public form, where the scope shows it.
    fn show<'a>(&mut self, kind: Kind, one: Candidate<'a>) -> Option<Shown<'a>> {
        let public = match kind {
            Kind::Templates => self.public_template(one.server, &one.native),
            _ => self.public(one.server, &one.native).into_owned(),
        };
        if !self.scope.admits(one.server, kind, &public) {
            return None;
        }
        // Completion asks for the template as the server knows it, a read for
        // the URI that came of it.
        let native = match kind {
            Kind::Templates => one.template.clone(),
            _ => NativeName::new(&one.native),
        };
        let origin = Origin { server: one.server.clone(), native };
        self.shown.insert(public.clone(), Reference { origin, bound: one.bound });
        Some(Shown { item: one.item, field: one.field, public })
    }

    fn public_template(&self, server: &ServerName, native: &str) -> String {
        if self.is_plain(server) || self.keeps_template(server, native) {
            native.to_owned()
        } else {
            prefixed(server, native)
        }
    }

    /// Whether a native URI, as it is, is understood as this server's.
    fn leads_back(&self, server: &ServerName, native: &str) -> bool {
        let claim = self.claims.get(native);
        if native.starts_with(UI) {
            // Nobody else's, or the first one's: a client finds it by its scheme.
            return self.unprefixed(native).is_none()
                && claim.is_none_or(|claim| claim.first == *server);
        }
        if self.mode == UriMode::Prefix || self.unprefixed(native).is_some() {
            return false;
        }
        match claim {
            Some(claim) => {
                let others = self.servers.iter().filter(|(name, _)| *name != server);
                claim.first == *server
                    && !claim.shared
                    && !others.flat_map(|(_, holder)| &holder.templates).any(|t| t.covers(native))
            }
            None => self.owner(native) == Some(server),
        }
    }

    /// Whether clients can have a template as it is: nothing that it stands for
    /// could be another server's template's.
    fn keeps_template(&self, server: &ServerName, native: &str) -> bool {
        let one = Template::parse(native);
        let others = self.servers.iter().filter(|(name, _)| *name != server);
        let mut others = others.flat_map(|(_, holder)| &holder.templates);
        (self.mode == UriMode::Original || native.starts_with(UI))
            && self.unprefixed(native).is_none()
            && !others.any(|other| one.may_overlap(other.seen()))
    }

    /// Whose a URI is that is written as its server writes it: the only one
    /// whose template it fits or, where it fits none, the only one there is.
    fn owner(&self, native: &str) -> Option<&ServerName> {
        if self.mode == UriMode::Prefix && !native.starts_with(UI) {
            return None;
        }
        if let Some(claim) = self.claims.get(native) {
            return (!claim.shared || native.starts_with(UI)).then_some(&claim.first);
        }
        let covers = |holder: &Holder| holder.templates.iter().any(|held| held.covers(native));
        let mut fitting = self.servers.iter().filter(|(_, holder)| covers(holder));
        match (fitting.next(), fitting.next()) {
            (Some((name, _)), None) => Some(name),
            (None, _) => self.only.as_ref(),
            (Some(_), Some(_)) => None,
        }
    }

    /// The server that stands in front of a URI, and the rest.
    fn unprefixed<'a>(&self, public: &'a str) -> Option<(&ServerName, &'a str)> {
        let rest = public.strip_prefix(PREFIX).or_else(|| public.strip_prefix(UI_PREFIX))?;
        let (name, native) = rest.split_once('/')?;
        // Some clients write the authority of a URI in lower case.
        let found = self.servers.get_key_value(name).or_else(|| {
            let mut alike =
                self.servers.iter().filter(|(n, _)| n.as_str().eq_ignore_ascii_case(name));
            alike.next().filter(|_| alike.next().is_none())
        });
        let (server, _) = found.filter(|(_, holder)| holder.readable && !native.is_empty())?;
        Some((server, native))
    }
}

impl Holder {
    /// Whether a URI may be asked for: one that fits a template whose variables
    /// are bound has to fit what is left of it.
    fn allows(&self, native: &str) -> bool {
        let mut fitting =
            self.templates.iter().filter(|held| held.native.matches(native)).peekable();
        self.readable && (fitting.peek().is_none() || fitting.any(|held| held.covers(native)))
    }
}

impl Held {
    /// Whether clients can make this URI of it.
    fn covers(&self, native: &str) -> bool {
        self.seen().matches(native)
    }
}

fn claim(claims: &mut HashMap<String, Claim>, server: &ServerName, uri: &str) {
    match claims.get_mut(uri) {
        Some(claim) => claim.shared |= claim.first != *server,
        None => {
            claims.insert(uri.to_owned(), Claim { first: server.clone(), shared: false });
        }
    }
}

fn only(sources: &[Source<'_>]) -> Option<ServerName> {
    let offers =
        |source: &&Source<'_>| source.list.is_some_and(|list| list.offers.lists(Kind::Resources));
    let mut all = sources.iter().filter(offers);
    all.next().filter(|_| all.next().is_none()).map(|source| source.server.clone())
}

fn prefixed(server: &ServerName, native: &str) -> String {
    let prefix = if native.starts_with(UI) { UI_PREFIX } else { PREFIX };
    format!("{prefix}{server}/{native}")
}

/// What stands before the server of a prefixed URI.
const PREFIX: &str = "mcp://";
/// The scheme of MCP Apps' user interfaces.
const UI: &str = "ui://";
/// What stands before the server where that scheme has to stay.
const UI_PREFIX: &str = "ui://mcp.";

#[cfg(test)]
mod tests;
