//! The report about a call that is not made, gate by gate.

use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use crate::call::{Failure, Grants, NativeName, ProfileName, ServerName};
use crate::config::{Config, ConfigPlaces, ScopeName, quote_segment};
use crate::policy::{CallGate, GateOutcome, GateVerdict, LimitLevel, RulesExplanation};
use crate::upstream::{LifeState, ServerOverview};

use super::CallQuery;
use super::limit_settings::setting_of_limit;

/// The explanation of a call.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct CallExplanation {
    /// The caller.
    pub client: String,
    /// The profile of the call.
    pub profile: String,
    /// The public name of the tool.
    pub tool: String,
    /// The server of the tool, and its own name for it.
    pub server: Option<String>,
    /// The server's own name for the tool.
    pub native: Option<String>,
    /// Facts about the caller that were assumed, because only a request has them.
    pub assumptions: Vec<String>,
    /// The first gate that refuses the call.
    pub refused_by: Option<CallGate>,
    /// The gates, in the order in which a call passes them.
    pub gates: Vec<ExplainedGate>,
}

/// The explanation of one gate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ExplainedGate {
    /// The gate.
    pub gate: CallGate,
    /// Its verdict.
    pub verdict: ExplainedVerdict,
    /// The reason of the verdict.
    pub reason: String,
    /// The setting that decides.
    pub setting: Option<String>,
    /// Its line in the running configuration.
    pub line: Option<u32>,
    /// The change that would allow the call.
    pub cure: Option<String>,
}

/// The verdict of a gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ExplainedVerdict {
    /// The call passes.
    Passes,
    /// The call is refused.
    Refuses,
    /// The call waits.
    Waits,
    /// The user is asked for consent.
    AsksUser,
    /// The verdict depends on facts that are not known.
    NotKnown,
}

/// Collects the explanations of the gates of one call.
pub(super) struct Explainer<'a> {
    pub(super) config: Arc<Config>,
    pub(super) query: &'a CallQuery,
    /// The profile of the call.
    pub(super) profile: String,
    /// The rights of the caller, as far as known.
    pub(super) grants: Option<Arc<Grants>>,
    /// The decision of the rules, if there are any.
    pub(super) rules: Option<RulesExplanation>,
    /// True if a rule reads facts that only the token of a user has.
    pub(super) reads_tokens: bool,
    /// True if the decision of the rules depends on the arguments.
    pub(super) rules_read_arguments: bool,
    server: Option<ServerName>,
    native: Option<NativeName>,
    gates: BTreeMap<CallGate, ExplainedGate>,
}

impl<'a> Explainer<'a> {
    pub(super) fn new(config: &Arc<Config>, query: &'a CallQuery) -> Self {
        Self {
            config: Arc::clone(config),
            query,
            profile: query.profile.clone().unwrap_or_else(|| ProfileName::DEFAULT.to_owned()),
            grants: None,
            rules: None,
            reads_tokens: false,
            rules_read_arguments: false,
            server: None,
            native: None,
            gates: BTreeMap::new(),
        }
    }

    /// Sets the server of the call, and its own name for the tool.
    pub(super) fn set_target(&mut self, server: &ServerName, native: Option<&NativeName>) {
        (self.server, self.native) = (Some(server.clone()), native.cloned());
    }

    /// Notes that the call passes a gate.
    pub(super) fn pass(&mut self, gate: CallGate, reason: &str) {
        self.report(gate, ExplainedVerdict::Passes, reason.to_owned());
    }

    /// Notes that a gate refuses the call.
    pub(super) fn refuse(&mut self, gate: CallGate, reason: String) {
        self.report(gate, ExplainedVerdict::Refuses, reason);
    }

    pub(super) fn report(&mut self, gate: CallGate, verdict: ExplainedVerdict, reason: String) {
        let (setting, line, cure) = (None, None, None);
        self.gates.insert(gate, ExplainedGate { gate, verdict, reason, setting, line, cure });
    }

    /// Sets the setting that decides at a gate, and the change that would allow the call.
    pub(super) fn set_cure(&mut self, gate: CallGate, setting: &str, cure: &str) {
        if let Some(explained) = self.gates.get_mut(&gate) {
            explained.setting = Some(setting.to_owned());
            explained.cure = Some(cure.to_owned());
        }
    }

