//! A change of a file as a diff for people, without the secrets of the file.
//!
//! Values are hidden by their position in the syntax tree, in any notation: every secret within the
//! tables of servers, every value outside of them, and every comment.

pub(crate) mod configuration;
mod literals;
mod yaml;

use std::collections::HashSet;
use std::ops::Range;

use serde_json::Value as Json;

use literals::{Literal, LiteralTree, read_literals};
use yaml::hide_yaml;

use trunkline_import::{Notation, ReferenceContext, hide_secrets, parse_document, unified_diff};

/// A change of a file.
pub(super) struct FileChange<'a> {
    /// The file, for people.
    pub(super) name: &'a str,
    pub(super) notation: Notation,
    /// Keys that lead to each table of servers.
    pub(super) tables: &'a [Vec<String>],
    /// References that the file's program resolves; they are no secrets.
    pub(super) references: &'a ReferenceContext,
    pub(super) before: &'a str,
    pub(super) after: &'a str,
}

impl FileChange<'_> {
    /// Returns the differing lines.
    pub(super) fn render_diff(&self) -> String {
        let (before, after) = (self.hide_values(self.before), self.hide_values(self.after));
        if before == after && self.before != self.after {
            return format!("{}: only a hidden value changes\n", self.name);
        }
        unified_diff(self.name, &before, &after)
    }

    /// Returns a version of the file with `***` in place of hidden values. An unreadable version is
    /// hidden completely.
    fn hide_values(&self, text: &str) -> String {
        if self.notation == Notation::Yaml {
            return hide_yaml(text, self.tables, self.references);
        }
        let document = parse_document("", text, self.notation);
        let (Ok(document), Some(tree)) = (document, read_literals(text, self.notation)) else {
            return HIDDEN_SECRET.to_owned();
        };
        let mut hidden = Vec::new();
        self.collect_hidden(&mut Vec::new(), &tree, &document, &mut hidden);
        let mut literals = Vec::new();
        tree.collect_ranges(&mut literals);
        let opening = if self.notation == Notation::Json { "/" } else { "#" };
        hide_ranges(text, &hidden, literals, opening)
    }

    fn collect_hidden(
        &self,
        path: &mut Vec<String>,
        tree: &LiteralTree,
        value: &Json,
        hidden: &mut Vec<Range<usize>>,
    ) {
        if self.tables.contains(path) {
            let shown = hide_secrets("", value, self.references);
            return collect_changed(tree, value, &shown, hidden);
        }
        match tree {
            LiteralTree::Scalar(range) => hidden.push(range.clone()),
            LiteralTree::List(items) => {
                for (item, value) in items.iter().zip(value.as_array().into_iter().flatten()) {
                    self.collect_hidden(path, item, value, hidden);
                }
            }
            LiteralTree::Table(entries) => {
                for Literal { name, tree, .. } in entries {
                    path.push(name.clone());
                    self.collect_hidden(path, tree, value.get(name).unwrap_or(&Json::Null), hidden);
                    path.pop();
                }
            }
        }
    }
}

/// Collects the scalars that are hidden or changed in the preview.
fn collect_changed(tree: &LiteralTree, value: &Json, shown: &Json, hidden: &mut Vec<Range<usize>>) {
    match tree {
        LiteralTree::Scalar(range) if value != shown => hidden.push(range.clone()),
        LiteralTree::Scalar(_) => {}
        LiteralTree::List(items) => {
            for (at, item) in items.iter().enumerate() {
                let part = |whole: &Json| whole.get(at).cloned().unwrap_or_default();
                collect_changed(item, &part(value), &part(shown), hidden);
            }
        }
        LiteralTree::Table(entries) => {
            for Literal { name, tree, .. } in entries {
                let part = |whole: &Json| whole.get(name).cloned().unwrap_or_default();
                collect_changed(tree, &part(value), &part(shown), hidden);
            }
        }
    }
}

/// Returns the text with `"***"` for hidden ranges. Comments, which are between the literals, are
/// hidden, too.
fn hide_ranges(
    text: &str,
    hidden: &[Range<usize>],
    mut literals: Vec<Range<usize>>,
    opening: &str,
) -> String {
    let hidden: HashSet<usize> = hidden.iter().map(|range| range.start).collect();
    literals.retain(|range| range.end > range.start);
    literals.sort_by_key(|range| range.start);
    let mut shown = String::new();
    let mut at = 0;
    for literal in literals {
        hide_comments(text.get(at..literal.start).unwrap_or_default(), opening, &mut shown);
        if hidden.contains(&literal.start) {
            shown.extend(["\"", HIDDEN_SECRET, "\""]);
        } else {
            shown.push_str(text.get(literal.clone()).unwrap_or_default());
        }
        at = literal.end;
    }
    hide_comments(text.get(at..).unwrap_or_default(), opening, &mut shown);
    shown
}

