//! The decision of the rules about a call, with the part of each rule that the call does not match.

use std::sync::Arc;

use crate::call::Call;
use crate::catalog::{CatalogElement, ElementIdentities};
use crate::config::RuleEffect;

use super::decision::{AccessDecision, NamedRuleFault};
use super::requested::AccessTarget;
use super::rights::CallerRights;
use super::rule::RuleMismatch;
use super::values::facts::RequestFacts;
use super::{Authorization, Judgement};

/// The decision of the rules about a call, and the result of each rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RulesExplanation {
    /// True if the call is allowed.
    pub is_allowed: bool,
    /// The rule that decides; `None` if no rule allows the call.
    pub rule: Option<Arc<str>>,
    /// The condition that could not be evaluated, if that is the reason of the refusal.
    pub fault: Option<NamedRuleFault>,
    /// The rules, in the order of the file.
    pub rules: Vec<ExplainedRule>,
}

/// The result of one rule for a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedRule {
    /// Its name.
    pub name: Arc<str>,
    /// Its effect.
    pub effect: RuleEffect,
    /// The first setting that the call does not match; `None` if the rule holds.
    pub mismatch: Option<RuleMismatch>,
}

impl Authorization {
    /// Explains the decision of [`Self::authorize_call`] about a call of an element.
    pub fn explain_call(
        self: &Arc<Self>,
        call: &Call,
        target: AccessTarget<'_>,
    ) -> Option<RulesExplanation> {
        let requested = target.requested?;
        let (rights, facts) = (self.rights_of(&call.context), RequestFacts::of(call));
        let judged = rights.judge_request(&facts, requested, target);
        Some(self.explain(&rights, &facts, &requested.as_element(target), judged))
    }

    /// Explains the decision of [`Self::authorize_own_tool`].
    pub fn explain_own_tool(self: &Arc<Self>, call: &Call, name: &str) -> RulesExplanation {
        let (rights, facts) = (self.rights_of(&call.context), RequestFacts::of(call));
        let element = CatalogElement::own_tool(name);
        let judged = rights.judge_call(&facts, &element);
        self.explain(&rights, &facts, &element, judged)
    }

    fn explain(
        &self,
        rights: &CallerRights,
        facts: &RequestFacts<'_>,
        element: &CatalogElement<'_>,
        judged: Judgement,
    ) -> RulesExplanation {
        let scope = rights.scope(Some(element), Some(facts));
        let identities = ElementIdentities::new(element, &self.naming);
        let rules = self.rules.iter().map(|rule| ExplainedRule {
            name: rule.name(),
            effect: rule.effect(),
            mismatch: rule.mismatched_call(&identities, &scope),
        });
        let (is_allowed, place) = match judged.decision {
            AccessDecision::Allowed { rule } => (true, rule),
            AccessDecision::Denied { rule } => (false, rule),
            AccessDecision::Depends => (false, None),
        };
        let fault = judged.fault.and_then(|fault| self.name_fault(fault));
        RulesExplanation { is_allowed, rule: self.name_of(place), fault, rules: rules.collect() }
    }
}
