//! Holds the architecture: the direction of use between crates and between modules, the length of
//! files, an introduction in every module, and the targets of log lines.
#![allow(clippy::expect_used, clippy::panic, reason = "the helpers of a test")]

mod log_targets;
mod manifests;
mod mechanisms;
mod paths;
mod sources;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use manifests::{dependencies, manifest};
use paths::{expand, paths, uses};
use sources::{Source, root, source_folders, sources, sources_below};

/// The libraries in the order of use: a library uses those of later groups, none of its own or an
/// earlier one.
const LIBRARIES: [&[&str]; 9] = [
    &["import", "bench", "examples"],
    &["oauth", "openapi", "sandbox"],
    &["catalog"],
    &["search", "http-client", "shares"],
    &["config"],
    &["telemetry"],
    &["protocol"],
    &["https", "jsonrpc"],
    &["core"],
];

/// A module whose folders and files use each other in one order.
struct Area {
    name: &'static str,
    /// Its folders and files: each uses those after it.
    order: &'static [&'static str],
    /// Uses against the order that remain: the file, the used folder and the number of uses.
    against: &'static [(&'static str, &'static str, usize)],
}

/// The areas with an order inside (docs/decisions/0066). A method that is called without a path is
/// not seen.
const AREAS: [Area; 3] = [
    Area {
        name: "upstream",
        order: &[
            "issuer_fetch",
            "embedding_service",
            "server",
            "supervisor",
            "lists",
            "transport",
            "notifications",
            "interaction",
            "read_cache",
            "response_memory",
            "peer",
            "owner",
            "fault",
            "quoted_output",
            "journal",
        ],
        against: &[],
    },
    Area {
        name: "pipeline",
        order: &[
            "operator_calls",
            "explain",
            "code",
            "meta_tools",
            "own_tools",
            "call_time",
            "calls",
            "subscriptions",
            "release",
            "entry",
            "introduce",
            "listing",
            "record",
            "route",
            "tasks",
            "gateway",
            "stores",
            "client_view",
            "input",
        ],
        against: &[],
    },
    Area {
        name: "policy",
        order: &[
            "definitions",
            "unmatched",
            "admission",
            "interceptors",
            "quotas",
            "transforms",
            "scopes",
            "limits",
            "target",
            "authorization",
        ],
        against: &[],
    },
];

#[test]
fn no_library_uses_one_before_it_or_the_gateway() {
    for library in libraries() {
        let group = group_of(&library).unwrap_or_else(|| panic!("LIBRARIES lacks {library}"));
        for used in dependencies(&manifest(&format!("crates/{library}"))) {
            let Some(used) = used.strip_prefix("trunkline") else { continue };
            let used = used.trim_start_matches('-');
            let is_below = group_of(used).is_some_and(|used| used > group);
            assert!(is_below, "crates/{library}/Cargo.toml: {library} may not use `{used}`");
        }
    }
}

#[test]
fn every_library_is_private_and_says_what_it_is_for() {
    for library in libraries() {
        let manifest = manifest(&format!("crates/{library}"));
        let package = &manifest["package"];
        assert_eq!(package["name"].as_str(), Some(&*format!("trunkline-{library}")));
        for inherited in ["version", "edition", "rust-version", "license", "publish"] {
            assert_eq!(package[inherited]["workspace"].as_bool(), Some(true), "{library}");
        }
        let description = package["description"].as_str().unwrap_or_default();
        assert!(description.ends_with('.') && description.len() > 20, "{library}: its purpose");
        let folder = root().join("crates").join(&library).join("src");
        let text = std::fs::read_to_string(folder.join("lib.rs")).expect("a library");
        assert!(introduction(&text) >= 3, "{library}: what is it for, and what may it not do?");
        assert!(text.contains("#![warn(unreachable_pub)]"), "{library}");
    }
    let workspace = manifest("");
    assert_eq!(workspace["workspace"]["package"]["publish"].as_bool(), Some(false));
}

#[test]
fn no_module_uses_one_before_it() {
    let mut found = String::new();
    for folder in source_folders() {
        let modules = modules(&folder);
        for file in sources_below(&folder) {
            let module = file.module();
            for (line, used) in uses(&file) {
                if !allowed(&modules, &module, &used) {
                    let _ = writeln!(found, "{}:{line}: {module} uses {used}", file.path.display());
                }
            }
        }
    }
    assert!(found.is_empty(), "each lib.rs lists its modules in the order of use:\n{found}");
}

