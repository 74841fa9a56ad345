//! One element's definition, analysed: the terms of each of its fields, and its action.

use std::borrow::Cow;
use std::sync::Arc;

use foldhash::HashMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use trunkline_core::text::{clip, split_sentence};

use super::actions::Action;
use super::schema_text::visit_schema;
use crate::fields::{FIELD_COUNT, Field, FieldCounts, MAX_WORDS};
use crate::words::stems::{TermMaker, stem_english};
use crate::words::{fold_text, split_words, visit_words};

/// The analysis of one definition, shared by all indexes that have it.
#[derive(Debug)]
pub struct AnalysedElement {
    /// Each term once, with its counts.
    pub(crate) terms: Box<[(Arc<str>, FieldCounts)]>,
    /// The number of words of each field.
    pub(crate) lengths: [u16; FIELD_COUNT],
    /// Its action, as far as its name shows.
    pub(crate) action: Option<Action>,
    /// The letters and digits of its name, folded.
    pub(crate) name_key: Box<str>,
}

impl AnalysedElement {
    /// The approximate size in memory, in bytes. Terms are shared with other elements.
    pub fn size(&self) -> usize {
        self.terms.len() * size_of::<(Arc<str>, FieldCounts)>() + size_of::<Self>()
    }
}

/// Analyses definitions. Words that several of them have are analysed once, so one analyser should
/// process a whole catalog.
pub struct Analyser {
    maker: TermMaker,
    found: HashMap<Arc<str>, FieldCounts>,
    lengths: [u16; FIELD_COUNT],
}

/// The members of an element that are searched.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(crate) struct ElementMembers<'a> {
    #[serde(borrow)]
    pub(crate) name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) title: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(crate) description: Option<Cow<'a, str>>,
    #[serde(borrow, rename = "inputSchema")]
    pub(crate) schema: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(crate) arguments: Option<&'a RawValue>,
    pub(crate) annotations: ElementHints,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct ElementHints {
    pub(crate) title: Option<String>,
    read_only_hint: Option<bool>,
}

impl Default for Analyser {
    fn default() -> Self {
        Self { maker: TermMaker::new(), found: HashMap::default(), lengths: [0; FIELD_COUNT] }
    }
}

impl std::fmt::Debug for Analyser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Analyser").finish_non_exhaustive()
    }
}

impl Analyser {
    /// Analyses a tool or prompt as its server lists it, raw JSON. Unreadable parts have no words.
    pub fn analyse(&mut self, raw: &[u8]) -> AnalysedElement {
        let members: ElementMembers<'_> = serde_json::from_slice(raw).unwrap_or_default();
        let name = members.name.as_deref().unwrap_or_default();
        self.add_text(Field::Name, name);
        self.add_joined_neighbours(name);
        let title = members.title.as_deref().or(members.annotations.title.as_deref());
        self.add_text(Field::Title, title.unwrap_or_default());
        let description = members.description.as_deref().unwrap_or_default();
        let (summary, rest) = split_sentence(description);
        self.add_text(Field::Summary, summary);
        self.add_text(Field::Description, rest);
        for schema in [members.schema, members.arguments].into_iter().flatten() {
            visit_schema(schema.get(), &mut |field, text| self.add_text(field, text));
        }
        let is_reader = members.annotations.read_only_hint == Some(true);
        let action = Action::of_name(name).or(is_reader.then_some(Action::Read));
        let mut terms: Vec<_> = self.found.drain().collect();
        terms.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        AnalysedElement {
            terms: terms.into_boxed_slice(),
            lengths: std::mem::take(&mut self.lengths),
            action,
            name_key: name_key(name).into(),
        }
    }

    /// The terms of a short text, such as a server's name.
    pub(crate) fn terms_of(&mut self, text: &str) -> Vec<Arc<str>> {
        let mut terms: Vec<Arc<str>> = Vec::new();
        for word in split_words(clip(text, MAX_SHORT_TEXT)) {
            self.maker.visit_terms(&word, |term| {
                if !terms.contains(term) {
                    terms.push(Arc::clone(term));
                }
            });
        }
        terms
    }

