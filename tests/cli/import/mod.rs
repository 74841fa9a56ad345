//! `trunkline import`, `export`, `add` and `remove` with the arguments of a user, in a home folder
//! of the test.

mod clients;
mod edits;
mod export;
mod hostile;
mod systems;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::process::TRUNKLINE;
use super::{CONFIG_FAULT, DONE, FAILURE, Ran, WRONG_USE, contains_all};

/// Reads a program's configuration, modelled on its documentation.
fn fixture(name: &str) -> String {
    let path = format!("{}/tests/fixtures/import/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

/// Checks that the output shows no secret: a secret may only appear in a file of its own.
#[track_caller]
fn shows_no_secret(ran: Ran) -> Ran {
    for output in [&ran.0.stdout, &ran.0.stderr] {
        let output = String::from_utf8_lossy(output);
        assert!(!output.contains("hunter2"), "a secret in {output}");
    }
    ran
}

/// A user with an empty home folder and an empty project.
struct User {
    folder: tempfile::TempDir,
    variables: Vec<(&'static str, &'static str)>,
}

impl User {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("home/.config")).unwrap();
        std::fs::create_dir(folder.path().join("project")).unwrap();
        Self { folder, variables: vec![("DOCS_TOKEN", "hunter2-variable")] }
    }

    fn home(&self, path: &str) -> PathBuf {
        self.folder.path().join("home").join(path)
    }

    fn project(&self, path: &str) -> PathBuf {
        self.folder.path().join("project").join(path)
    }

    /// Writes a file, and creates its folders.
    fn has(&self, path: &Path, text: impl AsRef<[u8]>) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(TRUNKLINE);
        command
            .args(args)
            .current_dir(self.folder.path().join("project"))
            .env_clear()
            .env("HOME", self.folder.path().join("home"))
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.variables.iter().copied());
        command
    }

    fn types(&self, args: &[&str]) -> Ran {
        shows_no_secret(Ran(self.command(args).stdin(Stdio::null()).output().unwrap()))
    }

    fn pipes(&self, args: &[&str], input: &[u8]) -> Ran {
        let mut child = self
            .command(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // A reader may close the pipe early.
        let _ = child.stdin.take().unwrap().write_all(input);
        shows_no_secret(Ran(child.wait_with_output().unwrap()))
    }

    fn gateway(&self) -> String {
        let text = std::fs::read_to_string(self.project("gateway.toml")).unwrap();
        assert!(!text.contains("hunter2"), "a secret in {text}");
        text
    }

    /// Returns the files with secrets: their names, modes and texts.
    fn secrets(&self) -> Vec<(String, u32, String)> {
        let Ok(entries) = std::fs::read_dir(self.project("secrets")) else { return Vec::new() };
        let mut secrets: Vec<_> = entries
            .map(|entry| {
                let path = entry.unwrap().path();
                let name = path.file_name().unwrap().to_str().unwrap().to_owned();
                let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
                (name, mode, std::fs::read_to_string(path).unwrap())
            })
            .collect();
        secrets.sort();
        secrets
    }
}
