//! The built program as a separate process, run like by an operator.
#![allow(dead_code, reason = "not every test crate uses all of it")]

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::waiting::holds_within;

/// The program under test.
pub const TRUNKLINE: &str = env!("CARGO_BIN_EXE_trunkline");

/// A gateway as a separate process, with its configuration and its log in a folder of its own.
/// Dropping it kills the process, and its guardian ends its children.
pub struct Process {
    child: Child,
    folder: TempDir,
    pub address: SocketAddr,
    #[allow(dead_code, reason = "for the tests of commands")]
    pub admin: SocketAddr,
}

impl Process {
    /// Starts `trunkline serve` with these servers and waits until it listens.
    pub fn start(servers: &str) -> Self {
        Self::start_in(tempfile::tempdir().unwrap(), servers)
    }

    /// Starts the same with the test's own files in the folder.
    pub fn start_in(folder: TempDir, servers: &str) -> Self {
        std::fs::write(folder.path().join("gateway.toml"), text(servers)).unwrap();
        let path = folder.path().join("gateway.toml");
        Self::start_with(folder, &path, &[])
    }

    /// Starts the same with a configuration at a path of the test.
    pub fn start_with(folder: TempDir, config: &Path, options: &[&str]) -> Self {
        let mut command = Command::new(TRUNKLINE);
        command.args(["serve", "--config"]).arg(config).args(options).env_remove("TRUNKLINE_LOG");
        Self::start_command(folder, command)
    }

    /// Starts the same with the test's own working directory and variables.
    pub fn start_command(folder: TempDir, command: Command) -> Self {
        Self::start_with_stdout(folder, command, Stdio::null())
    }

    /// Starts the same with the test's own standard output.
    pub fn start_with_stdout(folder: TempDir, mut command: Command, stdout: Stdio) -> Self {
        let log = File::create(folder.path().join("log")).unwrap();
        // Its private socket is in the folder of the test.
        command.env("XDG_RUNTIME_DIR", folder.path());
        let child = command.stdin(Stdio::null()).stdout(stdout).stderr(log).spawn().unwrap();
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut process = Self { child, folder, address: nowhere, admin: nowhere };
        process.admin = process.told("probes are at ");
        process.address = process.told("clients connect to ");
        process
    }

    /// Returns the id of the process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Returns the reading end of its standard output, if that is a pipe.
    pub fn take_stdout(&mut self) -> ChildStdout {
        self.child.stdout.take().unwrap()
    }

    /// Returns the address after some words in the log.
    fn told(&mut self, words: &str) -> SocketAddr {
        let mut found = None;
        eventually(&format!("the log says {words:?}"), || {
            let log = self.log();
            assert!(self.child.try_wait().unwrap().is_none(), "it has ended:\n{log}");
            let line = log.lines().find_map(|line| line.split_once(words).map(|(_, rest)| rest));
            let url = line.and_then(|rest| rest.split_once("://"));
            found = url.and_then(|(_, rest)| rest.split('/').next()?.parse().ok());
            found.is_some()
        });
        found.unwrap()
    }

    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub fn config(&self) -> PathBuf {
        self.folder.path().join("gateway.toml")
    }

