//! The files of the workspace, as the rules read them: without comments, string literals and tests.

use std::path::{Path, PathBuf};

use super::libraries;

/// Returns every file of the workspace that is not a test.
pub fn sources() -> Vec<Source> {
    let files: Vec<_> = source_folders().iter().flat_map(|folder| sources_below(folder)).collect();
    assert!(files.len() > 50, "the sources were found");
    files
}

/// Returns every file below a folder that is not a test.
pub fn sources_below(folder: &Path) -> Vec<Source> {
    let mut folders = vec![folder.to_owned()];
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
                let path = path.strip_prefix(root()).expect("it is below").to_owned();
                files.push(Source { path, text });
            }
        }
    }
    files
}

/// Returns the source folders of the gateway and of the libraries.
pub fn source_folders() -> Vec<PathBuf> {
    let libraries = libraries().into_iter().map(|library| format!("crates/{library}/src"));
    std::iter::once("src".to_owned()).chain(libraries).map(|folder| root().join(folder)).collect()
}

pub struct Source {
    /// Path in the repository.
    pub path: PathBuf,
    pub text: String,
}

impl Source {
    /// Returns the path of its module, from the root of its crate.
    pub fn parts(&self) -> Vec<String> {
        let path = self.path.with_extension("");
        let parts = path.iter().skip_while(|part| *part != "src").skip(1);
        let parts = parts.map(|part| part.to_string_lossy().into_owned());
        parts.filter(|part| part != "mod").collect()
    }

    pub fn module(&self) -> String {
        self.parts().first().cloned().unwrap_or_default()
    }

    /// Returns the code without comments, string literals and tests, line for line.
    pub fn code(&self) -> String {
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

pub fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
