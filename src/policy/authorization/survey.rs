//! Rules that can hold for nothing, as far as the configuration tells.

use std::fmt;

use crate::call::ProfileName;
use crate::config::{Config, Pattern, RuleConfig, RuleEffect, RuleName};

/// What is odd about the rules of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleRemark {
    /// No rule allows anything.
    NothingAllowed,
    /// A rule names a server that there is not.
    UnknownServer {
        /// The rule.
        rule: RuleName,
        /// The server.
        name: String,
    },
    /// A rule names a profile that there is not.
    UnknownProfile {
        /// The rule.
        rule: RuleName,
        /// The profile.
        name: String,
    },
}

impl fmt::Display for RuleRemark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingAllowed => f.write_str(
                "policy.rules: no rule allows anything, so nothing can be used: add a rule with \
                 effect = \"allow\"",
            ),
            Self::UnknownServer { rule, name } => {
                write!(f, "policy.rules.{rule}: there is no server {name:?}")
            }
            Self::UnknownProfile { rule, name } => {
                write!(f, "policy.rules.{rule}: there is no profile {name:?}")
            }
        }
    }
}

/// What is odd about the rules of a configuration. Whether a pattern matches is not known before the
/// servers have listed, and which principals there are not before they come.
pub fn survey_rules(config: &Config) -> Vec<RuleRemark> {
    let rules = &config.policy.rules;
    let mut remarks = Vec::new();
    if !rules.is_empty() && rules.iter().all(|rule| rule.effect == RuleEffect::Deny) {
        remarks.push(RuleRemark::NothingAllowed);
    }
    for rule in rules {
        let RuleConfig { servers, profiles, .. } = rule;
        let is_server = |name: &str| config.servers.iter().any(|one| one.name.as_str() == name);
        let is_profile = |name: &str| {
            name == ProfileName::DEFAULT
                || config.profiles.iter().any(|one| one.name.as_str() == name)
        };
        for name in exact_names(servers.as_ref()).filter(|name| !is_server(name)) {
            let (rule, name) = (rule.name.clone(), name.to_owned());
            remarks.push(RuleRemark::UnknownServer { rule, name });
        }
        for name in exact_names(profiles.as_ref()).filter(|name| !is_profile(name)) {
            let (rule, name) = (rule.name.clone(), name.to_owned());
            remarks.push(RuleRemark::UnknownProfile { rule, name });
        }
    }
    remarks
}

/// The patterns that are names.
fn exact_names(patterns: Option<&Vec<Pattern>>) -> impl Iterator<Item = &str> {
    let patterns = patterns.into_iter().flatten().map(Pattern::as_str);
    patterns.filter(|pattern| !pattern.contains(['*', '?']))
}
