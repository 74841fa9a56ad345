//! Synonyms: a small built-in list, and the groups of the configuration.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use trunkline_core::text::clip;

use crate::weights::{
    CONFIGURED_SYNONYM_WEIGHT, GENERAL_WORD_WEIGHT, NEAR_SYNONYM_WEIGHT, SPELLING_WEIGHT,
};
use crate::words::spelling::LetterSet;
use crate::words::split_words;
use crate::words::stems::{is_stop_word, stem_english};

/// Groups of synonyms.
#[derive(Debug, Default)]
pub struct SynonymGroups {
    /// By the stems of a word or phrase, separated by spaces.
    synonyms: HashMap<Box<str>, Vec<Synonym>>,
    /// The most words of a phrase.
    longest: usize,
}

/// A synonym of a word or phrase.
#[derive(Debug, Clone)]
pub(crate) struct Synonym {
    /// The stems of its words, without stop words. An element has to have all of them.
    pub(crate) terms: Box<[Arc<str>]>,
    /// The value of a match, compared with a match of the word itself: more than 0, at most 1.
    pub(crate) discount: f32,
}

/// The stems of a word or phrase, and the form in which it is looked up.
#[derive(Clone)]
pub(crate) struct Member {
    key: Box<str>,
    words: usize,
    /// Without stop words.
    pub(crate) terms: Box<[Arc<str>]>,
}

impl SynonymGroups {
    /// The groups of the configuration: each a list of words or phrases that are synonyms. At most
    /// [`MAX_GROUPS`] groups of [`MAX_MEMBERS`] members are kept.
    pub fn from_groups<'a, G>(groups: impl IntoIterator<Item = G>) -> Self
    where
        G: IntoIterator<Item = &'a str>,
    {
        let mut built = Self::default();
        for group in groups.into_iter().take(MAX_GROUPS) {
            let members = group.into_iter().take(MAX_MEMBERS).map(read_member);
            built.add_group(&members.collect::<Vec<_>>(), CONFIGURED_SYNONYM_WEIGHT);
        }
        built
    }

    /// The built-in list.
    pub(crate) fn built_in() -> &'static Self {
        static BUILT_IN: LazyLock<SynonymGroups> = LazyLock::new(|| {
            let mut built = SynonymGroups::default();
            for text in SYNONYM_LISTS {
                text.lines().for_each(|line| built.add_line(line));
            }
            built
        });
        &BUILT_IN
    }

    /// The synonyms of a word or phrase, by its stems.
    pub(crate) fn find(&self, key: &str) -> &[Synonym] {
        self.synonyms.get(key).map_or(&[], Vec::as_slice)
    }

    /// Returns true if a word or phrase is in a group.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.synonyms.contains_key(key)
    }

    /// The single words of the built-in list, by their stems.
    pub(crate) fn built_in_words() -> &'static [(&'static str, LetterSet)] {
        static SYNONYM_WORDS: LazyLock<Vec<(&str, LetterSet)>> = LazyLock::new(|| {
            let keys = SynonymGroups::built_in().synonyms.keys();
            let words = keys.map(|key| &**key).filter(|key| !key.contains(' '));
            words.map(|word| (word, LetterSet::of_word(word))).collect()
        });
        &SYNONYM_WORDS
    }

    /// The most words of a phrase in a group.
    pub(crate) fn longest_phrase(&self) -> usize {
        self.longest
    }

    /// Adds a line of a built-in list.
    fn add_line(&mut self, line: &str) {
        let Some((mark, line)) = line.split_at_checked(1) else { return };
        let (general, members) = line.split_once(':').filter(|_| mark == ">").unzip();
        let members: Vec<_> = members.unwrap_or(line).split(',').map(read_member).collect();
        match mark {
            "=" => self.add_group(&members, SPELLING_WEIGHT),
            "~" => self.add_group(&members, NEAR_SYNONYM_WEIGHT),
            ">" => {
                let general = read_member(general.unwrap_or_default());
                for member in &members {
                    self.add_synonym(member, &general, GENERAL_WORD_WEIGHT);
                }
            }
            _ => {}
        }
    }

    fn add_group(&mut self, members: &[Member], discount: f32) {
        for member in members {
            for other in members {
                self.add_synonym(member, other, discount);
            }
        }
    }

    fn add_synonym(&mut self, member: &Member, other: &Member, discount: f32) {
        if member.key.is_empty() || member.key == other.key || other.terms.is_empty() {
            return;
        }
        self.longest = self.longest.max(member.words);
        let known = self.synonyms.entry(member.key.clone()).or_default();
        match known.iter_mut().find(|synonym| synonym.terms == other.terms) {
            Some(synonym) => synonym.discount = synonym.discount.max(discount),
            None => known.push(Synonym { terms: other.terms.clone(), discount }),
        }
    }
}

