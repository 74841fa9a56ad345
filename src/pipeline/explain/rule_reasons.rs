//! The reasons of rules, and the change of a rule that would allow a call.

use std::cmp::Reverse;

use crate::call::Failure;
use crate::config::RuleEffect;
use crate::policy::{CallGate, ExplainedRule, RuleMismatch, RuleSetting};

use super::explainer::{ExplainedVerdict, Explainer};

impl Explainer<'_> {
    /// Explains the decision of the rules about the call.
    pub(super) fn explain_rules(&mut self, refusal: Option<&Failure>) {
        let Some(rules) = self.rules.clone() else { return };
        let gate = CallGate::Rules;
        if self.lacks_token() && self.reads_tokens {
            let reason = "the decision depends on the token of the caller".to_owned();
            self.report(gate, ExplainedVerdict::NotKnown, reason);
            self.set_cure(gate, "policy.rules", "give its groups, scopes and claims");
            return;
        }
        if self.lacks_rule_arguments() {
            let reason = "the decision depends on arguments that are not known".to_owned();
            self.report(gate, ExplainedVerdict::NotKnown, reason);
            return self.set_cure(gate, "policy.rules", "give the arguments");
        }
        if let Some(failure @ Failure::OverLimit { .. }) = refusal {
            return self.note_failure(gate, failure);
        }
        match (rules.is_allowed && refusal.is_none(), &rules.rule) {
            (true, Some(rule)) => self.pass(gate, &format!("the rule {rule} allows it")),
            (true, None) => self.pass(gate, "it is allowed"),
            (false, Some(rule)) if !rules.is_allowed => {
                let fault = rules.fault.as_ref().map(|fault| format!(": {}", fault.fault));
                let fault = fault.unwrap_or_default();
                let when = self.condition_of(rule);
                let when = when.map(|when| format!(" ({when})")).unwrap_or_default();
                self.refuse(gate, format!("the rule {rule} denies it{when}{fault}"));
                let setting = format!("policy.rules.{rule}");
                self.set_cure(gate, &setting, "narrow the rule, so that it is not about this call");
            }
            (false, Some(_)) => {
                let reason = "the rules deny it with the arguments that the server would get";
                self.refuse(gate, reason.to_owned());
                self.set_cure(gate, "policy.rules", "change the arguments");
            }
            (false, None) => self.explain_absence(&rules.rules),
        }
    }

    /// Explains that no rule allows the call, with the rule that comes nearest.
    fn explain_absence(&mut self, rules: &[ExplainedRule]) {
        let gate = CallGate::Rules;
        let allowing = rules.iter().filter(|rule| rule.effect == RuleEffect::Allow);
        let unmet = allowing.filter_map(|rule| Some((rule, rule.mismatch.as_ref()?)));
        let mut unmet: Vec<_> = unmet.collect();
        unmet.sort_by_key(|(_, mismatch)| Reverse(mismatch.setting));
        let Some((nearest, mismatch)) = unmet.first() else {
            self.refuse(gate, "no rule allows anything".to_owned());
            return self.set_cure(gate, "policy.rules", "add a rule with effect = \"allow\"");
        };
        let reasons = unmet.iter().take(MAX_NAMED_RULES);
        let reasons = reasons.map(|(rule, mismatch)| self.describe_mismatch(rule, mismatch));
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        let more = unmet.len().saturating_sub(MAX_NAMED_RULES);
        let more = if more > 0 { format!("; and {more} more rules") } else { String::new() };
        self.refuse(gate, format!("no rule allows it: {reasons}{more}"));
        let setting = format!("policy.rules.{}.{}", nearest.name, mismatch.setting.key());
        let cure = match mismatch.setting {
            RuleSetting::Condition => "change the condition or the call".to_owned(),
            RuleSetting::Groups => format!("add a group of the caller to {setting}"),
            RuleSetting::Scopes => format!("add a scope of the caller to {setting}"),
            RuleSetting::Principals => format!("add {:?} to {setting}", self.query.client),
            RuleSetting::Profiles => format!("add {:?} to {setting}", self.profile),
            RuleSetting::Servers => format!("add the server to {setting}"),
            RuleSetting::Elements => format!("add {:?} to {setting}", self.query.tool),
        };
        self.set_cure(gate, &setting, &cure);
    }

    /// Describes the first setting of a rule that a call does not match. Without known arguments no
    /// term about them is blamed.
    fn describe_mismatch(&self, rule: &ExplainedRule, mismatch: &RuleMismatch) -> String {
        let (name, key) = (&rule.name, mismatch.setting.key());
        let is_unknown = self.query.arguments.is_none();
        match &mismatch.term {
            Some(term) if is_unknown && term.text.contains("arguments") => {
                format!("{name}: the condition does not hold")
            }
            Some(term) => match &term.fault {
                Some(fault) => format!("{name}: {:?} cannot be evaluated ({fault})", term.text),
                None => format!("{name}: {:?} does not hold", term.text),
            },
            None => format!("{name}: not for this call (`{key}`)"),
        }
    }

    fn condition_of(&self, rule: &str) -> Option<String> {
        let mut rules = self.config.policy.rules.iter();
        let found = rules.find(|known| known.name.as_str() == rule)?;
        found.when.as_ref().map(|when| when.as_str().to_owned())
    }
}

/// Limit of the rules that a reason names.
const MAX_NAMED_RULES: usize = 5;
