//! The last known lists of one server.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use trunkline_protocol::call::{NativeName, ServerName};

use crate::elements::definition::{DefinitionCells, DefinitionDigest, canonical_definition};
use crate::elements::item::{self, CatalogItem, ItemError, MAX_TEMPLATES};
use crate::elements::offers::{ServerOffers, ServerWords};
use crate::elements::tool::{HeaderRules, SchemaExemption, Tool};
use crate::kind::{ByKind, DefinitionKind, Kind};
use crate::scan::ScanFindings;
use crate::schema::PatternBudget;

/// The audience of a cached listing (MCP 2026-07-28, Caching).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum CacheScope {
    /// Anyone may cache it, for all principals.
    Public,
    /// Only for the principal that it was produced for.
    Private,
}

impl CacheScope {
    /// The value of `cacheScope`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
        }
    }
}

/// The time for which a listing is fresh, and its audience.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Freshness {
    /// The lifetime; zero means that it may be stale at once.
    pub ttl: Duration,
    /// The audience.
    pub scope: CacheScope,
}

impl Freshness {
    /// The freshness of a list that cannot change, because the server does not have it.
    pub const FOR_EVER: Self = Self { ttl: Duration::MAX, scope: CacheScope::Public };

    /// The stricter of both, in each respect.
    #[must_use]
    #[inline]
    pub fn stricter(self, other: Self) -> Self {
        Self { ttl: self.ttl.min(other.ttl), scope: self.scope.max(other.scope) }
    }
}

impl Default for Freshness {
    /// Never cached: the default for a server that specifies nothing.
    fn default() -> Self {
        Self { ttl: Duration::ZERO, scope: CacheScope::Private }
    }
}

/// All lists of a server, all pages together.
#[derive(Debug)]
pub struct ServerList {
    /// The server.
    pub server: ServerName,
    /// Its valid tools in its own order, without duplicate native names.
    pub tools: Vec<Arc<Tool>>,
    /// Its valid prompts, likewise.
    pub prompts: Vec<Arc<CatalogItem>>,
    /// Its valid resources, without duplicate URIs.
    pub resources: Vec<Arc<CatalogItem>>,
    /// Its valid resource templates.
    pub templates: Vec<Arc<CatalogItem>>,
    /// Its valid skills.
    pub skills: Vec<Arc<CatalogItem>>,
    /// The server's caching policy; set by `upstream`, and the strictest until
    /// then.
    pub freshness: ByKind<Freshness>,
    /// Its capabilities at the time of the listing.
    pub offers: Arc<ServerOffers>,
    rules: HeaderRules,
    /// The elements that were left out.
    refused: Vec<RejectedElement>,
}

/// An element that was left out: its kind, its name (or position), and the
/// reason.
pub type RejectedElement = (Kind, String, ItemError);

/// Rules by which a server's list is checked.
#[derive(Clone, Copy)]
pub struct ListRules<'a> {
    /// Rules for mirrored parameters.
    pub headers: HeaderRules,
    /// Returns the tools that need no schema, by their native names.
    pub exemption: &'a dyn Fn(&str) -> SchemaExemption,
}

impl ServerList {
    /// Checks the lists of a server. Elements with the same bytes as in the
    /// `old` list are reused, not compiled again. A list that could not be
    /// fetched, `None`, is reused whole.
    pub fn build(
        server: ServerName,
        raws: &ByKind<Option<Vec<Bytes>>>,
        rules: HeaderRules,
        old: Option<&Self>,
    ) -> (Self, Vec<RejectedElement>) {
        let rules = ListRules { headers: rules, exemption: &|_| SchemaExemption::None };
        Self::build_with(server, raws, rules, old)
    }

