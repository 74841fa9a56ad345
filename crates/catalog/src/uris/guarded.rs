//! The URIs of a server with denied or held resources. Each resource has one identity there, in any
//! spelling, and a URI that is neither listed nor of a template is unknown.

use std::collections::{HashMap, HashSet};

use trunkline_protocol::call::NativeName;

use super::confines;
use crate::uri_forms::UriTemplate;
use crate::uri_forms::barred::BarredTemplate;
use crate::uri_forms::climbing::has_dot_segment;
use crate::uri_forms::normal_form::{UriSpellings, normal_form, normal_template};

/// The identities of one guarded server's resources.
#[derive(Debug, Default)]
pub(super) struct GuardedUris {
    /// The listed URIs, by their normal forms.
    listed: HashMap<String, Vec<NativeName>>,
    /// Keys of the URIs and templates that a rule denies or that are held.
    barred: HashSet<String>,
    /// The barred templates, in all their spellings.
    barred_templates: Vec<BarredTemplate>,
    /// The templates that clients see, as written and in normal form.
    shown_templates: Vec<UriTemplate>,
    /// The directories of listed skills, in normal form.
    skills: Vec<String>,
}

impl GuardedUris {
    /// Adds a URI that the server lists. A URI with dot segments is no other spelling of a
    /// resource.
    pub(super) fn add_listed(&mut self, native: &str) {
        if has_dot_segment(native) {
            return;
        }
        let normal = normal_form(native).unwrap_or_else(|| native.to_owned());
        let alike = self.listed.entry(normal).or_default();
        if !alike.iter().any(|one| one.as_str() == native) {
            alike.push(NativeName::new(native));
        }
    }

    /// Adds a skill that the server lists, with its directory and all files in it.
    pub(super) fn add_skill(&mut self, native: &str) {
        self.add_listed(native);
        if let Some(normal) = normal_form(native)
            && let Some((directory, _)) = normal.rsplit_once('/')
        {
            self.skills.push(directory.to_owned());
        }
    }

    /// Bars a template, and its expansions at any server.
    pub(super) fn bar_template(&mut self, text: &str) {
        let spellings = UriSpellings::of_template(text);
        let forms: HashSet<_> =
            spellings.keys().chain(spellings.for_denial().map(str::to_owned)).collect();
        self.barred_templates.extend(forms.iter().map(|form| BarredTemplate::parse(form)));
        self.barred.extend(spellings.keys());
    }

    /// Bars a URI, in all spellings.
    pub(super) fn bar_uri(&mut self, native: &str) {
        self.barred.extend(UriSpellings::of(native).keys());
    }

    /// Returns true if a template is barred, or one that can be the same.
    pub(super) fn bars_template(&self, text: &str) -> bool {
        let spellings = UriSpellings::of_template(text);
        spellings.normal().into_iter().chain([text]).any(|form| self.has_key(form))
    }

    /// Returns true if a listed URI is barred, or one that can be the same. The official servers
    /// search for a listed URI first, but only if it is in normal form.
    pub(super) fn bars_listed(&self, native: &str) -> bool {
        let spellings = UriSpellings::of(native);
        self.bars(&spellings) || (!spellings.is_normal() && self.bars_expansion(&spellings))
    }

    /// Sets the templates that clients see.
    pub(super) fn show_templates(&mut self, shown: &[String]) {
        for text in shown {
            let normal = normal_template(text).filter(|normal| normal != text);
            let forms = normal.iter().chain([text]);
            self.shown_templates.extend(forms.map(|form| UriTemplate::parse(form)));
        }
    }

