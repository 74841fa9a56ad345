//! The settings of public names.

use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::macros::choice;
use crate::reader::setting::TextSetting;

choice! {
    /// The scheme of the public names of tools and prompts.
    pub enum NamingChoice {
        /// every tool is `SERVER__TOOL`
        "prefix" => Prefix,
        /// a tool is `SERVER__TOOL` only if another server has a tool of the same name
        "conflict" => Conflict,
        /// the first server in the file that has a tool of a name keeps the name, the tools of
        /// later servers are `SERVER__TOOL`
        "first" => First,
        /// tools keep their names; of duplicate names, the first server in the file wins
        "none" => None,
    }
}

choice! {
    /// The case of public names.
    pub enum NameCase {
        /// as the servers write them
        "keep" => Keep,
        /// words of small letters and digits, separated by `_`: `getATIS` is `get_atis`
        "snake" => Snake,
    }
}

/// The form of a public name with a prefix, such as `{server}__{tool}`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NameFormat(String);

impl Default for NameFormat {
    /// `SERVER__TOOL`.
    fn default() -> Self {
        Self(format!("{SERVER_PLACEHOLDER}__{TOOL_PLACEHOLDER}"))
    }
}

impl NameFormat {
    /// The name of a server's tool.
    pub fn render(&self, server: &str, tool: &str) -> String {
        let (before, rest) = self.0.split_once(SERVER_PLACEHOLDER).unwrap_or(("", &self.0));
        let [before, rest] = [before, rest].map(|part| part.replacen(TOOL_PLACEHOLDER, tool, 1));
        format!("{before}{server}{rest}")
    }

    /// Returns true if all names of a server begin with the same text.
    pub fn ends_with_tool(&self) -> bool {
        self.0.ends_with(TOOL_PLACEHOLDER)
    }
}

impl TextSetting for NameFormat {
    type Value = Self;
    const WORD: &'static str = "name format";
    const EXAMPLE: &'static str = "\"mcp_{server}_{tool}\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        let once = |part: &str| text.matches(part).count() == 1;
        let literal = text.replacen(SERVER_PLACEHOLDER, "", 1).replacen(TOOL_PLACEHOLDER, "", 1);
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        let valid = once(SERVER_PLACEHOLDER)
            && once(TOOL_PLACEHOLDER)
            && literal.len() <= MAX_LITERAL
            && literal.chars().all(plain);
        if valid { Ok(Some(Self(text.to_owned()))) } else { Err(SettingFault::NameFormat) }
    }

    fn schema_pattern() -> Option<&'static str> {
        Some(
            r"^[a-zA-Z0-9_-]*\{(server\}[a-zA-Z0-9_-]*\{tool|tool\}[a-zA-Z0-9_-]*\{server)\}[a-zA-Z0-9_-]*$",
        )
    }
}

const SERVER_PLACEHOLDER: &str = "{server}";
const TOOL_PLACEHOLDER: &str = "{tool}";
/// The most characters besides the two names: a longer form leaves no room for them within 64.
const MAX_LITERAL: usize = 16;
