//! Names and prose, held by figures: type names that mean one thing, function
//! names that say what they do, and none of the phrases that readers had to decode.
//!
//! The figures may only get better. When one does, set its limit to the new
//! value in the same commit.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "the helpers of a test")]

mod counters;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use counters::{
    WordCounts, error_types, function_names, nested_results, one_word_constants,
    superlative_constants, tuple_parameters, type_names,
};

/// The most types, of a thousand, whose name another type in the crate has.
const MAX_SHARED_TYPE_NAMES: usize = 20;

/// The most pairs of files in one folder that differ by an ending only.
const MAX_SIMILAR_FILES: usize = 1;

/// Words of a private idiom, and the most of them in 100,000 words of comments.
const VAGUE_WORDS: [(&[&str], usize); 5] = [
    (&["what"], 250),
    (&["told", "tell", "tells"], 40),
    (&["said", "say", "says"], 40),
    (&["whose", "whom"], 60),
    (&["nobody", "somebody"], 10),
];

/// The most doc comments that begin with a question word, in percent.
const MAX_QUESTIONS: usize = 5;

/// Folders with constants that are used with the name of their module (`meta::TASKS`), and so may
/// have a name of one word.
const VOCABULARIES: [&str; 1] = ["crates/protocol/src/mcp"];

/// Error types without the suffixes `Error`, `Fault` and `Faults`, and the reason.
const OTHER_ERRORS: [(&str, &str); 1] = [("Failure", "the outward table of a call's failures")];

/// Siblings that play one role in two modules of one kind, and so may share a
/// name: the name, and the role.
const SIBLINGS: [(&str, &str); 0] = [];

/// Phrases that have to be decoded, and what to write instead. They are looked
/// for in the sources, the pages, the shipped configuration and the help texts.
const BANNED: [(&str, &str); 15] = [
    ("access line", "access log"),
    ("whose it can be", "the server that declares the capability"),
    ("what is none", "what is not valid"),
    ("of whom there are none", "accepts none"),
    ("it comes by that", "name the cause"),
    ("know none are given", "without support receive"),
    ("those that know none", "clients without support"),
    ("never bothered", "never sees it"),
    ("the world as it is", "the real environment"),
    ("what there is to see", "what it contains"),
    ("lasts for longer than", "name what lives on"),
    ("is told so", "name the message and its receiver"),
    ("stands twice", "is duplicated"),
    ("what comes of", "name the result"),
    ("whoever", "name the client, the server or the code"),
];

#[test]
fn type_names_are_unique_but_for_siblings() {
    let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    for (path, code) in sources() {
        for name in type_names(&code) {
            files.entry(name).or_default().push(path.clone());
        }
    }
    let all: usize = files.values().map(Vec::len).sum();
    let siblings: BTreeSet<_> = SIBLINGS.iter().map(|(name, _)| *name).collect();
    let shared: Vec<_> = files
        .iter()
        .filter(|(name, files)| files.len() > 1 && !siblings.contains(name.as_str()))
        .collect();
    let count: usize = shared.iter().map(|(_, files)| files.len()).sum();
    let found = count * 1000 / all;
    assert!(
        found <= MAX_SHARED_TYPE_NAMES,
        "{count} of {all} types share their name ({found} of a thousand, at most \
         {MAX_SHARED_TYPE_NAMES} are allowed): give each a precise name of its own:\n{shared:#?}"
    );
    for name in siblings {
        assert!(files.get(name).is_some_and(|files| files.len() > 1), "no siblings: {name}");
    }
}

/// Reports figures, without a limit: `cargo test --test names function_names -- --nocapture`.
#[test]
fn function_names_are_reported() {
    let names: Vec<_> = sources().iter().flat_map(|(_, code)| function_names(code)).collect();
    assert!(names.len() > 1000, "the functions were found");
    let letters: usize = names.iter().map(|name| name.chars().count()).sum();
    let words = names.iter().filter(|name| !name.trim_start_matches('_').contains('_')).count();
    eprintln!(
        "{} function names: {} hundredths of a letter on average, {} % of one word",
        names.len(),
        letters * 100 / names.len(),
        words * 100 / names.len()
    );
}

#[test]
fn constants_carry_their_object() {
    let mut found = String::new();
    let mut vocabularies = BTreeSet::new();
    for (path, code) in sources() {
        let vocabulary = VOCABULARIES.iter().find(|folder| path.starts_with(folder));
        for name in one_word_constants(&code) {
            match vocabulary {
                Some(folder) => drop(vocabularies.insert(*folder)),
                None => drop(writeln!(found, "{}: {name}", path.display())),
            }
        }
    }
    assert!(
        found.is_empty(),
        "constants of modules have a name of one word: name the object and the unit, as in \
         `LOGIN_TIMEOUT`:\n{found}"
    );
    assert_eq!(vocabularies, BTreeSet::from(VOCABULARIES), "no names of one word in a folder");
}

