//! Holds the architecture: the direction of use between modules, the length of files, and an
//! introduction in every module.
#![allow(clippy::expect_used, reason = "the helpers of a test")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

#[test]
fn no_room_uses_one_that_stands_before_it() {
    let modules = modules();
    let mut found = String::new();
    for file in sources() {
        let module = file.module();
        for (line, used) in uses(&file) {
            if !allowed(&modules, &module, &used) {
                let _ = writeln!(found, "{}:{line}: {module} uses {used}", file.path.display());
            }
        }
    }
    assert!(found.is_empty(), "src/lib.rs lists the modules in the order of use:\n{found}");
}

#[test]
fn no_file_is_longer_than_500_lines() {
    let long: Vec<_> = sources()
        .into_iter()
        // A word list is data, not code to read.
        .filter(|file| file.path.extension().is_none_or(|ending| ending != "txt"))
        .map(|file| (file.text.lines().count(), file.path))
        .filter(|(lines, _)| *lines > 500)
        .collect();
    assert!(long.is_empty(), "these ask to be divided: {long:?}");
}

#[test]
fn every_room_begins_with_an_essay() {
    for module in modules() {
        let path = source_folder().join(&module).join("mod.rs");
        let text = std::fs::read_to_string(&path).expect("every module is a folder with a mod.rs");
        let introduction = text.lines().take_while(|line| line.starts_with("//!")).count();
        assert!(introduction >= 3, "{module}: what is this module for, and what may it not do?");
    }
}

#[test]
fn every_room_is_in_the_architectures_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let told: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("/` |"))
        .map(|(module, _)| module.to_owned())
        .collect();
    assert_eq!(
        told,
        modules(),
        "the table of modules in ARCHITECTURE.md, in the order of src/lib.rs"
    );
}

#[test]
fn unsafe_code_is_forbidden() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest: toml::Table =
        std::fs::read_to_string(manifest).expect("it is there").parse().expect("it is TOML");
    assert_eq!(manifest["lints"]["rust"]["unsafe_code"].as_str(), Some("forbid"));
}

