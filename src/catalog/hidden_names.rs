//! Names of tools that a client may not know of, in the texts of their servers.

use std::collections::HashSet;

use crate::text::split_sentence;

/// The native names of tools of one server that a client may not know of.
#[derive(Debug, Default)]
pub struct HiddenNames<'a>(HashSet<&'a str>);

impl<'a> FromIterator<&'a str> for HiddenNames<'a> {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

impl<'a> Extend<&'a str> for HiddenNames<'a> {
    fn extend<T: IntoIterator<Item = &'a str>>(&mut self, names: T) {
        self.0.extend(names);
    }
}

impl HiddenNames<'_> {
    /// Whether a text names such a tool. A name that is a plain word, such as `search`, counts where the
    /// text marks it as a name: in quotes or backticks, or with a parenthesis behind it.
    pub fn are_in(&self, text: &str) -> bool {
        let mut rest = text;
        while let Some(start) = rest.find(is_name_part) {
            let (before, word) = rest.split_at(start);
            let end = word.find(|c| !is_name_part(c)).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            let name = word.trim_matches(['.', '-', '/']);
            let is_marked = before.ends_with(QUOTES) || after.starts_with('(');
            if (is_marked || !is_plain_word(name)) && self.0.contains(name) {
                return true;
            }
            rest = after;
        }
        false
    }

    /// The sentences of a text that name no such tool; `None` if that is all of them.
    pub fn leave_out(&self, text: &str) -> Option<String> {
        if self.0.is_empty() || !self.are_in(text) {
            return None;
        }
        let (mut kept, mut rest) = (String::new(), text);
        while !rest.is_empty() {
            let (_, after) = split_sentence(rest);
            let (sentence, after) = rest.split_at(rest.len() - after.len());
            // A line that goes does not join its neighbours.
            let space = sentence.len() - sentence.trim_start().len();
            let (space, words) = sentence.split_at(space);
            if !self.are_in(words) {
                kept.push_str(sentence);
            } else if space.contains('\n') {
                kept.push_str(space);
            }
            rest = after;
        }
        Some(kept.trim().to_owned())
    }
}

fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')
}

/// Whether a name may be a word of a sentence.
fn is_plain_word(name: &str) -> bool {
    let mut rest = name.chars();
    rest.next();
    rest.all(char::is_lowercase)
}

/// What marks a word as a name.
const QUOTES: [char; 6] = ['`', '"', '\'', '“', '‘', '«'];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_found_wherever_a_text_uses_it_as_one() {
        let names: HiddenNames<'_> = ["delete_repo", "search", "getUser"].into_iter().collect();
        for text in [
            "Use delete_repo.",
            "As `delete_repo`, with care",
            "See getUser/other, getUser",
            "Then call `search`.",
            "Prefer search(query) where you can",
            "“search” is faster",
        ] {
            assert!(names.are_in(text), "{text}");
        }
        for text in ["", "A search for files", "Search.", "delete_repository", "undelete_repo"] {
            assert!(!names.are_in(text), "{text}");
        }
    }

    #[test]
    fn sentences_that_name_a_hidden_tool_are_left_out() {
        let names: HiddenNames<'_> = ["delete_repo"].into_iter().collect();
        for (text, kept) in [
            ("Finds it. Use delete_repo to undo. Fast.", Some("Finds it. Fast.")),
            ("delete_repo is better!", Some("")),
            ("Finds it.\n- like delete_repo\n- not at all", Some("Finds it.\n- not at all")),
            ("Finds it.", None),
        ] {
            assert_eq!(names.leave_out(text).as_deref(), kept, "{text}");
        }
    }
}
