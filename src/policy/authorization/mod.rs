//! Authorization: the access of callers to elements, by the rules of `[policy]`.
//!
//! The same rules decide twice. [`CallerRights`] decide which elements a caller sees: `catalog`
//! asks them for each element when a view is built, so that a denied element is in no list and has
//! no route. [`Authorization::authorize_call`] decides about each call, when all its facts are
//! known.
//!
//! A rule that denies wins over all that allow, and an element without an allowing rule cannot be
//! used. A gateway without rules has no [`Authorization`] and skips all this.

mod decision;
mod explanation;
mod requested;
mod rights;
mod rule;
mod survey;
mod values;

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use crate::call::{Call, Context, DecidingRule, Failure, ServerName};
use crate::catalog::{CatalogElement, ElementFilter as _, Kind, MAX_URI, Naming};
use crate::config::{ConditionCost, ConditionReads, Config, RuleConfig};
use crate::mcp::Method;
use crate::shares::{Holder, LargeWork, Patience};
use crate::text::clip;

pub use decision::{AccessDecision, NamedRuleFault};
pub use explanation::{ExplainedRule, RulesExplanation};
pub use requested::{AccessTarget, ElementStanding, RequestBasis, RequestedElement};
pub use rights::CallerRights;
pub use rule::{RuleMismatch, RuleSetting};
pub use survey::denials::{DeniedPattern, KnownElement, survey_denials};
pub use survey::recorded::{RecordedDecision, RecordedElement};
pub use survey::trial::{TrialCall, TrialElement, TrialOutcome, TrialResult};
pub use survey::{RuleRemark, survey_rules};

use decision::{Judgement, RuleFault};
use rule::AccessRule;
use values::facts::RequestFacts;

/// The rules of one configuration.
#[derive(Debug)]
pub struct Authorization {
    rules: Vec<AccessRule>,
    /// As configured, to compare sets of rules.
    settings: Vec<RuleConfig>,
    /// Servers with trusted annotations.
    trusted: HashSet<ServerName>,
    /// Settings of public names: a rule that denies matches every name that an element can have.
    naming: Naming,
    /// Reads of rules without conditions.
    no_reads: Arc<ConditionReads>,
}

impl Authorization {
    /// Compiles the rules of a configuration; `None` if there are none.
    pub fn compile(config: &Config) -> Option<Arc<Self>> {
        let settings = &config.policy.rules;
        if settings.is_empty() {
            return None;
        }
        let rules = settings.iter().map(AccessRule::compile).collect();
        let trusted = config.servers.iter().filter(|server| server.definitions.trusted);
        let trusted = trusted.map(|server| server.name.clone()).collect();
        let (settings, no_reads) = (settings.clone(), Arc::default());
        let naming = Naming::new(&config.gateway);
        Some(Arc::new(Self { rules, settings, trusted, naming, no_reads }))
    }

    /// Returns the access rights of a caller.
    pub fn rights_of(self: &Arc<Self>, context: &Context) -> CallerRights {
        CallerRights::new(self, context)
    }

