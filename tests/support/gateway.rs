//! A gateway in this process, configured like by a file.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use data_encoding::HEXLOWER;
use serde_json::Value;
use tempfile::TempDir;
use trunkline::child::Guardian;
use trunkline::cli::serve::{Doors, Reloader, Running};
use trunkline::cli::{CommonArgs, ReadFile};
use trunkline::codec::file::FileError;
use trunkline::config::{Config, ConfigSource, Environment, SystemEnvironment};
use trunkline::crypto::sha256;
use trunkline::telemetry::metrics::ReloadOutcome;

use super::client::{Client, Reply, Said};
use super::upstream::Kind;
use super::{poll_for, until, within};

/// The program under test.
pub const TRUNKLINE: &str = env!("CARGO_BIN_EXE_trunkline");

/// Returns `[clients.NAME]` with a key and more lines.
pub fn client_table(name: &str, key: &str, more: &str) -> String {
    format!("[clients.{name}]\nkey = \"{}\"\n{more}\n", key_digest(key))
}

/// Returns a key in the form of the configuration.
pub fn key_digest(key: &str) -> String {
    HEXLOWER.encode(&sha256(key.as_bytes()))
}

/// Settings of a gateway before its start.
#[derive(Default)]
pub struct Builder {
    gateway: String,
    admin: String,
    rest: String,
    variables: HashMap<String, String>,
    folder: Option<TempDir>,
    is_for_a_host: bool,
    edited: Option<String>,
}

impl Builder {
    /// Edits the file after it was read, while the gateway starts.
    pub fn edited_meanwhile(mut self, text: &str) -> Self {
        self.edited = Some(text.to_owned());
        self
    }

    /// Starts without a listener for clients, like `trunkline stdio`.
    pub fn for_a_host(mut self) -> Self {
        self.is_for_a_host = true;
        self
    }

    /// Adds a line of `[gateway]`.
    pub fn gateway(mut self, line: &str) -> Self {
        self.gateway.push_str(line);
        self.gateway.push('\n');
        self
    }

    /// Adds a line of `[admin]`.
    pub fn admin(mut self, line: &str) -> Self {
        self.admin.push_str(line);
        self.admin.push('\n');
        self
    }

    /// Adds a server: `[servers.NAME]` and its lines, such as
    /// [`Upstream::http`](super::Upstream::http) and more settings.
    pub fn server(mut self, name: &str, lines: impl AsRef<str>) -> Self {
        let _ = writeln!(self.rest, "\n[servers.{name}]\n{}", lines.as_ref());
        self
    }

    /// Adds servers, each under its kind's name.
    pub fn kinds(self, kinds: &[Kind]) -> Self {
        kinds.iter().fold(self, |builder, kind| builder.server(kind.name, &kind.lines))
    }

    /// Adds one of the program's example servers, over stdio.
    pub fn example(self, name: &str) -> Self {
        self.server(name, example(name))
    }

    /// Adds any text after the servers so far.
    pub fn toml(mut self, text: &str) -> Self {
        self.rest.push_str(text);
        self.rest.push('\n');
        self
    }

    /// Sets the value of `${env:NAME}`.
    pub fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.insert(name.into(), value.into());
        self
    }

    /// Sets the folder of the configuration; by default a temporary one.
    pub fn in_folder(mut self, folder: TempDir) -> Self {
        self.folder = Some(folder);
        self
    }

    /// Returns the text of the configuration.
    pub fn text(&self) -> String {
        text(&self.gateway, &self.admin, &self.rest)
    }

    /// Starts and waits until every eager server is ready and in the list, or
    /// has failed.
    pub async fn start(self) -> Gateway {
        let gateway = self.start_at_once().await;
        gateway.settled().await;
        gateway
    }

    /// Starts without waiting for servers.
    pub async fn start_at_once(self) -> Gateway {
        let text = self.text();
        let folder = self.folder.unwrap_or_else(|| tempfile::tempdir().unwrap());
        let path = folder.path().join("gateway.toml");
        std::fs::write(&path, text).unwrap();
        let world = World { variables: self.variables };
        let source = ConfigSource::open(&path).unwrap();
        let config = Config::read(&source, &world).unwrap_or_else(|faults| panic!("{faults}"));
        if let Some(text) = self.edited {
            std::fs::write(&path, text).unwrap();
        }
        let guardian = Guardian::start(Path::new(TRUNKLINE));
        let mut doors = Doors::of(&config);
        doors.clients = doors.clients.filter(|_| !self.is_for_a_host);
        let file = ReadFile { source, config };
        let running = Running::open(file, &path, guardian, doors).await.unwrap();
        let reloader = running.share_reloader(CommonArgs::with_config(path.clone()), None);
        Gateway { running, reloader, folder, path }
    }
}

fn text(gateway: &str, admin: &str, rest: &str) -> String {
    // Many tests use wrong keys, all of them from this machine.
    let is_set = gateway.contains("failed_logins");
    let attempts = if is_set { "" } else { "failed_logins = \"off\"\n" };
    format!(
        "[gateway]\nlisten = \"127.0.0.1:0\"\nreload = \"off\"\n{attempts}{gateway}\n\
         [admin]\nlisten = \"127.0.0.1:0\"\nsocket = \"{SOCKET_NAME}\"\n{admin}\n[log]\nlevel = \"off\"\n{rest}"
    )
}

