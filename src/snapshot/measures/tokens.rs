//! Estimated tokens of tool lists in a model's context.
//!
//! Counting needs a vocabulary that takes some tenths of a second to load. So nothing is counted
//! until a report is requested, or a profile has a budget. Counts are kept by content, across
//! snapshots.

use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use arc_swap::ArcSwapOption;
use bytes::Bytes;
use foldhash::fast::RandomState;
use parking_lot::Mutex;

use crate::call::{Endpoint, NativeName, ProfileName, PublicName, ServerName};
use crate::catalog::{CatalogList, Kind, listed_name};
use crate::config::DiscoveryChoice;

use super::token_counter::TokenCounter;
use crate::snapshot::{Snapshot, View, ViewKey};

/// The tokens of all tools, of servers and of profiles.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TokenReport {
    /// Every tool of every server, in listing order, as clients without a profile list it.
    pub tools: Vec<ToolTokens>,
    /// Every server, in file order.
    pub servers: Vec<ServerTokens>,
    /// Every profile in file order, and `default` if the configuration does not have it.
    pub profiles: Vec<ProfileTokens>,
}

/// The tokens of a tool's definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolTokens {
    /// Its public name.
    pub name: PublicName,
    /// Its server, and that server's own name for it; `None` for the gateway itself.
    pub origin: Option<(ServerName, NativeName)>,
    /// The tokens.
    pub tokens: usize,
}

impl ToolTokens {
    /// Returns true if a server has the tool.
    pub fn is_of(&self, server: &ServerName) -> bool {
        self.origin.as_ref().is_some_and(|(name, _)| name == server)
    }
}

/// The tokens of all tools of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerTokens {
    /// The server.
    pub name: ServerName,
    /// Number of its tools.
    pub tools: usize,
    /// The tokens.
    pub tokens: usize,
}

/// The tokens of the tools of a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileTokens {
    /// The profile.
    pub name: ProfileName,
    /// Discovery of its tools.
    pub discovery: DiscoveryChoice,
    /// Number of its tools, without the meta-tools.
    pub tools: usize,
    /// The tokens of their whole definitions.
    pub all_tokens: usize,
    /// Tools in the list for a client with unknown capabilities: names, and tokens.
    pub listed: Vec<(String, usize)>,
    /// Limit of the tokens of these; `None` without a budget.
    pub budget: Option<usize>,
}

impl TokenReport {
    /// Returns a server's tokens.
    pub fn of_server(&self, name: &ServerName) -> Option<&ServerTokens> {
        self.servers.iter().find(|server| server.name == *name)
    }
}

impl ProfileTokens {
    /// Returns the tokens of the listed tools.
    pub fn listed_tokens(&self) -> usize {
        self.listed.iter().map(|(_, tokens)| tokens).sum()
    }

    /// Returns true if these exceed the budget.
    pub fn is_over_budget(&self) -> bool {
        self.budget.is_some_and(|budget| self.listed_tokens() > budget)
    }

    /// Returns the listed tools with the most tokens, in descending order.
    pub fn dearest(&self, most: usize) -> Vec<&(String, usize)> {
        let mut all: Vec<_> = self.listed.iter().collect();
        all.sort_by_key(|(_, tokens)| std::cmp::Reverse(*tokens));
        all.truncate(most);
        all
    }
}

/// Token counts of definitions, by content, and the newest report.
#[derive(Default)]
pub(crate) struct TokenLedger {
    counts: Mutex<HashMap<u64, usize>>,
    hasher: RandomState,
    newest: ArcSwapOption<TokenReport>,
}

impl TokenLedger {
    /// Counts the tokens of each element of a list. Takes a second for thousands that were never
    /// counted.
    fn count_elements(&self, list: &CatalogList) -> Vec<usize> {
        let mut counter = None;
        list.items().map(|raw| self.count(&raw, &mut counter)).collect()
    }

    /// Counts the tokens of a list.
    pub(crate) fn count_list(&self, list: &CatalogList) -> usize {
        self.count_elements(list).iter().sum()
    }

    /// Counts the tokens of each definition.
    fn count_definitions(&self, raw: &[Bytes]) -> Vec<usize> {
        let mut counter = None;
        raw.iter().map(|raw| self.count(raw, &mut counter)).collect()
    }

    fn count(&self, raw: &Bytes, counter: &mut Option<TokenCounter>) -> usize {
        let key = self.hasher.hash_one(raw);
        if let Some(known) = self.counts.lock().get(&key) {
            return *known;
        }
        let counter = counter.get_or_insert_with(TokenCounter::load);
        let tokens = counter.count(&String::from_utf8_lossy(raw));
        let mut counts = self.counts.lock();
        if counts.len() >= MAX_TOKEN_COUNTS {
            counts.clear();
        }
        counts.insert(key, tokens);
        tokens
    }
}

