//! The program as a shell sees it: exit codes, output on both streams, and reactions to signals.

#![allow(
    clippy::pedantic,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    dead_code,
    reason = "a test that cannot go on fails; the process serves other tests, too"
)]

mod answers;
mod audit;
mod calls;
mod certificates;
mod commands;
mod completions;
mod doctor;
mod exit_codes;
mod fake_gateway;
mod foreign_texts;
mod import;
mod json;
mod listed;
mod log;
mod logs;
mod mistakes;
#[path = "../system/process.rs"]
mod process;
#[path = "../support/redis_command.rs"]
mod redis_command;
#[path = "../support/waiting.rs"]
mod waiting;
mod policy;
mod quotas;
mod running;
mod sandbox;
mod scan;
mod serve;
mod servers;
mod sinks;
mod stdio;
mod tools;
mod top;
mod trial;
mod versions;
mod viewers;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use process::{TRUNKLINE, Tag};

const DONE: i32 = 0;
const FAILURE: i32 = 1;
const WRONG_USE: i32 = 2;
const CONFIG_FAULT: i32 = 2;

/// A completed run of the program.
struct Ran(Output);

fn trunkline(args: &[&str]) -> Ran {
    let mut command = Command::new(TRUNKLINE);
    command.env_remove("TRUNKLINE_CONFIG").env_remove("TRUNKLINE_LOG");
    Ran(command.args(args).stdin(Stdio::null()).output().unwrap())
}

impl Ran {
    #[track_caller]
    fn exits_with(self, code: i32) -> Self {
        assert_eq!(self.0.status.code(), Some(code), "{:?}", self.0);
        self
    }

    /// Checks that standard error has these words, for people, and standard output is empty.
    #[track_caller]
    fn complains_of(self, words: &[&str]) -> Self {
        let said = contains_all(&self.0.stderr, words);
        assert!(self.0.stdout.is_empty(), "{:?}", self.0);
        assert!(!said.contains("panicked") && !said.contains('\u{1b}'), "{said}");
        self
    }

    /// Checks that standard output has these words, and standard error is empty.
    #[track_caller]
    fn prints(self, words: &[&str]) -> Self {
        contains_all(&self.0.stdout, words);
        assert!(self.0.stderr.is_empty(), "{:?}", self.0);
        self
    }

    /// Checks that standard output has these words, and standard error at most warnings of programs
    /// that this machine does not have.
    #[track_caller]
    fn prints_beside_missing_programs(mut self, words: &[&str]) -> Self {
        let stderr = String::from_utf8(std::mem::take(&mut self.0.stderr)).unwrap();
        let other = stderr.lines().find(|line| !line.contains(".command: there is no program "));
        assert_eq!(other, None, "{stderr}");
        self.prints(words)
    }

    fn said(&self) -> String {
        String::from_utf8(self.0.stdout.clone()).unwrap()
    }
}

/// Returns the text of an output, which has to contain these words.
#[track_caller]
fn contains_all<'a>(output: &'a [u8], words: &[&str]) -> &'a str {
    let said = std::str::from_utf8(output).unwrap();
    for word in words {
        assert!(said.contains(word), "{word:?} in {said}");
    }
    said
}

fn file(folder: &Path, text: &str) -> String {
    let file = folder.join("gateway.toml");
    std::fs::write(&file, text).unwrap();
    file.to_str().unwrap().to_owned()
}

fn clock(tag: &Tag) -> String {
    let env = tag.env();
    format!(
        "\n[servers.clock]\ncommand = \"trunkline\"\nargs = [\"example\", \"clock\"]\nenv = {{ {env} }}\n"
    )
}
