//! The `Cargo.toml` files of the workspace, as the rules read them.

use super::sources::root;

#[test]
fn the_reader_of_manifests_sees_every_kind_of_dependency() {
    let manifest: toml::Table = "\
[dependencies]
a = '1'
[dev-dependencies]
b = { version = '1', package = 'c' }
[target.'cfg(unix)'.build-dependencies]
d.workspace = true
"
    .parse()
    .expect("it is TOML");
    assert_eq!(dependencies(&manifest), ["a", "c", "d"]);
}

/// Reads the `Cargo.toml` of a folder of the repository.
pub fn manifest(folder: &str) -> toml::Table {
    let text = std::fs::read_to_string(root().join(folder).join("Cargo.toml"));
    text.expect("a manifest").parse().expect("it is TOML")
}

/// Returns the packages that a manifest names as dependencies of any kind.
pub fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let targets = manifest.get("target").and_then(toml::Value::as_table);
    let targets = targets.into_iter().flatten().filter_map(|(_, target)| target.as_table());
    let kinds = ["dependencies", "dev-dependencies", "build-dependencies"];
    let tables = std::iter::once(manifest).chain(targets);
    let tables = tables.flat_map(|table| kinds.map(|kind| table.get(kind)));
    let tables = tables.flatten().filter_map(toml::Value::as_table);
    let named = |(name, value): (&String, &toml::Value)| {
        let package = value.get("package").and_then(toml::Value::as_str);
        package.unwrap_or(name).to_owned()
    };
    tables.flatten().map(named).collect()
}
