//! The wording of keys, texts and kinds in messages.

use trunkline_core::text::clip;

use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};

/// Any table, in messages.
pub(crate) struct AnyTable;

impl Setting for AnyTable {
    type Value = ();

    fn kind_word() -> String {
        "table".into()
    }

    fn example_value() -> String {
        "{ … }".into()
    }

    fn correction() -> String {
        "write its settings below a [header] of its own, or within { }".into()
    }

    fn read_value(_: &ConfigNode<'_>, _: &mut ConfigReader<'_>) -> Option<()> {
        Some(())
    }

    fn json_schema() -> serde_json::Value {
        serde_json::json!({ "type": "object" })
    }
}

/// The setting's word with its article.
pub(crate) fn expected_kind<S: Setting>() -> String {
    let word = S::kind_word();
    let word = word.split(',').next().unwrap_or("");
    match word {
        "text" => word.to_owned(),
        _ if word.starts_with(['a', 'e', 'i', 'o', 'H']) => format!("an {word}"),
        _ => format!("a {word}"),
    }
}

/// The choice most similar to a text, if any is.
pub fn nearest_choice(text: &str, choices: &[&str]) -> Option<String> {
    // Bounded, because the comparison takes time proportional to the product of
    // both lengths.
    let text: String = clip(text, 64).to_owned();
    let lower = text.to_ascii_lowercase().replace('-', "_");
    let other = OTHER_NAMES.iter().find(|(name, own)| *name == lower && choices.contains(own));
    if let Some((_, own)) = other {
        return Some((*own).to_owned());
    }
    let score = |choice: &&str| strsim::jaro_winkler(&lower, choice);
    choices
        .iter()
        .map(|choice| (score(choice), *choice))
        .max_by(|(a, _), (b, _)| a.total_cmp(b))
        .filter(|(score, _)| *score >= 0.8)
        .or_else(|| choices.iter().find(|choice| lower.contains(**choice)).map(|c| (1.0, *c)))
        .map(|(_, choice)| choice.to_owned())
}

/// A segment of a key, quoted if TOML requires it.
pub fn quote_segment(segment: &str) -> String {
    let bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if !segment.is_empty() && segment.chars().all(bare) {
        segment.to_owned()
    } else {
        format!("{:?}", shorten_text(segment))
    }
}

/// A text truncated for a message.
pub(crate) fn shorten_text(text: &str) -> String {
    const MAX_SHOWN_CHARS: usize = 60;
    match text.char_indices().nth(MAX_SHOWN_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or("")),
        None => text.to_owned(),
    }
}

/// Names of settings in other programs and languages, with the gateway's own.
const OTHER_NAMES: [(&str, &str); 12] = [
    ("action", "effect"),
    ("allow", "effect"),
    ("deny", "effect"),
    ("args", "arguments"),
    ("arguments", "args"),
    ("endpoint", "url"),
    ("serverurl", "url"),
    ("env_vars", "env"),
    ("environment", "env"),
    ("token", "headers"),
    ("authorization", "headers"),
    ("condition", "when"),
];
