//! Holds that each mechanism has one home, and that code for speed names its gain
//! (docs/decisions/0068).

use super::paths::is_word;
use super::sources::{Source, root, sources, sources_below};

#[test]
fn code_that_exists_for_speed_names_its_measured_gain() {
    let sources = sources();
    for file in [
        "src/outline.rs",
        "src/walk/mod.rs",
        "schema/glance.rs",
        "condition/split.rs",
        "listener/woken.rs",
    ] {
        let source = sources.iter().find(|source| source.path.ends_with(file));
        let text = source.expect("the file is there").text.strip_prefix("//! Performance: ");
        let gain = text.and_then(|text| text.split("//!\n").next());
        let has_figure = gain.is_some_and(|gain| gain.contains(|c: char| c.is_ascii_digit()));
        assert!(has_figure, "{file}: begin with `//! Performance:` and the measured gain");
    }
}

#[test]
fn each_mechanism_has_one_home() {
    let sources = sources();
    for (mark, homes) in MECHANISMS {
        let mut found: Vec<_> = sources
            .iter()
            .filter(|file| file.code().contains(mark))
            .map(|file| file.path.display().to_string())
            .collect();
        found.retain(|path| !homes.iter().any(|home| path.ends_with(home)));
        assert!(found.is_empty(), "{mark} belongs to {homes:?}; see decision 68: {found:?}");
        for home in homes {
            let is_used = |file: &Source| file.path.ends_with(home) && file.code().contains(mark);
            assert!(sources.iter().any(is_used), "{home} has no {mark}: remove it from the list");
        }
    }
}

/// The rest of the crate asks the `Environment` of the reading, so that tests and other commands can
/// replace the system.
#[test]
fn only_the_source_of_a_configuration_reads_files_and_variables_and_runs_programs() {
    let folder = root().join("crates/config/src");
    let marks = ["std::fs", "std::env", "fs::", "File::open", "read_file(", "Command::new"];
    let mut found = Vec::new();
    let mut count = 0;
    for file in sources_below(&folder) {
        let code = file.code();
        let used = marks.into_iter().filter(|mark| {
            let mut places = code.match_indices(mark);
            places.any(|(at, _)| !code[..at].ends_with(is_word))
        });
        let used: Vec<_> = used.collect();
        match file.module().as_str() {
            "source" => count += used.len(),
            _ if used.is_empty() => {}
            _ => found.push((file.path, used)),
        }
    }
    assert!(found.is_empty(), "these belong to crates/config/src/source: {found:?}");
    assert!(count >= 3, "the source reads files and variables, and runs programs");
}

/// Calls that only the home of a mechanism makes, and the files of this mechanism. Files that are
/// renamed for another reason than to replace one are listed, too.
const MECHANISMS: [(&str, &[&str]); 3] = [
    ("aead::", &["crypto/sealer.rs"]),
    ("load_native_certs", &["https/src/tls.rs"]),
    (
        "fs::rename(",
        &[
            "codec/replace_file.rs",
            // The draft is a database, which syncs itself.
            "vault/file.rs",
            // Numbers old files.
            "audit/rotation.rs",
            // Name folders once they are complete.
            "sandbox/temporary.rs",
            "sandbox/user.rs",
        ],
    ),
];
