//! Real Redis servers, and sentinels.

use std::ffi::OsStr;
use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::poll_for;
use super::redis_command::{REDIS_PACKAGE, redis_command};

/// A Redis server on a port of its own, which ends with the test.
pub struct RedisServer {
    child: Child,
    pub port: u16,
    _folder: TempDir,
}

impl RedisServer {
    pub async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        poll_for(async || Self::try_start(free_port(), folder.path()).await)
            .await
            .map_folder(folder)
    }

    /// Starts a server; `None` if another process has taken the port meanwhile.
    pub async fn try_start(port: u16, folder: &Path) -> Option<StartedRedis> {
        let mut child =
            redis_command(port, folder).stdout(Stdio::null()).spawn().expect(REDIS_PACKAGE);
        loop {
            if child.try_wait().unwrap().is_some() {
                return None;
            }
            if answers(port).await {
                return Some(StartedRedis { child, port });
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Ends the server.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a command, and returns the first bytes of the answer.
    pub async fn command(&self, line: &str) -> String {
        say(self.port, line).await.expect("an answer")
    }
}

pub struct StartedRedis {
    child: Child,
    port: u16,
}

impl StartedRedis {
    pub fn map_folder(self, folder: TempDir) -> RedisServer {
        RedisServer { child: self.child, port: self.port, _folder: folder }
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
    }
}

async fn answers(port: u16) -> bool {
    say(port, "PING").await.is_some_and(|answer| answer.starts_with("+PONG"))
}

/// Redis servers with arguments of their own, and their sentinels, which end with the test.
pub struct RedisProcesses {
    children: Vec<(u16, Child)>,
    folder: TempDir,
}

impl RedisProcesses {
    pub fn new() -> Self {
        Self { children: Vec::new(), folder: tempfile::tempdir().unwrap() }
    }

    /// Starts a server on a port of its own, which it returns.
    pub async fn start(&mut self, args: &[&str]) -> u16 {
        let port = free_port();
        self.start_at(port, args).await;
        port
    }

    /// Starts a server on this port.
    pub async fn start_at(&mut self, port: u16, args: &[impl AsRef<OsStr>]) {
        let folder = self.folder.path().join(port.to_string());
        std::fs::create_dir_all(&folder).unwrap();
        let mut command = redis_command(port, &folder);
        let child = command.args(args).stdout(Stdio::null()).spawn().expect(REDIS_PACKAGE);
        self.children.push((port, child));
        // Also that a password is missing.
        poll_for(async || say(port, "PING").await).await;
    }

    /// Starts a sentinel that watches the service `main` alone, with further lines in its file.
    pub async fn start_sentinel(&mut self, primary: SocketAddr, more: &str) -> u16 {
        let port = free_port();
        let file = self.folder.path().join("sentinel.conf");
        let folder = self.folder.path().display();
        let (host, primary_port) = (primary.ip(), primary.port());
        let text = format!(
            "bind 127.0.0.1\nport {port}\ndir {folder}\nsentinel monitor main {host} {primary_port} 1\n\
             sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n{more}"
        );
        std::fs::write(&file, text).unwrap();
        let child = Command::new("redis-server")
            .arg(&file)
            .arg("--sentinel")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        self.children.push((port, child));
        poll_for(async || say(port, "PING").await).await;
        port
    }

    /// Ends the server or sentinel on a port.
    pub fn kill(&mut self, port: u16) {
        for (_, child) in self.children.iter_mut().filter(|(of, _)| *of == port) {
            let _ = child.kill();
            let _ = child.wait();
        }
        self.children.retain(|(of, _)| *of != port);
    }
}

impl Drop for RedisProcesses {
    fn drop(&mut self) {
        for (_, child) in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Sends a command to a server, and returns the first bytes of the answer.
pub async fn say(port: u16, line: &str) -> Option<String> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    socket.write_all(format!("{line}\r\n").as_bytes()).await.ok()?;
    let mut answer = vec![0; 16 * 1024];
    let read = socket.read(&mut answer).await.ok()?;
    Some(String::from_utf8_lossy(&answer[..read]).into_owned())
}

/// Returns a free port below those that the system gives to connections. No other test program gets it
/// before this one has ended.
pub fn free_port() -> u16 {
    static TAKEN_PORTS: AtomicU32 = AtomicU32::new(0);
    let user = rustix::process::getuid().as_raw();
    let claims = std::env::temp_dir().join(format!("trunkline-test-ports-{user}"));
    std::fs::create_dir_all(&claims).unwrap();
    loop {
        let number = std::process::id() + TAKEN_PORTS.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(FIRST_PORT + number % PORT_COUNT).unwrap();
        let claim = File::create(claims.join(port.to_string())).unwrap();
        if claim.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            // The file is locked until the program ends.
            std::mem::forget(claim);
            return port;
        }
    }
}

/// The ports of tests.
const FIRST_PORT: u32 = 16_384;
const PORT_COUNT: u32 = 16_384;
