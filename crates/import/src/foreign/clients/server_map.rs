//! A table of servers: Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Gemini CLI, Zed,
//! Cline and LM Studio.
//!
//! They differ in the key of the table, in the key of a URL and in the references that they
//! replace. The fields of all of them are accepted in each, because people copy entries from one to
//! another.

use serde_json::Value as Json;

use super::programs::{TimeUnit, push_timeout, read_program};
use crate::documents::fields::{FieldFault, ForeignFields, ServerTable};
use crate::documents::imported::{ImportedFile, ImportedServer, ImportedTarget};
use crate::foreign::shapes::ShapeContext;

/// Reads a table of servers under a key.
pub(crate) fn read_client(
    document: &Json,
    path: &[&str],
    unit: TimeUnit,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    if let Some(table) = ServerTable::find(document, path)? {
        read_table(&table, unit, context, &mut file);
    }
    Ok(file)
}

/// VS Code: `servers` of `mcp.json`, or `mcp.servers` of `settings.json`.
pub(crate) fn read_vscode(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let path: &[&str] =
        if document.get("servers").is_some() { &["servers"] } else { &["mcp", "servers"] };
    read_client(document, path, TimeUnit::Milliseconds, context)
}

/// Gemini CLI: `mcpServers`, and in `mcp` the names of those that it starts.
pub(crate) fn read_gemini(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = read_client(document, &["mcpServers"], TimeUnit::Milliseconds, context)?;
    let names = |first: &str, second: &str| {
        let found = document.pointer(first).or_else(|| document.get(second));
        found.map(list_names).filter(|names| !names.is_empty())
    };
    let allowed = names("/mcp/allowed", "allowMCPServers");
    let excluded = names("/mcp/excluded", "excludeMCPServers").unwrap_or_default();
    for server in &mut file.servers {
        let is_allowed = allowed.as_ref().is_none_or(|allowed| allowed.contains(&server.name));
        if !is_allowed || excluded.contains(&server.name) {
            server.mark_switched_off();
        }
    }
    Ok(file)
}

/// Returns the texts of a list.
pub(super) fn list_names(list: &Json) -> Vec<String> {
    let names = list.as_array().into_iter().flatten().filter_map(Json::as_str);
    names.map(str::to_owned).collect()
}

pub(super) fn read_table(
    table: &ServerTable<'_>,
    unit: TimeUnit,
    context: &ShapeContext<'_>,
    file: &mut ImportedFile,
) {
    table.read_entries(context.references, file, |name, fields| read_entry(name, fields, unit));
}

fn read_entry(
    name: &str,
    mut fields: ForeignFields<'_>,
    unit: TimeUnit,
) -> Result<ImportedServer, FieldFault> {
    let target = match read_http(&mut fields)? {
        Some(target) => target,
        None => read_command(&mut fields)?,
    };
    let mut server = ImportedServer::new(name, target);
    let disabled = fields.take_bool("disabled")?.unwrap_or_default();
    if disabled || !fields.take_bool("enabled")?.unwrap_or(true) {
        server.mark_switched_off();
    }
    if let Some(timeout) = fields.take_number("timeout")? {
        push_timeout(&mut server, "timeout", timeout, unit);
    }
    for name in ["includeTools", "enabledTools", "tools"] {
        let tools = fields.take_list(name)?;
        if let Some(tools) = tools.filter(|tools| !tools.iter().any(|tool| tool == "*")) {
            server.allow_only(tools);
        }
    }
    for name in ["excludeTools", "disabledTools"] {
        server.deny.extend(fields.take_strings(name)?);
    }
    // Descriptions for people, and marks of the editor that wrote the entry.
    fields.skip(&["description", "name", "icon", "gallery", "version", "source", "settings"]);
    server.notes = fields.finish();
    Ok(server)
}

/// Reads an entry with a URL, under any of its keys.
fn read_http(fields: &mut ForeignFields<'_>) -> Result<Option<ImportedTarget>, FieldFault> {
    // Gemini CLI writes `httpUrl` for Streamable HTTP, and prefers it to `url`.
    for name in ["httpUrl", "serverUrl", "url", "uri"] {
        if let Some(url) = fields.take_text(name)? {
            let kind = fields.take_string("type")?.or(fields.take_string("transport")?);
            let transport = kind.as_deref().and_then(transport_of);
            if let Some(kind) = kind.filter(|_| transport.is_none()) {
                fields.notes.push(format!("the transport `{kind}` is tried as HTTP"));
            }
            let headers = fields.take_pairs("headers")?;
            let transport = transport.filter(|transport| *transport != "auto");
            return Ok(Some(ImportedTarget::Http { url, headers, transport }));
        }
    }
    Ok(None)
}

/// Translates a client's name of a transport into the gateway's.
fn transport_of(kind: &str) -> Option<&'static str> {
    match kind {
        "sse" => Some("sse"),
        // A server of this type may speak the older transport, too.
        "http" | "remote" => Some("auto"),
        "streamableHttp" | "streamable-http" | "streamable_http" => Some("streamable"),
        _ => None,
    }
}

/// Reads an entry with a command. Zed once wrote it as an object with `path`.
fn read_command(fields: &mut ForeignFields<'_>) -> Result<ImportedTarget, FieldFault> {
    fields.skip(&["type", "transport"]);
    if fields.is_object("command")
        && let Some(mut nested) = fields.take_object("command")?
    {
        let target = read_program(&mut nested, "path")?;
        fields.notes.extend(nested.finish());
        return Ok(target);
    }
    read_program(fields, "command")
}
