//! Servers that the gateway has already, and client entries that lead to the gateway itself.

use std::sync::Arc;

use url::Url;

use trunkline_config::{Config, ServerConfig};

use crate::gateway_file::{CompleteEnvironment, GatewayFile, GatewaySection, PendingFiles};

use crate::documents::imported::{ImportedPiece, ImportedServer, ImportedTarget, ImportedText};

/// The gateway's servers.
#[derive(Debug)]
pub(crate) struct KnownServers {
    servers: Vec<ComparedServer>,
    /// The gateway's configuration, for its addresses.
    address: Option<Config>,
    /// Entries that could not be compared.
    pub(crate) notes: Vec<String>,
}

/// A server that is configured or planned.
#[derive(Debug)]
pub(crate) struct ComparedServer {
    pub(crate) config: Arc<ServerConfig>,
    /// Its table in the configuration.
    pub(crate) table: toml::Table,
}

impl KnownServers {
    /// Reads the servers of a configuration. Variables that are not set here get stand-ins, so that
    /// they are equal on both sides.
    pub(crate) fn read(gateway: &GatewayFile) -> Self {
        let pending = PendingFiles::default();
        let environment = CompleteEnvironment(&pending);
        let mut known = Self { servers: Vec::new(), address: None, notes: Vec::new() };
        for (name, table) in gateway.entries(GatewaySection::Servers) {
            let text = entry_text(&name, &table);
            let config = gateway.read_piece(text, &environment).ok();
            match config.and_then(|config| config.servers.into_iter().next()) {
                Some(config) => known.servers.push(ComparedServer { config, table }),
                None => known.notes.push(format!(
                    "{}: [servers.{name}] has a fault and is not compared: run `trunkline check`",
                    gateway.label()
                )),
            }
        }
        let address = gateway.read_piece(gateway.section_text("gateway"), &environment);
        known.address = address.or_else(|_| gateway.read_piece(String::new(), &environment)).ok();
        known
    }

    pub(crate) fn add(&mut self, server: ComparedServer) {
        self.servers.push(server);
    }

    /// Returns the server with the same target, under any name.
    pub(crate) fn find(&self, config: &ServerConfig) -> Option<&ComparedServer> {
        self.servers.iter().find(|known| known.config.target == config.target)
    }

    /// Returns true if an entry points a client at this gateway.
    pub(crate) fn is_gateway(&self, server: &ImportedServer) -> bool {
        match &server.target {
            ImportedTarget::Command { command, args, .. } => {
                let command = command.describe();
                let program = command.rsplit('/').next().unwrap_or_default();
                let args: Vec<_> = args.iter().map(ImportedText::describe).collect();
                (program == "trunkline" && args.iter().any(|arg| arg == "stdio"))
                    || args.iter().any(|arg| self.is_own_url(arg))
            }
            ImportedTarget::Http { url, headers, .. } => {
                let is_key = |piece: &ImportedPiece| matches!(piece, ImportedPiece::Variable(name) if name == KEY_VARIABLE);
                let url = url.describe();
                // An export writes this name and this variable, for any address of the gateway.
                (server.name == "trunkline" && is_endpoint(&url))
                    || headers.iter().any(|(_, text)| text.0.iter().any(is_key))
                    || self.is_own_url(&url)
            }
            ImportedTarget::OpenApi { .. } => false,
        }
    }

    fn is_own_url(&self, text: &str) -> bool {
        let (Ok(url), Some(config)) = (Url::parse(text), &self.address) else { return false };
        let (Some(host), gateway) = (url.host_str(), &config.gateway) else { return false };
        let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]")
            || host == gateway.listen.ip().to_string();
        let is_listed = gateway.allowed_hosts.iter().any(|allowed| {
            allowed.strip_prefix(host).is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
        });
        // A proxy in front of a host name may have another port.
        let is_port = url.port_or_known_default() == Some(gateway.listen.port());
        is_endpoint(text) && (is_listed || (is_local && is_port))
    }
}

impl ComparedServer {
    /// Lists the settings that hide tools here and not in an entry.
    pub(crate) fn list_hidden_tools(&self, entry: &toml::Table) -> Vec<String> {
        let tools = |table: &toml::Table, key: &str| table.get("tools")?.get(key).cloned();
        let hides = |key: &&str| {
            let own = tools(&self.table, key);
            own.is_some() && own != tools(entry, key)
        };
        ["allow", "deny"].into_iter().filter(hides).map(|key| format!("tools.{key}")).collect()
    }

    /// Lists the settings of an entry that differ here.
    pub(crate) fn list_differences(&self, entry: &toml::Table) -> Vec<String> {
        let mut differences = Vec::new();
        for (key, value) in entry.iter().filter(|(key, _)| !TARGET_KEYS.contains(&key.as_str())) {
            let own = self.table.get(key);
            match (value.as_table(), own.and_then(toml::Value::as_table)) {
                (Some(parts), own) if key == "tools" => {
                    let changed = parts
                        .iter()
                        .filter(|(part, value)| own.and_then(|own| own.get(*part)) != Some(*value));
                    differences.extend(changed.map(|(part, _)| format!("tools.{part}")));
                }
                _ if own == Some(value) => {}
                _ => differences.push(key.clone()),
            }
        }
        differences
    }
}

/// Returns the configuration with one server. Its keys are sorted, so that the order of headers has
/// no effect.
pub(crate) fn entry_text(name: &str, table: &toml::Table) -> String {
    let entries = toml::Table::from_iter([(name.to_owned(), toml::Value::Table(table.clone()))]);
    let key = GatewaySection::Servers.key().to_owned();
    toml::Table::from_iter([(key, toml::Value::Table(entries))]).to_string()
}

/// Returns true if a URL has the path of the gateway or of one of its profiles.
fn is_endpoint(url: &str) -> bool {
    let Ok(url) = Url::parse(url) else { return false };
    let path = url.path().trim_end_matches('/');
    path == "/mcp"
        || path
            .strip_prefix("/mcp/")
            .is_some_and(|profile| !profile.is_empty() && !profile.contains('/'))
}

/// Environment variable with a client's key for the gateway; exports write it, and
/// `trunkline stdio --connect` reads it.
pub const KEY_VARIABLE: &str = "TRUNKLINE_KEY";
/// Settings of a server's target; they are compared in parsed form.
const TARGET_KEYS: [&str; 10] =
    ["command", "args", "env", "pass_env", "cwd", "url", "headers", "transport", "kind", "openapi"];
