//! One caller's rights: the visible elements, and the rules about its calls.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::call::{Context, ServerName};
use crate::catalog::{CatalogElement, ElementBasis, ElementFilter, ElementIdentities};
use crate::config::{ConditionCost, RuleEffect, ValueSize};

use super::Authorization;
use super::decision::{AccessDecision, Holds, Judgement, Verdict};
use super::requested::{AccessTarget, RequestBasis, RequestedElement};
use super::rule::{AccessRule, CallerMatch, SettledRule};
use super::values::facts::{CallerFacts, FactsRead, RequestFacts};
use super::values::{AnnotationTrust, EvaluationScope};

/// The rules that apply to one caller. Callers with equal rights see the same elements.
#[derive(Debug, Clone)]
pub struct CallerRights {
    authorization: Arc<Authorization>,
    /// Indexes of the rules that are about the caller, and the extent to which each is decided.
    applicable: Arc<[(usize, CallerMatch)]>,
    facts: FactsRead,
}

impl CallerRights {
    pub(super) fn new(authorization: &Arc<Authorization>, context: &Context) -> Self {
        let facts = CallerFacts::of(context);
        let matched = authorization.rules.iter().zip(0..);
        let matched = matched.map(|(rule, place)| (place, rule.match_caller(&facts)));
        let applicable: Arc<[_]> =
            matched.filter(|(_, matched)| *matched != CallerMatch::No).collect();
        let asks = applicable.iter().filter(|(_, matched)| *matched == CallerMatch::Asks);
        let conditions =
            asks.filter_map(|(place, _)| authorization.rule(*place).and_then(AccessRule::reads));
        let reads = authorization.union_of_reads(conditions);
        let facts = FactsRead { facts, reads };
        Self { authorization: Arc::clone(authorization), applicable, facts }
    }

    /// Returns true if these rights follow from rules that decide like `authorization`.
    pub(super) fn are_by(&self, authorization: &Authorization) -> bool {
        self.authorization.is_same(authorization)
    }

    /// Decides if the caller may see an element, from the facts that are known without a call.
    pub fn decide_listing(&self, element: &CatalogElement<'_>) -> AccessDecision {
        self.judge_element(element, None).decision
    }

    /// Decides if the caller may see the target of a call.
    pub fn decide_target(&self, target: AccessTarget<'_>) -> AccessDecision {
        match target.requested {
            Some(requested) => self.decide_listing(&requested.as_element(target)),
            None => self.decide_unlisted(target.server),
        }
    }

    /// Decides about a call of an element.
    pub(super) fn judge_call(
        &self,
        facts: &RequestFacts<'_>,
        element: &CatalogElement<'_>,
    ) -> Judgement {
        self.judge_element(element, Some(facts))
    }

    /// Decides about a call. For the task of a tool, it is enough that the caller still sees the
    /// tool: the arguments were judged when the task began.
    pub(super) fn judge_request(
        &self,
        facts: &RequestFacts<'_>,
        requested: &RequestedElement,
        target: AccessTarget<'_>,
    ) -> Judgement {
        let element = requested.as_element(target);
        if requested.basis != RequestBasis::Task {
            return self.judge_call(facts, &element);
        }
        let judged = self.judge_element(&element, None);
        match judged.decision {
            AccessDecision::Depends => {
                Judgement { decision: AccessDecision::Allowed { rule: None }, ..judged }
            }
            _ => judged,
        }
    }

    /// Decides about a request that names no element.
    pub(super) fn decide_unlisted(&self, server: &ServerName) -> AccessDecision {
        let holds = |(rule, standing): (&AccessRule, CallerMatch)| {
            rule.holds_for_unlisted(standing, server.as_str())
        };
        self.gather(holds).decide()
    }

    /// Returns the upper bound of the cost of the conditions to evaluate for a call. Those that
    /// cost too much are not evaluated.
    pub(super) fn call_cost(&self, facts: &RequestFacts<'_>) -> u64 {
        let scope = self.scope(None, Some(facts));
        let costs = self.asking_rules().map(|rule| rule.cost(&scope));
        costs.filter(|cost| *cost <= ConditionCost::MAX_STEPS).fold(0, u64::saturating_add)
    }

    /// Returns the upper bound of the cost of the conditions to evaluate for a call of this element
    /// with arguments of at most this many bytes.
    pub(super) fn call_cost_below(&self, bytes: usize, element: &CatalogElement<'_>) -> u64 {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        // Each element of a list or a map takes a byte at least.
        let size = ValueSize { bytes, elements: bytes };
        let scope = self.scope(Some(element), None);
        let costs = self.asking_rules().map(|rule| rule.cost_below(size, &scope));
        costs.fold(0, u64::saturating_add)
    }

