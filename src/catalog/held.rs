//! The definitions of one list that clients do not see for now.

use std::collections::HashSet;

use super::kind::Kind;
use super::uris::UriTemplate;
use crate::call::NativeName;

/// The elements of one server's list that are held: absent from every list, and unknown to calls and
/// reads. Their names stay taken, so that no other element gets them meanwhile.
#[derive(Debug, Default)]
pub struct HeldDefinitions {
    names: HashSet<(Kind, NativeName)>,
    templates: Vec<UriTemplate>,
    /// The directories of skills.
    skills: Vec<String>,
}

impl HeldDefinitions {
    /// Whether an element is held.
    pub fn holds(&self, kind: Kind, native: &str) -> bool {
        !self.names.is_empty() && self.names.contains(&(kind, NativeName::new(native)))
    }

    /// Whether a held resource has this native URI, or it is a file of a held skill, or a held template can
    /// expand to it.
    pub(super) fn covers_uri(&self, native: &str) -> bool {
        let is_below = |directory: &String| {
            native.strip_prefix(directory.as_str()).is_some_and(|rest| rest.starts_with('/'))
        };
        self.holds(Kind::Resources, native)
            || self.skills.iter().any(is_below)
            || self.templates.iter().any(|template| template.matches(native))
    }

    /// How many elements are held.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl FromIterator<(Kind, NativeName)> for HeldDefinitions {
    fn from_iter<I: IntoIterator<Item = (Kind, NativeName)>>(elements: I) -> Self {
        let names: HashSet<_> = elements.into_iter().collect();
        let templates = names.iter().filter(|(kind, _)| *kind == Kind::Templates);
        let templates = templates.map(|(_, native)| UriTemplate::parse(native.as_str())).collect();
        let skills = names.iter().filter(|(kind, _)| *kind == Kind::Skills);
        let directory = |uri: &str| uri.rsplit_once('/').map_or(uri, |(path, _)| path).to_owned();
        let skills = skills.map(|(_, native)| directory(native.as_str())).collect();
        Self { names, templates, skills }
    }
}
