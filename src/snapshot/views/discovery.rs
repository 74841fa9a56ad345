//! Discovery of a view's tools when it does not simply list them all: the list that each client
//! gets, and the search.
//!
//! A client's list depends on its view, which clients with the same rights share, on its request's
//! description of it, and on the configuration; never on its connection or on earlier requests (MCP
//! 2026-07-28, Tools, "Listing Tools").

use std::fmt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

use crate::call::{Client, MetaTool};
use crate::catalog::{
    Analyser, ByKind, CacheScope, Catalog, CatalogList, Freshness, Kind, MetaListRules,
    MetaListing, QuestionMeaning, SearchDocument, SearchHit, SearchIndex, SearchQuery,
    SynonymGroups, TextVector, embedded_text, read_word_lists,
};
use crate::config::{
    DiscoveryChoice, Pattern, ProfileConfig, SearchConfig, SlimConfig, ToolAppetite,
};

use super::known_clients::known_appetite;
use crate::snapshot::embeddings::{Embedder, TextDigest};
use crate::snapshot::measures::token_counter::TokenCounter;
use crate::snapshot::measures::tokens::TokenLedger;
use crate::snapshot::{Digests, PreparedListing, Snapshot, View};

/// The discovery of a view's tools.
pub struct Discovery {
    choice: DiscoveryChoice,
    pinned: Vec<Pattern>,
    /// True if there is a meta-tool for each intent of a call.
    pub by_intent: bool,
    /// Settings to shorten definitions.
    slim: Option<SlimConfig>,
    /// Limit of the tokens of a list of all tools.
    budget: usize,
    /// Limit of its lists' freshness, and their cache scope.
    most: Freshness,
    /// The gateway's raw `serverInfo`.
    info: Bytes,
    pinned_list: OnceLock<MetaToolList>,
    marked_list: OnceLock<MetaToolList>,
    shortened_list: OnceLock<MetaToolList>,
    code_list: OnceLock<MetaToolList>,
    /// Estimated tokens of a list of all tools.
    tokens: OnceLock<usize>,
    indexes: ByKind<OnceLock<SearchIndex>>,
    meanings: ByKind<ViewMeaning>,
}

/// The vectors of a view's elements of one kind.
#[derive(Debug, Default)]
struct ViewMeaning {
    /// Digests of their texts, in the order of the list.
    digests: OnceLock<Vec<TextDigest>>,
    /// Their vectors, once all are known.
    vectors: OnceLock<Vec<Option<Arc<TextVector>>>>,
}

/// A search request.
#[derive(Debug, Clone, Copy)]
pub struct AskedSearch<'a> {
    /// The kind of element.
    pub kind: Kind,
    /// The query.
    pub query: &'a str,
    /// Limit of the results.
    pub limit: usize,
    /// The vector of the query from [`Snapshot::ask_for_vector`].
    pub vector: Option<&'a TextVector>,
}

/// A list with meta-tools, prepared.
#[derive(Debug)]
pub struct MetaToolList {
    /// The form of its tools, besides the meta-tools.
    pub form: MetaListing,
    /// The list.
    pub list: CatalogList,
    /// The prepared results of list requests.
    pub listing: PreparedListing,
}

/// An element that matches a query.
#[derive(Debug, Clone)]
pub struct FoundElement {
    /// Its definition, as clients see it.
    pub raw: Bytes,
    /// True if it contains most of the query's words.
    pub is_confident: bool,
}

impl Discovery {
    /// Creates the discovery of a profile; `None` if its tools are all listed.
    pub(crate) fn of(
        profile: Option<&ProfileConfig>,
        most: Freshness,
        info: &Bytes,
    ) -> Option<Self> {
        let profile = profile.filter(|profile| profile.has_meta_tools())?;
        // With `auto`, the list depends on the client's own request.
        let depends = profile.discovery == DiscoveryChoice::Auto;
        let scope = if depends { CacheScope::Private } else { most.scope };
        Some(Self {
            choice: profile.discovery,
            pinned: profile.pin.clone(),
            by_intent: profile.intent,
            slim: profile.slim,
            budget: profile.budget.unwrap_or_else(|| default_budget(profile.discovery)),
            most: Freshness { scope, ..most },
            info: info.clone(),
            pinned_list: OnceLock::new(),
            marked_list: OnceLock::new(),
            shortened_list: OnceLock::new(),
            code_list: OnceLock::new(),
            tokens: OnceLock::new(),
            indexes: ByKind::default(),
            meanings: ByKind::default(),
        })
    }

