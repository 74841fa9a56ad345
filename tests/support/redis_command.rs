//! The command that starts a Redis server, for tests and benches.

use std::path::Path;
use std::process::Command;

/// Returns the command of a server at this port, with its files in a folder. Nothing is kept on disk.
pub fn redis_command(port: u16, folder: &Path) -> Command {
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"]);
    command.arg(port.to_string()).arg("--dir").arg(folder);
    command
}

/// The program's package.
pub const REDIS_PACKAGE: &str = "the Debian package redis-server";
