//! Patterns that can match nothing, as far as the configuration shows for certain. The tools of
//! servers are unknown before they have listed, and so are the groups and users of issuers.

use std::fmt;

use crate::call::ProfileName;
use crate::config::{Config, NameCase, NamingChoice, Pattern, RuleEffect, UriChoice};

/// A pattern that can match nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnmatchedPattern {
    /// The setting: `policy.rules.NAME.principals`.
    pub key: String,
    /// The intended matches: `client`, `server`, `profile`, `tool`, `prompt` or `resource`.
    pub subject: &'static str,
    /// As configured.
    pub pattern: String,
}

impl fmt::Display for UnmatchedPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, subject, pattern } = self;
        write!(f, "{key}: no {subject} can match {pattern:?}")
    }
}

/// Returns the patterns of rules and profiles that can match nothing.
/// [`survey_rules`](super::survey_rules) reports exact names of servers and profiles, and unknown
/// servers in profiles are faults. A rule that denies also matches native names, which are unknown
/// here.
pub fn survey_patterns(config: &Config) -> Vec<UnmatchedPattern> {
    let known = KnownNames::of(config);
    let mut found = Vec::new();
    for rule in &config.policy.rules {
        let key = format!("policy.rules.{}", rule.name);
        let mut add = |setting: &str, subject, patterns: &Option<Vec<Pattern>>| {
            let key = format!("{key}.{setting}");
            known.add_unmatched(&key, subject, patterns.as_deref(), &mut found);
        };
        add("principals", "client", &rule.principals);
        add("servers", "server", &rule.servers);
        add("profiles", "profile", &rule.profiles);
        if rule.effect == RuleEffect::Allow {
            add("tools", "tool", &rule.tools);
            add("prompts", "prompt", &rule.prompts);
            add("resources", "resource", &rule.resources);
        }
    }
    for profile in &config.profiles {
        let key = format!("profiles.{}", profile.name.as_str());
        let mut add = |setting: &str, subject, patterns: &Option<Vec<Pattern>>| {
            let key = format!("{key}.{setting}");
            known.add_unmatched(&key, subject, patterns.as_deref(), &mut found);
        };
        add("servers", "server", &profile.servers);
        add("tools", "tool", &profile.tools);
        add("prompts", "prompt", &profile.prompts);
        add("resources", "resource", &profile.resources);
        add("pin", "tool", &Some(profile.pin.clone()));
    }
    found
}

/// Facts about names before any server has listed.
struct KnownNames<'a> {
    config: &'a Config,
    /// Prefixes of the public names of tools and prompts, one for each server; `None` if any name
    /// is possible.
    name_starts: Option<Vec<String>>,
    /// Prefixes of public URIs in the `mcp:` scheme; `None` if these are the servers' own.
    uri_starts: Option<Vec<String>>,
}

impl<'a> KnownNames<'a> {
    fn of(config: &'a Config) -> Self {
        let gateway = &config.gateway;
        let servers = || config.servers.iter().map(|server| server.name.as_str());
        let is_prefixed = gateway.naming == NamingChoice::Prefix
            && gateway.name_case == NameCase::Keep
            && gateway.name_format.ends_with_tool();
        let name_starts = is_prefixed
            .then(|| servers().map(|name| gateway.name_format.render(name, "")).collect());
        let mut choices = config.profiles.iter().filter_map(|profile| profile.uris);
        let is_public =
            gateway.uris == UriChoice::Prefix && choices.all(|choice| choice == UriChoice::Prefix);
        let uri_starts =
            is_public.then(|| servers().map(|name| format!("mcp://{name}/")).collect());
        Self { config, name_starts, uri_starts }
    }

    fn add_unmatched(
        &self,
        key: &str,
        subject: &'static str,
        patterns: Option<&[Pattern]>,
        found: &mut Vec<UnmatchedPattern>,
    ) {
        let unmatched = patterns.unwrap_or_default().iter();
        found.extend(unmatched.filter(|pattern| !self.may_match(subject, pattern)).map(
            |pattern| {
                let (key, pattern) = (key.to_owned(), pattern.as_str().to_owned());
                UnmatchedPattern { key, subject, pattern }
            },
        ));
    }

    fn may_match(&self, subject: &str, pattern: &Pattern) -> bool {
        let Config { clients, issuers, servers, profiles, tools, .. } = self.config;
        let may_begin = |starts: &[String]| starts.iter().any(|it| may_match_below(pattern, it));
        match subject {
            "client" => {
                let users: Vec<_> =
                    issuers.iter().map(|issuer| format!("{}:", issuer.name.as_str())).collect();
                pattern.matches("anonymous")
                    || clients.iter().any(|client| pattern.matches(&client.name))
                    || may_begin(&users)
            }
            "server" | "profile" if is_exact(pattern) => true,
            "server" => servers.iter().any(|server| pattern.matches(server.name.as_str())),
            "profile" => {
                pattern.matches(ProfileName::DEFAULT)
                    || profiles.iter().any(|profile| pattern.matches(profile.name.as_str()))
            }
            "tool" | "prompt" => {
                let given = servers.iter().flat_map(|server| &server.tools.overrides);
                let mut given = given.filter_map(|(_, tool)| tool.name.as_ref());
                self.name_starts.as_ref().is_none_or(|starts| may_begin(starts))
                    || given.any(|name| pattern.matches(name.as_str()))
                    || tools.iter().any(|own| pattern.matches(own.name.as_str()))
            }
            _ => {
                !pattern.as_str().starts_with("mcp://")
                    || self.uri_starts.as_ref().is_none_or(|starts| may_begin(starts))
            }
        }
    }
}

