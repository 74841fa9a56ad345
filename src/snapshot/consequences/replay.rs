//! Recorded calls, decided again under two configurations.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::call::{Context, Endpoint, MetaTool, NativeName, Principal, ProfileName, ServerName};
use crate::catalog::{Kind, Scope, Selection};
use crate::clock;
use crate::config::Config;
use crate::identity::{ClientAccess, Identity};
use crate::policy::{Authorization, RecordedDecision, RecordedElement, ScopeRules, ScopedCaller};
use crate::snapshot::views::view_cache::profile;

use super::recorded_tools::{RecordedTool, RecordedToolNames};

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
    /// The method; empty in records that are not about a request.
    #[serde(default)]
    pub method: String,
    /// The public name of the tool.
    pub tool: Option<String>,
    /// The server's own name; `None` if the call was refused by its name.
    pub native_tool: Option<String>,
    /// The server; `None` if the call was refused by its name.
    pub server: Option<String>,
    /// The arguments, if they are recorded.
    pub arguments: Option<Box<RawValue>>,
}

impl RecordedCall {
    /// Returns true if the record is about a call of a tool, or about one that was refused before.
    pub fn is_of_tool(&self) -> bool {
        self.method == "tools/call" && self.tool.is_some()
    }

    /// Returns the arguments if they are recorded in full.
    pub fn known_arguments(&self) -> Option<Map<String, Value>> {
        let raw = self.arguments.as_ref().filter(|raw| is_complete(raw.get()))?;
        serde_json::from_str(raw.get()).ok()
    }
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
    /// Calls that cannot be decided, because no server is known to have a tool of this name.
    pub without_tool: usize,
    /// Files of the log that cannot be read, each with the reason. Their calls are missing here.
    pub unreadable_files: Vec<String>,
    /// Lines of the log that are no records.
    pub unreadable_lines: usize,
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

/// Decides recorded calls of tools under two configurations. Limits are left out: they depend on the
/// time of a call. So are arguments that violate a schema, and the scopes that a tool of the gateway
/// itself needs for its calls.
pub struct CallReplay<'a> {
    before: ReplayedConfig<'a>,
    after: ReplayedConfig<'a>,
    names: Box<dyn RecordedToolNames + 'a>,
    report: ReplayReport,
    changed: BTreeMap<ChangedDecision, usize>,
}

impl<'a> CallReplay<'a> {
    /// Compares two configurations. `names` finds the tools of calls that were refused by name.
    pub fn new(before: &'a Config, after: &'a Config, names: impl RecordedToolNames + 'a) -> Self {
        let (before, after) = (ReplayedConfig::new(before), ReplayedConfig::new(after));
        let (report, changed) = (ReplayReport::default(), BTreeMap::new());
        Self { before, after, names: Box::new(names), report, changed }
    }

    /// Decides one call. Ignores records of other events.
    pub fn add(&mut self, call: &RecordedCall) {
        let Some(caller) = KnownCaller::of(call) else { return };
        let Some(tool) = self.find_tool(call, &caller) else {
            return self.report.without_tool += 1;
        };
        let known = KnownCall { arguments: call.known_arguments(), caller, tool };
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
        let caller = known.caller.principal.as_str().to_owned();
        let tool = known.caller.public.to_owned();
        let changed = ChangedDecision { caller, tool, is_allowed, rule, calls: 0 };
        *self.changed.entry(changed).or_default() += 1;
    }

    /// Notes a line of the log that is no record.
    pub fn add_unreadable_line(&mut self) {
        self.report.unreadable_lines += 1;
    }

    /// Notes a file of the log that cannot be read, with the reason.
    pub fn add_unreadable_file(&mut self, fault: String) {
        self.report.unreadable_files.push(fault);
    }

    /// Returns the result.
    pub fn finish(self) -> ReplayReport {
        let changed = self.changed.into_iter();
        let changed = changed.map(|(decision, calls)| ChangedDecision { calls, ..decision });
        ReplayReport { changed: changed.collect(), ..self.report }
    }

    /// Returns the tool of a call: the recorded one, or the one that its public name means. A tool of
    /// the gateway itself has no server.
    fn find_tool(&self, call: &RecordedCall, caller: &KnownCaller<'_>) -> Option<RecordedTool> {
        if let (Some(server), Some(native)) = (&call.server, &call.native_tool) {
            let (server, native) = (ServerName::new(server).ok()?, NativeName::new(native));
            return Some(RecordedTool::OfServer { server, native });
        }
        let is_own = |config: &ReplayedConfig<'_>| config.has_own_tool(caller.public);
        if is_own(&self.before) || is_own(&self.after) {
            return Some(RecordedTool::Own);
        }
        self.names.find(caller.profile, caller.public)
    }
}

/// The caller and the subject of a recorded call of a tool.
struct KnownCaller<'a> {
    principal: Principal,
    profile: &'a str,
    public: &'a str,
}

