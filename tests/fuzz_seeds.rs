//! The laws of the fuzz targets (`fuzz/src`), checked over the targets' seeds in every test run. The laws
//! are compiled here with the crate that they check, so that a change of its interface cannot leave the
//! fuzz crate behind.

#![expect(clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

use std::path::Path;

#[path = "../fuzz/src/lib.rs"]
mod laws;

#[test]
fn every_fuzz_target_holds_over_its_seeds() {
    let targets: Vec<&str> = laws::TARGETS.iter().map(|(name, _)| *name).collect();
    for (name, law) in laws::TARGETS {
        let mut seeds = 0;
        for seed in entries(&fuzz().join("seeds").join(name)) {
            let data = std::fs::read(fuzz().join("seeds").join(name).join(&seed)).expect("a seed");
            println!("{name}/{seed}");
            law(&data);
            law(b"");
            seeds += 1;
        }
        assert!(seeds > 0, "the target {name} has no seeds");
    }
    let mut sorted = targets.clone();
    sorted.sort_unstable();
    assert_eq!(entries(&fuzz().join("seeds")), sorted, "folders of seeds against targets");
    let programs: Vec<_> = sorted.iter().map(|name| format!("{name}.rs")).collect();
    assert_eq!(entries(&fuzz().join("fuzz_targets")), programs, "programs against targets");
    let readme = std::fs::read_to_string(fuzz().join("README.md")).expect("fuzz/README.md");
    let manifest = std::fs::read_to_string(fuzz().join("Cargo.toml")).expect("fuzz/Cargo.toml");
    for name in targets {
        assert!(
            readme.contains(&format!("\n| `{name}` |")),
            "fuzz/README.md has no row for {name}"
        );
        assert!(manifest.contains(&format!("name = \"{name}\"")), "fuzz/Cargo.toml has no {name}");
    }
}

fn fuzz() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz"))
}

/// Returns the names in a folder, sorted.
fn entries(folder: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut names: Vec<_> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort_unstable();
    names
}