    /// Returns the rules with conditions that are evaluated for each request of the caller.
    fn asking_rules(&self) -> impl Iterator<Item = &AccessRule> {
        let asks = self.applicable.iter().filter(|(_, matched)| *matched == CallerMatch::Asks);
        asks.filter_map(|(place, _)| self.authorization.rule(*place))
    }

    fn judge_element(
        &self,
        element: &CatalogElement<'_>,
        call: Option<&RequestFacts<'_>>,
    ) -> Judgement {
        let scope = self.scope(Some(element), call);
        let identities = ElementIdentities::new(element, &self.authorization.naming);
        let mut settled = call.and_then(|facts| facts.settled).into_iter().flatten();
        let verdict = self.gather(|(rule, standing)| {
            let settled = settled.next().copied().unwrap_or(SettledRule::Open);
            rule.holds_for(standing, settled, &identities, &scope)
        });
        let decision = match element.basis {
            ElementBasis::Interface => verdict.decide_part(),
            ElementBasis::Itself => verdict.decide(),
        };
        Judgement { decision, fault: verdict.fault_of(decision) }
    }

    pub(super) fn scope<'a>(
        &'a self,
        element: Option<&'a CatalogElement<'a>>,
        call: Option<&'a RequestFacts<'a>>,
    ) -> EvaluationScope<'a> {
        let server = element.and_then(|element| element.server);
        let is_trusted = server.is_some_and(|server| self.authorization.trusts(server));
        let annotations =
            if is_trusted { AnnotationTrust::Believed } else { AnnotationTrust::Ignored };
        let most_steps = match call {
            Some(facts) => facts.most_steps,
            None => Some(ConditionCost::CHEAP),
        };
        EvaluationScope { caller: &self.facts.facts, element, annotations, call, most_steps }
    }

    /// Settles each rule for an element independently of a call; in the order of [`Self::gather`].
    pub(super) fn settle(&self, element: &CatalogElement<'_>) -> Arc<[SettledRule]> {
        let scope = self.scope(Some(element), None);
        let identities = ElementIdentities::new(element, &self.authorization.naming);
        let settle = |&(place, standing): &(usize, CallerMatch)| {
            let rule = self.authorization.rule(place);
            rule.map_or(SettledRule::Open, |rule| rule.settle(standing, &identities, &scope))
        };
        self.applicable.iter().map(settle).collect()
    }

    fn gather(&self, mut holds: impl FnMut((&AccessRule, CallerMatch)) -> Holds) -> Verdict {
        let mut verdict = Verdict::default();
        for (place, standing) in self.applicable.iter().copied() {
            if let Some(rule) = self.authorization.rule(place) {
                verdict.add(place, rule.effect(), holds((rule, standing)));
            }
        }
        verdict
    }
}

impl ElementFilter for CallerRights {
    fn shows(&self, element: &CatalogElement<'_>) -> bool {
        !matches!(self.decide_listing(element), AccessDecision::Denied { .. })
    }

    fn shows_unlisted(&self, server: &ServerName) -> bool {
        !matches!(self.decide_unlisted(server), AccessDecision::Denied { .. })
    }

    // True if a rule allows the caller some of its elements, and none denies all of them.
    fn may_hear_of(&self, server: &ServerName) -> bool {
        let mut rules = self
            .applicable
            .iter()
            .filter_map(|(place, standing)| Some((self.authorization.rule(*place)?, *standing)));
        let denies = |(rule, standing): (&AccessRule, CallerMatch)| {
            let holds = rule.holds_for_unlisted(standing, server.as_str());
            rule.effect() == RuleEffect::Deny && holds == Holds::Yes
        };
        let allows = |(rule, standing): (&AccessRule, CallerMatch)| {
            rule.effect() == RuleEffect::Allow && rule.is_about_server(standing, server)
        };
        !rules.clone().any(denies) && rules.any(allows)
    }

    fn denies_resources(&self, server: &ServerName) -> bool {
        let rules = self.applicable.iter().filter_map(|(place, _)| self.authorization.rule(*place));
        rules
            .filter(|rule| rule.effect() == RuleEffect::Deny)
            .any(|rule| rule.may_deny_uris(server))
    }
}

impl PartialEq for CallerRights {
    fn eq(&self, other: &Self) -> bool {
        self.applicable == other.applicable
            && self.facts == other.facts
            && self.authorization.is_same(&other.authorization)
    }
}

impl Eq for CallerRights {}

impl Hash for CallerRights {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.applicable.hash(state);
        self.facts.hash(state);
    }
}
