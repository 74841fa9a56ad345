//! Names of tools as JavaScript identifiers.

use std::collections::{HashMap, HashSet};

/// A JavaScript identifier for each public name, in the same order. All differ.
///
/// A name that is an identifier is unchanged. Others get `_` for each character that an identifier
/// cannot have, and a number if that name is taken. The number depends on the order of the names.
pub(crate) fn script_names(names: &[&str]) -> Vec<String> {
    let mut taken: HashSet<String> = HashSet::new();
    let mut chosen: Vec<Option<String>> = names
        .iter()
        .map(|name| {
            let stays = make_identifier(name) == **name && taken.insert((*name).to_owned());
            stays.then(|| (*name).to_owned())
        })
        .collect();
    // The last number of each identifier, so that a thousand equal ones do not each count from 1.
    let mut numbers: HashMap<String, usize> = HashMap::new();
    for (name, chosen) in names.iter().zip(&mut chosen) {
        if chosen.is_some() {
            continue;
        }
        let base = make_identifier(name);
        let number = numbers.entry(base.clone()).or_insert(1);
        let mut one = base.clone();
        while !taken.insert(one.clone()) {
            *number += 1;
            one = format!("{base}_{number}");
        }
        *chosen = Some(one);
    }
    chosen.into_iter().flatten().collect()
}

/// Returns true if a text is an identifier of ASCII characters only.
pub(super) fn is_identifier(text: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '$');
    text.starts_with(is_first) && text.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

fn make_identifier(name: &str) -> String {
    let mut text: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '$') { c } else { '_' })
        .collect();
    if !is_identifier(&text) {
        text.insert(0, '_');
    }
    if AVOIDED_WORDS.contains(&text.as_str()) {
        text.push('_');
    }
    text
}

/// Reserved words of the language, and names with a meaning for any object.
const AVOIDED_WORDS: [&str; 58] = [
    "arguments",
    "async",
    "await",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "constructor",
    "continue",
    "debugger",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "length",
    "let",
    "new",
    "null",
    "of",
    "package",
    "private",
    "protected",
    "prototype",
    "public",
    "return",
    "static",
    "super",
    "switch",
    "then",
    "this",
    "throw",
    "toJSON",
    "toString",
    "true",
    "try",
    "typeof",
    "undefined",
    "valueOf",
    "var",
    "void",
    "while",
    "with",
    "yield",
];
