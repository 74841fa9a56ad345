//! One rule, compiled.

use std::cell::LazyCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::ServerName;
use crate::catalog::{
    CatalogElement, ElementIdentities, ElementSpellings, Kind, UriPattern, are_about_server,
};
use crate::config::{
    Condition, ConditionCost, ConditionReads, EvaluationFault, FailingTerm, Pattern, RuleConfig,
    RuleEffect, SplitCondition, ValueSize,
};

use super::decision::Holds;
use super::values::facts::CallerFacts;
use super::values::spellings::{WrittenUri, reads_uri, spell_element};
use super::values::{AnnotationTrust, EvaluationScope, size_of, values_of};

/// One rule.
#[derive(Debug)]
pub(super) struct AccessRule {
    settings: RuleConfig,
    /// The patterns for resources.
    resources: Vec<UriPattern>,
    /// URIs in its condition.
    written_uris: Vec<WrittenUri>,
    /// True once a failed evaluation was reported.
    has_warned: AtomicBool,
}

/// The extent to which a rule is decided once the caller is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum CallerMatch {
    /// The rule is not about this caller.
    No,
    /// The rule is about this caller; servers and patterns decide.
    Yes,
    /// The rule is about this caller, if its condition holds for the request.
    Asks,
}

/// The extent to which a rule is decided for a caller and an element, independently of the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SettledRule {
    /// Nothing.
    Open,
    /// It is about the element, and its condition is open.
    AboutElement,
    /// It is about the element, and the part of its condition that does not depend on the call holds.
    BeforeCall,
    /// The rule holds, or does not.
    Whole(bool),
}

/// Settings of a rule that a call may not match, in the order in which they are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleSetting {
    /// `servers`.
    Servers,
    /// `tools`, `prompts` or `resources`.
    Elements,
    /// `principals`.
    Principals,
    /// `profiles`.
    Profiles,
    /// `groups`.
    Groups,
    /// `scopes`.
    Scopes,
    /// `when`.
    Condition,
}

/// The first setting of a rule that a call does not match.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RuleMismatch {
    /// The setting.
    pub setting: RuleSetting,
    /// The term of the condition that does not hold, if it is about the element.
    pub term: Option<FailingTerm>,
}

impl RuleSetting {
    /// Returns the key for a rule about a tool.
    pub fn key(self) -> &'static str {
        match self {
            Self::Principals => "principals",
            Self::Profiles => "profiles",
            Self::Groups => "groups",
            Self::Scopes => "scopes",
            Self::Servers => "servers",
            Self::Elements => "tools",
            Self::Condition => "when",
        }
    }
}

impl AccessRule {
    pub(super) fn compile(settings: &RuleConfig) -> Self {
        let resources = settings.resources.iter().flatten().map(UriPattern::new).collect();
        let written_uris = settings.when.as_ref().map(WrittenUri::find_in).unwrap_or_default();
        let (settings, has_warned) = (settings.clone(), AtomicBool::new(false));
        Self { settings, resources, written_uris, has_warned }
    }

    pub(super) fn name(&self) -> Arc<str> {
        self.settings.name.to_shared()
    }

    pub(super) fn effect(&self) -> RuleEffect {
        self.settings.effect
    }

    /// Returns the variables that its condition reads; `None` if it has none.
    pub(super) fn reads(&self) -> Option<&Arc<ConditionReads>> {
        self.settings.when.as_ref().map(Condition::reads)
    }

    /// Returns the setting about callers that the caller does not match.
    #[inline]
    fn mismatched_caller(&self, caller: &CallerFacts) -> Option<RuleSetting> {
        let RuleConfig { principals, groups, scopes, profiles, .. } = &self.settings;
        if !admits_any(principals.as_ref(), [caller.principal.as_str()]) {
            return Some(RuleSetting::Principals);
        }
        if !admits_any(profiles.as_ref(), [caller.profile()]) {
            return Some(RuleSetting::Profiles);
        }
        if !admits_any(groups.as_ref(), caller.groups()) {
            return Some(RuleSetting::Groups);
        }
        (!admits_any(scopes.as_ref(), caller.scopes())).then_some(RuleSetting::Scopes)
    }

    /// Evaluates the conditions that are about the caller alone.
    pub(super) fn match_caller(&self, caller: &CallerFacts) -> CallerMatch {
        match &self.settings.when {
            _ if self.mismatched_caller(caller).is_some() => CallerMatch::No,
            None => CallerMatch::Yes,
            Some(condition) if condition.reads().needs_element() => CallerMatch::Asks,
            Some(condition) => {
                let annotations = AnnotationTrust::Ignored;
                let most_steps = Some(ConditionCost::MAX_STEPS);
                let scope =
                    EvaluationScope { caller, element: None, annotations, call: None, most_steps };
                match (self.evaluate(condition, &scope), self.effect()) {
                    (Holds::Yes, _) | (Holds::Fails(_), RuleEffect::Deny) => CallerMatch::Yes,
                    _ => CallerMatch::No,
                }
            }
        }
    }

