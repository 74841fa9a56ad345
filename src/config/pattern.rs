//! Patterns for tool names.

use std::fmt;

use super::problem::ConfigProblem;
use super::reader::ConfigReader;
use super::setting::TextSetting;

/// A pattern in which `*` matches any number of characters, and `?` exactly
/// one. Other characters match themselves, and the whole name must match.
///
/// Shape: 1 to [`Pattern::MAX_LEN`] characters.
#[derive(Clone, PartialEq, Eq)]
pub struct Pattern(Box<str>);

impl Pattern {
    /// The longest pattern, in characters.
    pub const MAX_LEN: usize = 128;

    /// Parses a pattern; `None` if it is empty or too long.
    pub fn new(text: &str) -> Option<Self> {
        (1..=Self::MAX_LEN).contains(&text.chars().count()).then(|| Self(text.into()))
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the whole of `name` matches: in time linear in the name, at most
    /// [`Pattern::MAX_LEN`] comparisons for each of its characters.
    pub fn matches(&self, name: &str) -> bool {
        let (mut pattern, mut rest) = (self.0.chars(), name.chars());
        // Where to resume after a mismatch: behind the last star, one character
        // further in the name. Earlier stars need no retry, because the last
        // one can match everything that they could.
        let mut again: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
        loop {
            let here = rest.clone();
            match (pattern.next(), rest.next()) {
                (Some('*'), _) => {
                    again = Some((pattern.clone(), here.clone()));
                    rest = here;
                }
                (None, None) => return true,
                (Some('?'), Some(_)) => {}
                (Some(wanted), Some(found)) if wanted == found => {}
                _ => {
                    let Some((after_star, from)) = &mut again else { return false };
                    if from.next().is_none() {
                        return false;
                    }
                    (pattern, rest) = (after_star.clone(), from.clone());
                }
            }
        }
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl TextSetting for Pattern {
    type Value = Self;
    const WORD: &'static str = "pattern";
    const RULE: &'static str = "1 to 128 characters, with `*` and `?`";
    const EXAMPLE: &'static str = "\"search_*\"";

    fn parse_text(text: &str, _: &ConfigReader<'_>) -> Result<Option<Self>, ConfigProblem> {
        Ok(Self::new(text))
    }
}
