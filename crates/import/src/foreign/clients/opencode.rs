//! OpenCode: `mcp.servers.NAME` of version 2, `mcp.NAME` of version 1, or both in one file.

use serde_json::{Map, Value as Json};

use super::programs::{TimeUnit, push_timeout, read_command_line};
use crate::documents::fields::{FieldFault, ForeignFields, ServerTable};
use crate::documents::imported::{ImportedFile, ImportedServer, ImportedTarget, SettingText};
use crate::foreign::shapes::ShapeContext;

pub(crate) fn read_opencode(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    let Some(first) = ServerTable::find(document, &["mcp"])? else { return Ok(file) };
    if has_second_version(first.entries)
        && let Some(second) = ServerTable::find(document, &["mcp", "servers"])?
    {
        second.read_entries(context.references, &mut file, read_entry);
    }
    let own = first.entries.iter().filter(|(_, entry)| is_server(entry));
    let own: Map<_, _> = own.map(|(name, entry)| (name.clone(), entry.clone())).collect();
    let first = ServerTable { path: first.path, entries: &own };
    first.read_entries(context.references, &mut file, read_entry);
    Ok(file)
}

/// Returns true if the servers are in `mcp.servers`. A server of version 1 may have this name.
pub fn has_second_version(mcp: &Map<String, Json>) -> bool {
    mcp.get("servers").is_some_and(|servers| servers.is_object() && !is_server(servers))
}

/// Returns true if a table is a server, rather than a table of servers or of timeouts.
pub fn is_server(entry: &Json) -> bool {
    is_typed(entry) || entry.get("command").is_some_and(Json::is_array)
}

/// Returns true if an entry has a type that only OpenCode uses.
pub(crate) fn is_typed(entry: &Json) -> bool {
    matches!(entry.get("type").and_then(Json::as_str), Some("local" | "remote"))
}

fn read_entry(name: &str, mut fields: ForeignFields<'_>) -> Result<ImportedServer, FieldFault> {
    fields.skip(&["type", "codemode"]);
    let target = match fields.take_text("url")? {
        Some(url) => {
            ImportedTarget::Http { url, headers: fields.take_pairs("headers")?, transport: None }
        }
        None => read_command_line(&mut fields, "environment")?,
    };
    let mut server = ImportedServer::new(name, target);
    read_timeout(&mut fields, &mut server)?;
    match fields.take_string("protocol")?.as_deref() {
        Some("2026-07-28") => {
            server.settings.push(("era", SettingText::Text("modern".to_owned())));
        }
        // The gateway detects the era by itself.
        Some("legacy" | "auto") | None => {}
        Some(other) => fields.notes.push(format!("the protocol `{other}` is not known")),
    }
    let disabled = fields.take_bool("disabled")?.unwrap_or_default();
    if disabled || !fields.take_bool("enabled")?.unwrap_or(true) {
        server.mark_switched_off();
    }
    server.notes = fields.finish();
    Ok(server)
}

/// Reads the timeout: in version 1 the time limit of the first listing, in version 2 one for each
/// purpose.
fn read_timeout(
    fields: &mut ForeignFields<'_>,
    server: &mut ImportedServer,
) -> Result<(), FieldFault> {
    let unit = TimeUnit::Milliseconds;
    if !fields.is_object("timeout") {
        if let Some(time) = fields.take_number("timeout")? {
            push_timeout(server, "start_timeout", time, unit);
        }
        return Ok(());
    }
    let Some(mut times) = fields.take_object("timeout")? else { return Ok(()) };
    // One setting of the gateway covers the handshake and the first listing.
    let (startup, catalog) = (times.take_number("startup")?, times.take_number("catalog")?);
    if let Some(time) = startup.into_iter().chain(catalog).reduce(f64::max) {
        push_timeout(server, "start_timeout", time, unit);
    }
    if let Some(time) = times.take_number("execution")? {
        push_timeout(server, "timeout", time, unit);
    }
    fields.notes.extend(times.finish().iter().map(|note| format!("timeout: {note}")));
    Ok(())
}
