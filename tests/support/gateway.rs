//! A gateway in this process, configured as by a file.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde_json::Value;
use tempfile::TempDir;
use trunkline::cli::CommonArgs;
use trunkline::cli::serve::{Doors, Reloader, Running};
use trunkline::codec::file::FileError;
use trunkline::config::{Config, ConfigSource, Environment, SystemEnvironment};
use trunkline::crypto::sha256;
use trunkline::telemetry::metrics::ReloadOutcome;
use trunkline::upstream::child::Guardian;

use super::client::{Client, Reply, Said};
use super::upstream::Kind;
use super::within;

/// The program under test.
pub const TRUNKLINE: &str = env!("CARGO_BIN_EXE_trunkline");

/// `[clients.NAME]` with a key and more lines.
pub fn client_table(name: &str, key: &str, more: &str) -> String {
    format!("[clients.{name}]\nkey = \"{}\"\n{more}\n", key_digest(key))
}

/// A key as the configuration has it.
pub fn key_digest(key: &str) -> String {
    HEXLOWER.encode(&sha256(key.as_bytes()))
}

/// What a gateway is to be started with.
#[derive(Default)]
pub struct Builder {
    gateway: String,
    rest: String,
    variables: HashMap<String, String>,
    folder: Option<TempDir>,
    is_for_a_host: bool,
}

impl Builder {
    /// Without a listener for clients, as `trunkline stdio` runs it.
    pub fn for_a_host(mut self) -> Self {
        self.is_for_a_host = true;
        self
    }

    /// A line of `[gateway]`.
    pub fn gateway(mut self, line: &str) -> Self {
        self.gateway.push_str(line);
        self.gateway.push('\n');
        self
    }

    /// A server: `[servers.NAME]` and what follows, such as
    /// [`Upstream::http`](super::Upstream::http) and more settings.
    pub fn server(mut self, name: &str, lines: impl AsRef<str>) -> Self {
        let _ = writeln!(self.rest, "\n[servers.{name}]\n{}", lines.as_ref());
        self
    }

    /// Servers, each under its kind's name.
    pub fn kinds(self, kinds: &[Kind]) -> Self {
        kinds.iter().fold(self, |builder, kind| builder.server(kind.name, &kind.lines))
    }

    /// One of the servers that the program carries, over stdio.
    pub fn example(self, name: &str) -> Self {
        self.server(name, example(name))
    }

    /// Anything else, after the servers so far.
    pub fn toml(mut self, text: &str) -> Self {
        self.rest.push_str(text);
        self.rest.push('\n');
        self
    }

    /// What `${env:NAME}` stands for.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// The folder of the configuration; its own temporary one without it.
    pub fn in_folder(mut self, folder: TempDir) -> Self {
        self.folder = Some(folder);
        self
    }

    /// The text of the configuration.
    pub fn text(&self) -> String {
        text(&self.gateway, &self.rest)
    }

    /// Starts and waits until every eager server is ready and in the list, or
    /// has failed.
    pub async fn start(self) -> Gateway {
        let gateway = self.start_at_once().await;
        gateway.settled().await;
        gateway
    }

    /// Starts and waits for nothing.
    pub async fn start_at_once(self) -> Gateway {
        let folder = self.folder.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let path = folder.path().join("gateway.toml");
        std::fs::write(&path, text(&self.gateway, &self.rest)).unwrap();
        let world = World { variables: self.variables };
        let config = Config::read(&ConfigSource::open(&path).unwrap(), &world)
            .unwrap_or_else(|faults| panic!("{faults}"));
        let guardian = Guardian::start(Path::new(TRUNKLINE));
        let mut doors = Doors::of(&config);
        doors.clients = doors.clients.filter(|_| !self.is_for_a_host);
        let running = Running::open(config, &path, guardian, doors).await.unwrap();
        let reloader = Arc::new(running.reloader(CommonArgs::with_config(path.clone()), None));
        Gateway { running, reloader, folder, path }
    }
}

fn text(gateway: &str, rest: &str) -> String {
    // Many tests show wrong keys, all of them from this machine.
    let is_set = gateway.contains("failed_logins");
    let attempts = if is_set { "" } else { "failed_logins = \"off\"\n" };
    format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nreload = \"off\"\n{attempts}{gateway}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\n\n[log]\nlevel = \"off\"\n{rest}"
    )
}

/// The lines of a server that the program carries.
pub fn example(name: &str) -> String {
    format!("command = {TRUNKLINE:?}\nargs = [\"example\", {name:?}]\n")
}

/// The system, with some more variables.
struct World {
    variables: HashMap<String, String>,
}

impl Environment for World {
    fn variable(&self, name: &str) -> Option<OsString> {
        self.variables.get(name).map(OsString::from).or_else(|| SystemEnvironment.variable(name))
    }

    fn text(&self, path: &Path) -> Result<String, FileError> {
        SystemEnvironment.text(path)
    }

    fn executable(&self) -> Option<PathBuf> {
        Some(TRUNKLINE.into())
    }
}

