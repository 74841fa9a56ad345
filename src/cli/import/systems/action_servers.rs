//! An agents framework with action servers: `action_servers.json`, and `agent_configs/*.json`
//! beside it. An action server is an HTTP API with an OpenAPI document; an agent has one of them.

use std::path::Path;

use serde_json::Value as Json;

use crate::codec::file::read_file;

use super::super::document::{MAX_DOCUMENT, Notation, decode_text, parse_document};
use super::super::fields::{FieldFault, ForeignFields};
use super::super::imported::{ImportedFile, ImportedProfile, ImportedServer, ImportedTarget};
use super::super::shapes::ShapeContext;

pub(in crate::cli::import) fn read_action_servers(
    document: &Json,
    context: &ShapeContext<'_>,
) -> ImportedFile {
    let mut file = ImportedFile::default();
    let servers = document.get("servers").and_then(Json::as_object).into_iter().flatten();
    for (name, entry) in servers {
        match read_entry(name, entry, context) {
            Ok(server) => file.servers.push(server),
            Err(fault) => file.notes.push(format!("`{name}` is left out: {fault}")),
        }
    }
    if let Some(folder) = context.file.and_then(Path::parent) {
        read_agents(&folder.join("agent_configs"), &mut file, context);
    }
    file
}

fn read_entry(
    name: &str,
    entry: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedServer, FieldFault> {
    let mut fields = ForeignFields::open(format!("servers.{name}"), entry, context.references)?;
    let path = fields.field_path("url");
    let Some(url) = fields.take_text("url")? else { return Err(format!("{path}: expected a URL")) };
    let mut server = ImportedServer::new(name, ImportedTarget::OpenApi { url });
    if !fields.take_bool("auto_discover")?.unwrap_or(true) {
        server.inactive = Some("`auto_discover` is false where it was found".to_owned());
    }
    let has_auth = ["auth", "token", "api_key", "auth_token"].iter().any(|name| fields.has(name));
    fields.skip(&["name", "description", "auth", "token", "api_key", "auth_token"]);
    server.notes = fields.finish();
    if has_auth {
        server.notes.push("its bearer token is not included: write it as `auth.bearer`".to_owned());
    }
    Ok(server)
}

/// Each agent's file becomes a profile. A file that cannot be read is named and left out.
fn read_agents(folder: &Path, file: &mut ImportedFile, context: &ShapeContext<'_>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .take(MOST_AGENTS)
        .collect();
    paths.sort();
    for path in paths {
        match read_agent(&path, context) {
            Ok(profile) => file.profiles.push(profile),
            Err(fault) => file.notes.push(format!("an agent is left out: {fault}")),
        }
    }
}

fn read_agent(path: &Path, context: &ShapeContext<'_>) -> Result<ImportedProfile, FieldFault> {
    let name = path.display().to_string();
    let bytes = read_file(path, MAX_DOCUMENT).map_err(|error| format!("{name}: {error}"))?;
    let text = decode_text(&name, &bytes).map_err(|error| error.to_string())?;
    let document =
        parse_document(&name, text, Notation::Json).map_err(|error| error.to_string())?;
    let mut fields = ForeignFields::open(name.clone(), &document, context.references)?;
    let Some(agent) = fields.take_string("agent_name")? else {
        return Err(format!("{name}: agent_name: expected a text"));
    };
    let servers = fields.take_strings("action_server")?;
    fields.skip(&["actions"]);
    Ok(ImportedProfile { name: agent, servers: Some(servers), tools: None, notes: fields.finish() })
}

/// How many agents are read.
const MOST_AGENTS: usize = 1000;