    /// Notes the refusal of a gate, with its setting and cure.
    pub(super) fn note_failure(&mut self, gate: CallGate, failure: &Failure) {
        self.refuse(gate, failure.to_string());
        match failure {
            Failure::KeyMissing => {
                self.set_cure(gate, "clients", "call with the key of a client");
            }
            Failure::KeyExpired => {
                let setting = format!("clients.{}.keys", quote_segment(&self.query.client));
                self.set_cure(gate, &setting, "give the client another key (trunkline key)");
            }
            Failure::OverLimit { limit, .. } => {
                let setting = setting_of_limit(limit, &self.config);
                self.set_cure(gate, &setting, "raise the limit, or call again later");
            }
            Failure::BreakerOpen { .. } => {
                let setting = self.server_key("breaker");
                let cure = "wait; the log has the failures of the server (trunkline status)";
                self.set_cure(gate, &setting, cure);
            }
            Failure::InvalidArguments(_) => {
                let setting = self.server_key("arguments");
                let cure =
                    "correct the arguments; for a lenient server, set arguments = \"coerce\"";
                self.set_cure(gate, &setting, cure);
            }
            Failure::ScopesNeeded(needed) => {
                let missing = needed.scopes.iter().filter(|scope| !self.has_scope(scope));
                let missing: Vec<_> = missing.map(ToString::to_string).collect();
                self.explain_scopes(gate, &missing);
            }
            _ => {}
        }
    }

    fn has_scope(&self, scope: &str) -> bool {
        self.grants.as_ref().is_some_and(|grants| grants.scopes.contains(scope))
    }

    fn explain_scopes(&mut self, gate: CallGate, missing: &[String]) {
        let needs = |scopes: &[ScopeName]| {
            scopes.iter().any(|scope| missing.iter().any(|one| **one == *scope.shared()))
        };
        let profile = self.config.profiles.iter().find(|it| it.name.as_str() == self.profile);
        let server = self.config.servers.iter().find(|it| Some(&it.name) == self.server.as_ref());
        let tool = server.and_then(|server| {
            let mut all = server.tools.overrides.iter();
            all.find(|(native, _)| Some(native) == self.native.as_ref())
        });
        let setting = if profile.is_some_and(|profile| needs(&profile.scopes)) {
            format!("profiles.{}.scopes", quote_segment(&self.profile))
        } else if let Some((native, _)) = tool.filter(|(_, tool)| needs(&tool.scopes)) {
            self.server_key(&format!("tools.{}.scopes", quote_segment(native.as_str())))
        } else {
            self.server_key("scopes")
        };
        let missing = missing.join(", ");
        let cure = if self.query.client.contains(':') {
            format!("request a token with the scopes {missing}")
        } else {
            format!("add {missing} to clients.{}.scopes", quote_segment(&self.query.client))
        };
        let is_open = self.lacks_token();
        let reason = format!("the call needs scopes that the caller lacks: {missing}");
        let verdict = if is_open { ExplainedVerdict::NotKnown } else { ExplainedVerdict::Refuses };
        self.report(gate, verdict, reason);
        self.set_cure(gate, &setting, &cure);
    }

    /// Returns the key of a setting of the call's server.
    pub(super) fn server_key(&self, setting: &str) -> String {
        let server = self.server.as_ref().map_or("NAME", ServerName::as_str);
        format!("servers.{}.{setting}", quote_segment(server))
    }

    /// Adds the outcomes of a dry run to the gates that are not explained yet.
    pub(super) fn add_outcomes(&mut self, outcomes: Vec<GateOutcome>) {
        for outcome in outcomes {
            let GateOutcome { gate, verdict, limits } = outcome;
            if self.gates.contains_key(&gate) {
                continue;
            }
            match verdict {
                _ if gate == CallGate::Rules && self.rules.is_some() => {
                    let refusal = match &verdict {
                        GateVerdict::Refuses(failure) => Some(failure),
                        _ => None,
                    };
                    self.explain_rules(refusal);
                }
                _ if gate == CallGate::Arguments && self.query.arguments.is_none() => {
                    let reason = "they are not known".to_owned();
                    self.report(gate, ExplainedVerdict::NotKnown, reason);
                }
                GateVerdict::Passes => self.pass(gate, &describe_pass(gate, &limits)),
                GateVerdict::Refuses(failure) => self.note_failure(gate, &failure),
                GateVerdict::Waits { in_flight } => {
                    let reason = format!("{in_flight} calls in flight: the call waits for a slot");
                    self.report(gate, ExplainedVerdict::Waits, reason);
                }
                GateVerdict::AsksUser => {
                    let reason = "the user has to agree to each call".to_owned();
                    self.report(gate, ExplainedVerdict::AsksUser, reason);
                    let setting = self.server_key("confirm");
                    self.set_cure(gate, &setting, "agree, or set confirm = false");
                }
                GateVerdict::Unknown => {
                    let reason = "they see real calls only".to_owned();
                    self.report(gate, ExplainedVerdict::NotKnown, reason);
                }
            }
        }
    }

