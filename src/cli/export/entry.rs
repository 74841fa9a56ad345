//! The one entry that points a client at the gateway, in the client's own form.

use serde_json::{Value as Json, json};
use url::Url;

use trunkline_import::opencode::{has_second_version, is_server};
use trunkline_import::{KEY_VARIABLE, KnownClient};

use crate::config::{ProfileConfig, Secret};

use super::ExportError;

/// The gateway's URL and key for a client.
#[derive(Debug)]
pub(super) struct GatewayAddress {
    pub(super) url: Url,
    /// The profile of the URL, if it is not the default one.
    pub(super) profile: Option<ProfileConfig>,
    pub(super) key: ExportedKey,
}

/// Source of a client's key.
#[derive(Debug)]
pub(super) enum ExportedKey {
    /// The gateway requires no key.
    None,
    /// The environment variable [`KEY_VARIABLE`].
    Variable,
    /// The key itself, in the client's file.
    Literal(Secret),
}

/// An entry, and its position in the file.
#[derive(Debug)]
pub(super) struct ClientEntry {
    /// The keys that lead to the table of servers.
    pub(super) table: Vec<String>,
    pub(super) value: Json,
}

impl ClientEntry {
    fn new(table: &[&str], value: Json) -> Self {
        Self { table: table.iter().map(|key| (*key).to_owned()).collect(), value }
    }
}

impl GatewayAddress {
    /// Returns the entry for a client. `document` is the client's present configuration.
    ///
    /// # Errors
    /// The client cannot be configured by a file, or has no variables for the key.
    pub(super) fn client_entry(
        &self,
        client: &KnownClient,
        document: &Json,
        name: &str,
    ) -> Result<ClientEntry, ExportError> {
        let url = self.url.as_str();
        let servers: &[&str] = &["mcpServers"];
        // The position of the entry, its value without the key, and the client's reference to a
        // variable.
        let (table, value, reference) = match client.id {
            "claude-desktop" => return Ok(ClientEntry::new(servers, self.command_entry(client)?)),
            "codex" => return Ok(ClientEntry::new(&["mcp_servers"], self.codex_entry())),
            "claude-code" => (servers, json!({ "type": "http", "url": url }), Some(BRACED_KEY)),
            "cursor" => (servers, json!({ "url": url }), Some(PREFIXED_KEY)),
            "vscode" => {
                (&["servers"][..], json!({ "type": "http", "url": url }), Some(PREFIXED_KEY))
            }
            "windsurf" => (servers, json!({ "serverUrl": url }), Some(PREFIXED_KEY)),
            "gemini" => (servers, json!({ "httpUrl": url }), Some("$TRUNKLINE_KEY")),
            "cline" => {
                (servers, json!({ "type": "streamableHttp", "url": url }), Some(PREFIXED_KEY))
            }
            "lm-studio" => (servers, json!({ "url": url }), None),
            "zed" => (&["context_servers"][..], json!({ "url": url }), None),
            "opencode" => {
                let value = json!({ "type": "remote", "url": url });
                (opencode_table(document), value, Some("{env:TRUNKLINE_KEY}"))
            }
            "goose" => {
                let value = json!({
                    "enabled": true, "type": "streamable_http", "name": name, "uri": url,
                    "timeout": 300,
                });
                (&["extensions"][..], value, Some(BRACED_KEY))
            }
            _ => return Err(ExportError::NoClientFile { title: client.title }),
        };
        Ok(ClientEntry::new(table, with_headers(value, self.bearer(client, reference)?)))
    }

    /// Returns an entry that runs the bridge, for clients that can only start commands.
    fn command_entry(&self, client: &KnownClient) -> Result<Json, ExportError> {
        let mut value = json!({
            "command": "trunkline", "args": ["stdio", "--connect", self.url.as_str()],
        });
        match &self.key {
            ExportedKey::None => {}
            ExportedKey::Variable => return Err(ExportError::KeyNeeded { title: client.title }),
            ExportedKey::Literal(key) => {
                insert(&mut value, "env", json!({ KEY_VARIABLE: key.expose() }));
            }
        }
        Ok(value)
    }

    fn codex_entry(&self) -> Json {
        let mut value = json!({ "url": self.url.as_str() });
        match &self.key {
            ExportedKey::None => {}
            ExportedKey::Variable => {
                insert(&mut value, "bearer_token_env_var", json!(KEY_VARIABLE));
            }
            ExportedKey::Literal(key) => {
                let bearer = format!("Bearer {}", key.expose());
                insert(&mut value, "http_headers", json!({ "Authorization": bearer }));
            }
        }
        value
    }

    /// Returns the `Authorization` header, with the client's own reference to the variable.
    fn bearer(
        &self,
        client: &KnownClient,
        reference: Option<&str>,
    ) -> Result<Option<String>, ExportError> {
        match (&self.key, reference) {
            (ExportedKey::None, _) => Ok(None),
            (ExportedKey::Variable, Some(reference)) => Ok(Some(format!("Bearer {reference}"))),
            (ExportedKey::Variable, None) => Err(ExportError::KeyNeeded { title: client.title }),
            (ExportedKey::Literal(key), _) => Ok(Some(format!("Bearer {}", key.expose()))),
        }
    }
}

fn with_headers(mut value: Json, bearer: Option<String>) -> Json {
    if let Some(bearer) = bearer {
        insert(&mut value, "headers", json!({ "Authorization": bearer }));
    }
    value
}

fn insert(value: &mut Json, key: &str, inner: Json) {
    if let Some(fields) = value.as_object_mut() {
        fields.insert(key.to_owned(), inner);
    }
}

/// Returns the table of servers. Version 2 of OpenCode has its servers in `mcp.servers`, version 1
/// in `mcp` itself. A file without servers counts as version 2.
fn opencode_table(document: &Json) -> &'static [&'static str] {
    match document.get("mcp").and_then(Json::as_object) {
        Some(mcp) if !has_second_version(mcp) && mcp.values().any(is_server) => &["mcp"],
        _ => &["mcp", "servers"],
    }
}

/// The reference to the key in Claude Code and Goose.
const BRACED_KEY: &str = "${TRUNKLINE_KEY}";
/// The reference to the key in Cursor, VS Code, Windsurf and Cline.
const PREFIXED_KEY: &str = "${env:TRUNKLINE_KEY}";
