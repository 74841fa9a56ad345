//! The search for orders for a model, in the words that attacks use.
//!
//! Each pattern takes time linear in the text, which [`fold_text`](crate::scan::forms::folding::fold_text) has
//! folded.

use std::collections::HashMap;
use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder};

use super::english::{ENGLISH_RULES, SQUEEZED_RULES};
use super::languages::{latin_rules, script_rules};
use crate::scan::ScanRule;
use crate::scan::forms::folding::fold_pattern;

/// The orders in a text, and their positions.
#[derive(Debug, Default)]
pub(crate) struct FoundOrders(Vec<(usize, ScanRule)>);

impl FoundOrders {
    /// Finds the orders in a folded text.
    pub(crate) fn search(folded: &str) -> Self {
        let mut found = Self::default();
        found.search_for(&RULE_PATTERNS, folded);
        if !folded.is_ascii() {
            found.search_for(&SCRIPT_PATTERNS, folded);
        }
        found
    }

    /// Finds orders in a folded text with separated letters: `i-g-n-o-r-e`, or half of a word in
    /// another field.
    pub(crate) fn search_squeezed(folded: &str) -> Self {
        let mut found = Self::default();
        let squeezed = squeeze_text(folded);
        found.search_for(&SQUEEZED_PATTERNS, &squeezed);
        if !squeezed.is_ascii() {
            found.search_for(&SCRIPT_PATTERNS, &squeezed);
        }
        found
    }

    fn search_for(&mut self, patterns: &[(ScanRule, Regex)], text: &str) {
        if text.len() < MIN_ORDER_BYTES {
            return;
        }
        for (rule, pattern) in patterns {
            // Most texts match nothing, and that check is faster than finding positions.
            if pattern.is_match(text.as_bytes()) {
                let places = pattern.find_iter(text.as_bytes()).take(MAX_PLACES);
                self.0.extend(places.map(|place| (place.start(), *rule)));
            }
        }
    }

    /// Adds the orders of a text that begins at this position.
    pub(crate) fn add(&mut self, other: &Self, start: usize) {
        self.0.extend(other.0.iter().map(|(place, rule)| (start + place, *rule)));
    }

    /// Returns the orders that break a rule outside `known`.
    pub(crate) fn without(&self, known: &[ScanRule]) -> Self {
        Self(self.0.iter().filter(|(_, rule)| !known.contains(rule)).copied().collect())
    }

    /// The weight of the passage that breaks most rules. Each rule counts once.
    pub(crate) fn heaviest_passage(&mut self) -> u32 {
        self.0.sort_unstable();
        let mut near: HashMap<ScanRule, usize> = HashMap::new();
        let (mut weight, mut heaviest) = (0, 0);
        let mut begins = self.0.iter().peekable();
        for (place, rule) in &self.0 {
            let times = near.entry(*rule).or_default();
            *times += 1;
            if *times == 1 {
                weight += rule.weight();
            }
            while let Some((_, left)) = begins.next_if(|(begin, _)| begin + PASSAGE_BYTES <= *place)
            {
                let times = near.entry(*left).or_default();
                *times -= 1;
                if *times == 0 {
                    weight -= left.weight();
                }
            }
            heaviest = heaviest.max(weight);
        }
        heaviest
    }

    /// The rules that are broken.
    pub(crate) fn rules(&self) -> impl Iterator<Item = ScanRule> {
        self.0.iter().map(|(_, rule)| *rule)
    }
}

/// The patterns in Latin letters.
static RULE_PATTERNS: LazyLock<Vec<(ScanRule, Regex)>> = LazyLock::new(|| {
    let english = ENGLISH_RULES.iter().map(|(rule, pattern)| (*rule, (*pattern).to_owned()));
    compile_rules(english.chain(latin_rules()))
});

/// The patterns in other scripts. Their words are also found without spaces.
static SCRIPT_PATTERNS: LazyLock<Vec<(ScanRule, Regex)>> =
    LazyLock::new(|| compile_rules(script_rules()));

static SQUEEZED_PATTERNS: LazyLock<Vec<(ScanRule, Regex)>> = LazyLock::new(|| {
    let rules = SQUEEZED_RULES.iter().map(|(rule, pattern)| (*rule, (*pattern).to_owned()));
    compile_rules(rules)
});

/// Compiles a pattern that searches bytes: repeated words of every alphabet make automata that take
/// ten times as long to build. A test compiles all of them.
fn compile_pattern(pattern: &str) -> Result<Regex, regex::Error> {
    let mut builder = RegexBuilder::new(&fold_pattern(pattern));
    builder.unicode(false).dot_matches_new_line(true).build()
}

fn compile_rules(rules: impl Iterator<Item = (ScanRule, String)>) -> Vec<(ScanRule, Regex)> {
    let compiled = rules.map(|(rule, pattern)| Some((rule, compile_pattern(&pattern).ok()?)));
    compiled.flatten().collect()
}

/// Returns the letters and digits of a text, and a full stop where a sentence ends.
fn squeeze_text(folded: &str) -> String {
    let mut squeezed = String::with_capacity(folded.len());
    let mut word = 0_usize;
    let mut chars = folded.chars().peekable();
    while let Some(c) = chars.next() {
        if c.is_alphanumeric() || is_vowel_sign(c) {
            squeezed.push(c);
            word += 1;
            continue;
        }
        let ends_sentence = matches!(c, '.' | '!' | '?' | ';' | '。' | '।')
            && word >= MIN_LAST_WORD
            && chars.peek().is_none_or(|next| next.is_whitespace());
        if ends_sentence {
            squeezed.push('.');
        }
        word = 0;
    }
    squeezed
}

/// Returns true for the vowel signs of India and Thailand, which belong to letters.
fn is_vowel_sign(c: char) -> bool {
    matches!(c, '\u{900}'..='\u{dff}' | '\u{e31}' | '\u{e34}'..='\u{e4e}')
}

/// The fewest bytes of an order; most keys and types are shorter.
const MIN_ORDER_BYTES: usize = 8;
/// The fewest letters of the last word of a sentence: separated letters are no words.
const MIN_LAST_WORD: usize = 3;
/// The bytes within which rules count together.
const PASSAGE_BYTES: usize = 1024;
/// The most positions of one pattern in one text.
const MAX_PLACES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn all_rules() -> impl Iterator<Item = (ScanRule, String)> {
        let english = ENGLISH_RULES.iter().chain(SQUEEZED_RULES);
        let english = english.map(|(rule, pattern)| (*rule, (*pattern).to_owned()));
        english.chain(latin_rules()).chain(script_rules())
    }

    #[test]
    fn every_pattern_compiles() {
        for (_, pattern) in all_rules() {
            assert!(compile_pattern(&pattern).is_ok(), "{pattern}");
        }
    }

    #[test]
    fn no_pattern_asks_for_an_upper_case_letter() {
        for (_, pattern) in all_rules() {
            let classes = pattern.replace("\\W", "").replace("\\S", "").replace("\\D", "");
            assert_eq!(classes, classes.to_lowercase());
        }
    }

    #[test]
    fn no_pattern_of_other_letters_matches_ascii() {
        let ascii = "the api key in ~/.ssh/id_rsa and the system prompt, user, ".repeat(3);
        for (_, pattern) in &*SCRIPT_PATTERNS {
            assert!(!pattern.is_match(ascii.as_bytes()), "{pattern}");
        }
    }

    #[test]
    fn a_text_is_squeezed_to_letters_and_ends_of_sentences() {
        assert_eq!(squeeze_text("i.g.n.o.r.e all. tell the-user"), "ignoreall.telltheuser");
    }
}
