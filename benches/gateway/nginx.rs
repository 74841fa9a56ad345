//! nginx as another bare proxy, if it is installed: a widely known reference.
//!
//! Configured as its documentation recommends for production: one worker per
//! core, persistent connections to the server, a buffered access log.
//! Connections are not closed after a thousand requests, as they are by
//! default.

#[path = "../../tests/support/nginx_config.rs"]
mod nginx_config;

use std::path::{Path, PathBuf};
use std::process::Command;

use url::Url;

use nginx_config::{NginxLines, find_nginx, write_nginx_config};

use crate::process::{Process, free_port, scratch};

/// Starts nginx; `None` if it is not installed.
pub async fn start(server: &Url, folder: &Path) -> Option<Process> {
    let program = find_nginx()?;
    let port = free_port();
    let config = write_config(server, port, folder);
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
    let told = Command::new(find_nginx()?).arg("-v").output().ok()?;
    let told = String::from_utf8_lossy(&told.stderr).into_owned();
    told.trim().rsplit('/').next().map(str::to_owned)
}

fn write_config(server: &Url, port: u16, folder: &Path) -> PathBuf {
    let server = format!("{}:{}", server.host_str().unwrap(), server.port().unwrap());
    // Workers of another user could not access a private folder.
    let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
    let log = folder.join("access.log");
    let lines = NginxLines {
        main: &format!("{user} worker_processes auto;"),
        http: &format!(
            "access_log {} combined buffer=64k flush=1s;
             client_max_body_size 64m;
             client_body_buffer_size 128k;
             keepalive_requests 100000000;",
            log.display()
        ),
        upstream: &format!("server {server}; keepalive 128; keepalive_requests 100000000;"),
        location: "proxy_set_header Connection \"\";",
    };
    write_nginx_config(folder, ([127, 0, 0, 1], port).into(), &lines)
}