    /// Settles the rule for one element before there is a call.
    pub(super) fn settle(
        &self,
        standing: CallerMatch,
        identities: &ElementIdentities<'_>,
        scope: &EvaluationScope<'_>,
    ) -> SettledRule {
        if !self.is_about_element(identities) {
            return SettledRule::Whole(false);
        }
        if self.settings.when.is_none() || standing != CallerMatch::Asks {
            return SettledRule::Whole(true);
        }
        let Some((condition, _)) = self.asked_condition(standing, scope) else {
            return SettledRule::Whole(false);
        };
        if !condition.reads().needs_call() {
            let known = Self::try_evaluate(condition, scope);
            return known.map_or(SettledRule::AboutElement, SettledRule::Whole);
        }
        // A part that fails to evaluate is evaluated together with the other one, which may decide.
        let split = condition.split();
        match split.map(|split| Self::try_evaluate(&split.before_call, scope)) {
            None | Some(Err(_)) => SettledRule::AboutElement,
            Some(Ok(true)) => SettledRule::BeforeCall,
            Some(Ok(false)) => SettledRule::Whole(false),
        }
    }

    /// Evaluates the rule for an element, for a caller that it is about.
    pub(super) fn holds_for(
        &self,
        standing: CallerMatch,
        settled: SettledRule,
        identities: &ElementIdentities<'_>,
        scope: &EvaluationScope<'_>,
    ) -> Holds {
        match settled {
            SettledRule::Whole(true) => return Holds::Yes,
            SettledRule::Whole(false) => return Holds::No,
            SettledRule::Open if !self.is_about_element(identities) => return Holds::No,
            SettledRule::AboutElement | SettledRule::BeforeCall | SettledRule::Open => {}
        }
        if self.settings.when.is_none() || standing != CallerMatch::Asks {
            return Holds::Yes;
        }
        let Some((condition, split)) = self.asked_condition(standing, scope) else {
            return Holds::No;
        };
        match (settled, split) {
            (SettledRule::BeforeCall, Some(split)) => self.evaluate(&split.of_call, scope),
            _ => self.evaluate(condition, scope),
        }
    }

    /// Returns the condition to evaluate for an element, if the element is of a kind that the
    /// condition is about.
    fn asked_condition(
        &self,
        standing: CallerMatch,
        scope: &EvaluationScope<'_>,
    ) -> Option<(&Condition, Option<&SplitCondition>)> {
        let condition = self.settings.when.as_ref().filter(|_| standing == CallerMatch::Asks)?;
        let kind = scope.element?.kind;
        is_about_kind(condition.reads(), kind).then(|| (condition, condition.split()))
    }

    /// Evaluates the rule for requests to a server that name no element.
    pub(super) fn holds_for_unlisted(&self, standing: CallerMatch, server: &str) -> Holds {
        let RuleConfig { servers, tools, prompts, resources, .. } = &self.settings;
        let names_elements = tools.is_some() || prompts.is_some() || resources.is_some();
        let asks = standing == CallerMatch::Asks;
        if names_elements || asks || !admits_any(servers.as_ref(), [server]) {
            return Holds::No;
        }
        Holds::Yes
    }

    /// Returns true if the rule may be about elements of a server that has not listed any yet. A
    /// condition decides nothing for unknown elements.
    pub(super) fn is_about_server(&self, standing: CallerMatch, server: &ServerName) -> bool {
        let RuleConfig { servers, tools, prompts, resources, .. } = &self.settings;
        let kinds = [tools, prompts, resources];
        let names_nothing = servers.is_none() && kinds.iter().all(|kind| kind.is_none());
        (standing == CallerMatch::Yes || !names_nothing)
            && are_about_server(servers.as_deref(), kinds.map(|kind| kind.as_deref()), server)
    }

    /// Returns true if the rule, a denial, may be about resources of a server.
    pub(super) fn may_deny_uris(&self, server: &ServerName) -> bool {
        let RuleConfig { servers, tools, prompts, resources, when, .. } = &self.settings;
        let names_elements = tools.is_some() || prompts.is_some() || resources.is_some();
        let is_named = self.resources.iter().any(|one| one.may_match_server(server.as_str()));
        let is_asked = when.as_ref().is_none_or(|it| is_about_kind(it.reads(), Kind::Resources));
        admits_any(servers.as_ref(), [server.as_str()]) && is_asked && (is_named || !names_elements)
    }

