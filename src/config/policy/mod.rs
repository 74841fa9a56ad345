//! `[policy]`: who may use what, as rules.

mod condition;

pub use condition::{
    Condition, ConditionCost, ConditionFault, ConditionReads, ConditionValue, EvaluationFault,
    MemberReads, SplitCondition, ValueSize,
};

use std::fmt;
use std::sync::Arc;

use super::macros::{choice, section};
use super::maps::{NamedTables, PluralName};
use super::pattern::Pattern;
use super::problem::ConfigProblem;
use super::reader::{ConfigReader, ConfigTable};
use super::setting::SectionPart;

section! {
    /// Who may use what. Without rules, every client may use what its profiles show. As soon as there
    /// is one rule, nothing may be used that no rule allows.
    #[derive(Debug, Clone, Default, PartialEq)]
    pub struct PolicyConfig {
        settings {
            /// The rules. Their order does not matter: a rule that denies wins over all that allow.
            rules: Vec<RuleConfig> as NamedTables<RuleConfig> = {},
        }
    }
}

section! {
    /// A rule holds if all of its conditions hold; without any it always does. `NAME` has 1 to 64
    /// characters of `a-z`, `A-Z`, `0-9`, `_` and `-`; it identifies the rule in the audit log. What
    /// is denied is absent from every list, and is answered as if it did not exist.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RuleConfig {
        parts {
            /// The `NAME` of its table.
            name: RuleName,
        }
        settings {
            /// What the rule does where it holds.
            effect: RuleEffect = "allow",
            /// The callers, by name: `*` matches any number of characters, `?` exactly one. Users with
            /// tokens are `ISSUER:SUBJECT`, clients without credentials `anonymous`.
            principals: Option<Vec<Pattern>>,
            /// The groups, of which the client has to be in one.
            groups: Option<Vec<Pattern>>,
            /// The scopes, of which the client's credential has to have one.
            scopes: Option<Vec<Pattern>>,
            /// The profiles; `default` is `/mcp` itself.
            profiles: Option<Vec<Pattern>>,
            /// The servers. Tools of the gateway itself have none.
            servers: Option<Vec<Pattern>>,
            /// The tools, by public name; in a rule that denies, by any name that they can have. A rule
            /// that sets any of `tools`, `prompts` and `resources` is about what it names of these three, and about nothing else.
            tools: Option<Vec<Pattern>>,
            /// The prompts, by names like those of tools.
            prompts: Option<Vec<Pattern>>,
            /// The resources, resource templates and skills, by public URI; in a rule that denies, by
            /// their server's own URI, too, in any spelling. What is read is compared
            /// as it is read: the pattern of a template has to match the URIs that it expands to.
            resources: Option<Vec<Pattern>>,
            /// A condition in CEL (Common Expression Language) over `principal`, `claims`, `tool`, `item`,
            /// `annotations`, `arguments`, `client` and `request`. What cannot be evaluated allows
            /// nothing, and denies.
            when: Option<Condition>,
        }
    }
}

choice! {
    /// What a rule does where it holds.
    pub enum RuleEffect {
        /// what it is about may be used, unless another rule denies it
        "allow" => Allow,
        /// what it is about may not be used, whatever other rules allow
        "deny" => Deny,
    }
}

/// The name of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleName(Arc<str>);

impl RuleName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    pub fn to_shared(&self) -> Arc<str> {
        Arc::clone(&self.0)
    }
}

impl fmt::Display for RuleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl PluralName for RuleConfig {
    const PLURAL: &'static str = "rules";
}

/// A rule's name is the key of its table.
impl SectionPart for RuleName {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let name = table.name;
        if !(1..=64).contains(&name.len()) || !name.chars().all(is_plain) {
            reader.report_fault(table.name_span.clone(), &table.key, ConfigProblem::RuleName);
            return None;
        }
        Some(Self(name.into()))
    }
}