    /// Returns the native URI to send for a client's URI: a listed URI in the server's own bytes,
    /// or an unlisted one. An unlisted URI must be in normal form and belong to an element that
    /// clients see, or it must have been released to the client. `None` if there is no such URI, or
    /// if a rule or hold bars it.
    pub(super) fn resolve<'u>(
        &'u self,
        asked: &'u str,
        spellings: &UriSpellings,
        is_released: impl FnOnce(&str) -> bool,
    ) -> Option<&'u str> {
        if self.bars(spellings) {
            return None;
        }
        if let Some(own) = self.find_listed(asked, spellings) {
            return Some(own);
        }
        if self.bars_expansion(spellings) || has_dot_segment(asked) {
            return None;
        }
        let is_known = spellings.is_normal() && self.belongs_to_shown(asked);
        (is_known || is_released(asked)).then_some(asked)
    }

    /// The listed URI with the same normal form: the one with the same bytes if there are several.
    pub(super) fn find_listed(&self, asked: &str, spellings: &UriSpellings) -> Option<&str> {
        let alike = self.listed.get(spellings.normal().unwrap_or(asked))?;
        let same = alike.iter().find(|one| one.as_str() == asked);
        same.or_else(|| alike.first()).map(NativeName::as_str)
    }

    fn belongs_to_shown(&self, native: &str) -> bool {
        let is_below = |directory: &String| {
            let rest = native.strip_prefix(directory.as_str());
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.skills.iter().any(is_below)
            || self.shown_templates.iter().any(|template| confines(template, native))
    }

    fn bars(&self, spellings: &UriSpellings) -> bool {
        !self.barred.is_empty() && spellings.keys().any(|key| self.barred.contains(&key))
    }

    /// Returns true if a barred template can expand to the URI at some server.
    fn bars_expansion(&self, spellings: &UriSpellings) -> bool {
        !self.barred_templates.is_empty()
            && spellings
                .keys()
                .chain(spellings.for_denial().map(str::to_owned))
                .any(|form| self.barred_templates.iter().any(|template| template.covers(&form)))
    }

    fn has_key(&self, form: &str) -> bool {
        self.barred.contains(&crate::uri_forms::normal_form::fold_authority(form))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server with a barred template and a barred resource among others.
    fn guarded() -> GuardedUris {
        let mut uris = GuardedUris::default();
        for listed in ["FILE:///Odd name", "db://Prod/secret", "x://h/a/../listed"] {
            uris.add_listed(listed);
        }
        uris.add_skill("skill://a/SKILL.md");
        uris.bar_uri("db://Prod/secret");
        uris.bar_template("db://Prod/{id}");
        uris.show_templates(&["db://{table}/{id}", "file:///{+path}"].map(str::to_owned));
        uris
    }

    #[test]
    fn a_uri_of_a_guarded_server_is_resolved_by_its_identity() {
        let uris = guarded();
        for (asked, unreleased, released) in [
            // Listed, and sent in the server's own bytes.
            ("file:///Odd%20name", Some("FILE:///Odd name"), Some("FILE:///Odd name")),
            // Barred, although it is listed.
            ("db://Prod/secret", None, None),
            ("DB://prod/secret", None, None),
            // From a barred template.
            ("db://Prod/7", None, None),
            ("db://Prod/", None, None),
            // From a template that clients see, and in normal form or in none.
            ("db://users/7", Some("db://users/7"), Some("db://users/7")),
            ("DB://users/7", None, Some("DB://users/7")),
            // In the directory of a listed skill.
            ("skill://a/notes.md", Some("skill://a/notes.md"), Some("skill://a/notes.md")),
            ("skill://ab", None, Some("skill://ab")),
            // Not from anything that clients see.
            ("other:x", None, Some("other:x")),
            // With dot segments, which do not spell a listed URI either.
            ("other://h/a/../x", None, None),
            ("x://h/listed", None, Some("x://h/listed")),
        ] {
            for (is_released, sent) in [(false, unreleased), (true, released)] {
                let found = uris.resolve(asked, &UriSpellings::of(asked), |_| is_released);
                assert_eq!(found, sent, "{asked} {is_released}");
            }
        }
    }

    #[test]
    fn a_listed_uri_or_template_is_barred_with_those_that_can_be_the_same() {
        let uris = guarded();
        for (listed, is_barred) in [
            ("db://Prod/secret", true),
            ("DB://prod/secret", true),
            // The official servers search for a listed URI first, but only if it is in normal form.
            ("db://Prod/8", false),
            ("DB://Prod/8", true),
            ("db://users/8", false),
        ] {
            assert_eq!(uris.bars_listed(listed), is_barred, "{listed}");
        }
        for (template, is_barred) in
            [("db://Prod/{id}", true), ("DB://prod/{id}", true), ("db://{table}/{id}", false)]
        {
            assert_eq!(uris.bars_template(template), is_barred, "{template}");
        }
    }
}