#[test]
fn names_of_bounds_begin_with_max_or_min() {
    let mut found = String::new();
    for (path, code) in sources() {
        for name in superlative_constants(&code) {
            let _ = writeln!(found, "{}: {name}", path.display());
        }
    }
    assert!(
        found.is_empty(),
        "name the object and the unit, as in `MAX_HEADER_BYTES` or `MIN_START_INTERVAL`:\n{found}"
    );
}

#[test]
fn a_result_holds_no_other_result() {
    let mut found = String::new();
    for (path, code) in sources() {
        for at in nested_results(&code) {
            let _ = writeln!(found, "{}: {at}", path.display());
        }
    }
    assert!(found.is_empty(), "results hold another one: name the cases with an enum:\n{found}");
}

#[test]
fn error_types_have_one_of_two_suffixes() {
    let allowed: BTreeSet<_> = OTHER_ERRORS.iter().map(|(name, _)| *name).collect();
    let names: BTreeSet<_> = sources().iter().flat_map(|(_, code)| error_types(code)).collect();
    assert!(names.len() > 50, "the error types were found");
    let has_suffix =
        |name: &String| ["Error", "Fault", "Faults"].iter().any(|suffix| name.ends_with(suffix));
    let others: Vec<_> = names.iter().filter(|name| !has_suffix(name)).collect();
    let unexpected: Vec<_> =
        others.iter().filter(|name| !allowed.contains(name.as_str())).collect();
    assert!(
        unexpected.is_empty(),
        "error types end in Error, for callers that handle them, or in Fault: {unexpected:?}"
    );
    for name in allowed {
        assert!(others.iter().any(|other| *other == name), "no error type: {name}");
    }
}

#[test]
fn files_in_one_folder_do_not_differ_by_an_ending() {
    let mut folders: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    for (path, _) in sources() {
        let stem = path.file_stem().expect("it has a name").to_string_lossy().into_owned();
        folders.entry(path.parent().expect("a folder").to_owned()).or_default().insert(stem);
    }
    let mut similar = Vec::new();
    for (folder, stems) in &folders {
        for one in stems {
            let root = one.strip_suffix('e').unwrap_or(one);
            let alike = stems.iter().filter(|other| {
                *other != one && other.starts_with(root) && other.len() - root.len() <= 3
            });
            similar.extend(alike.map(|other| format!("{}/{one} {other}", folder.display())));
        }
    }
    assert!(
        similar.len() <= MAX_SIMILAR_FILES,
        "at most {MAX_SIMILAR_FILES} pairs of files may differ by an ending only: {similar:#?}"
    );
}

#[test]
fn nothing_is_written_in_phrases_that_have_to_be_decoded() {
    let mut found = String::new();
    for path in texts() {
        let text = std::fs::read_to_string(root().join(&path)).expect("it is text");
        for (index, line) in one_paragraph_a_line(&text) {
            let lower = line.to_lowercase();
            for (phrase, instead) in BANNED.iter().filter(|(phrase, _)| lower.contains(phrase)) {
                let path = path.display();
                let _ = writeln!(found, "{path}:{index}: {phrase:?}: write {instead}");
            }
        }
    }
    assert!(found.is_empty(), "plain English, please:\n{found}");
}

#[test]
fn comments_use_the_words_of_the_field() {
    let mut counts = WordCounts::default();
    for path in ["src", "crates", "tests", "benches", "fuzz"]
        .iter()
        .flat_map(|folder| files_below(folder, &["rs"]))
        .filter(|path| !path.components().any(|part| part.as_os_str() == "target"))
    {
        counts.add(&std::fs::read_to_string(root().join(&path)).expect("it is text"));
    }
    assert!(counts.words > 100_000 && counts.doc_comments > 5_000, "the comments were found");
    for (index, (words, most)) in VAGUE_WORDS.iter().enumerate() {
        let found = counts.vague[index] * 100_000 / counts.words;
        assert!(
            found <= *most,
            "{words:?} occurs {found} times in 100,000 words of comments, at most {most} are \
             allowed: name the thing, and who does what to it"
        );
    }
    let questions = counts.questions * 100 / counts.doc_comments;
    assert!(
        questions <= MAX_QUESTIONS,
        "{questions} % of the doc comments begin with a question word, at most {MAX_QUESTIONS} % \
         are allowed: begin with a verb or a noun"
    );
}

#[test]
fn parameters_have_names() {
    let mut found = String::new();
    for (path, code) in sources() {
        if tuple_parameters(&code) > 0 {
            let _ = writeln!(found, "{}: {}", path.display(), tuple_parameters(&code));
        }
    }
    assert!(
        found.is_empty(),
        "parameters are tuple patterns: take two parameters, or a struct with a name that the field \
         uses:\n{found}"
    );
}

