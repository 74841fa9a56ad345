//! Rules that certainly match nothing, or not the intended elements, as far as the configuration
//! shows.

pub(crate) mod denials;
pub(crate) mod recorded;
pub(crate) mod trial;

use std::fmt;

use crate::call::ProfileName;
use crate::catalog::{Kind, Naming};
use crate::config::{
    Condition, Config, NamingChoice, Pattern, RuleConfig, RuleEffect, RuleName, UriChoice,
};

use denials::{DeniedPattern, named_patterns, survey_denials};

/// A remark about the rules of a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RuleRemark {
    /// No rule allows anything.
    NothingAllowed,
    /// A rule names an unknown server.
    UnknownServer {
        /// The rule.
        rule: RuleName,
        /// The server.
        name: String,
    },
    /// A rule names an unknown profile.
    UnknownProfile {
        /// The rule.
        rule: RuleName,
        /// The profile.
        name: String,
    },
    /// A pattern of a rule that denies begins with a prefix that no server has.
    UnknownPrefix {
        /// The setting: `policy.rules.NAME.tools`.
        key: String,
        /// The pattern.
        pattern: String,
    },
    /// Other servers can rename elements that the patterns of a rule name.
    RenamedByOthers {
        /// The rule.
        rule: RuleName,
        /// The setting with the patterns.
        setting: &'static str,
        /// The setting that permits it.
        because: String,
        /// The effect of the rule.
        effect: RuleEffect,
    },
    /// A rule that denies compares a name that other servers can change.
    ComparedName {
        /// The rule.
        rule: RuleName,
        /// The variable: `tool` or `item`.
        variable: &'static str,
        /// The setting that permits it.
        because: String,
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
            Self::UnknownPrefix { key, pattern } => {
                write!(f, "{key}: {pattern:?} does not begin with the prefix of any server")
            }
            Self::RenamedByOthers { rule, setting, because, effect: RuleEffect::Deny } => write!(
                f,
                "policy.rules.{rule}.{setting}: with {because}, other servers can rename these \
                 elements: the rule denies each by all of its names, on every server that it \
                 covers"
            ),
            Self::RenamedByOthers { rule, setting, because, effect: RuleEffect::Allow } => write!(
                f,
                "policy.rules.{rule}.{setting}: with {because}, other servers can take these names: the \
                 rule then allows their elements, or none. Set `servers`, or compare `native` and `server` \
                 in `when`"
            ),
            Self::ComparedName { rule, variable, because } => write!(
                f,
                "policy.rules.{rule}.when: with {because}, other servers can change {variable}.name, so that \
                 the rule no longer denies: compare {variable}.native and {variable}.server"
            ),
        }
    }
}

/// Returns the remarks about the rules of a configuration. The elements that match a pattern are
/// unknown before the servers have listed, and the principals before they connect.
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
        remark_renames(config, rule, &mut remarks);
    }
    let denials = survey_denials(config, &[]).into_iter();
    remarks.extend(
        denials
            .filter(DeniedPattern::has_unknown_prefix)
            .map(|denied| RuleRemark::UnknownPrefix { key: denied.key, pattern: denied.pattern }),
    );
    remarks
}

/// Adds a remark for each part of a rule that depends on names that other servers can change.
fn remark_renames(config: &Config, rule: &RuleConfig, remarks: &mut Vec<RuleRemark>) {
    let [of_names, of_uris] = [name_changes(config), uri_changes(config)];
    let effect = rule.effect;
    for (setting, kinds, patterns) in named_patterns(rule) {
        let is_name = kinds.contains(&Kind::Tools) || kinds.contains(&Kind::Prompts);
        let because = if is_name { &of_names } else { &of_uris };
        let names_some = patterns.iter().any(|pattern| pattern.as_str() != "*");
        if let Some(because) = because.clone().filter(|_| names_some) {
            let rule = rule.name.clone();
            remarks.push(RuleRemark::RenamedByOthers { rule, setting, because, effect });
        }
    }
    let Some(reads) = rule.when.as_ref().map(Condition::reads) else { return };
    for (variable, because) in
        [("tool", &of_names), ("item", if of_names.is_some() { &of_names } else { &of_uris })]
    {
        if effect == RuleEffect::Deny
            && reads.of(variable).has("name")
            && let Some(because) = because.clone()
        {
            let rule = rule.name.clone();
            remarks.push(RuleRemark::ComparedName { rule, variable, because });
        }
    }
}

/// Returns the setting with which one server can change another's public names, if there is one.
fn name_changes(config: &Config) -> Option<String> {
    let naming = Naming::new(&config.gateway);
    let servers = || config.servers.iter().map(|server| &server.name);
    let pairs = servers()
        .enumerate()
        .flat_map(|(at, one)| servers().take(at).map(move |other| (one, other)));
    match config.gateway.naming {
        choice @ (NamingChoice::Conflict | NamingChoice::First | NamingChoice::None) => {
            (config.servers.len() > 1).then(|| format!("naming = {:?}", choice.as_str()))
        }
        NamingChoice::Prefix => {
            let mut ambiguous = pairs.filter(|(one, other)| naming.is_ambiguous(one, other));
            ambiguous.next().map(|(one, other)| {
                format!("this name_format and the server names {other} and {one}")
            })
        }
    }
}

/// Returns the setting with which one server can change another's URIs, if there is one.
fn uri_changes(config: &Config) -> Option<String> {
    let mut choices = config.profiles.iter().filter_map(|profile| profile.uris);
    let is_original = config.gateway.uris == UriChoice::Original
        || choices.any(|choice| choice == UriChoice::Original);
    (is_original && config.servers.len() > 1).then(|| "uris = \"original\"".to_owned())
}

/// Returns the patterns that are exact names.
fn exact_names(patterns: Option<&Vec<Pattern>>) -> impl Iterator<Item = &str> {
    let patterns = patterns.into_iter().flatten().map(Pattern::as_str);
    patterns.filter(|pattern| !pattern.contains(['*', '?']))
}
