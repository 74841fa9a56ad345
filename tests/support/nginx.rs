//! nginx as a proxy in front of the gateway.

#[path = "nginx_config.rs"]
mod nginx_config;

use std::net::SocketAddr;
use std::process::Stdio;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

use nginx_config::{NginxLines, find_nginx, write_nginx_config};

use super::waiting::until_async;

/// A running nginx, which ends with the test.
pub struct Nginx {
    pub address: SocketAddr,
    _process: Child,
    _folder: TempDir,
}

/// The settings of a proxy.
#[derive(Clone, Copy)]
pub struct ProxySettings<'a> {
    /// The servers, which take turns.
    pub servers: &'a [SocketAddr],
    /// More lines of `upstream`.
    pub upstream: &'a str,
    /// More lines of `location`.
    pub location: &'a str,
}

impl Nginx {
    /// Starts a proxy that speaks HTTP/1.1 to its servers. Returns once it listens.
    pub async fn start(settings: ProxySettings<'_>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        // The port is free a moment before nginx takes it.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let ProxySettings { servers, upstream, location } = settings;
        // A server that has refused connections is tried again with the next request.
        let servers: Vec<_> =
            servers.iter().map(|server| format!("server {server} max_fails=0; ")).collect();
        let lines = NginxLines {
            main: "master_process off;",
            http: "access_log off;",
            upstream: &(servers.concat() + upstream),
            location,
        };
        let config = write_nginx_config(folder.path(), address, &lines);
        let program = find_nginx().expect("nginx is installed (Debian: nginx-light)");
        let process = Command::new(program)
            .arg("-p")
            .arg(folder.path())
            .arg("-c")
            .arg(&config)
            .arg("-e")
            .arg(folder.path().join("error.log"))
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        until_async(async || TcpStream::connect(address).await.is_ok()).await;
        Self { address, _process: process, _folder: folder }
    }
}
