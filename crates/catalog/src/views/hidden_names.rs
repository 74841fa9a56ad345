//! Names of hidden tools in the texts of their servers.

use std::borrow::Cow;
use std::collections::HashSet;

use serde_json::value::RawValue;

use trunkline_core::text::split_sentence;
use trunkline_jsonrpc::{string, text};

use crate::elements::definition_texts::{TextEdit, TextRole, edit_texts};
use crate::kind::Kind;

/// The native names of tools of one server that are hidden from a client.
#[derive(Debug, Default)]
pub struct HiddenNames<'a>(HashSet<&'a str>);

impl<'a> FromIterator<&'a str> for HiddenNames<'a> {
    fn from_iter<T: IntoIterator<Item = &'a str>>(names: T) -> Self {
        Self(names.into_iter().collect())
    }
}

impl HiddenNames<'_> {
    /// A definition without the sentences that name such a tool; `None` if it has no such sentence.
    pub(crate) fn leave_out_of_definition(&self, kind: Kind, raw: &[u8]) -> Option<Vec<u8>> {
        if self.0.is_empty() || !str::from_utf8(raw).is_ok_and(|json| self.may_be_in_json(json)) {
            return None;
        }
        match edit_texts(kind, raw, self) {
            Cow::Owned(edited) => Some(edited),
            Cow::Borrowed(_) => None,
        }
    }

    /// Returns true if a string of a JSON text may name such a tool. Does not parse the text: most
    /// definitions name no tool.
    fn may_be_in_json(&self, json: &str) -> bool {
        // An escape may stand for a part of a name.
        if json.contains("\\u") || json.contains("\\/") {
            return true;
        }
        // After a backslash, the first letter belongs to the escape: `\nread_file`.
        let behind_escapes = json.split('\\').skip(1).filter_map(|rest| rest.get(1..));
        let behind_escapes = behind_escapes.filter_map(|rest| words_of(rest).next());
        words_of(json).chain(behind_escapes).any(|word| self.0.contains(word))
    }

    /// Returns true if a text names such a tool. A name that is a plain word, such as `search`,
    /// counts only if the text marks it as a name: by quotes or backticks, or by a parenthesis
    /// after it.
    pub fn are_in(&self, text: &str) -> bool {
        let mut rest = text;
        while let Some(start) = rest.find(is_name_part) {
            let (before, word) = rest.split_at(start);
            let end = word.find(|c| !is_name_part(c)).unwrap_or(word.len());
            let (word, after) = word.split_at(end);
            let name = trim_name(word);
            let is_marked = before.ends_with(QUOTE_MARKS) || after.starts_with('(');
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
            // Removing a line does not join its neighbours.
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

impl TextEdit for HiddenNames<'_> {
    fn edit_text<'a>(&self, role: TextRole, value: &'a RawValue) -> Option<Cow<'a, str>> {
        let unchanged = || Some(value.get().into());
        if role == TextRole::Examples {
            return unchanged();
        }
        let kept = match text(value) {
            Some(text) => self.leave_out(&text),
            // Half a surrogate pair: such a string cannot be searched, but some clients read it.
            None => value.get().starts_with('"').then(String::new),
        };
        let Some(kept) = kept else { return unchanged() };
        // Without a title clients show the name, with an empty one nothing.
        let is_shown = role != TextRole::Title || !kept.is_empty();
        is_shown.then(|| string(&kept).into())
    }
}

/// The words of a text that may be names.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c| !is_name_part(c)).map(trim_name)
}

/// A word without the punctuation around it.
fn trim_name(word: &str) -> &str {
    word.trim_matches(['.', '-', '/'])
}

fn is_name_part(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/')
}

/// Returns true if a name may be a word of a sentence.
fn is_plain_word(name: &str) -> bool {
    let mut rest = name.chars();
    rest.next();
    rest.all(char::is_lowercase)
}

/// The characters that mark a word as a name.
const QUOTE_MARKS: [char; 6] = ['`', '"', '\'', '“', '‘', '«'];

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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

    #[test]
    fn a_definition_loses_texts_and_keeps_names_and_values() {
        let names: HiddenNames<'_> = ["delete_repo", "search"].into_iter().collect();
        let tool = json!({
            "name": "find", "title": "Find (not delete_repo)",
            "description": "Finds it. Not like delete_repo.",
            "annotations": { "title": "delete_repo", "readOnlyHint": true },
            "_meta": { "title": "delete_repo" },
            "inputSchema": { "type": "object", "properties": {
                "search": { "description": "See `search`.", "enum": ["delete_repo"] },
                "mode": {
                    "title": "Mode", "default": "search", "examples": ["delete_repo"],
                    "description": "Fast.\nBut search() is faster.", "$comment": "delete_repo!",
                },
            } },
        });
        let edited = names.leave_out_of_definition(Kind::Tools, tool.to_string().as_bytes());
        assert_eq!(
            serde_json::from_slice::<Value>(&edited.unwrap()).unwrap(),
            json!({
                "name": "find", "description": "Finds it.",
                "annotations": { "readOnlyHint": true },
                "_meta": { "title": "delete_repo" },
                "inputSchema": { "type": "object", "properties": {
                    "search": { "description": "", "enum": ["delete_repo"] },
                    "mode": {
                        "title": "Mode", "default": "search", "examples": ["delete_repo"],
                        "description": "Fast.", "$comment": "",
                    },
                } },
            })
        );
    }

    #[test]
    fn a_name_is_found_behind_every_escape() {
        let names: HiddenNames<'_> = ["delete_repo", "a/b_c"].into_iter().collect();
        for text in [
            r"One.\ndelete_repo",
            r"One. \\delete_repo",
            r#"One. \"delete_repo\""#,
            r"One. \u0064elete_repo",
            r"One. a\/b_c",
            r"One. (`a\/b_c` \ud83d\ude00)",
            "One. “delete_repo”",
        ] {
            let raw = format!(r#"{{"description":"{text}"}}"#);
            let edited = names.leave_out_of_definition(Kind::Resources, raw.as_bytes());
            let edited = edited.unwrap_or_else(|| panic!("{raw}"));
            assert_eq!(String::from_utf8(edited).unwrap(), r#"{"description":"One."}"#);
        }
        let broken = br#"{"title":"\ud83d delete_repo","description":"\ud83d"}"#;
        let edited = names.leave_out_of_definition(Kind::Tools, broken).unwrap();
        assert_eq!(edited, br#"{"description":""}"#);
        for raw in [
            r#"{"description":"Delete."}"#,
            r#"{"uri":"delete_repo","icons":[{"src":"delete_repo"}]}"#,
            r#"{"description":"Caf\u00e9."}"#,
        ] {
            assert_eq!(names.leave_out_of_definition(Kind::Resources, raw.as_bytes()), None);
        }
    }
}