    /// Returns the form of the list for a client with this capacity for tools; `None` for the list
    /// of all tools, without meta-tools.
    fn form_for(
        &self,
        catalog: &Catalog,
        appetite: impl FnOnce() -> Option<ToolAppetite>,
    ) -> Option<MetaListing> {
        let all = self.slim.map(|_| MetaListing::Shortened);
        let appetite = match self.choice {
            DiscoveryChoice::All => return all,
            DiscoveryChoice::Search => return Some(MetaListing::Pinned),
            DiscoveryChoice::Code => return Some(MetaListing::Code),
            DiscoveryChoice::Auto => appetite(),
        };
        let is_too_much = match appetite {
            Some(ToolAppetite::All) => return Some(MetaListing::Marked),
            Some(ToolAppetite::Search) => true,
            Some(ToolAppetite::AtMost(most)) => catalog.list(Kind::Tools).len() > most,
            None => self.known_tokens(catalog) > self.budget,
        };
        if is_too_much { Some(MetaListing::Pinned) } else { all }
    }

    /// Returns true if clients have a meta-tool, or may have it.
    pub fn offers(&self, tool: MetaTool) -> bool {
        let form = match self.choice {
            DiscoveryChoice::All => MetaListing::Shortened,
            DiscoveryChoice::Search | DiscoveryChoice::Auto => MetaListing::Pinned,
            DiscoveryChoice::Code => MetaListing::Code,
        };
        form.offers(tool, self.by_intent)
    }

    /// Returns the tokens of a list of all tools; an estimate from its size until they are counted.
    fn known_tokens(&self, catalog: &Catalog) -> usize {
        let usual = || TokenCounter::usual_count(catalog.list(Kind::Tools).bytes().len());
        self.tokens.get().copied().unwrap_or_else(usual)
    }
}

/// Returns the number of tools that a client supports, by its name: as configured, or as known.
fn appetite_of(client: &Client, search: &SearchConfig) -> Option<ToolAppetite> {
    let (name, version) = client.name_and_version();
    let whole = format!("{name}@{version}");
    let is_meant = |pattern: &Pattern| {
        let has_version = pattern.as_str().get(1..).is_some_and(|rest| rest.contains('@'));
        pattern.matches(if has_version { &whole } else { &name })
    };
    let configured = search.clients.iter().find(|(pattern, _)| is_meant(pattern));
    configured.map(|(_, appetite)| *appetite).or_else(|| known_appetite(&name, &version))
}

