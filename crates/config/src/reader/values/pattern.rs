//! Patterns for tool names.

use std::collections::BTreeMap;
use std::fmt;

use crate::faults::problem::SettingFault;
use crate::reader::ConfigReader;
use crate::reader::setting::TextSetting;

/// A pattern in which `*` matches any number of characters, and `?` exactly one. Other characters
/// match themselves, and the whole name must match.
///
/// Shape: 1 to [`Pattern::MAX_LEN`] characters.
///
/// A pattern is matched as an automaton with states that are bits: state `i` means that the first
/// `i` steps have matched (Shift-And; Navarro and Raffinot, Flexible Pattern Matching in Strings).
/// So the time is linear in the name, for any pattern.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern {
    text: Box<str>,
    /// The number of characters in the pattern besides its stars.
    steps: u32,
    /// The steps that each character takes, sorted by character.
    taking: Box<[(char, u128)]>,
    /// The steps that every character takes: `?`.
    any: u128,
    /// The states in which any character may be skipped: the next step is a star.
    stars: u128,
    /// True if the pattern ends with a star.
    is_open: bool,
}

impl Pattern {
    /// The longest pattern, in characters.
    pub const MAX_LEN: usize = 128;

    /// Parses a pattern; `None` if it is empty or too long.
    pub fn new(text: &str) -> Option<Self> {
        if !(1..=Self::MAX_LEN).contains(&text.chars().count()) {
            return None;
        }
        let (mut steps, mut any, mut stars) = (0, 0, 0);
        let mut taking = BTreeMap::new();
        for character in text.chars() {
            let step = 1_u128.checked_shl(steps).unwrap_or_default();
            match character {
                '*' => stars |= step,
                '?' => any |= step,
                _ => *taking.entry(character).or_insert(0) |= step,
            }
            steps += u32::from(character != '*');
        }
        let taking = taking.into_iter().collect();
        Some(Self { text: text.into(), steps, taking, any, stars, is_open: text.ends_with('*') })
    }

    /// The pattern as written.
    #[inline]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns true if the whole of `name` matches.
    #[inline]
    pub fn matches(&self, name: &str) -> bool {
        self.run(name.chars().map(|character| self.steps_of(character)))
    }

    /// Returns true if the whole of `name` matches, if the letters in its first `folded` bytes are
    /// compared without regard to case.
    pub fn matches_folding(&self, name: &str, folded: usize) -> bool {
        let other_case = |character: char| match character {
            'a'..='z' => self.steps_of(character.to_ascii_uppercase()),
            _ => self.steps_of(character.to_ascii_lowercase()),
        };
        self.run(name.char_indices().map(|(at, character)| {
            let other = if at < folded { other_case(character) } else { 0 };
            self.steps_of(character) | other
        }))
    }

    /// Follows the steps that each character of a name takes.
    fn run(&self, characters: impl Iterator<Item = u128>) -> bool {
        let Some(last) = self.steps.checked_sub(1) else { return true };
        let (mut states, mut is_matched) = (1_u128, false);
        for steps in characters {
            let taken = states & (steps | self.any);
            is_matched = (taken >> last) & 1 == 1 || (is_matched && self.is_open);
            states = (taken << 1) | (states & self.stars);
            if states == 0 && !is_matched {
                return false;
            }
        }
        is_matched
    }

    fn steps_of(&self, character: char) -> u128 {
        let found = self.taking.binary_search_by_key(&character, |(taken, _)| *taken);
        found.ok().and_then(|at| self.taking.get(at)).map_or(0, |(_, steps)| *steps)
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.text)
    }
}

impl TextSetting for Pattern {
    type Value = Self;
    const WORD: &'static str = "pattern";
    const RULE: &'static str = "1 to 128 characters, with `*` and `?`";
    const EXAMPLE: &'static str = "\"search_*\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, SettingFault> {
        Ok(Self::new(text))
    }
}
