//! `[servers.NAME.tools]`: the tools that clients see, and the overrides for single ones.

use std::sync::Arc;

use trunkline_protocol::call::{NativeName, PublicName};

use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::macros::section;
use crate::reader::setting::TextSetting;
use crate::reader::values::numbers::Count32;
use crate::reader::values::pattern::Pattern;
use crate::sections::confirm::ConfirmChoice;
use crate::sections::issuers::ScopeName;
use crate::sections::quota::Quota;
use crate::sections::rate::Rate;
use crate::sections::transforms::TransformSettings;

section! {
    /// The tools that clients see. Hidden tools cannot be called. Each table in it configures one
    /// tool (except tools that are named `allow` or `deny`).
    #[derive(Debug, Clone, PartialEq)]
    pub struct ToolsConfig {
        parts {
            /// Overrides for single tools, by native name, in file order.
            overrides: Vec<(NativeName, ToolOverride)>,
        }
        settings {
            /// The tools to show, by the server's own names: `*` matches any number of characters,
            /// `?` exactly one. If empty, all tools.
            allow: Vec<Pattern> = [],
            /// The tools to hide; takes precedence over `allow`.
            deny: Vec<Pattern> = [],
        }
    }
}

section! {
    /// Overrides for one tool; `TOOL` is the server's own name for it.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ToolOverride {
        parts {
            /// The changes of its calls and results.
            transforms: Arc<TransformSettings>,
        }
        settings {
            /// The public name, instead of the one made by `gateway.naming`: 1 to 64 characters of
            /// `a-z`, `A-Z`, `0-9`, `_` and `-`. It must be unique.
            name: Option<PublicName>,
            /// The description for the client's model, instead of the server's own.
            description: Option<String>,
            /// The rate of calls to this tool.
            rate: Option<Rate>,
            /// Asks the user for consent before the tool is called, instead of the server's
            /// `confirm`.
            confirm: Option<ConfirmChoice>,
            /// The rate of each client's calls to this tool, or of each address's.
            rate_each: Option<Rate>,
            /// The number of each client's calls to this tool in each second, minute, hour or day of
            /// UTC.
            quota_each: Option<Quota>,
            /// The number of calls that one call of this tool counts as, in every rate and quota.
            cost: u32 as Count32<1, 1_000_000> = 1,
            /// The scopes that a call of it needs, besides the server's.
            scopes: Vec<ScopeName> = [],
        }
    }
}

impl ToolsConfig {
    /// Returns true if clients may see and call a tool, by the server's own name for it.
    #[inline]
    pub fn admits_tool(&self, native: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(native));
        (self.allow.is_empty() || any(&self.allow)) && !any(&self.deny)
    }
}

impl TextSetting for PublicName {
    type Value = Self;
    const WORD: &'static str = "public tool name";
    const EXAMPLE: &'static str = "\"find_issue\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let valid = (1..=64).contains(&text.len()) && text.chars().all(allowed);
        if valid { Ok(Some(Self::new(text))) } else { Err(SettingFault::PublicName) }
    }

    fn schema_pattern() -> Option<&'static str> {
        Some("^[a-zA-Z0-9_-]{1,64}$")
    }
}
