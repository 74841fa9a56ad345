//! Real programs start in a sandbox with its defaults, and with the folders that they write to.
//! They are downloaded first, because downloads change modes and times.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use trunkline::call::ServerName;
use trunkline::child::{Child, ChildSpec, Guardian};
use trunkline::config::{Config, ConfigSource, ServerKind, SystemEnvironment};

use crate::{TRUNKLINE, run};

/// Returns a configured child, in a folder with an empty home.
fn child(folder: &Path, lines: &str) -> ChildSpec {
    let text = format!(
        "[servers.s]\n{lines}\ncwd = {folder:?}\npass_env = [\"npm_*\", \"NODE_*\", \"SSL_*\", \"UV_*\", \"HTTP*\", \"http*\", \"NO_PROXY\"]\n\
         sandbox = {{ write = [{folder:?}], execute = [{folder:?}] }}\n"
    );
    let source =
        ConfigSource { name: "gateway.toml".into(), folder: "/".into(), bytes: text.into_bytes() };
    let config = Config::read(&source, &SystemEnvironment).unwrap();
    let ServerKind::Command(command) = &config.servers[0].target else { panic!("a command") };
    ChildSpec::for_server(&config.servers[0], command)
}

/// Returns a server's answer to the request that opens a session.
async fn initialize(spec: &ChildSpec) -> String {
    let guardian = Guardian::when_needed(Path::new(TRUNKLINE));
    let (child, mut stdin, stdout) =
        Child::spawn(&ServerName::new("test").unwrap(), spec, &guardian).unwrap();
    let request = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"initialize\",\"params\":{\
                   \"protocolVersion\":\"2025-06-18\",\"capabilities\":{},\
                   \"clientInfo\":{\"name\":\"test\",\"version\":\"1\"}}}\n";
    stdin.write_all(request.as_bytes()).await.unwrap();
    let mut lines = BufReader::new(stdout).lines();
    let line = tokio::time::timeout(Duration::from_mins(5), lines.next_line()).await.unwrap();
    let words = child.last_words().join("\n");
    drop(stdin);
    child.stop().await;
    line.unwrap().unwrap_or(words)
}

#[tokio::test]
async fn npx_installs_and_starts_its_servers() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    for package in [
        "@modelcontextprotocol/server-everything@2026.8.31\", \"stdio",
        "@modelcontextprotocol/server-filesystem@2026.8.31\", \"/usr/share",
        "@playwright/mcp@0.0.83\", \"--headless",
    ] {
        let lines = format!(
            "command = \"npx\"\nargs = [\"-y\", \"{package}\"]\n\
             env = {{ HOME = {home:?}, npm_config_cache = {:?} }}",
            home.join(".npm")
        );
        let said = initialize(&child(home, &lines)).await;
        assert!(said.contains("serverInfo"), "{package}: {said}");
    }
}

/// Installs uv, once for all runs.
fn uvx() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("uv");
    let program = folder.join("bin/uvx");
    if !program.exists() {
        let run = |command: &mut Command| assert!(command.status().unwrap().success());
        run(Command::new("python3").args(["-m", "venv"]).arg(&folder));
        run(Command::new(folder.join("bin/python")).args(["-m", "pip", "install", "--quiet", "uv"]));
    }
    program
}

#[tokio::test]
async fn uvx_installs_and_starts_the_git_server() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let repository = home.join("repository");
    let created = Command::new("git").args(["init", "--quiet"]).arg(&repository).status();
    assert!(created.unwrap().success());
    let lines = format!(
        "command = {:?}\n\
         args = [\"--python\", \"/usr/bin/python3\", \"mcp-server-git\", \"--repository\", {repository:?}]\n\
         env = {{ HOME = {home:?}, UV_CACHE_DIR = {:?}, XDG_DATA_HOME = {:?}, GIT_CONFIG_GLOBAL = \"/dev/null\" }}",
        uvx(),
        home.join("cache"),
        home.join("data"),
    );
    let said = initialize(&child(home, &lines)).await;
    assert!(said.contains("serverInfo"), "{said}");
}

#[tokio::test]
async fn git_commits_where_it_may_write() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let script = "git init -q x && cd x && git config user.name a && git config user.email a@b && \
                  echo 1 > f && git add f && git commit -qm m && git gc -q && git clone -q . y && \
                  git log --format=%s";
    let lines = format!(
        "command = \"/bin/sh\"\nargs = [\"-c\", \"{script}\"]\n\
         env = {{ HOME = {home:?}, GIT_CONFIG_GLOBAL = \"/dev/null\" }}"
    );
    let (printed, _, words) = run(&child(home, &lines)).await;
    assert_eq!(printed, "m", "{words}");
}
