//! Systems that the gateway replaces or supports. The configuration in the documentation of each is
//! imported, the program serves the result, and a client calls like that system.
//!
//! If a system's configuration names an unavailable program, a script of that name connects its
//! standard streams to a scripted server. The other programs and the configurations are in
//! `tests/fixtures`.

mod action_servers;
mod ava;
mod openlegion;
mod signalwire;
mod swarm;

use std::fs::Permissions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use super::peers::file;
use super::process::{Process, TRUNKLINE};
use super::support::{Client, Said};

/// Returns a configuration or a program, modelled on a system's documentation.
fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read_to_string(path).unwrap()
}

/// The folder of an operator: `gateway.toml`, the other system's files, and the programs that they
/// name.
struct Project {
    folder: PathBuf,
    /// Owner of the folder until the gateway takes it.
    guard: Option<TempDir>,
    variables: Vec<(&'static str, String)>,
}

impl Project {
    /// Creates a project with the operator's own settings of `[gateway]`.
    fn new(gateway: &str) -> Self {
        let guard = tempfile::tempdir().unwrap();
        let folder = guard.path().to_owned();
        let project = Self { folder, guard: Some(guard), variables: Vec::new() };
        project.has(
            "gateway.toml",
            &format!(
                "[gateway]\nlisten = \"127.0.0.1:0\"\ndrain = \"2s\"\n{gateway}\n\n\
                 [admin]\nlisten = \"127.0.0.1:0\"\n"
            ),
        );
        project
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Writes a file, and creates its folders.
    fn has(&self, name: &str, text: &str) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// Adds a program to `PATH`: a Bash script.
    fn has_program(&self, name: &str, script: &str) {
        let name = format!("bin/{name}");
        self.has(&name, &format!("#!/usr/bin/env bash\n{script}\n"));
        std::fs::set_permissions(self.path(&name), Permissions::from_mode(0o755)).unwrap();
    }

    /// Adds a Python with the SDK 1.x to `PATH`.
    fn has_python(&self, name: &str) {
        self.has_program(name, &format!("exec {} \"$@\"", file(".venv-v1/bin/python")));
    }

    /// Sets a variable of the operator's environment.
    fn sets(&mut self, name: &'static str, value: &str) {
        self.variables.push((name, value.to_owned()));
    }

    /// Adds lines to `gateway.toml`.
    fn adds(&self, lines: &str) {
        let mut config = std::fs::File::options().append(true).open(self.path("gateway.toml"));
        writeln!(config.as_mut().unwrap(), "\n{lines}").unwrap();
    }

    /// Adds lines after a line of `gateway.toml`.
    #[track_caller]
    fn adds_behind(&self, line: &str, more: &str) {
        let text = self.config();
        assert_eq!(text.matches(line).count(), 1, "{line:?} in {text}");
        self.has("gateway.toml", &text.replace(line, &format!("{line}\n{more}")));
    }

    fn config(&self) -> String {
        std::fs::read_to_string(self.path("gateway.toml")).unwrap()
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(TRUNKLINE);
        let path = std::env::var("PATH").unwrap();
        command
            .args(args)
            .current_dir(&self.folder)
            .env_clear()
            .env("HOME", &self.folder)
            .env("PATH", format!("{}:{path}", self.path("bin").display()))
            .envs(self.variables.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Runs `trunkline import FILE --write`.
    #[track_caller]
    fn imports(&self, name: &str) {
        let output = self.command(&["import", name, "--write"]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs `trunkline serve`. The gateway owns the folder from now on.
    fn serves(&mut self) -> Process {
        Process::start_command(self.guard.take().unwrap(), self.command(&["serve"]))
    }
}

/// Makes the gateway list a server again, over the private socket; for one client with a query.
async fn refresh(gateway: &Process, server: &str, query: &str) -> Said {
    let admin = Client::on_socket(&gateway.socket());
    let said = admin.http("POST", &format!("/servers/{server}/refresh{query}")).send().await;
    let said = said.said().await;
    assert_eq!(said.status, 200, "{said:?}");
    said
}