impl Snapshot {
    /// Returns the last report; `None` before the first.
    pub fn newest_token_report(&self) -> Option<Arc<TokenReport>> {
        self.token_ledger().newest.load_full()
    }

    /// Counts the tokens of definitions. Blocks for up to some seconds if most were never counted.
    pub(crate) fn count_definitions(&self, raw: &[Bytes]) -> Vec<usize> {
        self.token_ledger().count_definitions(raw)
    }

    /// Counts the tokens of all tools, records them as metrics, and builds the report. Blocks for
    /// up to some seconds if most were never counted.
    pub fn report_tokens(&self) -> Arc<TokenReport> {
        let tools = self.tool_tokens();
        let servers = self.servers().map(|member| {
            let name = &member.config.name;
            let own = tools.iter().filter(|tool| tool.is_of(name));
            let (tools, tokens) =
                own.fold((0, 0), |(count, sum), tool| (count + 1, sum + tool.tokens));
            member.metrics.set_definition_tokens(tokens);
            ServerTokens { name: name.clone(), tools, tokens }
        });
        let servers = servers.collect();
        let configured = self.config.profiles.iter().map(|profile| profile.name.clone());
        let default = self.profile(ProfileName::DEFAULT).is_none().then(ProfileName::default);
        let profiles = configured.chain(default).map(|name| self.profile_tokens(name)).collect();
        let report = Arc::new(TokenReport { tools, servers, profiles });
        self.token_ledger().newest.store(Some(Arc::clone(&report)));
        report
    }

    fn tool_tokens(&self) -> Vec<ToolTokens> {
        let catalog = &self.plain.catalog;
        let counts = self.token_ledger().count_elements(catalog.list(Kind::Tools));
        let own = catalog.own_tool_names().map(|name| (PublicName::new(name), None));
        let names = own.chain(catalog.entries().map(|entry| (entry.public.clone(), Some(entry))));
        let tools = names.zip(counts).map(|((name, entry), tokens)| {
            let metrics = entry.and_then(|entry| self.plain.tools.get(&entry.public));
            if let Some(viewed) = metrics {
                viewed.metrics.set_tokens(tokens);
            }
            let origin = entry.map(|entry| (entry.server.clone(), entry.native().clone()));
            ToolTokens { name, origin, tokens }
        });
        tools.collect()
    }

    fn profile_tokens(&self, name: ProfileName) -> ProfileTokens {
        let profile = self.profile(name.as_str());
        let view = self.profile_view(&name);
        view.count_tokens(self.token_ledger());
        let all = view.catalog.list(Kind::Tools);
        let listed = view.usual_list();
        let counts = self.token_ledger().count_elements(listed);
        let profile_tokens = ProfileTokens {
            discovery: profile.map_or(DiscoveryChoice::All, |profile| profile.discovery),
            tools: all.len(),
            all_tokens: self.token_ledger().count_list(all),
            listed: listed.items().map(|raw| name_of(&raw)).zip(counts).collect(),
            // With code, the budget limits the declared functions instead.
            budget: profile
                .filter(|profile| profile.discovery != DiscoveryChoice::Code)
                .and_then(|profile| profile.budget),
            name,
        };
        if let Some(metrics) = self.counts.profile(profile_tokens.name.as_str()) {
            metrics.set_list_tokens(profile_tokens.listed_tokens());
        }
        profile_tokens
    }

    /// Returns the tools in a profile's list for a client with unknown capabilities.
    pub fn usual_tools(&self, profile: &ProfileName) -> Vec<Bytes> {
        let view = self.profile_view(profile);
        view.count_tokens(self.token_ledger());
        view.usual_list().items().collect()
    }

    /// Returns the view of a profile, as far as the configuration determines it.
    pub(crate) fn profile_view(&self, name: &ProfileName) -> Arc<View> {
        let profile = self.profile(name.as_str()).map(|_| name.clone());
        let endpoint = Endpoint { profile, narrowing: None };
        self.configured_view(&ViewKey { endpoint, ..ViewKey::default() })
    }

    pub(crate) fn token_ledger(&self) -> &TokenLedger {
        self.views.token_ledger()
    }

    /// Counts the tokens that decide about the list of a view's clients.
    pub fn count_tokens_of(&self, view: &View) {
        view.count_tokens(self.token_ledger());
    }
}

fn name_of(raw: &[u8]) -> String {
    listed_name(raw).unwrap_or_default().into_owned()
}

impl fmt::Debug for TokenLedger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenLedger")
            .field("counts", &self.counts.lock().len())
            .finish_non_exhaustive()
    }
}

/// Limit of the definitions with kept counts.
const MAX_TOKEN_COUNTS: usize = 100_000;
