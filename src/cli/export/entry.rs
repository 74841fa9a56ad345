//! The one entry that points a client at the gateway, in the client's own form.

use serde_json::{Value as Json, json};
use url::Url;

use crate::cli::import::clients::KnownClient;
use crate::config::Secret;

use super::ExportError;

/// Where a client connects, and with which key.
#[derive(Debug)]
pub(super) struct GatewayAddress {
    pub(super) url: Url,
    pub(super) key: ClientKey,
}

/// How a client sends its key.
#[derive(Debug)]
pub(super) enum ClientKey {
    /// The gateway needs none.
    None,
    /// From the environment variable [`KEY_VARIABLE`].
    Variable,
    /// The key itself, in the client's file.
    Literal(Secret),
}

/// Whether the text of an entry is written or shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeyDisplay {
    /// For the client's file.
    Whole,
    /// For people: `***` instead of the key.
    Hidden,
}

/// An entry, and where it belongs.
#[derive(Debug)]
pub(super) struct ClientEntry {
    /// The keys that lead to the table of servers.
    pub(super) table: &'static [&'static str],
    pub(super) value: Json,
}

/// The environment variable with the key, which `trunkline stdio --connect` reads, too.
pub(super) const KEY_VARIABLE: &str = "TRUNKLINE_KEY";

impl GatewayAddress {
    /// The entry for a client. `document` is the client's present configuration.
    ///
    /// # Errors
    /// The client cannot be configured by a file, or has no variables for the key.
    pub(super) fn client_entry(
        &self,
        client: &KnownClient,
        document: &Json,
        name: &str,
        display: KeyDisplay,
    ) -> Result<ClientEntry, ExportError> {
        let url = self.url.as_str();
        let bearer = |reference: Option<&str>| self.bearer(client, reference, display);
        let entry = |table, value| Ok(ClientEntry { table, value });
        match client.id {
            "claude-code" => {
                let headers = bearer(Some("${TRUNKLINE_KEY}"))?;
                entry(&["mcpServers"], with_headers(json!({ "type": "http", "url": url }), headers))
            }
            "claude-desktop" => entry(&["mcpServers"], self.command_entry(client, display)?),
            "cursor" => {
                let headers = bearer(Some(PREFIXED))?;
                entry(&["mcpServers"], with_headers(json!({ "url": url }), headers))
            }
            "vscode" => {
                let headers = bearer(Some(PREFIXED))?;
                entry(&["servers"], with_headers(json!({ "type": "http", "url": url }), headers))
            }
            "windsurf" => {
                let headers = bearer(Some(PREFIXED))?;
                entry(&["mcpServers"], with_headers(json!({ "serverUrl": url }), headers))
            }
            "gemini" => {
                let headers = bearer(Some("$TRUNKLINE_KEY"))?;
                entry(&["mcpServers"], with_headers(json!({ "httpUrl": url }), headers))
            }
            "cline" => {
                let value = json!({ "type": "streamableHttp", "url": url });
                entry(&["mcpServers"], with_headers(value, bearer(Some(PREFIXED))?))
            }
            "lm-studio" => {
                entry(&["mcpServers"], with_headers(json!({ "url": url }), bearer(None)?))
            }
            "zed" => {
                entry(&["context_servers"], with_headers(json!({ "url": url }), bearer(None)?))
            }
            "opencode" => {
                let headers = bearer(Some("{env:TRUNKLINE_KEY}"))?;
                let value = with_headers(json!({ "type": "remote", "url": url }), headers);
                entry(opencode_table(document), value)
            }
            "codex" => entry(&["mcp_servers"], self.codex_entry(display)),
            "goose" => {
                let headers = bearer(Some("${TRUNKLINE_KEY}"))?;
                let value = json!({
                    "enabled": true, "type": "streamable_http", "name": name, "uri": url,
                    "timeout": 300,
                });
                entry(&["extensions"], with_headers(value, headers))
            }
            _ => Err(ExportError::NoClientFile { title: client.title }),
        }
    }

    /// A client that can only start commands runs the bridge.
    fn command_entry(
        &self,
        client: &KnownClient,
        display: KeyDisplay,
    ) -> Result<Json, ExportError> {
        let mut value = json!({
            "command": "trunkline", "args": ["stdio", "--connect", self.url.as_str()],
        });
        match &self.key {
            ClientKey::None => {}
            ClientKey::Variable => return Err(ExportError::KeyNeeded { title: client.title }),
            ClientKey::Literal(key) => {
                insert(&mut value, "env", json!({ KEY_VARIABLE: show_key(key, display) }));
            }
        }
        Ok(value)
    }

    fn codex_entry(&self, display: KeyDisplay) -> Json {
        let mut value = json!({ "url": self.url.as_str() });
        match &self.key {
            ClientKey::None => {}
            ClientKey::Variable => {
                insert(&mut value, "bearer_token_env_var", json!(KEY_VARIABLE));
            }
            ClientKey::Literal(key) => {
                let bearer = format!("Bearer {}", show_key(key, display));
                insert(&mut value, "http_headers", json!({ "Authorization": bearer }));
            }
        }
        value
    }

    /// The `Authorization` header, with the client's own reference to the variable.
    fn bearer(
        &self,
        client: &KnownClient,
        reference: Option<&str>,
        display: KeyDisplay,
    ) -> Result<Option<String>, ExportError> {
        match (&self.key, reference) {
            (ClientKey::None, _) => Ok(None),
            (ClientKey::Variable, Some(reference)) => Ok(Some(format!("Bearer {reference}"))),
            (ClientKey::Variable, None) => Err(ExportError::KeyNeeded { title: client.title }),
            (ClientKey::Literal(key), _) => Ok(Some(format!("Bearer {}", show_key(key, display)))),
        }
    }
}

fn show_key(key: &Secret, display: KeyDisplay) -> &str {
    match display {
        KeyDisplay::Whole => key.expose(),
        KeyDisplay::Hidden => "***",
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

/// Version 2 of OpenCode has its servers in `mcp.servers`, version 1 in `mcp` itself.
fn opencode_table(document: &Json) -> &'static [&'static str] {
    let mcp = document.get("mcp").and_then(Json::as_object);
    let is_first = |mcp: &serde_json::Map<String, Json>| {
        !mcp.is_empty() && mcp.values().all(|entry| entry.get("type").is_some())
    };
    if mcp.is_some_and(is_first) { &["mcp"] } else { &["mcp", "servers"] }
}

/// The reference to the key in Cursor, VS Code, Windsurf and Cline.
const PREFIXED: &str = "${env:TRUNKLINE_KEY}";