/// Appends a text without literals. Any text in it that begins like a comment is one.
fn hide_comments(mut gap: &str, opening: &str, shown: &mut String) {
    while let Some((before, comment)) = gap.find(opening).and_then(|at| gap.split_at_checked(at)) {
        let (comment, after) = comment.split_at(comment_end(comment));
        let (mark, end) = match comment.get(..2) {
            Some("/*") => ("/*", " */"),
            Some("//") => ("//", ""),
            _ => (opening, ""),
        };
        shown.extend([before, mark, " ", HIDDEN_SECRET, end]);
        gap = after;
    }
    shown.push_str(gap);
}

/// Returns the length of the comment at the beginning of a text.
fn comment_end(text: &str) -> usize {
    match text.strip_prefix("/*") {
        Some(inner) => inner.find("*/").map_or(text.len(), |end| end + 4),
        None => text.find('\n').unwrap_or(text.len()),
    }
}

/// Text in place of a secret.
const HIDDEN_SECRET: &str = "***";

#[cfg(test)]
mod tests {
    use super::*;
    use trunkline_import::ReferenceNotation;

    fn diff(notation: Notation, table: &str, before: &str, after: &str) -> String {
        let tables = [vec![table.to_owned()]];
        let references = ReferenceContext::without_folders(ReferenceNotation::Braced);
        let change = FileChange {
            name: "f",
            notation,
            tables: &tables,
            references: &references,
            before,
            after,
        };
        change.render_diff()
    }

    #[test]
    fn no_way_of_writing_a_secret_shows_it() {
        for (notation, text) in [
            (Notation::Json, "{\"s\": {\"a\": {\"env\": {\"PASS\": \"hunter2\"}}}}"),
            (Notation::Json, "{\"s\": {\"a\": {\"env\": {\"PASS\": \"\\u0068unter2\\/\"}}}}"),
            (Notation::Json, "{\"s\": {\"a\": {\"pin_key\": 7268}}}"),
            (Notation::Json, "{\"s\": {\"a\": {\"env\": {\"TOK\": \"hunter2\"}}}}"),
            (Notation::Toml, "[s.a.headers]\nX-Team = \"hunter2\"\n"),
            (Notation::Yaml, "s:\n  a:\n    envs:\n      TOK: hunter2\n    b: c\n"),
            (Notation::Yaml, "s:\n  a:\n    note: |\n      x: hunter2\n    b: c\n"),
            (Notation::Json, "{\"s\": {\"a\": {}}, \"note\": \"hunter2\"}"),
            (
                Notation::Json,
                "{\"s\": { // \"PASS\": \"hunter2\"\n /* hunter2\nhunter2 */ \"a\": {}}}",
            ),
            (Notation::Json, "{\"s\": {\"a\": {\"args\": [\"--token\", \"hunter2\"]}}}"),
            (Notation::Toml, "[s.a]\nenv = { PASS = \"hunter2\" }\n"),
            (
                Notation::Toml,
                "x = \"hunter2\"\n[s.a.env]\nPASS = \"\"\"\nhunter2\nx\"\"\" # hunter2\n",
            ),
            (Notation::Toml, "[s.a]\n# env = { PASS = \"hunter2\" }\nk = 1\n"),
            (
                Notation::Yaml,
                "s:\n  a:\n    env:\n      PASS: |\n        hunter2\n        x: hunter2\n",
            ),
            (Notation::Yaml, "s:\n  a:\n    env:\n      PASS: >-\n\n        hunter2\n      X: y\n"),
            (
                Notation::Yaml,
                "s:\n  a:\n    env: {PASS: hunter2}\n    # hunter2\n    b: x # hunter2\n",
            ),
            (
                Notation::Yaml,
                "s:\n  a:\n    args:\n    - --token\n    - hunter2\n    X:\n      - a\n      - PASS: hunter2\n",
            ),
            (Notation::Yaml, "s:\n  a:\n    env:\n      B: one\n        hunter2\nother: hunter2\n"),
            (Notation::Yaml, "s:\n  a:\n    \"PASS\": hunter2\n    ? PASS\n    : hunter2\n"),
        ] {
            for (before, after) in [(text, ""), ("", text), (text, &format!("{text}\n"))] {
                let shown = diff(notation, "s", before, after);
                assert!(!shown.contains("unter2") && !shown.contains("7268"), "{shown}");
            }
        }
    }

    #[test]
    fn harmless_values_and_references_are_shown() {
        let before = "{\n  \"s\": {\n    \"a\": { \"command\": \"npx\", \"n\": 1 }\n  }\n}\n";
        let after = before.replace("npx", "node").replace('1', "\"Bearer ${TOKEN}\"");
        let shown = diff(Notation::Json, "s", before, &after);
        assert!(shown.contains("-    \"a\": { \"command\": \"npx\", \"n\": 1 }"), "{shown}");
        assert!(
            shown.contains("+    \"a\": { \"command\": \"node\", \"n\": \"Bearer ${TOKEN}\" }")
        );
        let shown = diff(Notation::Yaml, "s", "s:\n  a:\n    cmd: npx\n", "s: {}\n");
        assert!(shown.contains("-    cmd: npx\n"), "{shown}");
        let shown = diff(Notation::Json, "s", "{\"x\": 1}", "{\"x\": 2}");
        assert!(shown.contains("only a hidden value changes"), "{shown}");
    }
}
