//! What rules decide.

use crate::config::RuleEffect;

/// A decision about one element or call. Rules are named by their places in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessDecision {
    /// It may be used.
    Allowed {
        /// The first rule that allows it; `None` if it belongs to what a rule allows.
        rule: Option<usize>,
    },
    /// It may not be used.
    Denied {
        /// The first rule that denies it; `None` if no rule allows it.
        rule: Option<usize>,
    },
    /// What is known does not decide: it depends on the arguments of the call.
    Depends,
}

/// Whether a rule holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Holds {
    Yes,
    No,
    /// It depends on what is not known yet.
    Depends,
}

/// Gathers what single rules say.
#[derive(Debug, Default)]
pub(super) struct Verdict {
    allows: Option<usize>,
    denies: Option<usize>,
    may_allow: bool,
    may_deny: bool,
}

impl Verdict {
    /// Adds what one rule says. A rule that denies and cannot be decided yet hides nothing.
    pub(super) fn add(&mut self, place: usize, effect: RuleEffect, holds: Holds) {
        match (effect, holds) {
            (_, Holds::No) => {}
            (RuleEffect::Allow, Holds::Yes) => self.allows = self.allows.or(Some(place)),
            (RuleEffect::Deny, Holds::Yes) => self.denies = self.denies.or(Some(place)),
            (RuleEffect::Allow, Holds::Depends) => self.may_allow = true,
            (RuleEffect::Deny, Holds::Depends) => self.may_deny = true,
        }
    }

    /// The decision.
    pub(super) fn decide(&self) -> AccessDecision {
        match (self.denies, self.allows) {
            (Some(rule), _) => AccessDecision::Denied { rule: Some(rule) },
            (None, Some(rule)) if !self.may_deny => AccessDecision::Allowed { rule: Some(rule) },
            (None, Some(_)) => AccessDecision::Depends,
            (None, None) if self.may_allow => AccessDecision::Depends,
            (None, None) => AccessDecision::Denied { rule: None },
        }
    }

    /// The decision about what belongs to something that is allowed: the user interface of a tool.
    pub(super) fn decide_part(&self) -> AccessDecision {
        match self.denies {
            Some(rule) => AccessDecision::Denied { rule: Some(rule) },
            None => AccessDecision::Allowed { rule: self.allows },
        }
    }
}
