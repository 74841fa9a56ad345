//! Rules and profiles: the elements that they select.

use crate::call::ProfileName;
use crate::config::{
    Config, InterceptorName, Pattern, PolicyConfig, ProfileConfig, RuleConfig, RuleEffect,
};

use super::LossList;
use super::loss::LossFault;
use super::patterns::covers_patterns;

pub(super) fn compare_rules(before: &PolicyConfig, after: &PolicyConfig, losses: &mut LossList) {
    if !before.rules.is_empty() && after.rules.is_empty() {
        losses.add("policy.rules", LossFault::LastRule);
    }
    for rule in rules_of(before, RuleEffect::Deny) {
        let mut denying = rules_of(after, RuleEffect::Deny);
        if denying.any(|other| covers_rule(other, rule)) {
            continue;
        }
        let is_there = rules_of(after, RuleEffect::Deny).any(|other| other.name == rule.name);
        let removed = LossFault::Removed { element: "deny rule" };
        losses.add(rule_key(rule), if is_there { LossFault::DenyNarrowed } else { removed });
    }
    for rule in rules_of(after, RuleEffect::Allow) {
        let was_there = rules_of(before, RuleEffect::Allow).any(|other| other.name == rule.name);
        let is_covered = rules_of(before, RuleEffect::Allow).any(|other| covers_rule(other, rule));
        if was_there && !is_covered {
            losses.add(rule_key(rule), LossFault::AllowWidened);
        }
    }
}

fn rules_of(policy: &PolicyConfig, effect: RuleEffect) -> impl Iterator<Item = &RuleConfig> {
    policy.rules.iter().filter(move |rule| rule.effect == effect)
}

fn rule_key(rule: &RuleConfig) -> String {
    format!("policy.rules.{}", rule.name)
}

/// Returns true if `wide` provably holds wherever `narrow` does.
fn covers_rule(wide: &RuleConfig, narrow: &RuleConfig) -> bool {
    let conditions = |rule: &RuleConfig| {
        [&rule.principals, &rule.groups, &rule.scopes, &rule.profiles, &rule.servers]
            .map(Clone::clone)
    };
    // The rule without the settings that are compared here: a setting unknown to this function has
    // to be equal.
    let rest = |rule: &RuleConfig| RuleConfig {
        name: narrow.name.clone(),
        principals: None,
        groups: None,
        scopes: None,
        profiles: None,
        servers: None,
        tools: None,
        prompts: None,
        resources: None,
        when: None,
        ..rule.clone()
    };
    let mut pairs = conditions(wide).into_iter().zip(conditions(narrow));
    pairs.all(|(wide, narrow)| covers_patterns(wide.as_deref(), narrow.as_deref()))
        && ElementSelection::of_rule(wide).covers(&ElementSelection::of_rule(narrow))
        && (wide.when.is_none() || wide.when == narrow.when)
        && rest(wide) == rest(narrow)
}

/// The tools, prompts and resources that a rule or a profile names: everything, if it names none
/// of the three.
struct ElementSelection<'a>([Option<&'a [Pattern]>; 3]);

impl<'a> ElementSelection<'a> {
    fn of_rule(rule: &'a RuleConfig) -> Self {
        let named = [&rule.tools, &rule.prompts, &rule.resources];
        Self(named.map(|patterns| patterns.as_deref()))
    }

    fn of_profile(profile: &'a ProfileConfig) -> Self {
        let named = [&profile.tools, &profile.prompts, &profile.resources];
        Self(named.map(|patterns| patterns.as_deref()))
    }

    fn covers(&self, narrow: &Self) -> bool {
        if self.0.iter().all(Option::is_none) {
            return true;
        }
        if narrow.0.iter().all(Option::is_none) {
            return false;
        }
        // A kind without patterns is not selected.
        let mut pairs = self.0.iter().zip(&narrow.0);
        pairs.all(|(wide, narrow)| {
            covers_patterns(Some(wide.unwrap_or_default()), Some(narrow.unwrap_or_default()))
        })
    }
}

pub(super) fn compare_profiles(before: &Config, after: &Config, losses: &mut LossList) {
    for profile in &before.profiles {
        let key = |setting: &str| format!("profiles.{}{setting}", profile.name);
        let Some(new) = after.profiles.iter().find(|new| new.name == profile.name) else {
            // Without the profile, `/mcp` shows everything.
            let is_default = profile.name.as_str() == ProfileName::DEFAULT;
            let removed = LossFault::Removed { element: "default profile" };
            losses.add_if(is_default.then_some(removed), || key(""));
            continue;
        };
        if !covers_patterns(profile.servers.as_deref(), new.servers.as_deref()) {
            losses.add(key(".servers"), LossFault::Widened);
        }
        let selections = [profile, new].map(ElementSelection::of_profile);
        let [shown, now_shown] = &selections;
        if !shown.covers(now_shown) {
            losses.add(key(""), LossFault::Widened);
        }
        report_removed(&profile.scopes, &new.scopes, |scope| scope.as_str())
            .for_each(|kind| losses.add(key(".scopes"), kind));
        report_removed(&profile.interceptors, &new.interceptors, InterceptorName::as_str)
            .for_each(|kind| losses.add(key(".interceptors"), kind));
    }
}

/// Returns the entries of `before` that `after` lacks, as losses.
pub(super) fn report_removed<'a, T: PartialEq>(
    before: &'a [T],
    after: &'a [T],
    name: impl Fn(&T) -> &str + 'a,
) -> impl Iterator<Item = LossFault> + 'a {
    let removed = before.iter().filter(|entry| !after.contains(entry));
    removed.map(move |entry| LossFault::EntryRemoved { entry: name(entry).to_owned() })
}
