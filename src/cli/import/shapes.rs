//! The forms in which programs write their servers, and which one a document has.

use std::path::Path;

use serde_json::Value as Json;

use super::fields::FieldFault;
use super::imported::ImportedFile;
use super::references::ReferenceContext;
use super::{codex, goose, opencode, server_map, systems};

/// The form of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ConfigShape {
    /// A table of servers under this key: what most clients have in common.
    ServerMap(&'static str),
    /// The same at the top and within each project.
    ClaudeCode,
    /// The same with timeouts in seconds.
    Cline,
    /// `[mcp_servers.NAME]`.
    Codex,
    /// `mcp` or `mcp.servers`, with `type` and a command that is a list.
    OpenCode,
    /// `extensions`, with `cmd`, `envs` and `uri`.
    Goose,
    /// `SWAIG.mcp_servers`, a list.
    SignalWire,
    /// `mcp.servers` and `contexts`.
    Ava,
    /// `servers` with a URL each, and `agent_configs` beside.
    ActionServers,
    /// `agents.NAME.mcp_servers`, lists.
    OpenLegion,
}

/// What a reader needs besides the document.
pub(super) struct ShapeContext<'a> {
    pub(super) references: &'a ReferenceContext,
    /// The file, unless the document came from standard input.
    pub(super) file: Option<&'a Path>,
}

impl ConfigShape {
    /// Reads a document of this form.
    pub(super) fn read_document(
        self,
        document: &Json,
        context: &ShapeContext<'_>,
    ) -> Result<ImportedFile, FieldFault> {
        match self {
            Self::ServerMap(key) => server_map::read_client(document, key, context),
            Self::ClaudeCode => server_map::read_claude_code(document, context),
            Self::Cline => server_map::read_cline(document, context),
            Self::Codex => Ok(codex::read_codex(document, context)),
            Self::OpenCode => opencode::read_opencode(document, context),
            Self::Goose => Ok(goose::read_goose(document, context)),
            Self::SignalWire => Ok(systems::signalwire::read_signalwire(document, context)),
            Self::Ava => systems::ava::read_ava(document, context),
            Self::ActionServers => {
                Ok(systems::action_servers::read_action_servers(document, context))
            }
            Self::OpenLegion => systems::openlegion::read_openlegion(document, context),
        }
    }

    /// The form that a document has by its keys.
    pub(super) fn detect(document: &Json) -> Option<Self> {
        let is_table = |key: &str| document.get(key).is_some_and(Json::is_object);
        if is_table("mcpServers") {
            return Some(Self::ServerMap("mcpServers"));
        }
        if is_table("context_servers") {
            return Some(Self::ServerMap("context_servers"));
        }
        if is_table("mcp_servers") {
            return Some(Self::Codex);
        }
        if is_table("extensions") && any_entry(document, "extensions", &["cmd", "uri", "bundled"]) {
            return Some(Self::Goose);
        }
        if is_table("agents") && any_entry(document, "agents", &["mcp_servers"]) {
            return Some(Self::OpenLegion);
        }
        if let Some(mcp) = document.get("mcp").filter(|mcp| mcp.is_object()) {
            return Some(Self::detect_mcp(mcp));
        }
        if is_table("servers") {
            let action = any_entry(document, "servers", &["auto_discover"]);
            return Some(if action { Self::ActionServers } else { Self::ServerMap("servers") });
        }
        systems::signalwire::has_servers(document).then_some(Self::SignalWire)
    }

    /// Three programs have a key `mcp`.
    fn detect_mcp(mcp: &Json) -> Self {
        let entries = mcp.get("servers").unwrap_or(mcp);
        let entries = || entries.as_object().into_iter().flatten();
        let kind = |entry: &Json| entry.get("type").and_then(Json::as_str).map(str::to_owned);
        if entries().any(|(_, entry)| matches!(kind(entry).as_deref(), Some("local" | "remote"))) {
            Self::OpenCode
        } else {
            Self::Ava
        }
    }
}

/// Whether an entry of a table has one of these keys.
fn any_entry(document: &Json, table: &str, keys: &[&str]) -> bool {
    let entries = document.get(table).and_then(Json::as_object).into_iter().flatten();
    entries.into_iter().any(|(_, entry)| keys.iter().any(|key| entry.get(key).is_some()))
}
