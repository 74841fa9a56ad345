//! Folders that a child gets as its program's location: none with files of the gateway.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use trunkline::child::ChildSpec;
use trunkline::config::{Config, ConfigSource, ServerKind, SystemEnvironment};

use crate::{TRUNKLINE, run};

/// A folder with a program that prints the given files.
struct ProgramFolder {
    folder: TempDir,
    config: PathBuf,
}

impl ProgramFolder {
    /// Puts the configuration into `place`, below the program's folder or not.
    fn new(place: &Path, sandbox: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::create_dir_all(path.join("lib")).unwrap();
        std::fs::write(path.join("lib/data"), "data").unwrap();
        let program = path.join("show.sh");
        std::fs::write(&program, "#!/bin/sh\nfor f; do cat \"$f\" || echo refused; done\n")
            .unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let place = path.join(place);
        std::fs::create_dir_all(place.join("secrets")).unwrap();
        std::fs::write(place.join("secrets/key"), "hunter2-key").unwrap();
        let config = place.join("gateway.toml");
        let text = format!(
            "[gateway]\nstate_dir = \"state\"\n[servers.s]\ncommand = {program:?}\n\
             cwd = {path:?}\nenv = {{ KEY = \"${{file:secrets/key}}\" }}\nsandbox = {sandbox}\n"
        );
        std::fs::write(&config, text).unwrap();
        Self { folder, config }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Returns the content of these files, as the child sees it.
    async fn show(&self, files: &[String]) -> String {
        let source = ConfigSource::open(&self.config).unwrap();
        let config = Config::read(&source, &SystemEnvironment).unwrap();
        let ServerKind::Command(command) = &config.servers[0].target else { panic!("a command") };
        let spec = ChildSpec::for_server(&config.servers[0], command);
        run(&ChildSpec { args: files.to_vec(), ..spec }).await.0
    }

    fn check(&self) -> String {
        let output = Command::new(TRUNKLINE).args(["check", "-c"]).arg(&self.config).output();
        let output = output.unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words}");
        words
    }
}

#[tokio::test]
async fn a_program_beside_the_configuration_reads_nothing_of_its_folder() {
    let beside = ProgramFolder::new(Path::new("."), "true");
    std::fs::create_dir(beside.path("state")).unwrap();
    std::fs::write(beside.path("state/lists"), "lists").unwrap();
    let files = ["gateway.toml", "secrets/key", "state/lists", "lib/data"];
    let shown = beside.show(&files.map(|name| beside.path(name))).await;
    assert_eq!(shown, "refused\nrefused\nrefused\nrefused");
    let words = beside.check();
    let needed = format!("read = [\"{}\", \"{}\"]", beside.path("lib"), beside.path("show.sh"));
    assert!(words.contains("warning: servers.s: sandbox") && words.contains(&needed), "{words}");
}

#[tokio::test]
async fn a_program_above_the_configuration_reads_nothing_of_its_folder() {
    let above = ProgramFolder::new(Path::new("etc/deep"), "true");
    let files = ["etc/deep/gateway.toml", "etc/deep/secrets/key", "lib/data"];
    assert_eq!(above.show(&files.map(|name| above.path(name))).await, "refused\nrefused\nrefused");
    // A link does not help.
    let link = above.path("link");
    std::os::unix::fs::symlink(above.path("etc/deep"), &link).unwrap();
    assert_eq!(above.show(&[format!("{link}/gateway.toml")]).await, "refused");
}

#[tokio::test]
async fn a_folder_without_files_of_the_gateway_is_readable_as_before() {
    let elsewhere = tempfile::tempdir().unwrap();
    let apart = ProgramFolder::new(elsewhere.path(), "true");
    assert_eq!(apart.show(&[apart.path("lib/data")]).await, "data");
    assert!(!apart.check().contains("sandbox"), "{}", apart.check());
}

#[tokio::test]
async fn the_line_that_a_check_prints_is_enough() {
    let beside = ProgramFolder::new(Path::new("."), "{ read = [\"lib\"] }");
    let files = ["secrets/key", "lib/data"];
    assert_eq!(beside.show(&files.map(|name| beside.path(name))).await, "refused\ndata");
    assert!(!beside.check().contains("sandbox"), "{}", beside.check());
}
