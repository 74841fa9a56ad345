//! Names that look like other names.

use std::collections::{HashMap, HashSet};

use unicode_security::MixedScript;
use unicode_security::confusable_detection::skeleton;

use trunkline_protocol::call::{NativeName, ServerName};

use crate::Kind;

/// Returns true if a word of a name mixes alphabets that are not written together.
pub(crate) fn mixes_alphabets(name: &str) -> bool {
    let words = name.split(|c: char| !c.is_alphanumeric());
    words.filter(|word| !word.is_ascii()).any(|word| !word.is_single_script())
}

/// The names of tools and prompts that look like a name of another server, without being equal.
#[derive(Debug, Default)]
pub struct ConfusableNames(HashSet<(ServerName, Kind, NativeName)>);

impl ConfusableNames {
    /// Compares all names of all servers. Equal names are no deception: servers share verbs.
    pub fn compare<'a>(
        names: impl IntoIterator<Item = (&'a ServerName, Kind, &'a NativeName)>,
    ) -> Self {
        let mut alike: HashMap<(Kind, String), Vec<(&ServerName, &NativeName)>> = HashMap::new();
        for (server, kind, name) in names {
            if matches!(kind, Kind::Tools | Kind::Prompts) {
                let form: String = skeleton(&name.as_str().to_lowercase()).collect();
                alike.entry((kind, form)).or_default().push((server, name));
            }
        }
        let mut found = HashSet::new();
        for ((kind, _), names) in alike {
            for (server, name) in &names {
                let lower = name.as_str().to_lowercase();
                let deceives = names.iter().any(|(other, model)| {
                    other != server && model.as_str().to_lowercase() != lower
                });
                if deceives {
                    found.insert(((*server).clone(), kind, (*name).clone()));
                }
            }
        }
        Self(found)
    }

    /// Returns true if a name looks like one of another server.
    #[inline]
    pub fn has(&self, server: &ServerName, kind: Kind, name: &NativeName) -> bool {
        !self.0.is_empty() && self.0.contains(&(server.clone(), kind, name.clone()))
    }
}
