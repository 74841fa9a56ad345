//! The discovery of a profile's tools: `discovery` of `[profiles.NAME]`, and `[search]`.

use std::time::Duration;

use serde_json::{Value as Json, json};
use toml::de::DeValue;

use trunkline_protocol::call::MetaTool;

use super::embeddings::EmbeddingsConfig;
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::Setting;
use crate::reader::values::numbers::CountSetting;
use crate::reader::values::pattern::Pattern;
use crate::reader::values::units::{DurationSetting, SizeSetting};
use crate::reader::{ConfigNode, ConfigReader, ConfigTable, setting_value};
use crate::sections::named_tables::NameKey;
use crate::sections::profiles::ProfileConfig;

choice! {
    /// The discovery of a profile's tools by clients.
    pub enum DiscoveryChoice {
        /// clients list all tools
        "all" => All,
        /// clients list the tools of `pin`, and `find_tools`, `describe_tools` and `call_tool` for
        /// all others
        "search" => Search,
        /// depends on the client: it lists all tools if it searches by itself, or accepts so many
        /// tools and their definitions fit into `budget`; otherwise as with `search`
        "auto" => Auto,
        /// clients list the tools of `pin`, and `run_code`, which runs JavaScript that calls all
        /// others
        "code" => Code,
    }
}

choice! {
    /// Keeps or drops a part of definitions.
    pub enum SlimChoice {
        /// it stays
        "keep" => Keep,
        /// it is left out
        "drop" => Drop,
    }
}

section! {
    /// Shorter definitions of tools in lists. Calls are still checked against the full definitions,
    /// which `describe_tools` returns.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SlimConfig {
        settings {
            /// The most characters of each description, of a tool and of anything in its schemas.
            /// Longer ones end with the last sentence that fits.
            descriptions: Option<usize> as Option<CountSetting<20, 100_000>>,
            /// The `examples` in schemas.
            examples: SlimChoice = "keep",
            /// The `title` of tools and in schemas.
            titles: SlimChoice = "keep",
        }
    }
}

section! {
    /// Search for tools, in profiles with `discovery`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct SearchConfig {
        settings {
            /// Groups of words with the same meaning for the users of this gateway, such as
            /// `[["ticket", "issue"], ["kunde", "customer"]]`. English words and the most common
            /// ones of a few other languages are known.
            synonyms: Vec<Vec<String>> = [],
            /// The tools that clients get with `discovery = "auto"`, by the name in their
            /// `clientInfo`. These entries come before the built-in ones that the documentation
            /// lists. A pattern with an `@` after its first character is compared with
            /// `NAME@VERSION`.
            clients: Vec<(Pattern, ToolAppetite)> = {},
            /// Search by meaning. By default tools are found by words alone, and nothing is sent
            /// anywhere.
            embeddings: Option<EmbeddingsConfig>,
        }
    }
}

section! {
    /// Execution of code, in profiles with `discovery = "code"`: in a child process for each run,
    /// which can do nothing but compute and call tools. It needs Linux, with Landlock, and a build
    /// with the feature `code-mode`, such as the image.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct CodeConfig {
        settings {
            /// The time limit of a run, including the time in which it waits for tools and users.
            time: Duration as DurationSetting = "10m",
            /// The processor time limit of a run.
            cpu_time: Duration as DurationSetting = "10s",
            /// The processor time that all runs of one client may take within a minute.
            cpu_time_each: Duration as DurationSetting = "30s",
            /// The memory limit of a run's values.
            memory: usize as SizeSetting = "64MiB",
            /// The number of calls that a run may make.
            calls: usize as CountSetting<1, 100_000> = 500,
            /// The number of calls that a run may make at once. Further calls wait.
            parallel: usize as CountSetting<1, 1_000> = 8,
            /// The most bytes that a run may print, and return.
            output: usize as SizeSetting = "64KiB",
            /// The number of concurrent runs. Each identified client may have the share of them
            /// that `limits.share` sets.
            runs: usize as CountSetting<1, 10_000> = 16,
        }
    }
}

/// The number of tools that a client can use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolAppetite {
    /// All: it searches by itself, or its users want all tools.
    All,
    /// As few as possible.
    Search,
    /// At most this many.
    AtMost(usize),
}

impl Setting for ToolAppetite {
    type Value = Self;

    fn kind_word() -> String {
        format!("`\"{ALL_WORD}\"`, `\"{SEARCH_WORD}\"` or {}", MostTools::kind_word())
    }

    fn example_value() -> String {
        format!("\"{ALL_WORD}\", \"{SEARCH_WORD}\" or a number of tools such as 40")
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        if let DeValue::Integer(_) = node.value {
            return MostTools::read_value(node, reader).map(Self::AtMost);
        }
        match node.expect_plain_string::<Self>(reader)? {
            ALL_WORD => Some(Self::All),
            SEARCH_WORD => Some(Self::Search),
            other => {
                node.refuse_choice(other, &[ALL_WORD, SEARCH_WORD], reader);
                None
            }
        }
    }

    fn json_schema() -> Json {
        json!({ "anyOf": [{ "enum": [ALL_WORD, SEARCH_WORD] }, MostTools::json_schema()] })
    }
}

impl NameKey<ToolAppetite> for Pattern {
    const WORD: &'static str = "client's name";

