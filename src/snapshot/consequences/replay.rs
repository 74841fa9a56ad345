//! Recorded calls, decided again under two configurations.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::{Context, Endpoint, NativeName, Principal, ProfileName, ServerName};
use crate::catalog::{Kind, Selection};
use crate::clock;
use crate::config::Config;
use crate::identity::{ClientAccess, Identity};
use crate::policy::{Authorization, RecordedDecision, RecordedElement, ScopeRules};
use crate::snapshot::views::view_cache::profile;

/// A call of a tool in the audit log: the members of a record that decide.
#[derive(Debug, Deserialize)]
pub struct RecordedCall {
    /// The time of the call.
    pub time: Timestamp,
    /// The event: `call` for a call.
    pub event: String,
    /// The caller.
    pub principal: Option<String>,
    /// The profile.
    pub profile: Option<String>,
    /// The method.
    pub method: String,
    /// The public name of the tool.
    pub tool: Option<String>,
    /// The server's own name.
    pub native_tool: Option<String>,
    /// The server.
    pub server: Option<String>,
    /// The arguments, if they are recorded.
    pub arguments: Option<Box<RawValue>>,
}

/// The calls that would be decided differently.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ReplayReport {
    /// Calls with the same decision.
    pub unchanged: usize,
    /// Calls that would be decided differently, by caller, tool and rule.
    pub changed: Vec<ChangedDecision>,
    /// Calls that cannot be decided, because their arguments were not recorded in full.
    pub without_arguments: usize,
    /// Calls that cannot be decided, because the facts of the caller's token are not recorded.
    pub without_token: usize,
}

/// Calls that would be decided differently.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct ChangedDecision {
    /// The caller.
    pub caller: String,
    /// The public name of the tool.
    pub tool: String,
    /// True if the new configuration allows the calls.
    pub is_allowed: bool,
    /// The rule, or the setting, that decides under the configuration that refuses them.
    pub rule: String,
    /// The number of calls.
    pub calls: usize,
}

/// The result for one call under one configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Replayed {
    Allowed,
    Refused { rule: String },
    NeedsArguments,
    NeedsToken,
}

/// A configuration under which calls are decided.
struct ReplayedConfig<'a> {
    config: &'a Config,
    identity: Identity,
    authorization: Option<Arc<Authorization>>,
    scopes: Option<ScopeRules>,
}

/// Decides recorded calls of servers' tools under two configurations. Limits are left out: they
/// depend on the time of a call. So are arguments that violate a schema.
pub struct CallReplay<'a> {
    before: ReplayedConfig<'a>,
    after: ReplayedConfig<'a>,
    report: ReplayReport,
    changed: BTreeMap<ChangedDecision, usize>,
}

impl<'a> CallReplay<'a> {
    /// Compares two configurations.
    pub fn new(before: &'a Config, after: &'a Config) -> Self {
        let (before, after) = (ReplayedConfig::new(before), ReplayedConfig::new(after));
        Self { before, after, report: ReplayReport::default(), changed: BTreeMap::new() }
    }

    /// Decides one call. Ignores records of other events.
    pub fn add(&mut self, call: &RecordedCall) {
        let Some(known) = KnownCall::of(call) else { return };
        let (is_allowed, rule) = match (self.before.decide(&known), self.after.decide(&known)) {
            (Replayed::NeedsArguments, _) | (_, Replayed::NeedsArguments) => {
                return self.report.without_arguments += 1;
            }
            (Replayed::NeedsToken, _) | (_, Replayed::NeedsToken) => {
                return self.report.without_token += 1;
            }
            (Replayed::Allowed, Replayed::Refused { rule }) => (false, rule),
            (Replayed::Refused { rule }, Replayed::Allowed) => (true, rule),
            (Replayed::Allowed, Replayed::Allowed)
            | (Replayed::Refused { .. }, Replayed::Refused { .. }) => {
                return self.report.unchanged += 1;
            }
        };
        let (caller, tool) = (known.principal.as_str().to_owned(), known.public.to_owned());
        let changed = ChangedDecision { caller, tool, is_allowed, rule, calls: 0 };
        *self.changed.entry(changed).or_default() += 1;
    }

    /// Returns the result.
    pub fn finish(self) -> ReplayReport {
        let changed = self.changed.into_iter();
        let changed = changed.map(|(decision, calls)| ChangedDecision { calls, ..decision });
        ReplayReport { changed: changed.collect(), ..self.report }
    }
}

