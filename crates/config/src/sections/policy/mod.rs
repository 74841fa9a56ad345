//! `[policy]`: access rules.

mod condition;

pub use condition::{
    Condition, ConditionCost, ConditionReads, ConditionValue, EvaluationFault, FailingTerm,
    MemberReads, SplitCondition, ValueSize,
};

use std::fmt;
use std::sync::Arc;

use super::named_tables::{NamedTables, PluralName};
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::SectionPart;
use crate::reader::values::pattern::Pattern;
use crate::reader::{ConfigReader, ConfigTable};

section! {
    /// Access rules. Without rules, every client may use everything that its profiles show. As soon
    /// as there is one rule, everything is denied that no rule allows.
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
    /// characters of `a-z`, `A-Z`, `0-9`, `_` and `-`; it identifies the rule in the audit log. A
    /// denied element is absent from every list, and calls are answered as if it did not exist.
    #[derive(Debug, Clone, PartialEq)]
    pub struct RuleConfig {
        parts {
            /// The `NAME` of its table.
            name: RuleName,
        }
        settings {
            /// The effect of the rule if it holds.
            effect: RuleEffect = "allow",
            /// The callers, by name: `*` matches any number of characters, `?` exactly one. Users with
            /// tokens are `ISSUER:SUBJECT`, clients without credentials `anonymous`.
            principals: Option<Vec<Pattern>>,
            /// The groups. The client has to be in one of them.
            groups: Option<Vec<Pattern>>,
            /// The scopes. The client's credential has to have one of them.
            scopes: Option<Vec<Pattern>>,
            /// The profiles; `default` is `/mcp` itself.
            profiles: Option<Vec<Pattern>>,
            /// The servers. Tools of the gateway itself have none.
            servers: Option<Vec<Pattern>>,
            /// The tools, by public name; in a rule that denies, by any name that they can have. A
            /// rule that sets any of `tools`, `prompts` and `resources` applies only to the
            /// tools, prompts and resources that it names.
            tools: Option<Vec<Pattern>>,
            /// The prompts, by names like those of tools.
            prompts: Option<Vec<Pattern>>,
            /// The resources, resource templates and skills, by public URI; in a rule that denies,
            /// by their server's own URI, too, in any spelling. A read is compared by the URI that
            /// is read: the pattern of a template has to match the URIs that it expands to.
            resources: Option<Vec<Pattern>>,
            /// A condition in CEL (Common Expression Language) over `principal`, `claims`, `tool`,
            /// `item`, `annotations`, `arguments`, `client` and `request`. If it cannot be
            /// evaluated, a rule that allows does not hold, and a rule that denies does.
            when: Option<Condition>,
        }
    }
}

choice! {
    /// The effect of a rule that holds.
    pub enum RuleEffect {
        /// its elements may be used, unless another rule denies them
        "allow" => Allow,
        /// its elements may not be used, even if other rules allow them
        "deny" => Deny,
    }
}

/// The name of a rule.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RuleName(Arc<str>);

impl RuleName {
    /// The name as text.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name, shared.
    #[inline]
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
            reader.report_fault(table.name_span.clone(), &table.key, SettingFault::RuleName);
            return None;
        }
        Some(Self(name.into()))
    }
}