#[test]
fn the_reader_of_uses_sees_them_in_every_form() {
    let text = "\
//! [`crate::cli`] in a comment is no use.
use crate::call::{Call, Failure};
use crate::{
    mcp::Era, jsonrpc::{self, Id},
};
fn f(x: &crate::catalog::Entry) -> &str { \"crate::downstream\" }
fn g() { super::super::listener::x(); super::sibling(); }
impl X {
    #[cfg(test)]
    fn only_in_tests() { if true { crate::admin::x(); } crate::admin::y(); }
    fn behind_a_test() { crate::policy::x(); }
}
#[cfg(test)]
mod elsewhere;
use crate::era::lift;
#[cfg(test)]
mod tests {
    use crate::admin::Status;
}
use crate::config::Config;
";
    let file = Source { path: "src/upstream/deep.rs".into(), text: text.into() };
    let expected = [
        (2, "call"),
        (3, "mcp"),
        (3, "jsonrpc"),
        (6, "catalog"),
        (7, "listener"),
        (11, "policy"),
        (15, "era"),
        (20, "config"),
    ];
    assert_eq!(uses(&file), expected.map(|(line, used)| (line, used.to_owned())));
    let modules = modules();
    assert!(allowed(&modules, "upstream", "call") && allowed(&modules, "jsonrpc", "telemetry"));
    assert!(!allowed(&modules, "call", "upstream") && !allowed(&modules, "telemetry", "jsonrpc"));
}

/// Returns the modules, in the order of `src/lib.rs`.
fn modules() -> Vec<String> {
    let text = std::fs::read_to_string(source_folder().join("lib.rs")).expect("it is there");
    text.lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .map(str::to_owned)
        .collect()
}

/// Returns true if a module may use another: itself and those after it. `telemetry` comes after all
/// modules that know the protocol: they may use it, and it uses none of them.
fn allowed(modules: &[String], module: &str, used: &str) -> bool {
    let places: BTreeMap<_, _> =
        modules.iter().enumerate().map(|(at, module)| (&**module, at)).collect();
    match (places.get(module), places.get(used)) {
        (Some(module), Some(used)) => module <= used,
        // lib.rs itself, and names that are not modules.
        _ => true,
    }
}

struct Source {
    /// Path relative to `src`.
    path: PathBuf,
    text: String,
}

impl Source {
    fn parts(&self) -> Vec<String> {
        let parts = self.path.with_extension("");
        let parts = parts.iter().skip(1).map(|part| part.to_string_lossy().into_owned());
        parts.filter(|part| part != "mod").collect()
    }

    fn module(&self) -> String {
        self.parts().first().cloned().unwrap_or_default()
    }

    /// Returns the code without comments, string literals and tests, line for line.
    fn code(&self) -> String {
        let mut code = String::new();
        for line in self.text.lines() {
            let line = line.split("//").next().unwrap_or_default();
            // Every other piece between quotes is a string literal.
            let line = line.replace("'\"'", "' '");
            code.extend(line.split('"').step_by(2).flat_map(|piece| [piece, " "]));
            code.push('\n');
        }
        without_tests(&code.replace("'{'", "' '").replace("'}'", "' '"))
    }
}

/// Removes each item under `#[cfg(test)]`, and keeps its line ends.
fn without_tests(code: &str) -> String {
    let (mut kept, mut rest) = (String::new(), code);
    while let Some(at) = rest.find("#[cfg(test)]") {
        let (before, item) = rest.split_at(at);
        kept.push_str(before);
        let end = end_of_item(item);
        kept.extend(item[..end].chars().filter(|character| *character == '\n'));
        rest = &item[end..];
    }
    kept + rest
}

/// Returns the end of an item: after its `;`, or after its closing brace.
fn end_of_item(item: &str) -> usize {
    let mut depth = 0;
    for (at, character) in item.char_indices() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth <= 0 && matches!(character, ';' | '}') {
            return at + 1;
        }
    }
    item.len()
}

/// Returns every module that a file names, with the line.
fn uses(file: &Source) -> Vec<(usize, String)> {
    let code = file.code();
    let mut found = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let boundary = code[..at].chars().next_back().is_none_or(|c| !is_word(c));
        if boundary {
            named(&code[at + "crate::".len()..], line_of(&code, at), &mut found);
        }
    }
    // As many steps up as the file is deep lead to the crate's root.
    let up = "super::".repeat(file.parts().len());
    for (at, _) in code.match_indices(&up) {
        named(&code[at + up.len()..], line_of(&code, at), &mut found);
    }
    found.sort_by_key(|(line, _)| *line);
    found
}

/// Collects the modules after `crate::`: one, or several in braces.
fn named(rest: &str, line: usize, found: &mut Vec<(usize, String)>) {
    let word = |text: &str| text.chars().take_while(|c| is_word(*c)).collect::<String>();
    let Some(group) = rest.strip_prefix('{') else {
        found.push((line, word(rest)));
        return;
    };
    let (mut depth, mut start) = (1, true);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => start = true,
            c if start && is_word(c) => {
                found.push((line, word(&group[at..])));
                start = false;
            }
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

/// Returns every file of the crate that is not a test.
fn sources() -> Vec<Source> {
    let mut folders = vec![source_folder()];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder").map(Result::unwrap) {
            let path = entry.path();
            let is_test = path.file_stem().is_some_and(|name| name == "tests");
            if is_test {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else {
                let text = std::fs::read_to_string(&path).expect("it is text");
                let root = Path::new(env!("CARGO_MANIFEST_DIR"));
                let path = path.strip_prefix(root).expect("it is below").to_owned();
                files.push(Source { path, text });
            }
        }
    }
    assert!(files.len() > 50, "the sources were found");
    files
}

fn source_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}