#[test]
fn no_folder_of_an_area_uses_one_before_it() {
    let mut wrong = String::new();
    for area in AREAS {
        let mut found = uses_against(&area);
        for (file, used, number) in area.against {
            let lines = found.remove(&((*file).to_owned(), (*used).to_owned())).unwrap_or_default();
            if lines.len() != *number {
                let area = area.name;
                let _ = writeln!(
                    wrong,
                    "{area}/{file} uses `{used}` at lines {lines:?}: expected {number} uses; lower \
                     the number in AREAS if there are fewer, and remove the use if there are more"
                );
            }
        }
        for ((file, used), lines) in found {
            let _ = writeln!(
                wrong,
                "{}/{file}:{lines:?} uses `{used}`, which comes before it in AREAS",
                area.name
            );
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

/// Returns the lines on which a file of an area uses a folder against the order.
fn uses_against(area: &Area) -> BTreeMap<(String, String), Vec<usize>> {
    let reexports = reexports(area.name);
    let place = |folder: &str| {
        let place = area.order.iter().position(|known| *known == folder);
        if folder == "mod" { 0 } else { 1 + place.unwrap_or_else(|| panic!("AREAS: {folder}")) }
    };
    let folder = root().join("src").join(area.name);
    let mut found: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for file in sources_below(&folder) {
        let parts = file.parts();
        let Some([user, ..]) = below(area, &parts) else { continue };
        for (line, path) in paths(&file) {
            let Some(target) = folder_of(area, &reexports, &path) else { continue };
            if place(target) < place(user) {
                let path = root().join(&file.path);
                let path = path.strip_prefix(&folder).expect("it is below").display().to_string();
                found.entry((path, target.to_owned())).or_default().push(line);
            }
        }
    }
    found
}

#[test]
fn no_file_is_longer_than_500_lines() {
    let long: Vec<_> = sources()
        .into_iter()
        .map(|file| (file.text.lines().count(), file.path))
        .filter(|(lines, _)| *lines > 500)
        .collect();
    assert!(long.is_empty(), "these ask to be divided: {long:?}");
}

/// Maximum number of files in a folder, without tests and the file of the folder itself.
const MAX_FOLDER_FILES: usize = 12;

#[test]
fn a_folder_with_many_files_has_subfolders() {
    let mut folders: BTreeMap<PathBuf, usize> = BTreeMap::new();
    for file in sources() {
        let names_folder =
            ["lib.rs", "main.rs", "mod.rs"].iter().any(|own| file.path.ends_with(own));
        if let (Some(folder), false) = (file.path.parent(), names_folder) {
            *folders.entry(folder.to_owned()).or_default() += 1;
        }
    }
    assert!(folders.len() > 50, "the folders were found");
    folders.retain(|_, files| *files > MAX_FOLDER_FILES);
    assert!(folders.is_empty(), "more than {MAX_FOLDER_FILES} files in a folder: {folders:?}");
}

/// Maximum number of `pub(in …)` in the workspace. Only a method or a field of a type that its
/// module re-exports needs it: everything else in a private folder reaches no further as
/// `pub(crate)`, and `pub(super)` is narrower.
const MAX_NAMED_SCOPES: usize = 34;

#[test]
fn few_items_name_their_scope() {
    let scoped = |file: &Source| file.text.matches("pub(in ").count();
    let found: BTreeMap<_, _> = sources()
        .iter()
        .map(|file| (file.path.clone(), scoped(file)))
        .filter(|(_, number)| *number > 0)
        .collect();
    let all: usize = found.values().sum();
    assert!(
        all <= MAX_NAMED_SCOPES,
        "{all} items are `pub(in …)`, expected at most {MAX_NAMED_SCOPES}: use `pub(super)`, or \
         `pub(crate)` for what no re-exported type owns: {found:?}"
    );
}

#[test]
fn every_public_module_begins_with_an_introduction() {
    for folder in source_folders() {
        for module in public_modules(&folder) {
            let path = folder.join(&module).join("mod.rs");
            let text = std::fs::read_to_string(&path).expect("a public module is a folder");
            assert!(introduction(&text) >= 3, "{module}: what is it for, and what may it not do?");
        }
    }
}

#[test]
fn every_crate_and_module_is_in_the_architectures_tables() {
    let page = root().join("ARCHITECTURE.md");
    let page = std::fs::read_to_string(page).expect("the page is there");
    let mut expected = public_modules(&root().join("src"));
    for library in libraries() {
        expected.push(format!("crates/{library}"));
        expected.extend(public_modules(&root().join("crates").join(library).join("src")));
    }
    let told: Vec<_> = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("/` |"))
        .map(|(module, _)| module.to_owned())
        .collect();
    assert_eq!(told, expected, "the tables of ARCHITECTURE.md, in the order of use");
}

/// Code that is longer or less plain than it could be, for speed.
#[test]
fn unsafe_code_is_forbidden() {
    let workspace = manifest("");
    assert_eq!(workspace["workspace"]["lints"]["rust"]["unsafe_code"].as_str(), Some("forbid"));
    for folder in libraries().iter().map(|library| format!("crates/{library}")) {
        assert_eq!(manifest(&folder)["lints"]["workspace"].as_bool(), Some(true), "{folder}");
    }
    assert_eq!(workspace["lints"]["workspace"].as_bool(), Some(true));
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
    assert!(group_of("jsonrpc") < group_of("core") && group_of("bench") == group_of("import"));
    let modules = modules(&root().join("src"));
    assert!(allowed(&modules, "upstream", "policy") && allowed(&modules, "listener", "pipeline"));
    assert!(!allowed(&modules, "policy", "upstream") && !allowed(&modules, "pipeline", "listener"));
    assert_eq!(paths(&file)[3], (3, vec!["jsonrpc".to_owned()]));
    assert_eq!(paths(&file)[4], (3, vec!["jsonrpc".to_owned(), "Id".to_owned()]));
    let sibling = ["upstream", "sibling"].map(str::to_owned).to_vec();
    assert!(paths(&file).contains(&(7, sibling)), "{:?}", paths(&file));
    let file = Source { path: "crates/core/src/codec/sse/mod.rs".into(), text: text.into() };
    assert_eq!((file.module(), uses(&file)[4].1.clone()), ("codec".into(), "listener".into()));
}

/// Returns the folders of `crates`, in the order of use.
fn libraries() -> Vec<String> {
    let folders = std::fs::read_dir(root().join("crates")).expect("a folder");
    let mut libraries: Vec<_> = folders
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    libraries.sort_by_key(|library| (group_of(library), library.clone()));
    assert!(!libraries.is_empty(), "the libraries were found");
    libraries
}

/// Returns the position of a library in the order of use; `None` if it is not listed.
fn group_of(library: &str) -> Option<usize> {
    LIBRARIES.iter().position(|group| group.contains(&library))
}

/// Returns the modules of a crate, in the order of its `lib.rs`.
fn modules(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("lib.rs")).expect("it is there");
    let module = |line: &str| {
        let name = line.strip_prefix("pub ").unwrap_or(line).strip_prefix("mod ")?;
        Some(name.strip_suffix(';')?.to_owned())
    };
    text.lines().filter_map(module).collect()
}

/// Returns those of its modules that other crates see.
fn public_modules(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("lib.rs")).expect("it is there");
    let mut modules = modules(folder);
    modules.retain(|module| text.contains(&format!("pub mod {module};")));
    modules
}