    /// Describes the state of the call's server.
    pub(super) fn describe_server(&mut self, server: &ServerOverview) {
        let error = || match &server.last_error {
            Some((_, error)) => error.clone(),
            None => "the reason is not known".to_owned(),
        };
        let gate = CallGate::Server;
        match &server.state {
            LifeState::Ready => self.pass(gate, "ready"),
            LifeState::Idle => self.pass(gate, "idle: the call starts it"),
            LifeState::Connecting => {
                self.report(gate, ExplainedVerdict::Waits, "starting".to_owned());
            }
            LifeState::Backoff { .. } => {
                let reason = format!("it has failed, and is started again: {}", error());
                self.report(gate, ExplainedVerdict::NotKnown, reason);
            }
            LifeState::AwaitsLogin if server.own_accounts_only => {
                let reason = "each user calls it with an account of its own".to_owned();
                self.report(gate, ExplainedVerdict::NotKnown, reason);
            }
            LifeState::AwaitsLogin => {
                self.refuse(gate, "it needs a login".to_owned());
                let setting = self.server_key("oauth");
                self.set_cure(gate, &setting, "log in (trunkline login)");
            }
            LifeState::Failed | LifeState::Stopped => {
                self.refuse(gate, format!("it has failed: {}", error()));
                let key = self.server_key("");
                self.set_cure(gate, key.trim_end_matches('.'), "find the cause in the log");
            }
        }
    }

    /// Completes the explanation.
    pub(super) fn finish(self) -> CallExplanation {
        let mut assumptions = vec![
            "a Modern client over HTTP/1.1 from this machine, without capabilities".to_owned(),
        ];
        if self.lacks_token() {
            assumptions.push("a token without scopes, groups and claims".to_owned());
        }
        let gates: Vec<_> = self.gates.into_values().collect();
        let refused = gates.iter().find(|gate| gate.verdict == ExplainedVerdict::Refuses);
        CallExplanation {
            client: self.query.client.clone(),
            profile: self.profile,
            tool: self.query.tool.clone(),
            server: self.server.map(|server| server.to_string()),
            native: self.native.map(|native| native.to_string()),
            assumptions,
            refused_by: refused.map(|gate| gate.gate),
            gates,
        }
    }

    /// Returns true if the decision of the rules depends on arguments that are not known.
    pub(super) fn lacks_rule_arguments(&self) -> bool {
        self.rules_read_arguments && self.query.arguments.is_none()
    }

    /// Returns true if the caller is a user, and the facts of its token are not known.
    pub(super) fn lacks_token(&self) -> bool {
        self.query.client.contains(':') && self.query.token.is_none()
    }
}

impl CallExplanation {
    /// Adds the lines of the settings.
    pub(super) fn locate(&mut self, places: &ConfigPlaces) {
        for gate in &mut self.gates {
            gate.line = gate.setting.as_deref().and_then(|setting| places.line_of(setting));
        }
    }
}

/// Describes a gate that a call passes.
fn describe_pass(gate: CallGate, limits: &[LimitLevel]) -> String {
    if !limits.is_empty() {
        let level =
            |one: &LimitLevel| format!("{}: {} left of {}", one.limit, one.remaining, one.setting);
        return limits.iter().map(level).collect::<Vec<_>>().join("; ");
    }
    let reason = match gate {
        CallGate::Name => "the profile shows the tool",
        CallGate::Definitions => "the definition is not held",
        CallGate::Rules => "there are no rules",
        CallGate::Scopes => "the caller has the required scopes",
        CallGate::Breaker => "calls pass",
        CallGate::Arguments => "they fit the schema",
        CallGate::RequestRates => "no rates of the client or the gateway are set",
        CallGate::Rates => "no rates of the tool, the server or the profile are set",
        CallGate::Quotas => "no quotas are set",
        _ => "passes",
    };
    reason.to_owned()
}