    fn parse_name(text: &str) -> Result<Self, SettingFault> {
        Self::new(text).ok_or(SettingFault::ClientPattern)
    }
}

/// Settings of meta-tools require `discovery`, and the gateway's own tools must not have their
/// names.
pub(crate) fn check_discovery(
    profiles: &[ConfigTable<'_>],
    own_tools: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    let lists_all = |profile: &&ConfigTable<'_>, reader: &ConfigReader<'_>| {
        discovery_choice(profile, reader).is_none_or(|choice| choice == DiscoveryChoice::All)
    };
    for profile in profiles {
        if lists_all(&profile, reader) {
            for node in ["pin", "intent"].into_iter().filter_map(|key| profile.find_node(key)) {
                node.report_fault_at_key(reader, SettingFault::NoDiscovery);
            }
        }
    }
    let has_meta_tools = |profile: &ConfigTable<'_>, reader: &ConfigReader<'_>| {
        !lists_all(&profile, reader) || profile.find_node("slim").is_some()
    };
    if !profiles.iter().any(|profile| has_meta_tools(profile, reader)) {
        return;
    }
    for tool in own_tools {
        if let Some(meta) = MetaTool::with_name(tool.name) {
            let problem = SettingFault::MetaToolName { name: meta.name() };
            reader.report_fault(tool.name_span.clone(), &tool.key, problem);
        }
    }
}

/// A build without the feature `code-mode` has neither `[code]` nor profiles with code.
pub(crate) fn check_code_mode(
    root: &ConfigTable<'_>,
    profiles: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    if cfg!(feature = "code-mode") {
        return;
    }
    if let Some(node) = root.find_node("code") {
        node.report_fault_at_key(reader, SettingFault::UnsupportedCode);
    }
    for profile in profiles {
        if discovery_choice(profile, reader) == Some(DiscoveryChoice::Code)
            && let Some(node) = profile.find_node("discovery")
        {
            node.report_fault(reader, SettingFault::UnsupportedCode);
        }
    }
}

fn discovery_choice(
    profile: &ConfigTable<'_>,
    reader: &ConfigReader<'_>,
) -> Option<DiscoveryChoice> {
    setting_value::<ProfileConfig, DiscoveryChoice>(profile, "discovery", reader)
}

type MostTools = CountSetting<1, 100_000>;
const ALL_WORD: &str = "all";
const SEARCH_WORD: &str = "search";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigSource, SystemEnvironment};

    fn read(text: &str) -> Result<Config, String> {
        let (name, bytes) = ("gateway.toml".into(), text.as_bytes().to_vec());
        let source = ConfigSource { name, folder: ".".into(), bytes };
        Config::read(&source, &SystemEnvironment).map_err(|faults| faults.to_string())
    }

    #[test]
    fn a_profile_says_how_its_tools_are_found() {
        let config = read(
            "[profiles.p]\ndiscovery = \"search\"\npin = [\"a__*\"]\nintent = true\nbudget = 5000\n\
             [search]\nsynonyms = [[\"a\", \"b\"]]\nclients = { x = 40, \"y@2.*\" = \"all\" }\n",
        );
        let config = config.unwrap();
        let [profile] = &config.profiles[..] else { panic!("one profile") };
        assert_eq!(profile.discovery, DiscoveryChoice::Search);
        assert!(profile.intent && profile.pin.len() == 1 && profile.budget == Some(5000));
        let expected = [ToolAppetite::AtMost(40), ToolAppetite::All];
        assert!(config.search.clients.iter().map(|(_, it)| *it).eq(expected));
    }

    #[test]
    fn a_build_without_an_interpreter_refuses_the_settings_of_code() {
        let read = read("[code]\nruns = 4\n[profiles.p]\ndiscovery = \"code\"\n");
        if cfg!(feature = "code-mode") {
            let config = read.unwrap();
            assert_eq!(config.code.runs, 4);
            assert_eq!(config.profiles[0].discovery, DiscoveryChoice::Code);
            return;
        }
        let faults = read.unwrap_err();
        for place in ["1: code: ", "4: profiles.p.discovery: "] {
            let line = faults.lines().find(|line| line.contains(place)).unwrap();
            assert!(line.contains("cannot run code"), "{line}");
            assert!(line.contains("--features code-mode"), "{line}");
        }
    }

    #[test]
    fn meaningless_values_are_refused() {
        for (text, said) in [
            ("[profiles.p]\ndiscovery = \"some\"\n", "all"),
            ("[search]\nclients = { x = 0 }\n", "from 1 to 100000"),
            ("[search]\nclients = { x = \"none\" }\n", "search"),
            ("[search]\nclients = { \"\" = 1 }\n", "name of a client"),
            (
                "[profiles.p]\ndiscovery = \"search\"\n[tools.find_tools]\ndescription = \"\"\n\
                 text = \"\"\n",
                "find_tools",
            ),
            ("[profiles.p]\npin = [\"x\"]\n", "discovery"),
            ("[profiles.p]\nintent = true\n", "discovery"),
            ("[profiles.p]\nslim = { descriptions = 5 }\n", "from 20"),
            ("[profiles.p]\nslim = { examples = \"none\" }\n", "drop"),
        ] {
            let fault = read(text).unwrap_err();
            assert!(fault.contains(said), "{text}: {fault}");
        }
    }
}
