//! All that one server listed last.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::item::{self, CatalogItem, InvalidItem};
use super::kind::{ByKind, Kind};
use super::offers::ServerOffers;
use super::tool::{HeaderRules, Tool};
use crate::call::{NativeName, ServerName};

/// Who may keep a listing (MCP 2026-07-28, Caching).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CacheScope {
    /// Anyone, for anyone.
    Public,
    /// Only for the principal it was made for.
    Private,
}

/// How long a listing stays fresh, and for whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Freshness {
    /// How long; zero means that it may be stale at once.
    pub ttl: Duration,
    /// For whom.
    pub scope: CacheScope,
}

impl Freshness {
    /// Of what cannot change: a list that a server does not have.
    pub const FOR_EVER: Self = Self { ttl: Duration::MAX, scope: CacheScope::Public };

    /// What holds for both.
    #[must_use]
    pub fn stricter(self, other: Self) -> Self {
        Self { ttl: self.ttl.min(other.ttl), scope: self.scope.max(other.scope) }
    }
}

impl Default for Freshness {
    /// Nothing may be kept: what a server means that says nothing.
    fn default() -> Self {
        Self { ttl: Duration::ZERO, scope: CacheScope::Private }
    }
}

/// What a server's lists said, all pages together.
#[derive(Debug)]
pub struct ServerList {
    /// The server.
    pub server: ServerName,
    /// Its valid tools in its own order, each native name once.
    pub tools: Vec<Arc<Tool>>,
    /// Its valid prompts, likewise.
    pub prompts: Vec<Arc<CatalogItem>>,
    /// Its valid resources, each URI once.
    pub resources: Vec<Arc<CatalogItem>>,
    /// Its valid resource templates.
    pub templates: Vec<Arc<CatalogItem>>,
    /// What the server said about caching; for the link to set. Until then it
    /// is the strictest there is.
    pub freshness: ByKind<Freshness>,
    /// What it can do, as it said when it listed.
    pub offers: Arc<ServerOffers>,
    rules: HeaderRules,
}

/// What was left out: an element by its name (or its place), and the reason.
pub type RejectedElement = (Kind, String, InvalidItem);

impl ServerList {
    /// Checks the lists of a server. Elements whose bytes are the same as in
    /// the `old` list are taken over, not compiled again. A list that could not
    /// be had, `None`, is taken over whole.
    pub fn build(
        server: ServerName,
        raws: &ByKind<Option<Vec<Bytes>>>,
        rules: HeaderRules,
        old: Option<&Self>,
    ) -> (Self, Vec<RejectedElement>) {
        let mut refused = Vec::new();
        let same_rules = old.filter(|old| old.rules == rules);
        let tools = match &raws.tools {
            Some(raws) => {
                let old = same_rules.map_or(&[][..], |old| &old.tools);
                let parse = |raw: &[u8]| Tool::parse(raw, rules);
                check_elements(Kind::Tools, raws, old, parse, &mut refused)
            }
            None => same_rules.map(|old| old.tools.clone()).unwrap_or_default(),
        };
        let mut items = |kind| {
            let old = old.map_or(&[][..], |old| old.items(kind));
            match raws.get(kind) {
                Some(raws) => {
                    let parse = |raw: &[u8]| CatalogItem::parse(kind, raw);
                    check_elements(kind, raws, old, parse, &mut refused)
                }
                None => old.to_vec(),
            }
        };
        let list = Self {
            tools,
            prompts: items(Kind::Prompts),
            resources: items(Kind::Resources),
            templates: items(Kind::Templates),
            server,
            freshness: ByKind::default(),
            offers: Arc::default(),
            rules,
        };
        (list, refused)
    }

    /// Its elements of a kind; tools are not among them.
    pub fn items(&self, kind: Kind) -> &[Arc<CatalogItem>] {
        match kind {
            Kind::Tools => &[],
            Kind::Prompts => &self.prompts,
            Kind::Resources => &self.resources,
            Kind::Templates => &self.templates,
        }
    }

    /// Whether it says the same as `other`, in the same order. What was taken
    /// over from `other` is told by where it is.
    pub fn is_same(&self, other: &Self) -> bool {
        self.freshness == other.freshness
            && *self.offers == *other.offers
            && are_same_elements(&self.tools, &other.tools)
            && Kind::ALL
                .into_iter()
                .all(|kind| are_same_elements(self.items(kind), other.items(kind)))
    }
}

fn are_same_elements<T>(one: &[Arc<T>], two: &[Arc<T>]) -> bool {
    one.len() == two.len() && one.iter().zip(two).all(|(one, two)| Arc::ptr_eq(one, two))
}

/// An element of any kind.
pub(super) trait ListedElement {
    /// What its server knows it by.
    fn native(&self) -> &NativeName;
    /// Its bytes, as the server sent them.
    fn raw(&self) -> &Bytes;
}

impl ListedElement for Tool {
    fn native(&self) -> &NativeName {
        &self.native
    }

    fn raw(&self) -> &Bytes {
        Self::raw(self)
    }
}

impl ListedElement for CatalogItem {
    fn native(&self) -> &NativeName {
        &self.native
    }

    fn raw(&self) -> &Bytes {
        Self::raw(self)
    }
}

fn check_elements<T: ListedElement>(
    kind: Kind,
    raws: &[Bytes],
    old: &[Arc<T>],
    parse: impl Fn(&[u8]) -> Result<T, InvalidItem>,
    refused: &mut Vec<RejectedElement>,
) -> Vec<Arc<T>> {
    let known: HashMap<&[u8], &Arc<T>> = old.iter().map(|one| (one.raw().as_ref(), one)).collect();
    let mut names = HashSet::with_capacity(raws.len());
    let mut found = Vec::with_capacity(raws.len());
    for (position, raw) in raws.iter().enumerate() {
        let parsed = match known.get(raw.trim_ascii()) {
            Some(one) => Ok(Arc::clone(one)),
            None => parse(raw).map(Arc::new),
        };
        match parsed {
            Ok(one) if names.insert(one.native().clone()) => found.push(one),
            Ok(one) => refused.push((kind, one.native().to_string(), InvalidItem::Repeated)),
            Err(reason) => refused.push((kind, item::element_label(kind, raw, position), reason)),
        }
    }
    found
}
