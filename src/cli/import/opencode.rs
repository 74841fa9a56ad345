//! OpenCode: `mcp.servers.NAME` of version 2, `mcp.NAME` of version 1.

use serde_json::Value as Json;

use super::fields::{FieldFault, ForeignFields};
use super::imported::{ImportedFile, ImportedServer, ImportedTarget};
use super::references::absolute_path;
use super::server_map::{TimeUnit, program_path, push_timeout};
use super::shapes::ShapeContext;

pub(super) fn read_opencode(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    let Some(mcp) = document.get("mcp") else { return Ok(file) };
    let (path, table) = match mcp.get("servers") {
        // A server of version 1 may be called `servers`; it then has a type.
        Some(servers) if servers.get("type").is_none_or(|kind| !kind.is_string()) => {
            ("mcp.servers", servers)
        }
        _ => ("mcp", mcp),
    };
    let Some(table) = table.as_object() else {
        return Err(format!("{path}: expected a table of servers"));
    };
    for (name, entry) in table {
        match read_entry(name, path, entry, context) {
            Ok(server) => file.servers.push(server),
            Err(fault) => file.notes.push(format!("`{name}` is left out: {fault}")),
        }
    }
    Ok(file)
}

fn read_entry(
    name: &str,
    path: &str,
    entry: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedServer, FieldFault> {
    let mut fields = ForeignFields::open(format!("{path}.{name}"), entry, context.references)?;
    fields.skip(&["type"]);
    let target = match fields.take_text("url")? {
        Some(url) => {
            ImportedTarget::Http { url, headers: fields.take_pairs("headers")?, transport: None }
        }
        None => read_local(&mut fields)?,
    };
    let mut server = ImportedServer::new(name, target);
    // In version 1 it is how long the first listing may take.
    if fields.has("timeout")
        && let Ok(Some(time)) = fields.take_number("timeout")
    {
        push_timeout(&mut server, "start_timeout", time, TimeUnit::Milliseconds);
    }
    let disabled = fields.take_bool("disabled")?.unwrap_or_default();
    if disabled || !fields.take_bool("enabled")?.unwrap_or(true) {
        server.mark_switched_off();
    }
    server.notes = fields.finish();
    Ok(server)
}

/// The command is a list of the program and its arguments.
fn read_local(fields: &mut ForeignFields<'_>) -> Result<ImportedTarget, FieldFault> {
    let path = fields.field_path("command");
    let project = fields.references().project.clone();
    let mut words = fields.take_texts("command")?.into_iter();
    let Some(program) = words.next() else {
        return Err(format!("{path}: expected a command or a URL, found neither"));
    };
    Ok(ImportedTarget::Command {
        command: program_path(program.plain_text()?, project.as_deref()),
        args: words.collect(),
        env: fields.take_pairs("environment")?,
        pass_env: Vec::new(),
        cwd: fields.take_string("cwd")?.map(|folder| absolute_path(&folder, project.as_deref())),
    })
}
