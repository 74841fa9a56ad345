//! Finds and starts the programs of `tests/peers`.

use std::io::{BufRead as _, BufReader};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tokio::io::AsyncWriteExt as _;

use super::process::eventually;

/// The folder of the peers.
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

/// Returns a peer's file, installed by `setup.sh` or part of the repository.
#[track_caller]
pub fn file(path: &str) -> String {
    let file = folder().join(path);
    assert!(
        file.exists(),
        "{} is missing: run tests/peers/setup.sh, which installs the peers that this test talks to",
        file.display()
    );
    file.to_str().unwrap().to_owned()
}

/// Returns the progress values of a call. A server that has just met its client may ask for its
/// roots in any call, and an SDK reports its answer as progress of its own. Such progress is not
/// the server's, and is omitted.
pub fn progress_of(result: &Value) -> Vec<f64> {
    let told = result["progress"].as_array().into_iter().flatten();
    let is_own = |one: &&Value| {
        let message = one["message"].as_str().unwrap_or_default();
        message.starts_with("Fulfilling input required")
    };
    told.filter(|one| !is_own(one)).filter_map(|one| one["progress"].as_f64()).collect()
}

/// Returns a reference server's program.
pub fn reference(name: &str) -> String {
    file(&format!("node_modules/@modelcontextprotocol/{name}/dist/index.js"))
}

/// A server on loopback, for the lifetime of the value.
pub struct HttpServer {
    child: Child,
    pub port: u16,
}

impl HttpServer {
    /// Starts a server that prints `{"port": N}` once it listens.
    pub fn announcing(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let told: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{command:?}: {line:?}"));
        let port = u16::try_from(told["port"].as_u64().unwrap()).unwrap();
        Self { child, port }
    }

    /// Starts the reference server.
    pub fn everything() -> Self {
        Self::reference("streamableHttp")
    }

    /// Starts the same with this transport. The server needs its port as a parameter.
    pub fn reference(transport: &str) -> Self {
        let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let mut child = Command::new("node")
            .args([&reference("server-everything"), transport])
            .env("PORT", port.to_string())
            .env("NODE_OPTIONS", format!("--require={}", file("loopback.cjs")))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        eventually("the reference server listens", || {
            assert!(child.try_wait().unwrap().is_none(), "it has ended");
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        Self { child, port }
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/mcp", self.port)
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client on an official SDK, one of `tests/peers/clients`.
#[derive(Clone, Copy)]
pub struct Driver {
    pub program: &'static str,
    pub script: &'static str,
    pub era: &'static str,
}

impl Driver {
    /// Performs the steps; returns a line for connecting, and one for each step.
    pub async fn run(&self, url: &str, steps: &[Value]) -> Vec<Value> {
        let program = if self.program == "node" { "node".into() } else { file(self.program) };
        file("node_modules/.installed-from");
        let mut child = tokio::process::Command::new(program)
            .args([&file(self.script), url, "--era", self.era])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        input.write_all(&serde_json::to_vec(steps).unwrap()).await.unwrap();
        drop(input);
        let output = child.wait_with_output().await.unwrap();
        let told = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        // A driver that ran out of time has printed its results so far.
        let is_over = output.status.success() || output.status.code() == Some(124);
        assert!(is_over, "{} {}: {}\n{said}", self.script, self.era, output.status);
        told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