    /// Like [`Self::build`], with tools that need no schema because of the configuration.
    pub fn build_with(
        server: ServerName,
        raws: &ByKind<Option<Vec<Bytes>>>,
        rules: ListRules<'_>,
        old: Option<&Self>,
    ) -> (Self, Vec<RejectedElement>) {
        let ListRules { headers: rules, exemption } = rules;
        let mut refused = Vec::new();
        // Tools that pass the strict rules pass without them.
        let same_rules = old.filter(|old| old.rules == rules || rules == HeaderRules::Ignore);
        let has_same_era = old.is_some_and(|old| old.rules == rules);
        // Only a schema of results without a type depends on the era of the server.
        let is_reusable =
            |tool: &Arc<Tool>| (has_same_era || !tool.wraps_results()) && !tool.is_excused();
        let tools = match &raws.tools {
            Some(raws) => {
                let old = same_rules.map_or(&[][..], |old| &old.tools);
                // Reused tools are charged too: the list has the same tools after any earlier list.
                let mut budget = PatternBudget::default();
                let parse = |raw: &[u8], known: Option<&Arc<Tool>>| match known {
                    Some(tool) if is_reusable(tool) => {
                        tool.charge(&mut budget).map(|()| Arc::clone(tool)).map_err(Into::into)
                    }
                    _ => Tool::parse_within(raw, rules, exemption, &mut budget).map(Arc::new),
                };
                check_elements(Kind::Tools, raws, old, parse, &mut refused)
            }
            None => same_rules.map(|old| old.tools.clone()).unwrap_or_default(),
        };
        let mut items = |kind| {
            let old = old.map_or(&[][..], |old| old.items(kind));
            match raws.get(kind) {
                Some(raws) => {
                    let parse = |raw: &[u8], known: Option<&Arc<CatalogItem>>| match known {
                        Some(item) => Ok(Arc::clone(item)),
                        None => CatalogItem::parse(kind, raw).map(Arc::new),
                    };
                    check_elements(kind, raws, old, parse, &mut refused)
                }
                None => old.to_vec(),
            }
        };
        let (prompts, resources) = (items(Kind::Prompts), items(Kind::Resources));
        let (templates, skills) = (items(Kind::Templates), items(Kind::Skills));
        let kept = old.iter().flat_map(|old| &old.refused);
        refused.extend(kept.filter(|(kind, ..)| raws.get(*kind).is_none()).cloned());
        let list = Self {
            tools,
            prompts,
            resources,
            templates,
            skills,
            server,
            freshness: ByKind::default(),
            offers: Arc::default(),
            rules,
            refused: refused.clone(),
        };
        (list, refused)
    }

    /// Its elements of a kind, except tools.
    pub fn items(&self, kind: Kind) -> &[Arc<CatalogItem>] {
        match kind {
            Kind::Tools => &[],
            Kind::Prompts => &self.prompts,
            Kind::Resources => &self.resources,
            Kind::Templates => &self.templates,
            Kind::Skills => &self.skills,
        }
    }

    /// Its elements of all kinds, and the server's descriptions of itself.
    pub fn definitions(&self) -> impl Iterator<Item = ListedDefinition<'_>> {
        let tools = self.tools.iter().map(|tool| ListedDefinition {
            kind: DefinitionKind::Listed(Kind::Tools),
            native: &tool.native,
            raw: tool.raw(),
            cells: tool.definition_cells(),
        });
        let items = Kind::ALL.into_iter().flat_map(|kind| {
            self.items(kind).iter().map(move |item| ListedDefinition {
                kind: DefinitionKind::Listed(kind),
                native: &item.native,
                raw: item.raw(),
                cells: item.definition_cells(),
            })
        });
        tools.chain(items).chain(self.offers.words().map(ListedDefinition::of_server))
    }

    /// The elements that clients see in another form than their server wrote them.
    pub fn repairs(&self) -> impl Iterator<Item = RepairedElement<'_>> {
        let tools = self.tools.iter().map(|tool| (Kind::Tools, &tool.native, tool.repairs()));
        let items = Kind::ALL.into_iter().flat_map(|kind| {
            self.items(kind).iter().map(move |item| (kind, &item.native, item.repairs()))
        });
        tools.chain(items).filter_map(|(kind, native, repairs)| {
            Some(RepairedElement { kind, native: native.as_str(), repairs: repairs? })
        })
    }

    /// Scans its definitions, which takes long, so that the findings are ready when they are
    /// needed.
    pub fn scan_definitions(&self) {
        for one in self.definitions() {
            one.findings();
        }
    }

    /// The bytes of its elements of a kind, as the server sent them.
    pub fn raws(&self, kind: Kind) -> Vec<&Bytes> {
        match kind {
            Kind::Tools => self.tools.iter().map(|tool| tool.raw()).collect(),
            kind => self.items(kind).iter().map(|item| item.raw()).collect(),
        }
    }

    /// Returns true if it is equal to `other`, in the same order.
    pub fn is_same(&self, other: &Self) -> bool {
        self.freshness == other.freshness
            && self.rules == other.rules
            && self.offers_the_same(other)
    }

    /// Returns true if it equals `other` except for its freshness, and the rules that its tools
    /// passed.
    pub fn offers_the_same(&self, other: &Self) -> bool {
        *self.offers == *other.offers
            && are_same_elements(&self.tools, &other.tools)
            && Kind::ALL
                .into_iter()
                .all(|kind| are_same_elements(self.items(kind), other.items(kind)))
    }
}