/// The parts of a record of a call of a server's tool.
struct KnownCall<'a> {
    principal: Principal,
    profile: &'a str,
    public: &'a str,
    native: NativeName,
    server: ServerName,
    /// `None` if they are not recorded, or only in part.
    arguments: Option<Map<String, Value>>,
}

impl<'a> KnownCall<'a> {
    /// Returns `None` for a record that is not about a call of a server's tool.
    fn of(call: &'a RecordedCall) -> Option<Self> {
        let is_call = call.event == "call" && call.method == "tools/call";
        let server = ServerName::new(call.server.as_deref().filter(|_| is_call)?).ok()?;
        let native = NativeName::new(call.native_tool.as_deref()?);
        let principal = match call.principal.as_deref()? {
            "anonymous" => Principal::Anonymous,
            // Only users have a colon in their names.
            name if name.contains(':') => Principal::User(name.into()),
            name => Principal::Client(name.into()),
        };
        let arguments = call.arguments.as_ref().filter(|raw| is_complete(raw.get()));
        let arguments = match arguments.map(|raw| serde_json::from_str(raw.get())) {
            Some(Ok(Value::Object(arguments))) => Some(arguments),
            Some(Ok(Value::Null)) => Some(Map::new()),
            _ => None,
        };
        let profile = call.profile.as_deref().unwrap_or(ProfileName::DEFAULT);
        Some(Self { principal, profile, public: call.tool.as_deref()?, native, server, arguments })
    }
}

/// Returns true if recorded arguments have all values: redacted and cut ones have marks.
fn is_complete(json: &str) -> bool {
    !json.contains("[redacted]") && !json.contains('⟨')
}

impl<'a> ReplayedConfig<'a> {
    fn new(config: &'a Config) -> Self {
        let identity = Identity::new(config, &Identity::default());
        let (authorization, scopes) = (Authorization::compile(config), ScopeRules::new(config));
        Self { config, identity, authorization, scopes }
    }

    fn decide(&self, call: &KnownCall<'_>) -> Replayed {
        let refused = |rule: &str| Replayed::Refused { rule: rule.to_owned() };
        let access = self.identity.find_access(&call.principal, clock::unix_now());
        let Some(ClientAccess { grants, .. }) = access else { return refused("clients") };
        if !self.identity.allows(&call.principal, call.profile) {
            return refused("clients");
        }
        let profile = profile(self.config, call.profile);
        if profile.is_none() && call.profile != ProfileName::DEFAULT {
            return refused("profiles");
        }
        let selection = profile.map(Selection::from_profile).unwrap_or_default();
        let shows =
            selection.admits_server(&call.server) && selection.admits(Kind::Tools, call.public);
        if !shows {
            return refused(&format!("profiles.{}", call.profile));
        }
        let server = self.config.servers.iter().find(|server| server.name == call.server);
        let Some(server) = server else { return refused(&format!("servers.{}", call.server)) };
        if !server.tools.admits_tool(call.native.as_str()) {
            return refused(&format!("servers.{}.tools", call.server));
        }
        let has_token = matches!(call.principal, Principal::User(_));
        let endpoint = Endpoint { profile: profile.map(|it| it.name.clone()), narrowing: None };
        let context = Context::assumed(call.principal.clone(), grants, endpoint);
        let has_scopes =
            |rules: &ScopeRules| rules.admit_tool(&context, &call.server, &call.native);
        if !self.scopes.as_ref().is_none_or(has_scopes) {
            return if has_token { Replayed::NeedsToken } else { refused("scopes") };
        }
        let Some(authorization) = &self.authorization else { return Replayed::Allowed };
        if has_token && authorization.reads_tokens() {
            return Replayed::NeedsToken;
        }
        let (public, native) = (call.public, call.native.as_str());
        let element = RecordedElement { server: &call.server, public, native };
        match authorization.decide_recorded(&context, element, call.arguments.as_ref()) {
            RecordedDecision::Allowed => Replayed::Allowed,
            RecordedDecision::Denied { rule } => Replayed::Refused {
                rule: rule.map_or("policy.rules".to_owned(), |it| it.to_string()),
            },
            RecordedDecision::NeedsArguments => Replayed::NeedsArguments,
        }
    }
}