    /// Returns the upper bound of the cost of its condition.
    pub(super) fn cost(&self, scope: &EvaluationScope<'_>) -> u64 {
        let condition = self.settings.when.as_ref();
        condition.map_or(0, |condition| cost_within(condition, scope))
    }

    /// Returns the upper bound of the cost of its condition with arguments of at most this size.
    pub(super) fn cost_below(&self, arguments: ValueSize, scope: &EvaluationScope<'_>) -> u64 {
        let condition = self.settings.when.as_ref();
        condition.map_or(0, |condition| {
            cost_of(condition, |name| match name {
                "arguments" => arguments,
                _ => size_of(name, condition.reads(), scope),
            })
        })
    }

    /// Evaluates a condition. For an element with a URI it does so for each spelling: a denial
    /// holds if it holds for one, a permission if it holds for all.
    fn evaluate(&self, condition: &Condition, scope: &EvaluationScope<'_>) -> Holds {
        let spelled = scope.element.filter(|_| reads_uri(condition)).and_then(|element| {
            Some((element, spell_element(element, self.effect(), &self.written_uris)?))
        });
        let Some((element, spelled)) = spelled else { return self.evaluate_once(condition, scope) };
        let (mut depends, otherwise) = (false, self.holds_by_default());
        for (public, native) in &spelled {
            let element = CatalogElement { public, native, ..*element };
            let scope = EvaluationScope { element: Some(&element), ..*scope };
            match (self.evaluate_once(condition, &scope), self.effect()) {
                (Holds::Depends, _) => depends = true,
                (Holds::Yes, RuleEffect::Allow) | (Holds::No, RuleEffect::Deny) => {}
                (decisive, _) => return decisive,
            }
        }
        if depends { Holds::Depends } else { otherwise }
    }

    /// Returns the result for an element if no spelling of its URI decides otherwise.
    fn holds_by_default(&self) -> Holds {
        match self.effect() {
            RuleEffect::Allow => Holds::Yes,
            RuleEffect::Deny => Holds::No,
        }
    }

    /// Evaluates a condition once. If this fails, a rule that allows does not apply, and one that
    /// denies does; before there is a call, the result depends on the call.
    fn evaluate_once(&self, condition: &Condition, scope: &EvaluationScope<'_>) -> Holds {
        match Self::try_evaluate(condition, scope) {
            Ok(true) => Holds::Yes,
            Ok(false) => Holds::No,
            Err(_) if scope.call.is_none() && condition.reads().needs_call() => Holds::Depends,
            Err(fault) => {
                self.report_fault(&fault);
                Holds::Fails(fault)
            }
        }
    }

    /// Evaluates a condition.
    ///
    /// # Errors
    /// The evaluation fails, or costs too much.
    fn try_evaluate(
        condition: &Condition,
        scope: &EvaluationScope<'_>,
    ) -> Result<bool, EvaluationFault> {
        if scope.most_steps.is_some_and(|most| cost_within(condition, scope) > most) {
            return Err(EvaluationFault::TooCostly);
        }
        condition.evaluate(values_of(condition.reads(), scope)?)
    }

    fn report_fault(&self, fault: &EvaluationFault) {
        let (rule, effect) = (self.settings.name.as_str(), self.effect().as_str());
        // The explanation of a call is not logged, and leaves the warning to a real one.
        let is_logged = tracing::enabled!(tracing::Level::WARN);
        if !is_logged || self.has_warned.swap(true, Ordering::Relaxed) {
            tracing::debug!(rule, effect, %fault, "the condition of a rule could not be evaluated");
        } else {
            tracing::warn!(
                rule,
                effect,
                %fault,
                "the condition of a rule could not be evaluated: it reads a missing value, \
                 compares values of different types, or costs too much; as an allow rule it \
                 allows nothing, as a deny rule it denies everything"
            );
        }
    }

    /// Returns true if the rule's server and patterns are about an element.
    pub(super) fn is_about_element(&self, identities: &ElementIdentities<'_>) -> bool {
        self.mismatched_element(identities).is_none()
    }

