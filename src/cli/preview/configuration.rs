//! The text of a configuration without its literal secrets. References such as `${env:TOKEN}` and
//! comments stay.

use std::collections::HashSet;
use std::ops::Range;

use serde_json::Value as Json;
use trunkline_import::{
    Notation, ReferenceContext, ReferenceNotation, hide_secrets, parse_document, unified_diff,
};

use super::literals::{Literal, LiteralTree, read_literals};
use super::{HIDDEN_SECRET, collect_changed};
use crate::config::ConfigSource;

/// Returns a text in TOML with `"***"` in place of literal secrets: the values of secret settings, and
/// values and comments in other places that look like secrets. An unreadable text is hidden
/// completely.
pub(crate) fn show_configuration(source: &ConfigSource) -> String {
    let (text, secrets) = source.secret_spans();
    let document = parse_document("", text, Notation::Toml);
    let (Ok(document), Some(tree)) = (document, read_literals(text, Notation::Toml)) else {
        return HIDDEN_SECRET.to_owned();
    };
    let references = own_references();
    let mut hidden = Vec::new();
    if let LiteralTree::Table(entries) = &tree {
        for Literal { name, tree, .. } in entries {
            if SCANNED_TABLES.contains(&name.as_str()) {
                let value = document.get(name).unwrap_or(&Json::Null);
                collect_changed(tree, value, &hide_secrets("", value, &references), &mut hidden);
            }
        }
    }
    let mut literals = Vec::new();
    tree.collect_ranges(&mut literals);
    let shape = TextShape { hidden: hidden.into_iter().map(|it| it.start).collect(), secrets };
    shape.render(text, literals)
}

/// Returns the differences between two shown texts.
pub(crate) fn diff_configurations(name: &str, before: &str, after: &str) -> String {
    if before == after { String::new() } else { unified_diff(name, before, after) }
}

/// Returns the references of a text, each once: `${env:NAME}`, `${file:PATH}` and `${command:…}`.
pub(crate) fn find_references(text: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for (at, _) in text.match_indices("${") {
        let rest = text.get(at..).unwrap_or_default();
        let end = rest.find('}').map(|end| end + 1);
        let Some(reference) = end.and_then(|end| rest.get(..end)) else { continue };
        let is_value =
            ["${env:", "${file:", "${command:"].iter().any(|it| reference.starts_with(it));
        let is_escaped = text.get(..at).is_some_and(|before| before.ends_with('$'));
        if is_value && !is_escaped && found.iter().all(|other| other != reference) {
            found.push(reference.to_owned());
        }
        if found.len() == MAX_REFERENCES {
            break;
        }
    }
    found
}

/// Returns the line of the first value that is a hidden secret. Such a text was shown by the gateway,
/// and would replace the secret.
pub(crate) fn find_hidden_value(text: &str) -> Option<usize> {
    let hidden = format!("\"{HIDDEN_SECRET}\"");
    let before = text.get(..text.find(&hidden)?)?;
    Some(before.matches('\n').count() + 1)
}

fn own_references() -> ReferenceContext {
    ReferenceContext::without_folders(ReferenceNotation::Own)
}

/// The parts of a text that are hidden.
struct TextShape {
    /// The starts of values that look like secrets.
    hidden: HashSet<usize>,
    /// The ranges of secret settings.
    secrets: Vec<Range<usize>>,
}

impl TextShape {
    fn render(mut self, text: &str, mut literals: Vec<Range<usize>>) -> String {
        literals.retain(|range| range.end > range.start);
        literals.sort_by_key(|range| range.start);
        self.secrets = merge_ranges(self.secrets);
        let (mut shown, mut at) = (String::new(), 0);
        for literal in literals {
            let value = text.get(literal.clone()).unwrap_or_default();
            show_gap(text.get(at..literal.start).unwrap_or_default(), &mut shown);
            if self.hides(&literal, value) {
                shown.extend(["\"", HIDDEN_SECRET, "\""]);
            } else {
                shown.push_str(value);
            }
            at = literal.end;
        }
        show_gap(text.get(at..).unwrap_or_default(), &mut shown);
        shown
    }

    fn hides(&self, literal: &Range<usize>, value: &str) -> bool {
        if self.hidden.contains(&literal.start) {
            return true;
        }
        let after = self.secrets.partition_point(|secret| secret.start <= literal.start);
        let secret = after.checked_sub(1).and_then(|at| self.secrets.get(at));
        secret.is_some_and(|secret| literal.end <= secret.end) && !is_reference(value)
    }
}

