//! The definitions of one list that are withheld from clients until they are approved.

use std::collections::{HashMap, HashSet};

use trunkline_protocol::call::NativeName;

use crate::kind::Kind;
use crate::uri_forms::{BarredTemplate, UriSpellings};

/// The elements of one server's list that are held: absent from every list, and unknown to calls
/// and reads.
#[derive(Debug, Default)]
pub struct HeldDefinitions {
    names: HashMap<(Kind, NativeName), HeldName>,
    /// The keys of resources.
    resources: HashSet<String>,
    templates: Vec<BarredTemplate>,
    /// The directories of skills.
    skills: Vec<String>,
    /// Set if everything of the server is held until it is approved.
    holds_unapproved: bool,
}

/// The name of an element while it is held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldName {
    /// Clients saw the element before: its name remains reserved, so that no other element gets it.
    Reserved,
    /// Clients never saw it: others are named as if it did not exist.
    Unclaimed,
}

impl HeldDefinitions {
    /// The same, with everything of the server held until it is approved, even elements not listed
    /// yet.
    #[must_use]
    #[inline]
    pub fn holding_unapproved(self) -> Self {
        Self { holds_unapproved: true, ..self }
    }

    /// Returns the state of an element's name; `None` if the element is not held.
    pub(crate) fn name_of(&self, kind: Kind, native: &str) -> Option<HeldName> {
        if self.names.is_empty() {
            return None;
        }
        self.names.get(&(kind, NativeName::new(native))).copied()
    }

    /// Returns true if an element is held.
    #[inline]
    pub fn holds(&self, kind: Kind, native: &str) -> bool {
        self.name_of(kind, native).is_some()
    }

    /// Returns true if an element with a URI is held, or may be.
    pub(crate) fn guards_uris(&self) -> bool {
        let is_uri = |kind: Kind| !matches!(kind, Kind::Tools | Kind::Prompts);
        self.holds_unapproved || self.names.keys().any(|(kind, _)| is_uri(*kind))
    }

    /// Returns true if a held resource has this native URI in any spelling, or it is a file of a held skill, or a
    /// held template can expand to it.
    pub(crate) fn covers_uri(&self, spellings: &UriSpellings) -> bool {
        if self.names.is_empty() {
            return false;
        }
        let is_below = |form: &str| {
            let rest = |directory: &String| form.strip_prefix(directory.as_str());
            self.skills.iter().filter_map(rest).any(|rest| rest.starts_with('/'))
        };
        let forms = spellings.keys().chain(spellings.for_denial().map(str::to_owned));
        let mut forms = forms.collect::<Vec<_>>().into_iter();
        forms.any(|form| {
            self.resources.contains(&form)
                || is_below(&form)
                || self.templates.iter().any(|template| template.covers(&form))
        })
    }

    /// The number of held elements.
    #[inline]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns true if nothing is held.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }
}

impl FromIterator<((Kind, NativeName), HeldName)> for HeldDefinitions {
    fn from_iter<I: IntoIterator<Item = ((Kind, NativeName), HeldName)>>(elements: I) -> Self {
        let mut held = Self::default();
        for ((kind, native), name) in elements {
            let uri = native.as_str();
            match kind {
                Kind::Tools | Kind::Prompts => {}
                Kind::Resources => held.resources.extend(UriSpellings::of(uri).keys()),
                Kind::Templates => {
                    let spellings = UriSpellings::of_template(uri);
                    let forms = spellings.keys().chain(spellings.for_denial().map(str::to_owned));
                    held.templates.extend(forms.map(|form| BarredTemplate::parse(&form)));
                }
                Kind::Skills => {
                    let directory =
                        |uri: &str| uri.rsplit_once('/').map_or(uri, |it| it.0).to_owned();
                    held.skills.extend(UriSpellings::of(uri).keys().map(|uri| directory(&uri)));
                    held.skills.push(directory(uri));
                }
            }
            held.names.insert((kind, native), name);
        }
        held
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(elements: &[(Kind, &str)]) -> HeldDefinitions {
        let entry =
            |(kind, native): &(Kind, &str)| ((*kind, NativeName::new(native)), HeldName::Reserved);
        elements.iter().map(entry).collect()
    }

    #[test]
    fn held_elements_cover_every_spelling_of_their_uris() {
        let held = held(&[
            (Kind::Resources, "file:///secret.txt"),
            (Kind::Templates, "db://Prod/{id}"),
            (Kind::Skills, "skill://a/SKILL.md"),
            (Kind::Tools, "x:tool"),
        ]);
        for (uri, is_covered) in [
            ("FILE:///%73ecret.txt", true),
            ("file:///a.txt", false),
            ("db://prod/7", true),
            ("db://Prod/", true),
            ("db://users/7", false),
            ("skill://a/notes.md", true),
            ("SKILL://a/b/c", true),
            ("skill://ab", false),
            ("x:tool", false),
        ] {
            assert_eq!(held.covers_uri(&UriSpellings::of(uri)), is_covered, "{uri}");
        }
    }

    #[test]
    fn uris_are_guarded_where_one_is_held_or_may_be() {
        assert!(held(&[(Kind::Skills, "skill://a/SKILL.md")]).guards_uris());
        assert!(!held(&[(Kind::Tools, "x"), (Kind::Prompts, "y")]).guards_uris());
        assert!(HeldDefinitions::default().holding_unapproved().guards_uris());
    }
}