    /// Returns its log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap()
    }

    /// Returns `/status`.
    pub fn status(&self) -> Value {
        serde_json::from_str(&self.operator("/status")).unwrap()
    }

    /// Returns a response to an operator, over the private socket.
    pub fn operator(&self, path: &str) -> String {
        let mut socket = UnixStream::connect(self.socket()).unwrap();
        write!(socket, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).unwrap();
        answer.split_once("\r\n\r\n").unwrap().1.to_owned()
    }

    /// Returns the path of its private socket.
    pub fn socket(&self) -> PathBuf {
        let files = std::fs::read_dir(self.folder().join("trunkline")).unwrap();
        let mut paths = files.map(|file| file.unwrap().path());
        paths.find(|path| path.extension().is_some_and(|it| it == "sock")).unwrap()
    }

    /// Returns the part of `/status` about one server.
    pub fn server(&self, name: &str) -> Value {
        let status = self.status();
        let servers = status["servers"].as_array().unwrap();
        servers.iter().find(|server| server["name"] == name).cloned().unwrap_or_default()
    }

    /// Waits until these servers take calls and their tools are in the list.
    #[track_caller]
    pub fn ready(&self, names: &[&str]) {
        let mut seen = Value::Null;
        let ready = holds_within(Duration::from_mins(1), || {
            let status = self.status();
            let listed: u64 =
                servers(&status).map(|server| server["tools"].as_u64().unwrap_or(0)).sum();
            seen = servers(&status)
                .map(|server| json!([server["name"], server["state"], server["last_error"]]))
                .collect();
            let is_ready = |name: &&str| {
                servers(&status).any(|server| {
                    server["name"] == **name && server["state"] == "ready" && server["tools"] != 0
                })
            };
            names.iter().all(is_ready) && status["catalog"]["tools"].as_u64() >= Some(listed)
        });
        assert!(ready, "not all of {names:?} are ready: {seen}");
    }

    /// Returns a line of `/proc/PID/status`, in KiB: `VmRSS` is its memory, `VmHWM` the peak.
    pub fn memory(&self, line: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let found = status.lines().find_map(|other| other.strip_prefix(&format!("{line}:")));
        found.unwrap().trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Counts its threads with a name that begins like this.
    pub fn threads(&self, name: &str) -> usize {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.child.id())).unwrap();
        let names =
            threads.map(|thread| std::fs::read_to_string(thread.unwrap().path().join("comm")));
        names.filter(|found| found.as_ref().is_ok_and(|found| found.starts_with(name))).count()
    }

    /// Counts its open files and sockets.
    pub fn files(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Waits for its exit.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        eventually("the gateway ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Replaces the configuration in one step, like an editor.
    pub fn replace_config(&self, servers: &str) {
        let new = self.folder.path().join("gateway.toml.new");
        std::fs::write(&new, text(servers)).unwrap();
        std::fs::rename(&new, self.config()).unwrap();
    }
}

fn servers(status: &Value) -> impl Iterator<Item = &Value> {
    status["servers"].as_array().into_iter().flatten()
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.child.try_wait().unwrap().is_none() {
            if std::thread::panicking() {
                let log = self.log();
                let last: Vec<&str> = log.lines().rev().take(40).collect();
                eprintln!("--- the end of the gateway's log");
                last.iter().rev().for_each(|line| eprintln!("{line}"));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Returns a configuration with these servers (and, before the first of them, further lines of
/// `[log]`).
pub fn text(servers: &str) -> String {
    format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\ndrain = \"2s\"\n\n[admin]\nlisten = \"127.0.0.1:0\"\n\n\
         [log]\nlevel = \"info,trunkline::server=off\"\naccess = false\n{servers}"
    )
}

/// Tag for the processes that a test's servers are or have started: the servers get the tag in
/// their environment, and pass it on.
pub struct Tag(String);

impl Tag {
    pub fn new() -> Self {
        Self(format!("{}-{:x}", std::process::id(), fastrand::u64(..)))
    }

    /// Returns the setting that gives it to a server.
    pub fn env(&self) -> String {
        format!("{TAG} = {:?}", self.0)
    }

    /// Returns the living processes with the tag.
    pub fn processes(&self) -> Vec<i32> {
        let wanted = format!("{TAG}={}", self.0);
        let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let environment = std::fs::read(entry.path().join("environ")).ok()?;
            let tagged = environment.split(|byte| *byte == 0).any(|line| line == wanted.as_bytes());
            tagged.then_some(pid)
        });
        processes.collect()
    }

    /// Waits until no process has the tag.
    #[track_caller]
    pub fn gone(&self) {
        let mut left = Vec::new();
        let ended = holds_within(Duration::from_secs(20), || {
            left = self.processes();
            left.is_empty()
        });
        assert!(ended, "orphans: {left:?}");
    }
}

/// Polls until a condition is true; fails after a while.
#[track_caller]
pub fn eventually(what: &str, it_is_so: impl FnMut() -> bool) {
    assert!(holds_within(Duration::from_mins(1), it_is_so), "never came true: {what}");
}

const TAG: &str = "TRUNKLINE_TEST_TAG";