    /// Returns the setting about elements that an element does not match.
    #[inline]
    fn mismatched_element(&self, identities: &ElementIdentities<'_>) -> Option<RuleSetting> {
        let element = identities.element();
        let RuleConfig { servers, tools, prompts, resources, .. } = &self.settings;
        let names_elements = tools.is_some() || prompts.is_some() || resources.is_some();
        let of_server = match (servers, element.server) {
            (None, _) => true,
            (Some(servers), Some(server)) => matches_any(servers, server.as_str()),
            (Some(_), None) => false,
        };
        let patterns = match element.kind {
            Kind::Tools => tools,
            Kind::Prompts => prompts,
            Kind::Resources | Kind::Templates | Kind::Skills => resources,
        };
        let is_named = match patterns {
            None => !names_elements,
            Some(patterns) => self.names_element(patterns, identities),
        };
        match (of_server, is_named) {
            (true, true) => None,
            (true, false) => Some(RuleSetting::Elements),
            (false, _) => Some(RuleSetting::Servers),
        }
    }

    /// Returns the first setting that a call does not match; `None` if the rule holds. The element
    /// is compared first: a rule about this element and another caller comes nearer than one about
    /// this caller and another element.
    pub(super) fn mismatched_call(
        &self,
        identities: &ElementIdentities<'_>,
        scope: &EvaluationScope<'_>,
    ) -> Option<RuleMismatch> {
        let setting = self.mismatched_element(identities);
        if let Some(setting) = setting.or_else(|| self.mismatched_caller(scope.caller)) {
            return Some(RuleMismatch { setting, term: None });
        }
        let condition = self.settings.when.as_ref()?;
        let unmet = |term| Some(RuleMismatch { setting: RuleSetting::Condition, term });
        if !is_about_kind(condition.reads(), identities.element().kind) {
            return unmet(None);
        }
        match (Self::try_evaluate(condition, scope), self.effect()) {
            (Ok(true), _) | (Err(_), RuleEffect::Deny) => None,
            (Err(EvaluationFault::TooCostly), RuleEffect::Allow) => {
                let text = condition.as_str().into();
                unmet(Some(FailingTerm { text, fault: Some(EvaluationFault::TooCostly) }))
            }
            (Ok(false), _) | (Err(_), RuleEffect::Allow) => {
                let values = values_of(condition.reads(), scope);
                unmet(match values {
                    Ok(values) => condition.find_failing_term(values),
                    Err(fault) => {
                        Some(FailingTerm { text: condition.as_str().into(), fault: Some(fault) })
                    }
                })
            }
        }
    }

    /// Returns true if patterns name an element. A denial names it by any of its identities, a
    /// permission by the public one alone. A server may read a URI in another spelling: a denial
    /// names it if it matches any form, a permission if it matches all.
    fn names_element(&self, patterns: &[Pattern], identities: &ElementIdentities<'_>) -> bool {
        let element = identities.element();
        match (ElementSpellings::of(element), self.effect()) {
            (None, RuleEffect::Allow) => matches_any(patterns, element.public),
            (None, RuleEffect::Deny) => identities.iter().any(|text| matches_any(patterns, text)),
            (Some(spellings), RuleEffect::Allow) => spellings.is_allowed_by(&self.resources),
            (Some(spellings), RuleEffect::Deny) => spellings.is_denied_by(&self.resources),
        }
    }
}

/// Returns true if a condition is about elements of a kind: only tools have annotations, and only
/// tools and prompts take arguments.
fn is_about_kind(reads: &ConditionReads, kind: Kind) -> bool {
    let of_tools = reads.of("tool").is_some() || reads.of("annotations").is_some();
    match kind {
        Kind::Tools => true,
        Kind::Prompts => !of_tools,
        Kind::Resources | Kind::Templates | Kind::Skills => {
            !of_tools && !reads.of("arguments").is_some()
        }
    }
}

/// Returns the upper bound of an evaluation's cost.
fn cost_within(condition: &Condition, scope: &EvaluationScope<'_>) -> u64 {
    // Lazy: a condition may name the arguments many times, and they are parsed for their size.
    let arguments = LazyCell::new(|| size_of("arguments", condition.reads(), scope));
    cost_of(condition, |name| match name {
        "arguments" => *arguments,
        _ => size_of(name, condition.reads(), scope),
    })
}

/// Returns the upper bound of an evaluation's cost with variables of these sizes. Building the
/// values counts, too.
fn cost_of(condition: &Condition, size: impl Fn(&str) -> ValueSize) -> u64 {
    let variables = condition.reads().variables();
    let values: u64 = variables.fold(0, |sum, (name, _)| size(name).bytes.saturating_add(sum));
    condition.estimate(size).steps.saturating_add(values)
}

/// Returns true if one of the names matches a pattern, or there are no patterns.
fn admits_any<'a>(
    patterns: Option<&Vec<Pattern>>,
    names: impl IntoIterator<Item = &'a str>,
) -> bool {
    let Some(patterns) = patterns else { return true };
    names.into_iter().any(|name| matches_any(patterns, name))
}

fn matches_any(patterns: &[Pattern], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.matches(name))
}
