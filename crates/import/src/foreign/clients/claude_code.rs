//! Claude Code: `mcpServers` of the user and of each project in `~/.claude.json`, and of
//! `.mcp.json`. Other files and lists contain the servers that are switched off.

use std::path::Path;

use serde_json::Value as Json;

use trunkline_core::codec::file::read_file;

use super::programs::TimeUnit;
use super::server_map::{list_names, read_client, read_table};
use crate::documents::fields::{FieldFault, ServerTable};
use crate::documents::imported::ImportedFile;
use crate::documents::{MAX_DOCUMENT, Notation, parse_bytes};
use crate::foreign::shapes::ShapeContext;

pub(crate) fn read_claude_code(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = read_client(document, &["mcpServers"], TimeUnit::Milliseconds, context)?;
    if let Some(project) = &context.references.project {
        let home = context.references.home.as_deref();
        switch_off(&mut file, &list_rejected(project, home));
        return Ok(file);
    }
    let current = std::env::current_dir().unwrap_or_default();
    let projects = document.get("projects").and_then(Json::as_object).into_iter().flatten();
    for (folder, project) in projects {
        let path = ["projects", folder, "mcpServers"];
        let table = ServerTable::find(document, &path)?;
        if current.as_os_str() == folder.as_str() {
            let mut references = context.references.clone();
            references.project = Some(current.clone());
            let context = ShapeContext { references: &references, file: context.file };
            if let Some(table) = table {
                read_table(&table, TimeUnit::Milliseconds, &context, &mut file);
            }
            let names = project.get("disabledMcpServers").map(list_names);
            switch_off(&mut file, &names.unwrap_or_default());
        } else if let Some(count) =
            table.map(|table| table.entries.len()).filter(|count| *count > 0)
        {
            file.notes.push(format!(
                "{count} server(s) of the project {folder} are not included: run the command there"
            ));
        }
    }
    Ok(file)
}

fn switch_off(file: &mut ImportedFile, names: &[String]) {
    for server in file.servers.iter_mut().filter(|server| names.contains(&server.name)) {
        server.mark_switched_off();
    }
}

/// Returns the servers of a project's `.mcp.json` that its user has rejected or switched off.
fn list_rejected(project: &Path, home: Option<&Path>) -> Vec<String> {
    let mut names = Vec::new();
    let mut add = |list: Option<&Json>| names.extend(list.map(list_names).unwrap_or_default());
    let user = home.and_then(|home| read_json(&home.join(".claude.json")));
    let user = user.as_ref().and_then(|user| user.get("projects")?.get(project.to_str()?));
    for key in ["disabledMcpjsonServers", "disabledMcpServers"] {
        add(user.and_then(|user| user.get(key)));
    }
    let settings = [
        home.map(|home| home.join(".claude/settings.json")),
        Some(project.join(".claude/settings.json")),
        Some(project.join(".claude/settings.local.json")),
    ];
    for document in settings.into_iter().flatten().filter_map(|path| read_json(&path)) {
        add(document.get("disabledMcpjsonServers"));
    }
    names
}

/// Reads a file that only adds information; ignores an unreadable one.
fn read_json(path: &Path) -> Option<Json> {
    let bytes = read_file(path, MAX_DOCUMENT).ok()?;
    parse_bytes("", &bytes, |_| Notation::Json).ok()
}