impl Snapshot {
    /// Returns the list of tools with meta-tools that a client gets; `None` if it lists all tools.
    pub fn meta_list<'a>(&self, view: &'a View, client: &Client) -> Option<&'a MetaToolList> {
        view.meta_list(client, &self.config.search)
    }

    /// Returns the digests of the lists that a client sees in a view.
    pub fn digests_for(&self, view: &View, client: &Client) -> Digests {
        let digests = view.digests();
        match self.meta_list(view, client) {
            Some(other) => Digests { tools: *other.list.digest(), ..digests },
            None => digests,
        }
    }

    /// Returns true if [`Snapshot::prepare_vectors`] has to precede [`Snapshot::ask_for_vector`].
    pub fn awaits_vectors(&self, view: &View, kind: Kind) -> bool {
        let embedder = self.embedder.as_ref();
        embedder.is_some_and(|embedder| embedder.asks_service() && !view.knows_texts(kind))
    }

    /// Determines the vectors that a view needs, and requests missing ones. Takes up to a second.
    pub fn prepare_vectors(&self, view: &View, kind: Kind) {
        if let Some(embedder) = &self.embedder {
            // Loaded in advance: a query's text is prepared with them on a thread that serves
            // clients.
            read_word_lists();
            view.vectors(kind, embedder);
        }
    }

    /// Returns the vector of a query, if a service for that is configured; `None` if it does not
    /// arrive in time, or there is nothing to compare it with. A query is sent to the service only
    /// when needed.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn ask_for_vector(&self, view: &View, kind: Kind, query: &str) -> Option<TextVector> {
        let embedder =
            self.embedder.as_ref().filter(|embedder| view.has_vectors(kind, embedder))?;
        embedder.ask_service(query).await
    }

    /// Requests the vectors of the tools that profiles show, so that the first searches have them.
    /// Takes up to a second.
    pub(crate) fn want_vectors(&self) {
        for profile in self.config.profiles.iter().filter(|profile| profile.has_meta_tools()) {
            self.prepare_vectors(&self.profile_view(&profile.name), Kind::Tools);
        }
    }

    /// Returns the elements of a view that match a query, best first. Takes up to a second for the
    /// first query, which builds the index.
    pub fn search(&self, view: &View, asked: AskedSearch<'_>) -> Vec<FoundElement> {
        view.search(asked, &self.config.search, self.embedder.as_deref())
    }

    /// Returns the elements with similar names, best first, without regard to meaning.
    pub fn search_names(&self, view: &View, asked: AskedSearch<'_>) -> Vec<FoundElement> {
        view.search(asked, &self.config.search, None)
    }
}

impl View {
    fn meta_list(&self, client: &Client, search: &SearchConfig) -> Option<&MetaToolList> {
        let discovery = self.discovery.as_ref()?;
        let form = discovery.form_for(&self.catalog, || appetite_of(client, search))?;
        Some(self.list_of(discovery, form))
    }

    /// Returns the tools for a client with unknown capabilities.
    pub(crate) fn usual_list(&self) -> &CatalogList {
        let discovery = self.discovery.as_ref();
        let form = discovery.and_then(|discovery| discovery.form_for(&self.catalog, || None));
        self.list_in_form(form)
    }

    fn list_in_form(&self, form: Option<MetaListing>) -> &CatalogList {
        let list = self.discovery.as_ref().zip(form);
        let list = list.map(|(discovery, form)| &self.list_of(discovery, form).list);
        list.unwrap_or_else(|| self.catalog.list(Kind::Tools))
    }

    fn list_of<'a>(&'a self, discovery: &'a Discovery, form: MetaListing) -> &'a MetaToolList {
        let place = match form {
            MetaListing::Pinned => &discovery.pinned_list,
            MetaListing::Marked => &discovery.marked_list,
            MetaListing::Shortened => &discovery.shortened_list,
            MetaListing::Code => &discovery.code_list,
        };
        place.get_or_init(|| {
            let (pinned, slim) = (&discovery.pinned[..], discovery.slim.as_ref());
            let longest_api = TokenCounter::usual_size(discovery.budget);
            let by_intent = discovery.by_intent;
            let rules = MetaListRules { form, pinned, by_intent, slim, longest_api };
            let list = self.catalog.list_with_meta_tools(&rules);
            let (most, info) = (discovery.most, &discovery.info);
            let listing = PreparedListing::prepare(Kind::Tools, &list, most, info);
            MetaToolList { form, list, listing }
        })
    }

    /// Returns true if the tokens of the list of all tools have to be counted before a client can
    /// list.
    pub fn awaits_count(&self) -> bool {
        self.discovery.as_ref().is_some_and(|discovery| {
            discovery.choice == DiscoveryChoice::Auto && discovery.tokens.get().is_none()
        })
    }

    /// Counts the tokens of the list of all tools, far enough to compare them with the budget.
    /// Takes up to a second.
    pub(crate) fn count_tokens(&self, ledger: &TokenLedger) {
        let Some(discovery) = &self.discovery else { return };
        if discovery.choice != DiscoveryChoice::Auto {
            return;
        }
        discovery.tokens.get_or_init(|| {
            let list = self.list_in_form(discovery.slim.map(|_| MetaListing::Shortened));
            // No token is shorter than a byte.
            let length = list.bytes().len();
            if length <= discovery.budget { length } else { ledger.count_list(list) }
        });
    }

