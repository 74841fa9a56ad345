//! The actions of tools and queries: reading, creating, changing, deleting, sending.

use std::collections::HashMap;
use std::sync::LazyLock;

use trunkline_core::text::clip;

use crate::weights::{
    NEUTRAL_ACTION_FACTOR, OPPOSED_ACTION_FACTOR, RELATED_ACTION_FACTOR, SAME_ACTION_FACTOR,
};
use crate::words::split_words;
use crate::words::stems::{is_question_filler, is_stop_word, stem_english};

/// The kind of effect that a verb names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
    /// Nothing changes.
    Read,
    /// Something is created.
    Create,
    /// Something is changed.
    Update,
    /// Something is deleted.
    Delete,
    /// Something is sent to a person.
    Send,
}

impl Action {
    /// The action of an element's name: that of its first verb, which is its first word almost
    /// always (`delete_file`), or its last (`issue_read`).
    pub(crate) fn of_name(name: &str) -> Option<Self> {
        let words = split_words(clip(name, 256));
        let texts: Vec<&str> = words
            .iter()
            .flat_map(|word| {
                let whole = std::slice::from_ref(&word.text);
                if word.parts.is_empty() { whole } else { &word.parts }
            })
            .map(String::as_str)
            .collect();
        let (first, last) = (texts.first(), texts.last());
        let ordered = || first.into_iter().chain(last).chain(&texts).copied();
        let verb =
            ordered().find(|text| !NOUN_VERBS.contains(text) && Self::of_verb(text).is_some());
        verb.or_else(|| ordered().find(|text| Self::of_verb(text).is_some()))
            .and_then(Self::of_verb)
    }

    /// The action that a verb names, folded, in any of its forms.
    pub(crate) fn of_verb(word: &str) -> Option<Self> {
        static VERB_STEMS: LazyLock<HashMap<String, Action>> = LazyLock::new(|| {
            let verbs = ACTION_VERBS
                .iter()
                .flat_map(|(action, verbs)| verbs.iter().map(|verb| (stem_english(verb), *action)));
            verbs.collect()
        });
        VERB_STEMS.get(&stem_english(word)).copied()
    }

    /// The action that a query asks for, from its folded words in order. A query that begins with
    /// an interrogative asks for information, with any verbs.
    pub(crate) fn of_question<'a>(words: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let mut words = words.into_iter().peekable();
        if let Some(first) = words.peek() {
            let first = *first;
            if QUESTION_WORDS.contains(&first) {
                return Some(Self::Read);
            }
            if first == "how" {
                words.next();
                if words.peek().is_some_and(|next| QUANTITY_WORDS.contains(next)) {
                    return Some(Self::Read);
                }
            }
        }
        let words: Vec<&str> = words.collect();
        if let Some(action) = Self::of_phrase(&words) {
            return Some(action);
        }
        let content = words.iter().filter(|word| !is_stop_word(word) && !is_question_filler(word));
        content.take(VERB_WINDOW_WORDS).find_map(|word| Self::of_verb(word))
    }

    /// The action of a verb with its particle, which may be separate: `throw the old one out`.
    fn of_phrase(words: &[&str]) -> Option<Self> {
        let phrase = words.iter().enumerate().find_map(|(place, word)| {
            let (action, _, particles) = PHRASAL_VERBS.iter().find(|(_, verb, _)| verb == word)?;
            let mut near = words.iter().skip(place + 1).take(MAX_PARTICLE_DISTANCE);
            near.any(|word| particles.contains(word)).then_some(*action)
        });
        phrase.or_else(|| words.contains(&"instead").then_some(Self::Update))
    }

    /// The suitability of an element with this action for a query that asks for another: a factor
    /// of its score.
    pub(crate) fn suitability(self, asked: Self) -> f32 {
        match (asked, self) {
            (asked, own) if asked == own => SAME_ACTION_FACTOR,
            (Self::Create, Self::Send | Self::Update)
            | (Self::Send | Self::Update, Self::Create) => RELATED_ACTION_FACTOR,
            (Self::Update, Self::Send) | (Self::Send | Self::Delete, Self::Update) => {
                NEUTRAL_ACTION_FACTOR
            }
            _ => OPPOSED_ACTION_FACTOR,
        }
    }
}

/// A verb among this many content words at the start is the query's verb.
const VERB_WINDOW_WORDS: usize = 3;

/// The greatest distance of a particle from its verb, in words.
const MAX_PARTICLE_DISTANCE: usize = 5;

/// Verbs with an action that depends on the particle.
const PHRASAL_VERBS: [(Action, &str, &[&str]); 14] = [
    (Action::Delete, "get", &["rid"]),
    (Action::Delete, "throw", &["out", "away"]),
    (Action::Delete, "take", &["off", "down", "out"]),
    (Action::Delete, "kick", &["out", "off"]),
    (Action::Delete, "call", &["off"]),
    (Action::Delete, "tear", &["down"]),
    (Action::Delete, "clean", &["up", "out"]),
    (Action::Delete, "shut", &["down"]),
    (Action::Update, "switch", &["on", "off"]),
    (Action::Update, "turn", &["on", "off", "up", "down"]),
    (Action::Update, "push", &["back"]),
    (Action::Update, "hand", &["over"]),
    (Action::Create, "set", &["up"]),
    (Action::Create, "write", &["down"]),
];

