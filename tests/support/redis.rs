//! A real Redis server.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::poll_for;

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
        let mut child = Command::new("redis-server")
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string())
            .arg("--dir")
            .arg(folder)
            .stdout(Stdio::null())
            .spawn()
            .expect("the Debian package redis-server");
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

/// Sends a command to a server, and returns the first bytes of the answer.
pub async fn say(port: u16, line: &str) -> Option<String> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
    socket.write_all(format!("{line}\r\n").as_bytes()).await.ok()?;
    let mut answer = vec![0; 16 * 1024];
    let read = socket.read(&mut answer).await.ok()?;
    Some(String::from_utf8_lossy(&answer[..read]).into_owned())
}

/// Returns a free port below those that the system gives to connections, each once.
pub fn free_port() -> u16 {
    static TAKEN_PORTS: AtomicU32 = AtomicU32::new(0);
    let first = 16_384 + std::process::id() % 8_192;
    loop {
        let port = first + TAKEN_PORTS.fetch_add(1, Ordering::Relaxed);
        let port = u16::try_from(port).unwrap();
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
