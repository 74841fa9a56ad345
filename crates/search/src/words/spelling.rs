//! Words near a misspelt one: the same letters except for one or two, or the same beginning.

use strsim::osa_distance;

use super::stems::stem_english;
use crate::weights::{MORE_EDITS, ONE_EDIT, OTHER_START, WORD_BEGINNING_WEIGHT};

/// The letters of a word as bits. Words that have few letters in common are rejected before they
/// are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LetterSet(u32);

impl LetterSet {
    pub(crate) fn of_word(word: &str) -> Self {
        let bits = word.bytes().map(|byte| match byte {
            b'a'..=b'z' => 1 << (byte - b'a'),
            b'0'..=b'9' => 1 << 26,
            _ => Self::OTHERS,
        });
        Self(bits.fold(0, |all: u32, bit| all | bit))
    }

    const OTHERS: u32 = 1 << 27;

    /// Returns true if there are only letters of English and digits.
    fn is_plain(self) -> bool {
        self.0 & Self::OTHERS == 0
    }

    /// The number of letters that only one of both has.
    fn differences(self, other: Self) -> u32 {
        (self.0 ^ other.0).count_ones()
    }

    fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// A word that may have been misspelt.
pub(crate) struct Misspelling<'a> {
    text: &'a str,
    stem: String,
    letters: LetterSet,
    stem_letters: LetterSet,
    /// The most edits: letters that are missing, added, replaced or swapped with their neighbour.
    most: usize,
}

impl<'a> Misspelling<'a> {
    /// `None` for words that are too short, or have letters outside of ASCII: too many words are
    /// near them.
    pub(crate) fn new(text: &'a str) -> Option<Self> {
        if !text.is_ascii() || !(MIN_LENGTH..=MAX_LENGTH).contains(&text.len()) {
            return None;
        }
        let most = if text.len() < TWO_EDITS { 1 } else { 2 };
        let stem = stem_english(text);
        let (letters, stem_letters) = (LetterSet::of_word(text), LetterSet::of_word(&stem));
        Some(Self { text, stem, letters, stem_letters, most })
    }

    /// The similarity to a stem: 1 for the same word; `None` if it is another word.
    pub(crate) fn similarity(&self, stem: &str, letters: LetterSet) -> Option<f32> {
        if stem.len() < MIN_LENGTH - 1 || !letters.is_plain() {
            return None;
        }
        self.shared_beginning(stem, letters).or_else(|| self.few_edits(stem, letters))
    }

    /// `auth` for `authentication`, `config` for `configuration`.
    fn shared_beginning(&self, stem: &str, letters: LetterSet) -> Option<f32> {
        let own = if self.stem.len() < MIN_LENGTH { self.text } else { &self.stem };
        let begins = (letters.contains(self.stem_letters) && stem.starts_with(own))
            || (stem.len() > MIN_LENGTH && own.starts_with(stem));
        let (short, long) = (own.len().min(stem.len()), own.len().max(stem.len()));
        (begins && short * 3 >= long).then_some(WORD_BEGINNING_WEIGHT)
    }

    fn few_edits(&self, stem: &str, letters: LetterSet) -> Option<f32> {
        let edits = [(self.text, self.letters), (&*self.stem, self.stem_letters)];
        let edits = edits.into_iter().filter(|(own, own_letters)| {
            // An edit changes two letters of the set at most, and the length by one.
            own.len().abs_diff(stem.len()) <= self.most
                && own_letters.differences(letters) as usize <= 2 * self.most
        });
        let edits = edits.map(|(own, _)| osa_distance(own, stem)).min()?;
        if edits > self.most {
            return None;
        }
        let same_start = self.text.as_bytes().first() == stem.as_bytes().first();
        let start = if same_start { 1.0 } else { OTHER_START };
        Some(start * if edits <= 1 { ONE_EDIT } else { MORE_EDITS })
    }
}

/// The shortest word that is corrected, in letters.
const MIN_LENGTH: usize = 4;
/// The longest word that is corrected, in letters.
const MAX_LENGTH: usize = 24;
/// The shortest word that may have two edits.
const TWO_EDITS: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;

    fn similarity(text: &str, word: &str) -> Option<f32> {
        let stem = stem_english(word);
        Misspelling::new(text)?.similarity(&stem, LetterSet::of_word(&stem))
    }

    #[test]
    fn misspelt_words_are_near_the_intended_ones() {
        for (text, word) in [
            ("serach", "search"),
            ("repositry", "repository"),
            ("isssue", "issue"),
            ("brnach", "branch"),
            ("direcotry", "directory"),
            ("delte", "delete"),
            ("craete", "create"),
            ("flie", "file"),
            ("mesage", "message"),
            ("authentification", "authentication"),
            ("config", "configuration"),
            ("calender", "calendar"),
            ("enviroment", "environment"),
        ] {
            assert!(similarity(text, word).is_some(), "{text} {word}");
        }
    }

    #[test]
    fn other_words_are_not() {
        for (text, word) in
            [("search", "branch"), ("cat", "car"), ("table", "message"), ("пират", "pirate")]
        {
            assert_eq!(similarity(text, word), None, "{text} {word}");
        }
    }
}