/// Returns true if a pattern is an exact name.
fn is_exact(pattern: &Pattern) -> bool {
    !pattern.as_str().contains(['*', '?'])
}

/// Returns true if a pattern may match a longer text that begins with this one. In doubt it may.
fn may_match_below(pattern: &Pattern, start: &str) -> bool {
    let text = pattern.as_str();
    let literal = text.split(['*', '?']).next().unwrap_or_default();
    literal.starts_with(start) || (!is_exact(pattern) && start.starts_with(literal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigSource, SystemEnvironment};

    const BASE: &str = "[servers.git]\ncommand = \"x\"\ntools.old.name = \"renamed\"\n\
        [tools.own]\ntext = \"x\"\n[profiles.desk]\n[clients.ci]\nkey = \"0000000000000000000000000000000000000000000000000000000000000000\"\n";

    fn unmatched(gateway: &str, more: &str) -> Vec<String> {
        let text = format!("[gateway]\n{gateway}\n{BASE}{more}");
        let bytes = text.into_bytes();
        let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
        let config = Config::read(&source, &SystemEnvironment).unwrap_or_else(|it| panic!("{it}"));
        survey_patterns(&config).iter().map(|it| it.pattern.clone()).collect()
    }

    fn of_rule(setting: &str, pattern: &str) -> bool {
        let rule = format!("[policy.rules.r]\n{setting} = [\"{pattern}\"]\n");
        !unmatched("", &rule).is_empty()
    }

    #[test]
    fn a_pattern_is_reported_only_if_it_can_match_nothing() {
        for (setting, pattern, is_told) in [
            ("principals", "ci", false),
            ("principals", "c*", false),
            ("principals", "anonymous", false),
            ("principals", "anon*", false),
            ("principals", "cy", true),
            ("principals", "cy*", true),
            ("principals", "idp:ann", true),
            ("servers", "g*", false),
            ("servers", "h*", true),
            ("profiles", "d?sk", false),
            ("profiles", "def*", false),
            ("profiles", "x*", true),
            ("tools", "git__push", false),
            ("tools", "git__*", false),
            ("tools", "*__push", false),
            ("tools", "g??__push", false),
            ("tools", "own", false),
            ("tools", "renamed", false),
            ("tools", "gi", true),
            ("tools", "gti__push", true),
            ("tools", "gti__*", true),
            ("prompts", "gti__*", true),
            ("prompts", "git__*", false),
            ("resources", "mcp://git/*", false),
            ("resources", "mcp://g*", false),
            ("resources", "mcp://gti/*", true),
            ("resources", "ui://gti/*", false),
            ("resources", "*", false),
            // Values that only issuers and tokens know.
            ("groups", "nobody", false),
            ("scopes", "nothing", false),
        ] {
            assert_eq!(of_rule(setting, pattern), is_told, "{setting} {pattern}");
        }
    }

    #[test]
    fn other_settings_leave_the_start_of_names_open() {
        let rule = "[policy.rules.r]\ntools = [\"gti__x\"]\n";
        assert_eq!(unmatched("", rule), ["gti__x"]);
        for gateway in ["naming = \"none\"", "naming = \"conflict\"", "name_case = \"snake\""] {
            assert_eq!(unmatched(gateway, rule), [""; 0], "{gateway}");
        }
        let format = "name_format = \"mcp_{server}_{tool}\"";
        let rule = "[policy.rules.r]\ntools = [\"mcp_git_x\", \"git__x\"]\n";
        assert_eq!(unmatched(format, rule), ["git__x"]);
    }

    #[test]
    fn users_of_issuers_may_have_any_name_below_that_of_the_issuer() {
        let issuer =
            "[issuers.idp]\nissuer = \"https://idp.test\"\njwks_url = \"https://idp.test/k\"\n";
        let rule =
            |pattern: &str| format!("{issuer}[policy.rules.r]\nprincipals = [\"{pattern}\"]\n");
        for (pattern, is_told) in [
            ("idp:ann", false),
            ("idp:*", false),
            ("*ann", false),
            ("i*", false),
            ("dip:ann", true),
            ("idp", true),
            ("ann*", true),
        ] {
            let told = unmatched("public_url = \"https://gate.test\"", &rule(pattern));
            assert_eq!(!told.is_empty(), is_told, "{pattern}");
        }
    }

    #[test]
    fn profiles_are_looked_at_like_rules() {
        let profile = "[profiles.p]\ntools = [\"gti__x\"]\nresources = [\"mcp://gti/x\"]\n";
        assert_eq!(unmatched("", profile), ["gti__x", "mcp://gti/x"]);
    }
}
