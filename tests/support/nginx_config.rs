//! The program and the configuration of nginx as a proxy, for tests and benches.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// The lines in which configurations differ. All others are in `nginx.conf`.
pub struct NginxLines<'a> {
    pub main: &'a str,
    pub http: &'a str,
    pub upstream: &'a str,
    pub location: &'a str,
}

/// Writes a configuration into a folder, and returns its path.
pub fn write_nginx_config(folder: &Path, address: SocketAddr, lines: &NginxLines<'_>) -> PathBuf {
    let text = include_str!("nginx.conf")
        .replace("{main}", lines.main)
        .replace("{http}", lines.http)
        .replace("{upstream}", lines.upstream)
        .replace("{location}", lines.location)
        .replace("{address}", &address.to_string())
        .replace("{folder}", folder.to_str().expect("a path in UTF-8"));
    let path = folder.join("nginx.conf");
    std::fs::write(&path, text).expect("a writable folder");
    path
}

/// Returns the path of the program; `None` if it is not installed.
pub fn find_nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian installs it outside the `PATH` of ordinary users.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders.map(|folder| folder.join("nginx")).find(|program| program.is_file())
}