/// Returns the number of lines of a file's introduction.
fn introduction(text: &str) -> usize {
    text.lines().take_while(|line| line.starts_with("//!")).count()
}

/// Returns true if a module may use another: itself and those after it.
fn allowed(modules: &[String], module: &str, used: &str) -> bool {
    let places: BTreeMap<_, _> =
        modules.iter().enumerate().map(|(at, module)| (&**module, at)).collect();
    match (places.get(module), places.get(used)) {
        (Some(module), Some(used)) => module <= used,
        // lib.rs itself, and names that are not modules.
        _ => true,
    }
}

/// Returns the folder of an area in which each name is declared that its `mod.rs` re-exports.
fn reexports(area: &str) -> BTreeMap<String, String> {
    let path = format!("src/{area}/mod.rs");
    let text = std::fs::read_to_string(root().join(&path)).expect("an area has a mod.rs");
    let code = Source { path: path.into(), text }.code();
    let mut found = BTreeMap::new();
    for (at, use_) in code.match_indices("pub use ") {
        let mut paths = Vec::new();
        expand(&code[at + use_.len()..], Vec::new(), &mut paths);
        for path in paths {
            if let (Some(folder), Some(name)) = (path.first(), path.last()) {
                found.insert(name.clone(), folder.clone());
            }
        }
    }
    found
}

/// Returns the rest of a path below an area, or `None` for a path elsewhere.
fn below<'a>(area: &Area, path: &'a [String]) -> Option<&'a [String]> {
    area.name
        .split('/')
        .try_fold(path, |rest, step| rest.split_first().filter(|it| it.0 == step).map(|it| it.1))
}

/// Returns the folder of an area that a path leads to: `None` for a path to another module, and
/// `mod` for an item of the area's own `mod.rs`.
fn folder_of<'a>(
    area: &Area,
    reexports: &'a BTreeMap<String, String>,
    path: &'a [String],
) -> Option<&'a str> {
    let name = below(area, path)?.first()?;
    if area.order.contains(&&**name) {
        return Some(name);
    }
    Some(reexports.get(name).map_or("mod", |folder| folder))
}