/// Returns the ranges in order, with overlapping ones as one.
fn merge_ranges(mut ranges: Vec<Range<usize>>) -> Vec<Range<usize>> {
    ranges.sort_by_key(|range| range.start);
    let mut merged: Vec<Range<usize>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Returns true if a value consists of references, behind the name of a scheme at most: `"Bearer
/// ${env:TOKEN}"`.
fn is_reference(value: &str) -> bool {
    let mut rest = value.trim_matches(['"', '\'']);
    let mut plain = String::new();
    let mut has_reference = false;
    while let Some((before, from)) = rest.split_once("${") {
        let Some((inside, after)) = from.split_once('}') else { return false };
        let is_value = ["env:", "file:", "command:"].iter().any(|it| inside.starts_with(it));
        if before.ends_with('$') || !is_value {
            return false;
        }
        plain.push_str(before);
        (rest, has_reference) = (after, true);
    }
    plain.push_str(rest);
    let plain = plain.trim();
    let is_scheme = ["bearer", "basic", "token"].iter().any(|it| plain.eq_ignore_ascii_case(it));
    has_reference && (plain.is_empty() || is_scheme)
}

/// Appends a text without literals. Any text in it that begins like a comment is one.
fn show_gap(mut gap: &str, shown: &mut String) {
    while let Some((before, comment)) = gap.find('#').and_then(|at| gap.split_at_checked(at)) {
        let end = comment.find('\n').unwrap_or(comment.len());
        let (comment, after) = comment.split_at(end);
        shown.push_str(before);
        show_comment(comment, shown);
        gap = after;
    }
    shown.push_str(gap);
}

/// Appends a comment without the value of a setting in it, and without words that look like secrets.
fn show_comment(comment: &str, shown: &mut String) {
    let (kept, value) = match comment.split_once('=') {
        Some((kept, value)) => (kept, Some(value)),
        None => (comment, None),
    };
    let references = own_references();
    for (place, word) in kept.split(' ').enumerate() {
        let text = Json::String(word.to_owned());
        let is_secret = hide_secrets("", &text, &references) != text;
        shown.push_str(if place == 0 { "" } else { " " });
        shown.push_str(if is_secret { HIDDEN_SECRET } else { word });
    }
    match value {
        Some(value) if is_reference(value.trim()) => shown.extend(["=", value]),
        Some(_) => shown.extend(["= ", HIDDEN_SECRET]),
        None => {}
    }
}

/// Tables with free texts: arguments, URLs and values for calls.
const SCANNED_TABLES: [&str; 4] = ["servers", "interceptors", "tools", "issuers"];
/// Limit of the references that are listed.
const MAX_REFERENCES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let (name, bytes) = ("gateway.toml".into(), text.as_bytes().to_vec());
        show_configuration(&ConfigSource { name, folder: "/".into(), bytes })
    }

    #[test]
    fn literal_secrets_are_hidden_and_references_and_comments_stay() {
        let text = "\
# The servers of the team.
[audit]
chain_key = \"hunter2hunter2hunter2hunter2hunter2\"
[servers.a]
command = \"run\" # starts it
args = [\"--token\", \"hunter2\", \"--verbose\"]
env = { PASS = \"hunter2\", REF = \"${env:REF}\", HALF = \"hunter2${env:X}\" }
# env = { PASS = \"hunter2\" }
[servers.b]
url = \"https://b.example.com/\"
headers = { Authorization = \"Bearer ${env:TOKEN}\", X-Key = '''hunter2''' }
[clients.ci]
key = \"hunter2\"
";
        let shown = shown(text);
        assert!(!shown.contains("hunter2"), "{shown}");
        for kept in [
            "# The servers of the team.\n",
            "command = \"run\" # starts it\n",
            "\"--token\", \"***\", \"--verbose\"",
            "REF = \"${env:REF}\"",
            "# env = ***\n",
            "url = \"https://b.example.com/\"\n",
            "Authorization = \"Bearer ${env:TOKEN}\"",
            "chain_key = \"***\"\n",
            "[clients.ci]\nkey = \"***\"\n",
        ] {
            assert!(shown.contains(kept), "{kept}: {shown}");
        }
        assert_eq!(super::find_hidden_value(&shown), Some(3));
        assert_eq!(super::find_hidden_value(text), None);
    }

    #[test]
    fn references_are_listed_once() {
        let text = "a = \"${env:A} ${file:b} ${env:A}\"\nb = \"$${env:C} ${header:d} ${env:\"";
        assert_eq!(find_references(text), ["${env:A}", "${file:b}"]);
    }
}
