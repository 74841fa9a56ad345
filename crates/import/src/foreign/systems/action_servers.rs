//! An agents framework with action servers: `action_servers.json`, and `agent_configs/*.json`
//! beside it. An action server is an HTTP API with an OpenAPI document; an agent has one of them.

use std::path::Path;

use serde_json::Value as Json;

use trunkline_core::codec::file::read_file;

use crate::documents::fields::{FieldFault, ForeignFields, ServerTable};
use crate::documents::imported::{
    ImportedFile, ImportedPiece, ImportedProfile, ImportedServer, ImportedTarget,
    InactiveEntryFault, SettingText,
};
use crate::documents::{DocumentError, MAX_DOCUMENT, Notation, parse_bytes};
use crate::foreign::shapes::ShapeContext;

pub(crate) fn read_action_servers(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    if let Some(table) = ServerTable::find(document, &["servers"])? {
        table.read_entries(context.references, &mut file, read_entry);
    }
    if let Some(folder) = context.file.and_then(Path::parent) {
        read_agents(&folder.join("agent_configs"), &mut file, context);
    }
    Ok(file)
}

fn read_entry(name: &str, mut fields: ForeignFields<'_>) -> Result<ImportedServer, FieldFault> {
    let Some(url) = fields.take_text("url")? else {
        return Err(fields.report_missing("url", "a URL"));
    };
    // In a header, because the document and every operation require it, under any security scheme
    // of the document.
    let mut headers = fields.take_pairs("headers")?;
    for key in ["auth_token", "bearer_token", "token", "api_key", "auth"] {
        if fields.is_object(key) {
            continue;
        }
        if let Some(mut token) = fields.take_text(key)? {
            token.0.insert(0, ImportedPiece::Plain("Bearer ".to_owned()));
            headers.push(("Authorization".to_owned(), token));
        }
    }
    let mut server = ImportedServer::new(name, ImportedTarget::OpenApi { url, headers });
    if !fields.take_bool("auto_discover")?.unwrap_or(true) {
        server.inactive = Some(InactiveEntryFault::NotEnabled { setting: "auto_discover" });
    }
    // Its agents fill every parameter: unknown values are empty, and numbers are text.
    for (name, choice) in [("arguments", "coerce"), ("empty_strings", "drop")] {
        server.settings.push((name, SettingText::Text(choice.to_owned())));
    }
    fields.skip(&["name", "description"]);
    server.notes = fields.finish();
    Ok(server)
}

/// Turns each agent's file into a profile. An unreadable file is noted and omitted.
fn read_agents(folder: &Path, file: &mut ImportedFile, context: &ShapeContext<'_>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "json"))
        .take(MAX_AGENTS)
        .collect();
    paths.sort();
    for path in paths {
        match read_agent(&path, context) {
            Ok(profile) => file.profiles.push(profile),
            Err(error) => file.notes.push(format!("an agent is left out: {error}")),
        }
    }
}

fn read_agent(path: &Path, context: &ShapeContext<'_>) -> Result<ImportedProfile, DocumentError> {
    let file = path.display().to_string();
    let bytes = read_file(path, MAX_DOCUMENT)
        .map_err(|error| DocumentError::Unreadable { file: file.clone(), error })?;
    let document = parse_bytes(&file, &bytes, |_| Notation::Json)?;
    read_profile(&document, context).map_err(|fault| DocumentError::Field { file, fault })
}

fn read_profile(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedProfile, FieldFault> {
    let mut fields = ForeignFields::open("", document, context.references)?;
    let name = fields.require_string("agent_name", "a text")?;
    let servers = Some(fields.take_strings("action_server")?);
    fields.skip(&["actions"]);
    Ok(ImportedProfile { name, servers, tools: None, notes: fields.finish() })
}

/// Maximum number of agents.
const MAX_AGENTS: usize = 1000;
