//! `[profiles.NAME]`: subsets of the catalog with a URL of their own.

use trunkline_protocol::call::{ProfileName, ProfileNameError};

use super::gateway::UriChoice;
use super::gateway::discovery::{DiscoveryChoice, SlimConfig};
use super::interceptors::InterceptorName;
use super::issuers::ScopeName;
use super::quota::Quota;
use super::rate::Rate;
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::{SectionPart, TextSetting};
use crate::reader::values::numbers::CountSetting;
use crate::reader::values::pattern::Pattern;
use crate::reader::{ConfigReader, ConfigTable};

choice! {
    /// The form of a result that a client has already.
    pub enum RepeatedResults {
        /// it is sent again
        "whole" => Whole,
        /// a reference replaces it, if it was sent before in the same session, for the same call,
        /// or if the call declares that the client holds it. A repetition of the same call gets it
        /// in full
        "reference" => Reference,
    }
}

section! {
    /// A subset of the catalog, served at `/mcp/NAME`. Elements outside it cannot be used there. A
    /// profile that sets any of `tools`, `prompts` and `resources` shows only the elements of these
    /// three that it names; a profile that sets none of them shows everything that its servers
    /// offer. The profile `default` is served at `/mcp` itself; without it, `/mcp` shows
    /// everything. `NAME` has 1 to 64 characters of `a-z`, `A-Z`, `0-9`, `_` and `-`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ProfileConfig {
        parts {
            /// The `NAME` of its table.
            name: ProfileName,
        }
        settings {
            /// The servers to show, by name. By default all.
            servers: Option<Vec<Pattern>>,
            /// The tools to show, by public name: `*` matches any number of characters, `?` exactly
            /// one.
            tools: Option<Vec<Pattern>>,
            /// The prompts to show, by public name.
            prompts: Option<Vec<Pattern>>,
            /// The resources and resource templates to show, by public URI. Every resource of a
            /// shown template can be read.
            resources: Option<Vec<Pattern>>,
            /// The discovery of tools by clients.
            discovery: DiscoveryChoice = "all",
            /// With `discovery`: the tools that every client lists, by public name, because most
            /// conversations need them.
            pin: Vec<Pattern> = [],
            /// With `discovery`: three tools instead of `call_tool`, `call_tool_read`,
            /// `call_tool_write` and `call_tool_destructive`, so that a user can allow some calls
            /// once and for all. The tool's hints decide which of them accepts it, if its server is
            /// `trusted`; a tool of any other server may destroy something.
            intent: bool = false,
            /// The tokens that the listed tools of the profile may take up, by estimate. If they
            /// take up more, the log has a warning that names the largest. With
            /// `discovery = "auto"`, clients search above it, by default above 10,000; with
            /// `"code"`, code does, by default above 4,000.
            budget: Option<usize> as Option<CountSetting<1, 100_000_000>>,
            /// Shorter definitions of tools in lists.
            slim: Option<SlimConfig>,
            /// The form of a result that a client has already, if it is large (4 KiB or more) and
            /// of a tool that its server annotates with `readOnlyHint`.
            repeated_results: RepeatedResults = "whole",
            /// The URIs that clients see, instead of `gateway.uris`.
            uris: Option<UriChoice>,
            /// The interceptors that calls through the profile pass, after those of the server.
            interceptors: Vec<InterceptorName> = [],
            /// The rate of calls through the profile.
            rate: Option<Rate>,
            /// The number of calls through the profile in each second, minute, hour or day of UTC.
            quota: Option<Quota>,
            /// The scopes that clients need to use the profile at all. Keys have the scopes of
            /// their `[clients.NAME]`, tokens those that the authorization server granted.
            scopes: Vec<ScopeName> = [],
            /// The name that clients display, instead of `gateway.title`.
            title: Option<String>,
            /// Instructions for the client's model, instead of `gateway.instructions`.
            instructions: Option<String>,
        }
    }
}

impl ProfileConfig {
    /// Returns true if a large result that a client has already is answered with a reference.
    #[inline]
    pub fn refers_to_repeats(&self) -> bool {
        self.repeated_results == RepeatedResults::Reference
    }

    /// Returns true if clients have meta-tools, or may have them.
    #[inline]
    pub fn has_meta_tools(&self) -> bool {
        self.discovery != DiscoveryChoice::All || self.slim.is_some()
    }
}

/// A profile's name is the key of its table.
impl SectionPart for ProfileName {
    fn read_part(table: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        Self::new(table.name)
            .map_err(|error| reader.report_fault(table.name_span.clone(), &table.key, error.into()))
            .ok()
    }
}

impl TextSetting for ProfileName {
    type Value = Self;
    const WORD: &'static str = "profile's name";
    const EXAMPLE: &'static str = "\"support\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        Ok(Some(Self::new(text)?))
    }

    fn schema_pattern() -> Option<&'static str> {
        Some("^[a-zA-Z0-9_-]{1,64}$")
    }
}

impl From<ProfileNameError> for SettingFault {
    fn from(ProfileNameError: ProfileNameError) -> Self {
        Self::ProfileName
    }
}