/// Returns the names of the files that a gateway leaves in its folder, without the lock of the folder
/// of its private socket.
pub fn kept_files(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap();
    let names = names.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != ".lock").collect()
}

/// The private socket in the folder of the configuration.
const SOCKET_NAME: &str = "admin.sock";

/// Returns the lines of one of the program's example servers.
pub fn example(name: &str) -> String {
    format!("command = {TRUNKLINE:?}\nargs = [\"example\", {name:?}]\n")
}

/// The system's environment, with additional variables.
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

/// A running gateway.
pub struct Gateway {
    pub running: Running,
    pub reloader: Arc<Reloader>,
    folder: TempDir,
    path: PathBuf,
}

impl Gateway {
    /// Builds a gateway without servers.
    pub fn alone() -> Builder {
        Builder::default()
    }

    /// Builds a gateway with one server.
    pub fn with(name: &str, lines: impl AsRef<str>) -> Builder {
        Builder::default().server(name, lines)
    }

    /// Returns the folder with its configuration.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns a Modern client.
    pub fn modern(&self) -> Client {
        Client::modern(self.running.address)
    }

    /// Returns a client without an era of its own.
    pub fn plain(&self) -> Client {
        Client::plain(self.running.address)
    }

    /// Returns a Legacy client of the latest Legacy revision, with a session.
    pub async fn legacy(&self) -> Client {
        self.legacy_of("2025-11-25").await
    }

    /// Returns a Legacy client of one revision, with a session.
    pub async fn legacy_of(&self, version: &str) -> Client {
        Client::legacy(self.running.address, version).await
    }

    /// Returns a client of each era, with a key, at an endpoint.
    pub async fn both_as(&self, key: &str, endpoint: &str) -> [(&'static str, Client); 2] {
        let legacy = Client::sessionless(self.running.address, "2025-11-25");
        let modern = self.modern().key(key).at(endpoint);
        [("Modern", modern), ("Legacy", legacy.key(key).at(endpoint).initialized().await)]
    }

    /// Returns a client of each era, at an endpoint.
    pub async fn both_at(&self, endpoint: &str) -> [(&'static str, Client); 2] {
        let legacy = Client::sessionless(self.running.address, "2025-11-25");
        let modern = self.modern().at(endpoint);
        [("Modern", modern), ("Legacy", legacy.at(endpoint).initialized().await)]
    }

    /// Returns a client of each era.
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

    /// Waits until every eager server has a first state, and the list has the tools of the ready
    /// ones.
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
        self.merged().await;
    }

    /// Waits until a server takes calls and its tools are in the list.
    pub async fn ready(&self, server: &str) {
        self.in_state(server, "ready").await;
        self.merged().await;
    }

    /// Waits until a server has this state.
    pub async fn in_state(&self, server: &str, state: &str) {
        self.wait_for(|status| of(status, server)["state"] == state).await;
    }

    /// Waits until the list contains the servers' newest lists.
    async fn merged(&self) {
        until(|| {
            let snapshot = self.running.gateway.snapshots.load_full();
            let missing = snapshot.servers().any(|member| {
                let list = member.server.list();
                let merged = snapshot.plain.list(&member.config.name);
                list.is_some_and(|list| !merged.is_some_and(|merged| merged.is_same(&list)))
            });
            !missing
        })
        .await;
    }

    /// Waits until `/status` satisfies a condition.
    pub async fn wait_for(&self, so: impl Fn(&Value) -> bool) -> Value {
        poll_for(async || Some(self.status().await).filter(|status| so(status))).await
    }

    /// Returns `/status`.
    pub async fn status(&self) -> Value {
        self.admin("/status").await.json()
    }

    /// Returns the part of `/status` about one server.
    pub async fn server(&self, name: &str) -> Value {
        of(&self.status().await, name).clone()
    }

    /// Returns `/metrics`.
    pub async fn metrics(&self) -> String {
        self.admin("/metrics").await.body
    }

    /// Returns a response to an operator, over the private socket.
    pub async fn admin(&self, path: &str) -> Said {
        let reply: Reply = self.operator().http("GET", path).send().await;
        reply.said().await
    }

    /// Returns a client of the private socket.
    pub fn operator(&self) -> Client {
        Client::on_socket(&self.folder().join(SOCKET_NAME))
    }

    /// Returns a client of the admin listener.
    pub fn remote_operator(&self) -> Client {
        Client::plain(self.running.admin.unwrap())
    }

    /// Stops as on SIGTERM; the folder is kept.
    pub async fn stop(self) -> TempDir {
        within(self.running.stop()).await;
        self.folder
    }
}

/// Returns the part of a status about one server.
pub fn of<'a>(status: &'a Value, name: &str) -> &'a Value {
    let servers = status["servers"].as_array().unwrap();
    servers.iter().find(|server| server["name"] == name).unwrap_or(&Value::Null)
}
