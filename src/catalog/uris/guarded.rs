//! The URIs of a server of which a rule denies some, or whose definitions are held: each resource has one
//! identity there, whatever the spelling, and a URI that is neither listed nor of a template is unknown.

use std::collections::{HashMap, HashSet};

use super::barred::BarredTemplate;
use super::climbing::has_dot_segment;
use super::normal_form::{UriSpellings, normal_form, normal_template};
use super::{UriTemplate, confines};
use crate::call::NativeName;

/// The identities of one guarded server's resources.
#[derive(Debug, Default)]
pub(super) struct GuardedUris {
    /// The listed URIs, by their normal forms.
    listed: HashMap<String, Vec<NativeName>>,
    /// Keys of the URIs and templates that a rule denies or that are held.
    barred: HashSet<String>,
    /// Those templates, in all their spellings.
    barred_templates: Vec<BarredTemplate>,
    /// The templates that clients see, as written and in normal form.
    shown_templates: Vec<UriTemplate>,
    /// The directories of listed skills, in normal form.
    skills: Vec<String>,
}

impl GuardedUris {
    /// Adds a URI that the server lists. One with dot segments is no other spelling of a resource.
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

    /// Adds a skill that the server lists: with it come its directory and all files in it.
    pub(super) fn add_skill(&mut self, native: &str) {
        self.add_listed(native);
        if let Some(normal) = normal_form(native)
            && let Some((directory, _)) = normal.rsplit_once('/')
        {
            self.skills.push(directory.to_owned());
        }
    }

    /// Bars a template, and what it expands to at any server.
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

    /// Returns true if a listed URI is barred, or one that can be the same. The official servers look for
    /// a listed URI first, but only if it is in normal form.
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

    /// Returns the native URI to send for the one that a client asks for: a listed URI in the server's own
    /// bytes, or an unlisted one if it is in normal form and belongs to what clients see, or was released to
    /// the client. `None` if there is none, or if a rule or hold bars it.
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

    /// The listed URI with the same normal form: the same bytes if there are several.
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
        self.barred.contains(&super::normal_form::fold_authority(form))
    }
}
