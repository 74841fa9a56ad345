//! `[profiles.NAME]`: parts of the catalog with a URL of their own.

use crate::call::{ProfileName, ProfileNameError};

use super::gateway::Uris;
use super::macros::section;
use super::pattern::Pattern;
use super::problem::Problem;
use super::reader::{Reader, Table};
use super::setting::{Part, Text};

section! {
    /// A part of what the servers offer, at `/mcp/NAME`. What a profile does not show cannot be
    /// used there either. One that names `tools`, `prompts` or `resources` shows of these three
    /// only what it names; one that names none of them shows all that its servers have. `default`
    /// is what `/mcp` itself serves: everything, where there is no such profile. `NAME` is 1 to 64
    /// characters of `a-z`, `A-Z`, `0-9`, `_` and `-`.
    #[derive(Debug, Clone, PartialEq)]
    pub struct Profile {
        parts {
            /// The `NAME` of its table.
            name: ProfileName,
        }
        settings {
            /// The servers whose offers it shows, by name. All of them without it.
            servers: Option<Vec<Pattern>>,
            /// The tools that it shows, by public name: `*` is any run of characters, `?` any one.
            tools: Option<Vec<Pattern>>,
            /// The prompts that it shows, by public name.
            prompts: Option<Vec<Pattern>>,
            /// The resources and resource templates that it shows, by public URI. What a template
            /// that is shown makes can be read.
            resources: Option<Vec<Pattern>>,
            /// Which URIs clients see of it, instead of `gateway.uris`.
            uris: Option<Uris>,
            /// What clients show as its name, instead of `gateway.title`.
            title: Option<String>,
            /// What clients tell their model about it, instead of `gateway.instructions`.
            instructions: Option<String>,
        }
    }
}

/// A profile's name is its table's.
impl Part for ProfileName {
    fn read(table: &Table<'_>, reader: &mut Reader<'_>) -> Option<Self> {
        Self::new(table.name)
            .map_err(|error| reader.fault(table.name_span.clone(), &table.key, error.into()))
            .ok()
    }
}

impl Text for ProfileName {
    type Value = Self;
    const WORD: &'static str = "profile's name";
    const EXAMPLE: &'static str = "\"support\"";

    fn parse(text: &str, _: &Reader<'_>) -> Result<Option<Self>, Problem> {
        Ok(Some(Self::new(text)?))
    }

    fn pattern() -> Option<&'static str> {
        Some("^[a-zA-Z0-9_-]{1,64}$")
    }
}

impl From<ProfileNameError> for Problem {
    fn from(ProfileNameError: ProfileNameError) -> Self {
        Self::ProfileName
    }
}
