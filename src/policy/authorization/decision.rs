//! Decisions of rules.

use std::fmt;
use std::sync::Arc;

use crate::config::{EvaluationFault, RuleEffect};

/// A decision about one element or call. Rules are identified by their index in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
    /// It may be used.
    Allowed {
        /// The first rule that allows it; `None` if it belongs to an element that a rule allows.
        rule: Option<usize>,
    },
    /// It may not be used.
    Denied {
        /// The first rule that denies it; `None` if no rule allows it.
        rule: Option<usize>,
    },
    /// Not decided yet: it depends on the arguments of the call.
    Depends,
}

/// Result of a rule for an element or call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    No,
    /// It depends on facts that are not known yet.
    Depends,
    /// Its condition cannot be evaluated: a rule that allows does not apply, and one that denies
    /// does.
    Fails(EvaluationFault),
}

/// A decision, and the condition that could not be evaluated if that is the reason of the refusal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Judgement {
    pub(super) decision: AccessDecision,
    pub(super) fault: Option<RuleFault>,
}

/// A rule whose condition failed to evaluate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleFault {
    /// Index of the rule in the file.
    pub(super) place: usize,
    pub(super) fault: EvaluationFault,
}

/// A rule with a condition that failed to evaluate, by its name: `builders: arguments.branch is
/// missing`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedRuleFault {
    /// The name of the rule.
    pub rule: Arc<str>,
    /// The fault, which names the arguments.
    pub fault: EvaluationFault,
}

impl fmt::Display for NamedRuleFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.rule, self.fault)
    }
}

/// Combines the results of single rules.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    allows: Option<usize>,
    denies: Option<usize>,
    may_allow: bool,
    may_deny: bool,
    /// The first rules of either effect that failed.
    failed_allow: Option<RuleFault>,
    failed_deny: Option<RuleFault>,
}

impl Verdict {
    /// Adds the result of one rule. A rule that denies hides nothing while it is undecided.
    pub(super) fn add(&mut self, place: usize, effect: RuleEffect, holds: Holds) {
        match (effect, holds) {
            (_, Holds::No) => {}
            (RuleEffect::Allow, Holds::Yes) => self.allows = self.allows.or(Some(place)),
            (RuleEffect::Deny, Holds::Yes) => self.denies = self.denies.or(Some(place)),
            (RuleEffect::Allow, Holds::Depends) => self.may_allow = true,
            (RuleEffect::Deny, Holds::Depends) => self.may_deny = true,
            (RuleEffect::Allow, Holds::Fails(fault)) => {
                self.failed_allow.get_or_insert(RuleFault { place, fault });
            }
            (RuleEffect::Deny, Holds::Fails(fault)) => {
                self.denies = self.denies.or(Some(place));
                self.failed_deny.get_or_insert(RuleFault { place, fault });
            }
        }
    }

    /// Returns the fault of the rule that denies, or of one that would have to allow.
    pub(super) fn fault_of(self, decision: AccessDecision) -> Option<RuleFault> {
        match decision {
            AccessDecision::Denied { rule: Some(place) } => {
                self.failed_deny.filter(|failed| failed.place == place)
            }
            AccessDecision::Denied { rule: None } => self.failed_allow,
            AccessDecision::Allowed { .. } | AccessDecision::Depends => None,
        }
    }

    /// Returns the decision.
    pub(super) fn decide(&self) -> AccessDecision {
        match (self.denies, self.allows) {
            (Some(rule), _) => AccessDecision::Denied { rule: Some(rule) },
            (None, Some(rule)) if !self.may_deny => AccessDecision::Allowed { rule: Some(rule) },
            (None, Some(_)) => AccessDecision::Depends,
            (None, None) if self.may_allow => AccessDecision::Depends,
            (None, None) => AccessDecision::Denied { rule: None },
        }
    }

    /// Returns the decision about a part of an allowed element: the user interface of a tool.
    pub(super) fn decide_part(&self) -> AccessDecision {
        match self.denies {
            Some(rule) => AccessDecision::Denied { rule: Some(rule) },
            None => AccessDecision::Allowed { rule: self.allows },
        }
    }
}
