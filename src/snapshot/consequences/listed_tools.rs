//! The tools that clients would see, and the tokens of profiles, under another configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::call::{Context, Endpoint, NativeName, Principal, ProfileName, ServerName};
use crate::catalog::{CacheScope, Kind};
use crate::clock;
use crate::config::{Config, ProfileConfig};
use crate::identity::{ClientAccess, Identity};
use crate::policy::Authorization;
use crate::snapshot::views::view_cache::{ScreenedLists, ViewLimits, profile};
use crate::snapshot::{Snapshot, View};

/// The changes of the tools that a client sees in a profile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClientToolChanges {
    /// The client.
    pub client: String,
    /// The profile.
    pub profile: String,
    /// Public names of tools that it gains.
    pub gained: Vec<String>,
    /// Public names of tools that it loses.
    pub lost: Vec<String>,
    /// Tools under another name.
    pub renamed: Vec<RenamedTool>,
}

/// A tool with another public name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct RenamedTool {
    /// The name before.
    pub before: String,
    /// The name after.
    pub after: String,
}

/// The tokens of a profile's tools, by estimate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ProfileTokenChange {
    /// The profile.
    pub profile: String,
    /// The tokens before; `None` for a new profile.
    pub before: Option<usize>,
    /// The tokens after; `None` for a profile that is removed.
    pub after: Option<usize>,
}

/// The configured parts that decide about the tools of a client.
struct ToolRules<'a> {
    config: &'a Config,
    identity: &'a Identity,
    authorization: Option<Arc<Authorization>>,
}

/// Public names by server and native name; without a server for tools of the gateway itself.
type ToolNames = BTreeMap<(Option<ServerName>, NativeName), String>;

impl Snapshot {
    /// Returns the changes for each client and each profile that it may use. Clients with tokens
    /// are not known one by one. Servers that are new have not listed yet.
    pub(super) fn preview_clients(&self, after: &Config) -> Vec<ClientToolChanges> {
        let identity = Identity::new(after, &self.identity);
        let before = ToolRules {
            config: &self.config,
            identity: &self.identity,
            authorization: self.policy.authorization().cloned(),
        };
        let after = ToolRules {
            config: after,
            identity: &identity,
            authorization: Authorization::compile(after),
        };
        let mut changes = Vec::new();
        for client in client_names(&[before.config, after.config]) {
            for profile in profile_names(&[before.config, after.config]) {
                let [old, new] =
                    [&before, &after].map(|rules| self.tools_of(rules, &client, &profile));
                changes.extend(compare_tools(&client, &profile, &old, &new));
            }
        }
        changes
    }

    /// Returns the tools that a client sees in a profile; none if it may not use the profile.
    fn tools_of(&self, rules: &ToolRules<'_>, client: &Principal, name: &ProfileName) -> ToolNames {
        let found = profile(rules.config, name.as_str());
        let exists = found.is_some() || name.as_str() == ProfileName::DEFAULT;
        let access = rules.identity.find_access(client, clock::unix_now());
        let Some(ClientAccess { grants, .. }) = access.filter(|_| exists) else {
            return ToolNames::new();
        };
        if !rules.identity.allows(client, name.as_str()) {
            return ToolNames::new();
        }
        let endpoint = Endpoint { profile: found.map(|it| it.name.clone()), narrowing: None };
        let context = Context::assumed(client.clone(), grants, endpoint);
        let rights = rules.authorization.as_ref().map(|all| all.rights_of(&context));
        let limits = ViewLimits { profile: found, narrowing: None, rights: rights.as_ref() };
        let view = self.hypothetical_view(rules.config, limits);
        let own = view.catalog.own_tool_names();
        let own = own.map(|name| ((None, NativeName::new(name)), name.to_owned()));
        let of_servers = view.catalog.entries().map(|entry| {
            ((Some(entry.server.clone()), entry.native().clone()), entry.public.to_string())
        });
        own.chain(of_servers).collect()
    }

    /// Builds a view of the running servers' lists under a configuration.
    pub(super) fn hypothetical_view(&self, config: &Config, limits: ViewLimits<'_>) -> View {
        let lists = ScreenedLists { lists: &self.plain.lists, screen: &self.screen };
        self.views.maker().build_view(config, limits, &lists, CacheScope::Private).0
    }

    /// Returns the profiles with other tokens than before.
    pub(super) fn preview_profiles(&self, after: &Config) -> Vec<ProfileTokenChange> {
        let names = profile_names(&[&self.config, after]);
        let changes = names.into_iter().map(|name| ProfileTokenChange {
            before: self.profile_tokens_under(&self.config, &name),
            after: self.profile_tokens_under(after, &name),
            profile: name.to_string(),
        });
        changes.filter(|change| change.before != change.after).collect()
    }

    fn profile_tokens_under(&self, config: &Config, name: &ProfileName) -> Option<usize> {
        let found: Option<&ProfileConfig> = profile(config, name.as_str());
        if found.is_none() && name.as_str() != ProfileName::DEFAULT {
            return None;
        }
        let limits = ViewLimits { profile: found, ..ViewLimits::default() };
        let view = self.hypothetical_view(config, limits);
        Some(self.token_ledger().count_list(view.catalog.list(Kind::Tools)))
    }
}

/// Returns the clients of all configurations, and the anonymous one where it may call.
fn client_names(configs: &[&Config]) -> Vec<Principal> {
    let mut names: Vec<Principal> = Vec::new();
    for config in configs {
        let clients =
            config.clients.iter().map(|client| Principal::Client(Arc::clone(&client.name)));
        let anonymous = (!config.authenticates()).then_some(Principal::Anonymous);
        for name in anonymous.into_iter().chain(clients) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// Returns the profiles of all configurations, the default one first.
fn profile_names(configs: &[&Config]) -> Vec<ProfileName> {
    let mut names = vec![ProfileName::default()];
    for profile in configs.iter().flat_map(|config| &config.profiles) {
        if !names.contains(&profile.name) {
            names.push(profile.name.clone());
        }
    }
    names
}

fn compare_tools(
    client: &Principal,
    profile: &ProfileName,
    before: &ToolNames,
    after: &ToolNames,
) -> Option<ClientToolChanges> {
    let missing_in = |other: &ToolNames, all: &ToolNames| {
        let missing = all.iter().filter(|(tool, _)| !other.contains_key(*tool));
        missing.map(|(_, name)| name.clone()).collect::<Vec<_>>()
    };
    let (gained, lost) = (missing_in(before, after), missing_in(after, before));
    let renamed: Vec<_> = before
        .iter()
        .filter_map(|(tool, name)| Some((name, after.get(tool)?)))
        .filter(|(name, other)| name != other)
        .map(|(name, other)| RenamedTool { before: name.clone(), after: other.clone() })
        .collect();
    let is_same = gained.is_empty() && lost.is_empty() && renamed.is_empty();
    (!is_same).then(|| ClientToolChanges {
        client: client.as_str().to_owned(),
        profile: profile.to_string(),
        gained,
        lost,
        renamed,
    })
}
