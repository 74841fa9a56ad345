//! nginx as another bare proxy, if it is installed: a widely known reference.
//!
//! Configured as its documentation recommends for production: one worker per
//! core, persistent connections to the server, a buffered access log.
//! Connections are not closed after a thousand requests, as they are by
//! default.

use std::path::{Path, PathBuf};
use std::process::Command;

use url::Url;

use crate::process::{Process, free_port, scratch};

/// Starts nginx; `None` if it is not installed.
pub async fn start(server: &Url, folder: &Path) -> Option<Process> {
    let program = program()?;
    let port = free_port();
    let config = folder.join("nginx.conf");
    std::fs::write(&config, text(server, port, folder)).unwrap();
    let mut command = Command::new(program);
    command.arg("-p").arg(folder).arg("-c").arg(config).args(["-e", "stderr"]);
    let url = Url::parse(&format!("http://127.0.0.1:{port}/mcp")).unwrap();
    let log = scratch("nginx.log");
    match Process::foreign(command, url, &log).await {
        Ok(process) => Some(process),
        Err(said) => panic!("nginx does not start: {said}"),
    }
}

/// Returns the version that nginx reports.
pub fn version() -> Option<String> {
    let told = Command::new(program()?).arg("-v").output().ok()?;
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    told.trim().rsplit('/').next().map(str::to_owned)
}

fn program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs it outside the `PATH` of ordinary users.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join("nginx")).find(|program| program.is_file())
}

fn text(server: &Url, port: u16, folder: &Path) -> String {
    let server = format!("{}:{}", server.host_str().unwrap(), server.port().unwrap());
    let folder = folder.display();
    // Workers of another user could not access a private folder.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    format!(
        "{user}
daemon off;
worker_processes auto;
pid {folder}/nginx.pid;
events {{ worker_connections 4096; }}
http {{
    access_log {folder}/access.log combined buffer=64k flush=1s;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    client_max_body_size 64m;
    client_body_buffer_size 128k;
    keepalive_requests 100000000;
    upstream server {{
        server {server};
        keepalive 128;
        keepalive_requests 100000000;
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://server;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }}
    }}
}}
"
    )
}
