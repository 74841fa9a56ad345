//! Elements that the patterns of a rule match by name, as far as they are known without connecting
//! to a server.

use std::fmt;

use crate::call::ServerName;
use crate::catalog::{CatalogElement, ElementBasis, ElementIdentities, Kind, Naming};
use crate::config::{Config, Pattern, RuleConfig, RuleEffect};

use crate::policy::authorization::rule::AccessRule;

/// An element that a server is known to list.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KnownElement {
    /// The server.
    pub server: ServerName,
    /// Its kind.
    pub kind: Kind,
    /// Its native name or URI.
    pub native: String,
}

/// Elements matched by one pattern of a rule that denies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeniedPattern {
    /// The setting: `policy.rules.NAME.tools`.
    pub key: String,
    /// As configured.
    pub pattern: String,
    /// The patterns of native names that follow a server's prefix in this pattern, for each server
    /// with such a prefix.
    pub behind_prefixes: Vec<(ServerName, Vec<String>)>,
    /// The servers that the rule is about; `None` for all.
    pub servers: Option<Vec<ServerName>>,
    /// The known elements that it matches.
    pub known: Vec<KnownElement>,
}

impl DeniedPattern {
    /// Returns true if the pattern has the form of a public name and names no server.
    pub fn has_unknown_prefix(&self) -> bool {
        let has_prefix = self.pattern.contains("__") || self.pattern.starts_with("mcp://");
        has_prefix && self.behind_prefixes.is_empty() && self.known.is_empty()
    }
}

impl fmt::Display for DeniedPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { key, pattern, behind_prefixes, servers, known } = self;
        write!(f, "{key}: {pattern:?} denies ")?;
        for (server, rests) in behind_prefixes.iter().take(MAX_LISTED) {
            let rests: Vec<_> = rests.iter().map(|rest| format!("{rest:?}")).collect();
            write!(f, "{} of server {server}, ", rests.join(" and "))?;
        }
        if let Some(more @ 1..) = behind_prefixes.len().checked_sub(MAX_LISTED) {
            write!(f, "the same of {more} more servers, ")?;
        }
        match servers {
            None => write!(f, "{pattern:?} of every server")?,
            Some(servers) => {
                let names: Vec<_> = servers.iter().map(ServerName::as_str).collect();
                write!(f, "{pattern:?} of server {}", names.join(", "))?;
            }
        }
        if known.is_empty() {
            return Ok(());
        }
        let listed = known.iter().take(MAX_LISTED);
        let listed: Vec<_> = listed.map(|it| format!("{:?} of {}", it.native, it.server)).collect();
        write!(f, "; known: {}", listed.join(", "))?;
        match known.len().checked_sub(MAX_LISTED) {
            Some(more @ 1..) => write!(f, " and {more} more"),
            _ => Ok(()),
        }
    }
}

/// Lists the matches of all rules that deny: forms of names for each configured server, and known
/// elements.
pub fn survey_denials(config: &Config, known: &[KnownElement]) -> Vec<DeniedPattern> {
    let naming = &Naming::new(&config.gateway);
    let mut denials = Vec::new();
    for rule in config.policy.rules.iter().filter(|rule| rule.effect == RuleEffect::Deny) {
        for (setting, kinds, patterns) in named_patterns(rule) {
            let subject = PatternSubject { config, naming, rule, setting, kinds };
            denials.extend(patterns.iter().map(|pattern| subject.survey(pattern, known)));
        }
    }
    denials
}

/// Returns the patterns for elements of a rule, with their settings and kinds.
pub(crate) fn named_patterns(
    rule: &RuleConfig,
) -> impl Iterator<Item = (&'static str, &'static [Kind], &Vec<Pattern>)> {
    let RuleConfig { tools, prompts, resources, .. } = rule;
    let all: [(&str, &[Kind], _); 3] = [
        ("tools", &[Kind::Tools], tools),
        ("prompts", &[Kind::Prompts], prompts),
        ("resources", &[Kind::Resources, Kind::Templates, Kind::Skills], resources),
    ];
    all.into_iter()
        .filter_map(|(setting, kinds, patterns)| Some((setting, kinds, patterns.as_ref()?)))
}

/// One setting of a rule, and the configuration that gives its patterns their meaning.
struct PatternSubject<'a> {
    config: &'a Config,
    naming: &'a Naming,
    rule: &'a RuleConfig,
    setting: &'static str,
    kinds: &'static [Kind],
}