#[test]
fn the_counters_find_words_questions_and_tuples() {
    let mut counts = WordCounts::default();
    let lines = [
        "/// Whether it was told what to do.",
        "/// How it goes on is no question.",
        "fn one() {} // Nobody knows, what's more.",
        "let text = \"what\";",
        "//! Returns a value.",
    ];
    counts.add(&lines.join("\n"));
    assert_eq!((counts.doc_comments, counts.questions, counts.words), (2, 1, 17));
    assert_eq!(counts.vague, [1, 1, 0, 0, 0]);
    let code =
        "fn a((x, y): (u8, u8), z: (u8, u8)) {} fn b<T: Fn(u8)>(t: T, (u, v): P) {} fn c() {}";
    assert_eq!(tuple_parameters(code), 2);
}

#[test]
fn the_counters_find_constants_results_and_errors() {
    let code = "\
const ONE: u8 = 1;
pub(in crate::a) static TWO: &str = \"\";
const HAS_OBJECT: u8 = 1;
const _: () = ();
impl A { const OWN: u8 = 1; }
    const INNER: u8 = 1;
fn a() -> Result<
    Option<Result<u8, ()>>,
    (),
> {}
fn b() -> Result<u8, Error> {}
#[derive(Debug, thiserror::Error)]
#[error(\"x\")]
pub enum First {}
#[derive(Debug)]
struct NoError;
impl std::error::Error for Second<'_> {}
impl fmt::Display for NoError {}
";
    assert_eq!(one_word_constants(code), ["ONE", "TWO"]);
    assert_eq!(nested_results(code).len(), 1);
    assert_eq!(error_types(code), ["First", "Second"]);
}

#[test]
fn the_reader_of_names_sees_definitions_and_no_tests() {
    let code = without_tests(
        "\
pub(crate) struct One<'a>(&'a str);
    enum Two {}
/// struct InAComment
type Three = u8;
impl One<'_> { const fn four() {} async fn five(&self) {} type Value = u8; }
#[cfg(test)]
mod tests { struct Six; fn seven() {} }
",
    );
    assert_eq!(type_names(&code), ["One", "Two"]);
    assert_eq!(function_names(&code), ["four", "five"]);
    let text = "/// a phrase that\n/// goes on\ncode\n// next";
    let paragraphs: Vec<_> = one_paragraph_a_line(text).collect();
    assert_eq!(paragraphs[0], (1, "a phrase that goes on".to_owned()));
    assert_eq!(paragraphs[1], (3, "code".to_owned()));
}

/// The code of a file without comments, and without the tests at its end.
fn without_tests(text: &str) -> String {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code = code.lines().map(|line| line.split("//").next().unwrap_or_default());
    code.collect::<Vec<_>>().join("\n")
}

/// Every source file that is not a test, with its code.
fn sources() -> Vec<(PathBuf, String)> {
    let files = ["src", "crates"].iter().flat_map(|folder| files_below(folder, &["rs"]));
    let is_test = |path: &Path| {
        path.components()
            .any(|part| matches!(part.as_os_str().to_str(), Some("tests" | "tests.rs")))
    };
    let sources = files.filter(|path| !is_test(path)).map(|path| {
        let text = std::fs::read_to_string(root().join(&path)).expect("it is text");
        (path, without_tests(&text))
    });
    let sources: Vec<_> = sources.collect();
    assert!(sources.len() > 50, "the sources were found");
    sources
}

/// Everything that people read.
fn texts() -> Vec<PathBuf> {
    let pages = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md"];
    let mut texts: Vec<_> =
        pages.into_iter().chain(["gateway.toml", "Dockerfile"]).map(PathBuf::from).collect();
    texts.extend(["src", "crates"].iter().flat_map(|folder| files_below(folder, &["rs"])));
    texts.extend(files_below("docs", &["md", "json"]));
    texts
}

fn files_below(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut folders = vec![PathBuf::from(folder)];
    let mut files = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(root().join(&folder)).expect("a folder") {
            let path = folder.join(entry.expect("an entry").file_name());
            if root().join(&path).is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|one| extensions.iter().any(|ext| one == *ext)) {
                files.push(path);
            }
        }
    }
    files.sort();
    files
}

/// The text with the lines of one comment or paragraph joined, each with the
/// number of its first line: a phrase may go over the end of a line.
fn one_paragraph_a_line(text: &str) -> impl Iterator<Item = (usize, String)> {
    let mut paragraphs: Vec<(usize, String)> = Vec::new();
    let mut last = None;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        let (mark, words) = match line.find(|c| c != '/' && c != '!' && c != '#') {
            Some(at) => line.split_at(at),
            None => (line, ""),
        };
        match paragraphs.last_mut() {
            Some((_, whole)) if last == Some(mark) && !words.trim().is_empty() => {
                whole.extend([" ", words.trim()]);
            }
            _ => paragraphs.push((index + 1, words.trim().to_owned())),
        }
        last = (!words.trim().is_empty() && !line.is_empty()).then_some(mark);
    }
    paragraphs.into_iter()
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