impl<'a> KnownCaller<'a> {
    /// Returns `None` for a record that is not about a call of a tool. The calls inside of a
    /// meta-tool have records of their own.
    fn of(call: &'a RecordedCall) -> Option<Self> {
        let is_call = call.event == "call" && call.is_of_tool();
        let public = call.tool.as_deref().filter(|_| is_call)?;
        if call.server.is_none() && MetaTool::with_name(public).is_some() {
            return None;
        }
        let principal = match call.principal.as_deref()? {
            "anonymous" => Principal::Anonymous,
            // Only users have a colon in their names.
            name if name.contains(':') => Principal::User(name.into()),
            name => Principal::Client(name.into()),
        };
        let profile = call.profile.as_deref().unwrap_or(ProfileName::DEFAULT);
        Some(Self { principal, profile, public })
    }
}

/// A recorded call with its tool.
struct KnownCall<'a> {
    caller: KnownCaller<'a>,
    tool: RecordedTool,
    /// `None` if they are not recorded, or only in part.
    arguments: Option<Map<String, Value>>,
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

    fn has_own_tool(&self, name: &str) -> bool {
        self.config.tools.iter().any(|tool| tool.name.as_str() == name)
    }

    fn decide(&self, call: &KnownCall<'_>) -> Replayed {
        let KnownCaller { principal, profile: name, .. } = &call.caller;
        let access = self.identity.find_access(principal, clock::unix_now());
        let Some(ClientAccess { grants, .. }) = access else { return refused("clients") };
        if !self.identity.allows(principal, name) {
            return refused("clients");
        }
        let profile = profile(self.config, name);
        if profile.is_none() && *name != ProfileName::DEFAULT {
            return refused("profiles");
        }
        let endpoint = Endpoint { profile: profile.map(|it| it.name.clone()), narrowing: None };
        let context = Context::assumed(principal.clone(), grants, endpoint);
        let selection = profile.map(Selection::from_profile).unwrap_or_default();
        let hidden = match &call.tool {
            RecordedTool::Own => self.find_own_hiding(&call.caller, selection),
            RecordedTool::OfServer { server, native } => {
                self.find_hiding(&call.caller, &selection, (server, native))
            }
        };
        if let Some(setting) = hidden {
            return refused(&setting);
        }
        let has_token = matches!(principal, Principal::User(_));
        if !self.has_scopes(&context, &call.tool) {
            return if has_token { Replayed::NeedsToken } else { refused("scopes") };
        }
        let Some(authorization) = &self.authorization else { return Replayed::Allowed };
        if has_token && authorization.reads_tokens() {
            return Replayed::NeedsToken;
        }
        let public = call.caller.public;
        let (server, native) = match &call.tool {
            RecordedTool::Own => (None, public),
            RecordedTool::OfServer { server, native } => (Some(server), native.as_str()),
        };
        let element = RecordedElement { server, public, native };
        match authorization.decide_recorded(&context, element, call.arguments.as_ref()) {
            RecordedDecision::Allowed => Replayed::Allowed,
            RecordedDecision::Denied { rule } => Replayed::Refused {
                rule: rule.map_or("policy.rules".to_owned(), |it| it.to_string()),
            },
            RecordedDecision::NeedsArguments => Replayed::NeedsArguments,
        }
    }

    /// Returns the setting that hides a tool of the gateway itself.
    fn find_own_hiding(&self, caller: &KnownCaller<'_>, selection: Selection) -> Option<String> {
        if !self.has_own_tool(caller.public) {
            return Some(format!("tools.{}", caller.public));
        }
        let is_shown = Scope::new([selection]).admits_own_tool(caller.public);
        (!is_shown).then(|| format!("profiles.{}", caller.profile))
    }

    /// Returns the setting that hides the tool of a server.
    fn find_hiding(
        &self,
        caller: &KnownCaller<'_>,
        selection: &Selection,
        tool: (&ServerName, &NativeName),
    ) -> Option<String> {
        let (name, native) = tool;
        if !(selection.admits_server(name) && selection.admits(Kind::Tools, caller.public)) {
            return Some(format!("profiles.{}", caller.profile));
        }
        let server = self.config.servers.iter().find(|server| server.name == *name);
        let Some(server) = server else { return Some(format!("servers.{name}")) };
        let is_shown = server.tools.admits_tool(native.as_str());
        (!is_shown).then(|| format!("servers.{name}.tools"))
    }

    fn has_scopes(&self, context: &Context, tool: &RecordedTool) -> bool {
        let Some(rules) = &self.scopes else { return true };
        match tool {
            RecordedTool::Own => {
                let grants = context.grants.as_deref();
                let caller = ScopedCaller { principal: &context.principal, grants };
                rules.check_entry(caller, context.endpoint.profile(), None).is_ok()
            }
            RecordedTool::OfServer { server, native } => rules.admit_tool(context, server, native),
        }
    }
}

fn refused(rule: &str) -> Replayed {
    Replayed::Refused { rule: rule.to_owned() }
}