impl PatternSubject<'_> {
    fn survey(&self, pattern: &Pattern, known: &[KnownElement]) -> DeniedPattern {
        let servers: Vec<_> = self.servers().collect();
        let behind_prefixes = servers.iter().filter_map(|server| {
            let rests = self.rests_behind(pattern, server);
            (!rests.is_empty()).then(|| ((*server).clone(), rests))
        });
        let behind_prefixes = behind_prefixes.collect();
        let own = self.rule.servers.as_ref();
        let known = known.iter().filter(|one| self.matches(pattern, one)).cloned().collect();
        DeniedPattern {
            key: format!("policy.rules.{}.{}", self.rule.name, self.setting),
            pattern: pattern.as_str().to_owned(),
            behind_prefixes,
            servers: own.map(|_| servers.into_iter().cloned().collect()),
            known,
        }
    }

    /// Returns the configured servers that the rule is about.
    fn servers(&self) -> impl Iterator<Item = &ServerName> {
        let names = self.config.servers.iter().map(|server| &server.name);
        names.filter(|name| {
            let patterns = self.rule.servers.as_ref();
            patterns.is_none_or(|all| all.iter().any(|one| one.matches(name.as_str())))
        })
    }

    /// Returns the patterns of native names that follow the prefixes of a server in a pattern.
    fn rests_behind(&self, pattern: &Pattern, server: &ServerName) -> Vec<String> {
        let prefixes = if self.setting == "resources" {
            vec![format!("mcp://{server}/"), format!("ui://mcp.{server}/")]
        } else {
            let configured = self.naming.prefix_of(server);
            [format!("{server}__")].into_iter().chain(configured).collect()
        };
        let mut rests: Vec<_> = prefixes
            .iter()
            .flat_map(|prefix| rests_of(pattern.as_str(), prefix))
            .filter(|rest| rest != pattern.as_str())
            .collect();
        rests.sort_unstable();
        rests.dedup();
        rests
    }

    /// Returns true if a rule with this pattern alone is about the element.
    fn matches(&self, pattern: &Pattern, one: &KnownElement) -> bool {
        let KnownElement { server, kind, native } = one;
        if !self.kinds.contains(kind) {
            return false;
        }
        let of_server = self.config.servers.iter().find(|it| it.name == *server);
        let mut overrides = of_server.into_iter().flat_map(|it| &it.tools.overrides);
        let given = overrides.find(|(name, _)| *kind == Kind::Tools && name.as_str() == native);
        let given = given.and_then(|(_, tool)| tool.name.as_ref());
        let element = CatalogElement {
            kind: *kind,
            server: Some(server),
            public: given.map_or(native, |name| name.as_str()),
            native,
            tool: None,
            basis: ElementBasis::Itself,
        };
        let only = |setting: &str| (self.setting == setting).then(|| vec![pattern.clone()]);
        let rule = AccessRule::compile(&RuleConfig {
            tools: only("tools"),
            prompts: only("prompts"),
            resources: only("resources"),
            when: None,
            ..self.rule.clone()
        });
        rule.is_about_element(&ElementIdentities::new(&element, self.naming))
    }
}

/// Returns the patterns for the rest of all names that begin with this text and match a pattern.
fn rests_of(pattern: &str, start: &str) -> Vec<String> {
    let steps: Vec<char> = pattern.chars().collect();
    let mut places = vec![0];
    for character in start.chars() {
        let mut next = Vec::new();
        for mut place in places {
            // A star matches the character, or none.
            while steps.get(place) == Some(&'*') {
                next.push(place);
                place += 1;
            }
            if steps.get(place).is_some_and(|step| *step == '?' || *step == character) {
                next.push(place + 1);
            }
        }
        next.sort_unstable();
        next.dedup();
        places = next;
    }
    // A star at the first place matches everything after it.
    let rests = places.iter().filter_map(|place| steps.get(*place..));
    let rests = rests.filter(|rest| !rest.is_empty()).map(|rest| rest.iter().collect());
    let mut rests: Vec<String> = rests.collect();
    if rests.iter().any(|rest| rest == "*") {
        rests = vec!["*".to_owned()];
    }
    rests
}

/// Limit of the servers and elements in one line.
const MAX_LISTED: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{ConfigSource, SystemEnvironment};

    #[test]
    fn a_pattern_behind_a_prefix_keeps_its_matches() {
        for (pattern, rests) in [
            ("git__push", &["push"][..]),
            ("git__delete_*", &["delete_*"]),
            ("git__*", &["*"]),
            ("g*", &["*"]),
            ("g?t__x", &["x"]),
            ("*__delete_*", &["*__delete_*", "_delete_*", "delete_*"]),
            ("push", &[]),
            ("gti__push", &[]),
            ("git__", &[]),
        ] {
            assert_eq!(rests_of(pattern, "git__"), rests, "{pattern}");
        }
    }

    fn surveyed(text: &str, known: &[(&str, Kind, &str)]) -> Vec<String> {
        let bytes = text.as_bytes().to_vec();
        let source = ConfigSource { name: "gateway.toml".into(), folder: ".".into(), bytes };
        let config = Config::read(&source, &SystemEnvironment).unwrap_or_else(|it| panic!("{it}"));
        let known = known.iter().map(|(server, kind, native)| KnownElement {
            server: ServerName::new(server).unwrap(),
            kind: *kind,
            native: (*native).to_owned(),
        });
        let known: Vec<_> = known.collect();
        survey_denials(&config, &known).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_denying_pattern_is_described_with_its_matches() {
        let text = "[gateway]\nname_format = \"mcp_{server}_{tool}\"\n\
            [servers.git]\ncommand = \"x\"\n[servers.git.tools.drop]\nname = \"remove\"\n\
            [servers.b]\ncommand = \"x\"\n\
            [policy.rules.never]\neffect = \"deny\"\ntools = [\"mcp_git_de*\", \"git__x\", \"remove\"]\n\
            [policy.rules.b]\neffect = \"deny\"\nservers = [\"b\"]\nresources = [\"mcp://b/*\"]\n\
            [policy.rules.allow]\ntools = [\"*\"]\n";
        let known = [
            ("git", Kind::Tools, "drop"),
            ("b", Kind::Tools, "drop"),
            ("git", Kind::Tools, "delete"),
        ];
        assert_eq!(
            surveyed(text, &known),
            [
                "policy.rules.never.tools: \"mcp_git_de*\" denies \"de*\" of server git, \"mcp_git_de*\" of \
                 every server; known: \"delete\" of git",
                "policy.rules.never.tools: \"git__x\" denies \"x\" of server git, \"git__x\" of every server",
                "policy.rules.never.tools: \"remove\" denies \"remove\" of every server; known: \"drop\" of \
                 git",
                "policy.rules.b.resources: \"mcp://b/*\" denies \"*\" of server b, \"mcp://b/*\" of server b",
            ]
        );
    }
}
