//! Scopes that profiles, servers and tools require.
//!
//! Elements with required scopes stay in the lists. A client that calls one without its scopes
//! receives all scopes of the call at once, so that it can get them and call again (step-up
//! authorization).

use std::sync::Arc;

use crate::call::{
    Context, DecidingRule, Failure, Grants, Named, NativeName, NeededScopes, Principal,
    ProfileName, ServerName, TokenSource,
};
use crate::config::{Config, ScopeName, ServerConfig};

/// Required scopes of a configuration.
#[derive(Debug)]
pub struct ScopeRules {
    profiles: Named<ProfileName, Scopes>,
    servers: Named<ServerName, ServerScopes>,
}

#[derive(Debug)]
struct ServerScopes {
    all: Scopes,
    tools: Named<NativeName, Scopes>,
}

type Scopes = Vec<Arc<str>>;

impl ScopeRules {
    /// Compiles the rules of a configuration; `None` if there are none.
    pub fn new(config: &Config) -> Option<Self> {
        let profiles = config.profiles.iter().filter(|profile| !profile.scopes.is_empty());
        let profiles: Named<_, _> =
            profiles.map(|profile| (profile.name.clone(), shared(&profile.scopes))).collect();
        let servers = config.servers.iter().filter_map(|server| {
            let scopes = ServerScopes::new(server);
            (!scopes.is_empty()).then(|| (server.name.clone(), scopes))
        });
        let servers: Named<_, _> = servers.collect();
        (!profiles.is_empty() || !servers.is_empty()).then_some(Self { profiles, servers })
    }

    /// Returns true if a caller has the scopes for a profile and a tool in it.
    pub fn admit_tool(&self, context: &Context, server: &ServerName, tool: &NativeName) -> bool {
        let grants = context.grants.as_deref();
        let caller = ScopedCaller { principal: &context.principal, grants };
        self.check_entry(caller, context.endpoint.profile(), None).is_ok()
            && self.check(context, server, Some(tool)).is_ok()
    }

    /// Checks the scopes of a profile.
    ///
    /// # Errors
    /// The missing scopes.
    pub fn check_entry(
        &self,
        caller: ScopedCaller<'_>,
        profile: &str,
        source: Option<&Arc<TokenSource>>,
    ) -> Result<(), Failure> {
        let needed = self.profiles.get(profile).into_iter().flatten();
        check(needed, caller, source)
    }

    /// Checks the scopes of a call: of its profile, its server and its tool.
    pub(super) fn check(
        &self,
        context: &Context,
        server: &ServerName,
        tool: Option<&NativeName>,
    ) -> Result<(), Failure> {
        let Some(scopes) = self.servers.get(server) else { return Ok(()) };
        let profile = self.profiles.get(context.endpoint.profile());
        let tool = tool.and_then(|tool| scopes.tools.get(tool));
        check_call(context, profile.into_iter().chain([&scopes.all]).chain(tool).flatten())
    }

    /// Checks the scopes of several tools together, for a tool of the gateway that calls them: its
    /// client learns all missing scopes at once.
    pub(super) fn check_all(
        &self,
        context: &Context,
        tools: &[ToolAddress],
    ) -> Result<(), Failure> {
        let profile = self.profiles.get(context.endpoint.profile());
        let of_tools = tools.iter().filter_map(|(server, tool)| {
            let scopes = self.servers.get(server)?;
            Some([Some(&scopes.all), scopes.tools.get(tool)].into_iter().flatten())
        });
        check_call(context, profile.into_iter().chain(of_tools.flatten()).flatten())
    }
}

/// A caller, and the rights of its key or token.
#[derive(Debug, Clone, Copy)]
pub struct ScopedCaller<'a> {
    /// The sender of the request.
    pub principal: &'a Principal,
    /// The scopes and other claims of its credential.
    pub grants: Option<&'a Grants>,
}

/// A tool of a server, by its native name.
pub type ToolAddress = (ServerName, NativeName);

fn check_call<'a>(
    context: &Context,
    needed: impl Iterator<Item = &'a Arc<str>> + Clone,
) -> Result<(), Failure> {
    let caller = ScopedCaller { principal: &context.principal, grants: context.grants.as_deref() };
    let checked = check(needed, caller, context.tokens.as_ref());
    checked.inspect_err(|_| {
        context.decided_by(|| DecidingRule { check: "scope", rule: None });
    })
}

impl ServerScopes {
    fn new(config: &ServerConfig) -> Self {
        let tools = config.tools.overrides.iter().filter(|(_, tool)| !tool.scopes.is_empty());
        let tools = tools.map(|(name, tool)| (name.clone(), shared(&tool.scopes)));
        Self { all: shared(&config.scopes), tools: tools.collect() }
    }

    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.tools.is_empty()
    }
}

fn check<'a>(
    needed: impl Iterator<Item = &'a Arc<str>> + Clone,
    caller: ScopedCaller<'_>,
    source: Option<&Arc<TokenSource>>,
) -> Result<(), Failure> {
    let ScopedCaller { principal, grants } = caller;
    // The parent process could change the configuration. The configuration permits no other
    // anonymous caller where scopes are required.
    if *principal == Principal::Anonymous {
        return Ok(());
    }
    let has = |scope: &Arc<str>| grants.is_some_and(|grants| grants.scopes.contains(scope));
    if needed.clone().all(has) {
        return Ok(());
    }
    let mut scopes = Vec::new();
    for scope in needed {
        if !scopes.contains(scope) {
            scopes.push(Arc::clone(scope));
        }
    }
    Err(Failure::ScopesNeeded(Box::new(NeededScopes { scopes, source: source.cloned() })))
}

fn shared(scopes: &[ScopeName]) -> Scopes {
    scopes.iter().map(ScopeName::shared).collect()
}