/// An element that clients see in another form than its server wrote it.
#[derive(Debug, Clone, Copy)]
pub struct RepairedElement<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its native name or URI.
    pub native: &'a str,
    /// The repairs, in one sentence.
    pub repairs: &'a str,
}

/// One definition, as pins and scans see it.
#[derive(Debug, Clone, Copy)]
pub struct ListedDefinition<'a> {
    /// Its kind.
    pub kind: DefinitionKind,
    /// Its native name or URI.
    pub native: &'a NativeName,
    /// The bytes, as the server sent them.
    pub raw: &'a Bytes,
    cells: &'a DefinitionCells,
}

impl<'a> ListedDefinition<'a> {
    /// A server's description of itself.
    pub fn of_server(words: &'a ServerWords) -> Self {
        let ServerWords { kind, native, raw, cells } = words;
        Self { kind: *kind, native, raw, cells }
    }
}

impl ListedDefinition<'_> {
    /// The digest of its canonical form, which is computed once.
    #[inline]
    pub fn digest(&self) -> DefinitionDigest {
        *self.cells.digest.get_or_init(|| DefinitionDigest::compute(self.kind, &self.canonical()))
    }

    /// The findings of a scan, which is done once.
    pub fn findings(&self) -> &ScanFindings {
        self.cells.findings.get_or_init(|| ScanFindings::scan(self.native.as_str(), self.raw))
    }

    /// Its canonical form.
    pub fn canonical(&self) -> String {
        canonical_definition(self.kind, self.raw)
    }
}

fn are_same_elements<T: ListedElement>(one: &[Arc<T>], two: &[Arc<T>]) -> bool {
    let is_same = |(one, two): (&Arc<T>, &Arc<T>)| Arc::ptr_eq(one, two) || one.raw() == two.raw();
    one.len() == two.len() && one.iter().zip(two).all(is_same)
}

/// An element of any kind that has a native name.
pub(crate) trait ListedElement {
    /// The native name.
    fn native(&self) -> &NativeName;
    /// The bytes, as the server sent them.
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
    mut parse: impl FnMut(&[u8], Option<&Arc<T>>) -> Result<Arc<T>, ItemError>,
    refused: &mut Vec<RejectedElement>,
) -> Vec<Arc<T>> {
    let known: HashMap<&[u8], &Arc<T>> = old.iter().map(|one| (one.raw().as_ref(), one)).collect();
    let mut names = HashSet::with_capacity(raws.len());
    let mut found = Vec::with_capacity(raws.len());
    for (position, raw) in raws.iter().enumerate() {
        match parse(raw, known.get(raw.trim_ascii()).copied()) {
            Ok(one) if kind == Kind::Templates && found.len() >= MAX_TEMPLATES => {
                let reason = ItemError::TooManyTemplates { max: MAX_TEMPLATES };
                refused.push((kind, one.native().to_string(), reason));
            }
            Ok(one) if names.insert(one.native().clone()) => found.push(one),
            Ok(one) => refused.push((kind, one.native().to_string(), ItemError::Repeated)),
            Err(reason) => refused.push((kind, item::element_label(kind, raw, position), reason)),
        }
    }
    found
}
