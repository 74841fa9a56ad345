//! Configuration formats of other programs, and their detection.

use std::path::Path;

use serde_json::{Map, Value as Json};

use super::clients::programs::TimeUnit;
use super::clients::{claude_code, codex, goose, opencode, server_map};
use super::systems;
use crate::documents::fields::FieldFault;
use crate::documents::imported::ImportedFile;
use crate::documents::references::ReferenceContext;

/// The form of a configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigShape {
    /// A table of servers under this key, as in most clients.
    ServerMap(&'static str),
    /// The same at the top and within each project.
    ClaudeCode,
    /// The same with timeouts in seconds.
    Cline,
    /// The same with lists of the servers that are started.
    Gemini,
    /// `servers`, or `mcp.servers` in the editor's settings.
    VsCode,
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

/// Context for a reader besides the document.
pub(crate) struct ShapeContext<'a> {
    pub(crate) references: &'a ReferenceContext,
    /// The file, unless the document came from standard input.
    pub(crate) file: Option<&'a Path>,
}

impl ConfigShape {
    /// Reads a document of this form.
    pub(crate) fn read_document(
        self,
        document: &Json,
        context: &ShapeContext<'_>,
    ) -> Result<ImportedFile, FieldFault> {
        match self {
            Self::ServerMap(key) => {
                server_map::read_client(document, &[key], TimeUnit::Milliseconds, context)
            }
            Self::Cline => {
                server_map::read_client(document, &["mcpServers"], TimeUnit::Seconds, context)
            }
            Self::ClaudeCode => claude_code::read_claude_code(document, context),
            Self::Gemini => server_map::read_gemini(document, context),
            Self::VsCode => server_map::read_vscode(document, context),
            Self::Codex => codex::read_codex(document, context),
            Self::OpenCode => opencode::read_opencode(document, context),
            Self::Goose => goose::read_goose(document, context),
            Self::SignalWire => Ok(systems::signalwire::read_signalwire(document, context)),
            Self::Ava => systems::ava::read_ava(document, context),
            Self::ActionServers => systems::action_servers::read_action_servers(document, context),
            Self::OpenLegion => systems::openlegion::read_openlegion(document, context),
        }
    }

    /// Detects the form of a document by its keys.
    pub(crate) fn detect(document: &Json) -> Option<Self> {
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
        if let Some(mcp) = document.get("mcp").and_then(Json::as_object) {
            return Some(Self::detect_mcp(document, mcp));
        }
        if is_table("servers") {
            let action = any_entry(document, "servers", &["auto_discover"]);
            return Some(if action { Self::ActionServers } else { Self::VsCode });
        }
        systems::signalwire::has_servers(document).then_some(Self::SignalWire)
    }

    /// Distinguishes three programs with a key `mcp`.
    fn detect_mcp(document: &Json, mcp: &Map<String, Json>) -> Self {
        let servers = mcp.get("servers").and_then(Json::as_object).unwrap_or(mcp);
        let any = |keys: &[&str]| {
            servers.values().any(|entry| keys.iter().any(|key| entry.get(key).is_some()))
        };
        if mcp.values().chain(servers.values()).any(opencode::is_typed) {
            Self::OpenCode
        } else if document.get("contexts").is_some()
            || any(&["transport", "restart", "defaults"])
            || servers.values().any(|entry| entry.get("command").is_some_and(Json::is_array))
        {
            Self::Ava
        } else {
            Self::VsCode
        }
    }
}

/// Returns true if an entry of a table has one of these keys.
fn any_entry(document: &Json, table: &str, keys: &[&str]) -> bool {
    let entries = document.get(table).and_then(Json::as_object).into_iter().flatten();
    entries.into_iter().any(|(_, entry)| keys.iter().any(|key| entry.get(key).is_some()))
}