/// A gateway that runs.
pub struct Gateway {
    pub running: Running,
    pub reloader: Arc<Reloader>,
    folder: TempDir,
    path: PathBuf,
}

impl Gateway {
    /// A gateway without servers.
    pub fn alone() -> Builder {
        Builder::default()
    }

    /// A gateway with one server.
    pub fn with(name: &str, lines: impl AsRef<str>) -> Builder {
        Builder::default().server(name, lines)
    }

    /// The folder with its configuration.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A Modern client.
    pub fn modern(&self) -> Client {
        Client::modern(self.running.address)
    }

    /// A client that says nothing of its era by itself.
    pub fn plain(&self) -> Client {
        Client::plain(self.running.address)
    }

    /// A Legacy client of the latest Legacy revision, with a session.
    pub async fn legacy(&self) -> Client {
        self.legacy_of("2025-11-25").await
    }

    /// A Legacy client of one revision, with a session.
    pub async fn legacy_of(&self, version: &str) -> Client {
        Client::legacy(self.running.address, version).await
    }

    /// A client of each era, with a key, at an endpoint.
    pub async fn both_as(&self, key: &str, endpoint: &str) -> [(&'static str, Client); 2] {
        let legacy = Client::sessionless(self.running.address, "2025-11-25");
        let modern = self.modern().key(key).at(endpoint);
        [("Modern", modern), ("Legacy", legacy.key(key).at(endpoint).initialized().await)]
    }

    /// A client of each era, at an endpoint.
    pub async fn both_at(&self, endpoint: &str) -> [(&'static str, Client); 2] {
        let legacy = Client::sessionless(self.running.address, "2025-11-25");
        let modern = self.modern().at(endpoint);
        [("Modern", modern), ("Legacy", legacy.at(endpoint).initialized().await)]
    }

    /// A client of each era.
    pub async fn both(&self) -> [(&'static str, Client); 2] {
        [("Modern", self.modern()), ("Legacy", self.legacy().await)]
    }

    /// Replaces the configuration's file and loads it.
    pub async fn reload(&self, builder: Builder) -> ReloadOutcome {
        self.reload_text(&builder.text()).await
    }

    /// Replaces the configuration's file with any text and loads it.
    pub async fn reload_text(&self, text: &str) -> ReloadOutcome {
        std::fs::write(&self.path, text).unwrap();
        self.reloader.reload().await
    }

    /// Waits until every eager server has a first verdict, and the list has
    /// the tools of those that are ready.
    pub async fn settled(&self) {
        let servers: Vec<_> =
            self.running.gateway.snapshots.load().servers().map(|m| m.server.clone()).collect();
        for server in servers {
            // Bounded by its `start_timeout`.
            server.settled().await;
        }
        self.wait_for(|status| {
            status["servers"]
                .as_array()
                .unwrap()
                .iter()
                .all(|server| server["state"] != "connecting")
        })
        .await;
        within(self.merged()).await;
    }

    /// Waits until a server takes calls and its tools are in the list.
    pub async fn ready(&self, server: &str) {
        self.in_state(server, "ready").await;
        within(self.merged()).await;
    }

    /// Waits until a server has this state.
    pub async fn in_state(&self, server: &str, state: &str) {
        self.wait_for(|status| of(status, server)["state"] == state).await;
    }

    /// Waits until the list is made of the servers' newest ones.
    async fn merged(&self) {
        loop {
            let snapshot = self.running.gateway.snapshots.load_full();
            let missing = snapshot.servers().any(|member| {
                let list = member.server.list();
                let merged = snapshot.plain.list(&member.config.name);
                list.is_some_and(|list| !merged.is_some_and(|merged| merged.is_same(&list)))
            });
            if !missing {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Waits until `/status` says something.
    pub async fn wait_for(&self, so: impl Fn(&Value) -> bool) -> Value {
        within(async {
            loop {
                let status = self.status().await;
                if so(&status) {
                    return status;
                }
                tokio::time::sleep(std::time::Duration::from_millis(10)).await;
            }
        })
        .await
    }

    /// What `/status` says.
    pub async fn status(&self) -> Value {
        self.admin("/status").await.json()
    }

    /// What `/status` says of one server.
    pub async fn server(&self, name: &str) -> Value {
        of(&self.status().await, name).clone()
    }

    /// What `/metrics` says.
    pub async fn metrics(&self) -> String {
        self.admin("/metrics").await.body
    }

    /// What the admin listener answers.
    pub async fn admin(&self, path: &str) -> Said {
        let client = Client::plain(self.running.admin.unwrap());
        let reply: Reply = client.http("GET", path).send().await;
        reply.said().await
    }

    /// Stops as on SIGTERM; the folder is left.
    pub async fn stop(self) -> TempDir {
        within(self.running.stop()).await;
        self.folder
    }
}

/// What a status says of one server.
pub fn of<'a>(status: &'a Value, name: &str) -> &'a Value {
    let servers = status["servers"].as_array().unwrap();
    servers.iter().find(|server| server["name"] == name).unwrap_or(&Value::Null)
}