    /// Returns the union of the reads of several conditions.
    fn union_of_reads<'a>(
        &self,
        mut conditions: impl Iterator<Item = &'a Arc<ConditionReads>>,
    ) -> Arc<ConditionReads> {
        let mut union = Arc::clone(conditions.next().unwrap_or(&self.no_reads));
        conditions.for_each(|one| Arc::make_mut(&mut union).extend(one));
        union
    }

    /// Returns true if a server's annotations are trusted.
    fn trusts(&self, server: &ServerName) -> bool {
        self.trusted.contains(server)
    }

    /// Returns true if two sets of rules decide the same.
    fn is_same(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.settings == other.settings
                && self.trusted == other.trusted
                && self.naming == other.naming)
    }

    /// Decides about a call, if the caller's view knows its tool and the decision takes little
    /// time.
    ///
    /// # Errors
    /// As [`Self::authorize_call`].
    pub fn decide_at_once(
        &self,
        call: &Call,
        target: AccessTarget<'_>,
    ) -> Option<Result<(), Failure>> {
        let requested = target.requested.map(|requested| &**requested);
        let standing = requested.and_then(|requested| self.standing_of(requested))?;
        if let AccessDecision::Allowed { .. } = standing.decision {
            self.note_decision(standing.decision, &call.context);
            return Some(Ok(()));
        }
        let facts = standing.is_cheap(call).then(|| RequestFacts::of_cheap(call))?;
        let facts = facts.settled_by(&standing.settled);
        Some(self.authorize(&standing.rights, &facts, target))
    }

    /// Returns the decisions that a view holds for an element, if they were made by these rules.
    fn standing_of<'a>(&self, requested: &'a RequestedElement) -> Option<&'a ElementStanding> {
        requested.standing.as_ref().filter(|standing| standing.rights.are_by(self))
    }

    /// Decides about a call, and notes the rule in the audit log.
    ///
    /// # Errors
    /// The failure of an unknown element if the caller may not see the requested one, and
    /// [`Failure::CallDenied`] if the caller may see it, but not call it with these arguments.
    pub async fn authorize_call(
        self: &Arc<Self>,
        call: &Call,
        target: AccessTarget<'_>,
        large_work: &LargeWork,
    ) -> Result<(), Failure> {
        let requested = target.requested.map(|requested| &**requested);
        let known = requested.and_then(|requested| self.standing_of(requested));
        let rights =
            known.map_or_else(|| self.rights_of(&call.context), |known| known.rights.clone());
        let settled = known.map_or_else(Arc::default, |known| Arc::clone(&known.settled));
        let (own, server) = (Arc::clone(self), target.server.clone());
        let requested = target.requested.cloned();
        let decide = move |rights: &CallerRights, call: &Call| {
            let target = AccessTarget { server: &server, requested: requested.as_ref() };
            own.authorize(rights, &RequestFacts::of(call).settled_by(&settled), target)
        };
        decide_about(rights, call, large_work, decide).await
    }

    /// Decides about a subscription, as [`Self::authorize_call`] does about a call.
    ///
    /// # Errors
    /// As [`Self::authorize_call`].
    pub fn authorize_subscription(
        self: &Arc<Self>,
        context: &Context,
        target: AccessTarget<'_>,
    ) -> Result<(), Failure> {
        let method = &Method::ResourcesSubscribe;
        let rights = self.rights_of(context);
        self.authorize(&rights, &RequestFacts::new(method, None, context), target)
    }

    fn authorize(
        &self,
        rights: &CallerRights,
        facts: &RequestFacts<'_>,
        target: AccessTarget<'_>,
    ) -> Result<(), Failure> {
        let Some(requested) = target.requested else {
            let decision = rights.decide_unlisted(target.server);
            self.note_decision(decision, facts.context);
            let method = facts.method.as_str().to_owned();
            return match decision {
                AccessDecision::Allowed { .. } => Ok(()),
                _ => Err(Failure::MethodNotFound { method }),
            };
        };
        let judged = rights.judge_request(facts, requested, target);
        self.note_decision(judged.decision, facts.context);
        self.note_fault(judged.fault, facts.context);
        match judged.decision {
            AccessDecision::Allowed { .. } => Ok(()),
            _ if rights.shows(&requested.as_element(target)) => Err(Failure::CallDenied),
            _ => Err(unknown_element(requested)),
        }
    }

    /// Decides about a call of a tool of the gateway itself, which has no server.
    ///
    /// # Errors
    /// As [`Self::authorize_call`].
    pub async fn authorize_own_tool(
        self: &Arc<Self>,
        call: &Call,
        name: &str,
        large_work: &LargeWork,
    ) -> Result<(), Failure> {
        let (own, rights, name) =
            (Arc::clone(self), self.rights_of(&call.context), Box::<str>::from(name));
        let decide = move |rights: &CallerRights, call: &Call| {
            let element = CatalogElement::own_tool(&name);
            let judged = rights.judge_call(&RequestFacts::of(call), &element);
            own.note_decision(judged.decision, &call.context);
            own.note_fault(judged.fault, &call.context);
            match judged.decision {
                AccessDecision::Allowed { .. } => Ok(()),
                _ if rights.shows(&element) => Err(Failure::CallDenied),
                _ => Err(Failure::UnknownTool { name: clip(&name, MAX_NAME).to_owned() }),
            }
        };
        decide_about(rights, call, large_work, decide).await
    }

    /// Notes the rule of a decision in the audit log.
    pub fn note_decision(&self, decision: AccessDecision, context: &Context) {
        let named =
            |place: Option<usize>| DecidingRule { check: RULE_CHECK, rule: self.name_of(place) };
        match decision {
            AccessDecision::Allowed { rule } => context.permitted_by(|| named(rule)),
            AccessDecision::Denied { rule } => context.decided_by(|| named(rule)),
            AccessDecision::Depends => {}
        }
    }

    /// Notes the condition that could not be evaluated in the audit log.
    fn note_fault(&self, fault: Option<RuleFault>, context: &Context) {
        if let Some(fault) = fault.and_then(|fault| self.name_fault(fault)) {
            context.condition_failed(|| fault.to_string().into());
        }
    }

    fn name_fault(&self, fault: RuleFault) -> Option<NamedRuleFault> {
        let rule = self.name_of(Some(fault.place))?;
        Some(NamedRuleFault { rule, fault: fault.fault })
    }

    /// Notes in the audit log that rules decided the content of a list.
    pub fn note_list(&self, context: &Context) {
        context.permitted_by(|| DecidingRule { check: RULE_CHECK, rule: None });
    }

    /// Returns the name of a rule.
    fn name_of(&self, place: Option<usize>) -> Option<Arc<str>> {
        place.and_then(|place| self.rule(place)).map(AccessRule::name)
    }

    fn rule(&self, place: usize) -> Option<&AccessRule> {
        self.rules.get(place)
    }
}

