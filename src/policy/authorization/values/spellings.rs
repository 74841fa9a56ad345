//! Conditions about a URI. They are evaluated for each equivalent spelling, because a condition
//! compares text and a server may read another spelling as the same resource.

use crate::catalog::{CatalogElement, ElementSpellings, fold_authority, normal_form, split_public};
use crate::config::{Condition, RuleEffect};

/// A URI, or the prefix of one, that is written in a condition.
#[derive(Debug)]
pub(crate) struct WrittenUri {
    text: String,
    normal: String,
}

impl WrittenUri {
    /// Finds those in a condition about an element's URI.
    pub(crate) fn find_in(condition: &Condition) -> Vec<Self> {
        if !reads_uri(condition) {
            return Vec::new();
        }
        let native = condition.literals().into_iter().map(|text| split_public(text).1);
        let found = native.filter_map(|text| Some((text, normal_form(text)?)));
        found.map(|(text, normal)| Self { text: text.to_owned(), normal }).collect()
    }

    /// Returns the URI with its prefix as written here, if its normal form begins with this one. A
    /// denial compares scheme and host without regard to case, as patterns do.
    fn respell(&self, normal: &str, effect: RuleEffect) -> Option<String> {
        let is_prefix = match effect {
            RuleEffect::Allow => normal.starts_with(&self.normal),
            RuleEffect::Deny => fold_authority(normal).starts_with(&fold_authority(&self.normal)),
        };
        // Folding keeps the length.
        let rest = normal.get(self.normal.len()..).filter(|_| is_prefix)?;
        Some(format!("{}{rest}", self.text))
    }
}

/// Returns true if a condition reads the name or URI of an element.
pub(crate) fn reads_uri(condition: &Condition) -> bool {
    let item = condition.reads().of("item");
    item.has("name") || item.has("native")
}

/// Returns the public and native URIs with which a condition is evaluated for an element; `None` if
/// one evaluation is enough, because the element has a name or a single spelling.
pub(crate) fn spell_element(
    element: &CatalogElement<'_>,
    effect: RuleEffect,
    written: &[WrittenUri],
) -> Option<Vec<(String, String)>> {
    let spellings = ElementSpellings::of(element)?;
    let native = spellings.native();
    let mut forms: Vec<String> = match effect {
        RuleEffect::Allow => native.for_permission().map(str::to_owned).collect(),
        RuleEffect::Deny => native.for_denial().map(str::to_owned).collect(),
    };
    // In the operator's spelling: an equivalent text counts as the same.
    let normal = native.normal().unwrap_or(element.native);
    let decoded = forms.iter().filter_map(|form| normal_form(form));
    let normals: Vec<_> = decoded.chain([normal.to_owned()]).collect();
    let respelled =
        written.iter().flat_map(|one| normals.iter().filter_map(|it| one.respell(it, effect)));
    let respelled: Vec<_> = respelled.collect();
    if !respelled.is_empty() {
        match effect {
            RuleEffect::Allow => forms.truncate(1),
            RuleEffect::Deny => {}
        }
        forms.extend(respelled);
    }
    forms.sort_unstable();
    forms.dedup();
    if forms.len() < 2 {
        return None;
    }
    let public = |form: &String| format!("{}{form}", spellings.prefix());
    Some(forms.iter().map(|form| (public(form), form.clone())).collect())
}