    fn add_text(&mut self, field: Field, text: &str) {
        let index = field as usize;
        let most = MAX_WORDS.get(index).copied().unwrap_or_default();
        // Longer words than this are rare; a text of one endless word must not be read to its end.
        let text = clip(text, most * BYTES_A_WORD);
        let Self { maker, found, lengths } = self;
        let Some(length) = lengths.get_mut(index) else { return };
        visit_words(text, |word| {
            maker.visit_terms(&word, |term| {
                if usize::from(*length) >= most {
                    return;
                }
                *length += 1;
                let counts = match found.get_mut(term) {
                    Some(counts) => counts,
                    None => found.entry(Arc::clone(term)).or_default(),
                };
                if let Some(count) = counts.get_mut(index) {
                    *count = count.saturating_add(1);
                }
            });
        });
    }

    /// A name's neighbours as one word, too: `screen_shot` is found by "screenshot".
    fn add_joined_neighbours(&mut self, name: &str) {
        let words = split_words(clip(name, MAX_SHORT_TEXT));
        for pair in words.windows(2) {
            let [first, second] = pair else { continue };
            let joined = [&*first.text, &*second.text].concat();
            if joined.len() > MAX_JOINED || !joined.is_ascii() {
                continue;
            }
            let term: Arc<str> = stem_english(&joined).into();
            let counts = self.found.entry(term).or_default();
            if let Some(count) = counts.get_mut(Field::Name as usize) {
                *count = count.saturating_add(1);
            }
        }
    }
}

/// The letters and digits of a name, folded: equal for two names that differ in spelling only.
pub(crate) fn name_key(name: &str) -> String {
    fold_text(clip(name, MAX_SHORT_TEXT)).chars().filter(|c| c.is_alphanumeric()).collect()
}

/// The bytes of a text that are read for each word that may be kept of it.
const BYTES_A_WORD: usize = 16;
/// The most bytes that are read of a name.
const MAX_SHORT_TEXT: usize = 256;
/// The longest word that two neighbours make.
const MAX_JOINED: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(element: &AnalysedElement, term: &str) -> FieldCounts {
        let found = element.terms.iter().find(|(one, _)| &**one == term);
        found.map(|(_, counts)| *counts).unwrap_or_default()
    }

    #[test]
    fn every_field_has_its_own_counts() {
        let raw = r#"{"name":"create_issue","title":"New issue","description":"Creates an issue. The issue is new.",
            "inputSchema":{"type":"object","properties":{"issue_title":{"type":"string","description":"Title of the issue"},
            "state":{"enum":["open","closed"]}}},"annotations":{"readOnlyHint":false}}"#;
        let element = Analyser::default().analyse(raw.as_bytes());
        assert_eq!(counts(&element, "issu"), [1, 1, 1, 1, 1, 1, 0]);
        assert_eq!(counts(&element, "creat"), [1, 0, 1, 0, 0, 0, 0]);
        assert_eq!(counts(&element, "close")[Field::ParameterText as usize], 1);
        assert_eq!(counts(&element, "createissu")[Field::Name as usize], 1);
        assert_eq!((element.action, &*element.name_key), (Some(Action::Create), "createissue"));
    }

    #[test]
    fn a_text_without_end_is_bounded() {
        let words: Vec<_> = (0..100_000).map(|number| format!("w{number}x")).collect();
        let raw = serde_json::json!({"name": words.join("_"), "description": words.join(" ")});
        let element = Analyser::default().analyse(raw.to_string().as_bytes());
        let lengths = element.lengths.map(usize::from);
        assert!(lengths.iter().zip(MAX_WORDS).all(|(length, most)| *length <= most), "{lengths:?}");
    }

    #[test]
    fn invalid_elements_have_no_words() {
        for raw in ["", "[]", "{", r#"{"name":7}"#] {
            assert!(Analyser::default().analyse(raw.as_bytes()).terms.is_empty(), "{raw}");
        }
    }
}
