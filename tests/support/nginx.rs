//! nginx as a proxy in front of the gateway.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

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
        let config = folder.path().join("nginx.conf");
        std::fs::write(&config, configuration(folder.path(), address, settings)).unwrap();
        let process = Command::new(program())
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

fn program() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs it where only root looks.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    let mut programs = folders.map(|folder| folder.join("nginx"));
    programs.find(|program| program.is_file()).expect("nginx is installed (Debian: nginx-light)")
}

fn configuration(folder: &Path, address: SocketAddr, settings: ProxySettings<'_>) -> String {
    let folder = folder.display();
    let ProxySettings { servers, upstream, location } = settings;
    // A server that has refused connections is tried again with the next request.
    let servers: Vec<_> =
        servers.iter().map(|server| format!("server {server} max_fails=0; ")).collect();
    let servers = servers.concat();
    format!(
        "daemon off;
master_process off;
pid {folder}/nginx.pid;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream server {{ {servers}{upstream} }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://server;
            proxy_http_version 1.1;
            {location}
        }}
    }}
}}
"
    )
}