const QUESTION_WORDS: [&str; 14] = [
    "what", "which", "who", "whose", "where", "when", "why", "is", "are", "does", "do", "did",
    "has", "was",
];

/// Words that follow "how" in a query for a figure.
const QUANTITY_WORDS: [&str; 8] = ["many", "much", "long", "far", "big", "large", "old", "often"];

/// Verbs that are as often nouns in names of tools.
const NOUN_VERBS: [&str; 22] = [
    "book", "build", "comment", "copy", "count", "draft", "email", "export", "format", "import",
    "message", "post", "query", "record", "review", "schedule", "search", "share", "start",
    "status", "store", "text",
];

/// The verbs in names of tools, by action.
const ACTION_VERBS: [(Action, &[&str]); 5] = [
    (
        Action::Read,
        &[
            "get",
            "list",
            "show",
            "read",
            "view",
            "fetch",
            "search",
            "find",
            "query",
            "lookup",
            "describe",
            "check",
            "count",
            "retrieve",
            "browse",
            "inspect",
            "explain",
            "analyze",
            "analyse",
            "compare",
            "download",
            "export",
            "summarize",
            "summarise",
            "see",
            "display",
            "scan",
            "watch",
            "monitor",
            "look",
            "explore",
            "discover",
            "calculate",
            "validate",
            "verify",
            "whoami",
            "extract",
            "load",
            "ls",
            "cat",
            "which",
            "what",
            "where",
            "who",
            "when",
            "whose",
            "review",
            "tail",
            "print",
        ],
    ),
    (
        Action::Create,
        &[
            "create",
            "add",
            "new",
            "make",
            "insert",
            "register",
            "generate",
            "build",
            "open",
            "start",
            "upload",
            "import",
            "clone",
            "copy",
            "init",
            "initialize",
            "provision",
            "write",
            "save",
            "store",
            "record",
            "append",
            "put",
            "book",
            "schedule",
            "fork",
            "install",
            "duplicate",
            "draft",
            "deploy",
            "launch",
            "compose",
        ],
    ),
    (
        Action::Update,
        &[
            "update",
            "edit",
            "modify",
            "change",
            "set",
            "rename",
            "move",
            "replace",
            "patch",
            "configure",
            "assign",
            "enable",
            "disable",
            "merge",
            "mark",
            "toggle",
            "resize",
            "restart",
            "adjust",
            "fix",
            "correct",
            "increase",
            "decrease",
            "transfer",
            "close",
            "reopen",
            "resolve",
            "restore",
            "sort",
            "reorder",
            "format",
        ],
    ),
    (
        Action::Delete,
        &[
            "delete",
            "remove",
            "drop",
            "erase",
            "destroy",
            "clear",
            "purge",
            "uninstall",
            "unlink",
            "wipe",
            "trash",
            "revoke",
            "terminate",
            "cancel",
            "discard",
            "rm",
            "prune",
            "unassign",
            "unsubscribe",
            "dismiss",
        ],
    ),
    (
        Action::Send,
        &[
            "send",
            "post",
            "publish",
            "reply",
            "notify",
            "share",
            "email",
            "forward",
            "submit",
            "invite",
            "message",
            "comment",
            "tweet",
            "respond",
            "broadcast",
            "text",
        ],
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_tells_its_action_wherever_its_verb_is() {
        for (name, action) in [
            ("get_issue", Some(Action::Read)),
            ("deleteFile", Some(Action::Delete)),
            ("issue_read", Some(Action::Read)),
            ("slack_post_message", Some(Action::Send)),
            ("git_commit", None),
            ("email_get", Some(Action::Read)),
            ("", None),
        ] {
            assert_eq!(Action::of_name(name), action, "{name}");
        }
    }

    #[test]
    fn a_question_tells_its_action() {
        for (question, action) in [
            ("please delete the old branch", Some(Action::Delete)),
            ("I want to create a new issue", Some(Action::Create)),
            ("how do I send a message", Some(Action::Send)),
            ("which files were deleted", Some(Action::Read)),
            ("how many users are there", Some(Action::Read)),
            ("creating issues", Some(Action::Create)),
            ("github issues", None),
            ("the deploy key is obsolete get rid of it", Some(Action::Delete)),
            ("throw that old poll out", Some(Action::Delete)),
            ("it was filed under food put it under gifts instead", Some(Action::Update)),
            ("take a picture of it", None),
        ] {
            assert_eq!(
                Action::of_question(question.to_lowercase().split(' ')),
                action,
                "{question}"
            );
        }
    }

    #[test]
    fn reading_and_deleting_are_opposed() {
        assert!(Action::Read.suitability(Action::Read) > 1.0);
        assert!(Action::Delete.suitability(Action::Read) < 1.0);
    }

    #[test]
    fn no_verb_has_two_actions() {
        let verbs = ACTION_VERBS.iter().flat_map(|(_, verbs)| verbs.iter());
        let mut all: Vec<_> = verbs.map(|verb| stem_english(verb)).collect();
        all.sort_unstable();
        all.dedup_by(|one, other| one == other && one == "initi");
        let doubled: Vec<_> = all.windows(2).filter(|pair| pair[0] == pair[1]).collect();
        assert!(doubled.is_empty(), "{doubled:?}");
    }
}