/// Decides about a call: here, or, if its arguments are large, away from the threads that serve
/// clients.
async fn decide_about(
    rights: CallerRights,
    call: &Call,
    large_work: &LargeWork,
    decide: impl FnOnce(&CallerRights, &Call) -> Result<(), Failure> + Send + 'static,
) -> Result<(), Failure> {
    if rights.call_cost(&RequestFacts::of(call)) <= ConditionCost::CHEAP {
        return decide(&rights, call);
    }
    let failure = Failure::OverLimit { limit: "rules".into(), retry_after: CONDITION_RETRY_AFTER };
    let patience = Patience { longest: MAX_RULES_WAIT, failure };
    let (holder, call) = (Holder::of_context(&call.context), call.clone());
    large_work.run(&holder, patience, move || decide(&rights, &call)).await?
}

/// Returns the failure of a call for an element that the caller may not see: the same as for an
/// unknown one. Views hide it before; this happens if a view is older than the rules.
fn unknown_element(requested: &RequestedElement) -> Failure {
    let name = |most| clip(&requested.public, most).to_owned();
    match requested.kind {
        Kind::Tools => Failure::UnknownTool { name: name(MAX_NAME) },
        Kind::Prompts => Failure::UnknownPrompt { name: name(MAX_NAME) },
        Kind::Resources | Kind::Templates | Kind::Skills => {
            Failure::UnknownResource { uri: name(MAX_URI) }
        }
    }
}

/// Limit of a call's wait for the rules of other calls with large arguments.
pub(super) const MAX_RULES_WAIT: Duration = Duration::from_secs(10);
/// Time after which such a call may be tried again.
const CONDITION_RETRY_AFTER: Duration = Duration::from_secs(1);
/// The longest name that an error repeats.
const MAX_NAME: usize = 128;

/// The name of this check in the audit log.
const RULE_CHECK: &str = "rule";

#[cfg(test)]
mod tests;