/// Reads a word or phrase of a list.
pub(crate) fn read_member(text: &str) -> Member {
    let words = split_words(clip(text, MAX_MEMBER_BYTES));
    let words: Vec<_> = words.iter().map(|word| &*word.text).take(MAX_PHRASE).collect();
    let stems: Vec<_> = words.iter().map(|word| stem_english(word)).collect();
    let kept = words.iter().zip(&stems).filter(|(word, _)| word.len() > 1 && !is_stop_word(word));
    Member {
        key: stems.join(" ").into(),
        words: words.len(),
        terms: kept.map(|(_, stem)| Arc::from(&**stem)).collect(),
    }
}

/// The most groups of a configuration.
pub const MAX_GROUPS: usize = 256;
/// The most members of a configured group.
pub const MAX_MEMBERS: usize = 32;
/// The most bytes that are read of a member.
const MAX_MEMBER_BYTES: usize = 64;
/// The most words of a phrase.
pub(crate) const MAX_PHRASE: usize = 4;

const SYNONYM_LISTS: [&str; 8] = [
    include_str!("thesaurus/spellings.txt"),
    include_str!("thesaurus/verbs.txt"),
    include_str!("thesaurus/software.txt"),
    include_str!("thesaurus/life.txt"),
    include_str!("thesaurus/hints.txt"),
    include_str!("thesaurus/situations.txt"),
    include_str!("thesaurus/domains.txt"),
    include_str!("thesaurus/trades.txt"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn discount(groups: &SynonymGroups, key: &str, terms: &[&str]) -> Option<f32> {
        let mut found = groups.find(key).iter();
        found
            .find(|synonym| synonym.terms.iter().map(|term| &**term).eq(terms.iter().copied()))
            .map(|synonym| synonym.discount)
    }

    #[test]
    fn the_built_in_list_knows_words_phrases_and_abbreviations() {
        let groups = SynonymGroups::built_in();
        assert_eq!(discount(groups, "repo", &["repositori"]), Some(SPELLING_WEIGHT));
        assert_eq!(discount(groups, "pull request", &["pr"]), Some(SPELLING_WEIGHT));
        assert_eq!(discount(groups, "merg request", &["pull", "request"]), Some(SPELLING_WEIGHT));
        assert_eq!(discount(groups, "creat", &["add"]), Some(NEAR_SYNONYM_WEIGHT));
        assert_eq!(discount(groups, "look up", &["search"]), Some(NEAR_SYNONYM_WEIGHT));
        assert_eq!(discount(groups, "euro", &["currenc"]), Some(GENERAL_WORD_WEIGHT));
        assert_eq!(discount(groups, "currenc", &["euro"]), None, "one way only");
        assert!(
            groups.longest_phrase() <= MAX_PHRASE && SynonymGroups::built_in_words().len() > 500
        );
    }

    #[test]
    fn every_line_of_the_built_in_lists_is_read() {
        let lines =
            SYNONYM_LISTS.iter().flat_map(|list| list.lines()).filter(|line| !line.is_empty());
        let is_useless = |line: &&str| {
            let mut groups = SynonymGroups::default();
            groups.add_line(line);
            groups.synonyms.is_empty() != line.starts_with('#')
        };
        let useless: Vec<_> = lines.filter(is_useless).collect();
        assert!(useless.is_empty(), "{useless:#?}");
    }

    #[test]
    fn groups_of_a_configuration_are_bounded() {
        let many = vec!["word"; 1000];
        let words: Vec<_> = (0..1000).map(|number| format!("w{number}")).collect();
        let big: Vec<_> = words.iter().map(String::as_str).collect();
        let groups = SynonymGroups::from_groups([many, big]);
        assert_eq!(groups.synonyms.len(), MAX_MEMBERS);
        let groups = SynonymGroups::from_groups([["wiki", "Knowledge base"]]);
        assert_eq!(
            discount(&groups, "wiki", &["knowledg", "base"]),
            Some(CONFIGURED_SYNONYM_WEIGHT)
        );
        assert_eq!(discount(&groups, "knowledg base", &["wiki"]), Some(CONFIGURED_SYNONYM_WEIGHT));
    }
}
