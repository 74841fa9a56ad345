//! Every guarantee of the documentation names an existing test that proves it.
//!
//! A guarantee is a row of a table in `docs/` with a last column headed "test". The words in
//! backticks there are test functions, or files and folders of tests; a row needs at least one.
#![allow(clippy::expect_used, clippy::unwrap_used, reason = "the helpers of a test")]

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Minimum number of guarantees in `docs/security.md`. Set it to the new count when rows are added.
const MIN_GUARANTEES: usize = 207;

#[test]
fn every_guarantee_names_a_test_that_exists() {
    let tests = Tests::find();
    let mut faults = String::new();
    for page in files_below(Path::new("docs"), "md") {
        let text = std::fs::read_to_string(root().join(&page)).expect("a page");
        for guarantee in guarantees(&text) {
            if let Some(fault) = tests.find_fault(&guarantee) {
                let _ = writeln!(faults, "{}:{}: {fault}", page.display(), guarantee.line);
            }
        }
    }
    assert!(faults.is_empty(), "these guarantees are not shown by a test:\n{faults}");
}

#[test]
fn no_guarantee_of_the_security_page_is_lost() {
    let text = std::fs::read_to_string(root().join("docs/security.md")).expect("the page");
    let count = guarantees(&text).len();
    assert!(count >= MIN_GUARANTEES, "{count} guarantees, at least {MIN_GUARANTEES} are expected");
}

#[test]
fn a_guarantee_without_a_test_or_with_an_unknown_one_is_a_fault() {
    let page = "\
| attack | guard | test |
|---|---|---|
| one | refused | `a_test` |
| two | refused | none |
| three | refused | `a_test`, `a_helper` |
| four | a \\| b | `climbing`, `tests/system` |

| setting | meaning |
|---|---|
| five | no guarantee |
";
    let tests = Tests {
        functions: test_functions("#[tokio::test]\nasync fn a_test() {}\n\nfn a_helper() {}\n"),
        places: ["climbing", "tests/system"].map(str::to_owned).into(),
    };
    let faults: Vec<_> =
        guarantees(page).iter().map(|one| (one.line, tests.find_fault(one))).collect();
    let unknown = "no test is called `a_helper`".to_owned();
    assert_eq!(
        faults,
        [(3, None), (4, Some("no test is named".to_owned())), (5, Some(unknown)), (6, None),]
    );
}

/// A row of a table with a last column headed "test".
struct Guarantee<'a> {
    /// Line number, from 1.
    line: usize,
    /// Words in backticks in the last column.
    tests: Vec<&'a str>,
}

/// Returns the guarantees of a page.
fn guarantees(page: &str) -> Vec<Guarantee<'_>> {
    let mut found = Vec::new();
    let mut in_table = false;
    for (index, line) in page.lines().enumerate() {
        let Some(row) = line.strip_prefix('|') else {
            in_table = false;
            continue;
        };
        let last = row.trim_end().trim_end_matches('|').rsplit(" | ").next().unwrap_or_default();
        if last.trim() == "test" {
            in_table = true;
        } else if in_table && !row.starts_with("--") {
            let tests = last.split('`').skip(1).step_by(2).collect();
            found.push(Guarantee { line: index + 1, tests });
        }
    }
    found
}

/// Names that a guarantee may refer to.
struct Tests {
    /// Names of test functions.
    functions: BTreeSet<String>,
    /// Files and folders of tests, by name without an extension and by path.
    places: BTreeSet<String>,
}

impl Tests {
    /// Reads the sources for tests.
    fn find() -> Self {
        let (mut functions, mut places) = (BTreeSet::new(), BTreeSet::new());
        for folder in ["src", "crates", "tests"].map(Path::new) {
            for path in files_below(folder, "rs") {
                let code = std::fs::read_to_string(root().join(&path)).expect("a source file");
                let found = test_functions(&code);
                if !found.is_empty() {
                    places.extend(places_of(&path));
                }
                functions.extend(found);
            }
        }
        assert!(functions.len() > 1000, "the tests were found");
        Self { functions, places }
    }

    /// Returns the reason that the guarantee has no proof, or `None` if each test that it names
    /// exists.
    fn find_fault(&self, guarantee: &Guarantee<'_>) -> Option<String> {
        if guarantee.tests.is_empty() {
            return Some("no test is named".to_owned());
        }
        let exists = |name: &str| self.functions.contains(name) || self.places.contains(name);
        let unknown = guarantee.tests.iter().find(|name| !exists(name))?;
        Some(format!("no test is called `{unknown}`"))
    }
}

/// Returns the names by which a page may refer to a file with tests, and to its parent folders.
fn places_of(path: &Path) -> impl Iterator<Item = String> {
    let module = path.with_extension("");
    // `src/`, `tests/` and `crates/NAME/src/` are no part of a module's path.
    let above = if module.starts_with("crates") { 3 } else { 1 };
    let module = module.components().skip(above).map(|part| part.as_os_str().to_string_lossy());
    let module: Vec<_> = module.collect();
    let folders = path.ancestors().map(|one| one.to_string_lossy().into_owned());
    let parts = module.iter().map(ToString::to_string);
    let joined = (1..=module.len()).filter_map(|end| Some(module.get(..end)?.join("::")));
    folders.chain(parts).chain(joined).collect::<Vec<_>>().into_iter()
}

/// Returns the functions with an attribute such as `#[test]` or `#[tokio::test]`.
fn test_functions(code: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut is_test = false;
    for line in code.lines().map(str::trim_start) {
        if let Some(attribute) = line.strip_prefix("#[") {
            let path = attribute.split([']', '(']).next().unwrap_or_default();
            is_test |= path.rsplit("::").next() == Some("test");
        } else if let Some((_, rest)) = line.split_once("fn ") {
            if std::mem::take(&mut is_test) {
                found.insert(rest.split(['(', '<']).next().unwrap_or_default().to_owned());
            }
        } else if line.is_empty() {
            is_test = false;
        }
    }
    found
}

/// Returns the files below a folder of the repository, by their extension.
fn files_below(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let Ok(entries) = std::fs::read_dir(root().join(folder)) else { return files };
    for entry in entries {
        let path = folder.join(entry.expect("an entry").file_name());
        if root().join(&path).is_dir() {
            files.extend(files_below(&path, extension));
        } else if path.extension().is_some_and(|found| found == extension) {
            files.push(path);
        }
    }
    files
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