    /// Returns the elements that match a query, best first. The first query builds the index, which
    /// takes up to a second.
    fn search(
        &self,
        asked: AskedSearch<'_>,
        search: &SearchConfig,
        embedder: Option<&Embedder>,
    ) -> Vec<FoundElement> {
        let AskedSearch { kind, query, limit, vector } = asked;
        let Some(discovery) = &self.discovery else { return Vec::new() };
        let index = discovery.indexes.get(kind).get_or_init(|| self.build_index(kind, search));
        let list = self.catalog.list(kind);
        let vectors = embedder.and_then(|embedder| self.vectors(kind, embedder));
        let own = embedder.filter(|_| vectors.is_some() && vector.is_none());
        let own = own.and_then(|embedder| embedder.embed_here(query));
        let meaning = vector.or(own.as_ref()).zip(vectors);
        let meaning = meaning.map(|(question, documents)| QuestionMeaning { question, documents });
        // The view has only elements that the client may see.
        let hits = index.find_with_meaning(&SearchQuery::parse(query), meaning, limit, |_| true);
        let found = hits.iter().filter_map(|SearchHit { id, is_confident, .. }| {
            Some(FoundElement { raw: list.item(id.0)?, is_confident: *is_confident })
        });
        found.collect()
    }

    /// Returns the vectors of the elements of a kind; `None` until all are known.
    fn vectors(&self, kind: Kind, embedder: &Embedder) -> Option<&[Option<Arc<TextVector>>]> {
        let meaning = self.discovery.as_ref()?.meanings.get(kind);
        if let Some(vectors) = meaning.vectors.get() {
            return Some(vectors);
        }
        let list = self.catalog.list(kind);
        let text = |place: usize| {
            let raw = list.item(place).unwrap_or_default();
            let server = self.catalog.find_server(kind, place, &raw);
            embedded_text(server.as_ref().map_or("", |server| server.as_str()), &raw)
        };
        let digests = meaning.digests.get_or_init(|| {
            (0..list.len()).map(|place| TextDigest::of_text(&text(place))).collect()
        });
        let vectors = embedder.find_all(digests, text)?;
        Some(meaning.vectors.get_or_init(|| vectors))
    }

    /// Returns true if the texts of the elements of a kind are known.
    fn knows_texts(&self, kind: Kind) -> bool {
        let discovery = self.discovery.as_ref();
        discovery.is_none_or(|discovery| discovery.meanings.get(kind).digests.get().is_some())
    }

    /// Returns true if a search by meaning has all vectors except that of its query.
    fn has_vectors(&self, kind: Kind, embedder: &Embedder) -> bool {
        let Some(discovery) = &self.discovery else { return false };
        let meaning = discovery.meanings.get(kind);
        let digests = meaning.digests.get();
        meaning.vectors.get().is_some() || digests.is_some_and(|all| embedder.has_all(all))
    }

    fn build_index(&self, kind: Kind, search: &SearchConfig) -> SearchIndex {
        let mut analyser = Analyser::default();
        let elements = self.catalog.searched_elements(kind, &mut analyser);
        let documents = elements.iter().map(|searched| SearchDocument {
            element: Arc::clone(&searched.element),
            server: searched.server.as_ref().map_or("", |server| server.as_str()),
            renamed: searched.renamed,
        });
        let groups = search.synonyms.iter().map(|group| group.iter().map(String::as_str));
        let synonyms = Arc::new(SynonymGroups::from_groups(groups));
        SearchIndex::build(documents, synonyms, &mut analyser)
    }
}

impl fmt::Debug for Discovery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Discovery").field("choice", &self.choice).finish_non_exhaustive()
    }
}

/// Returns the default of `budget`, in tokens.
fn default_budget(choice: DiscoveryChoice) -> usize {
    if choice == DiscoveryChoice::Code { 4_000 } else { 10_000 }
}
