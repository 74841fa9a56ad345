//! Goose: `extensions.NAME` of `config.yaml`.

use serde_json::{Map, Value as Json};

use super::programs::{TimeUnit, push_timeout};
use crate::documents::fields::{FieldFault, ForeignFields, ServerTable};
use crate::documents::imported::{
    ImportedFile, ImportedPiece, ImportedServer, ImportedTarget, ImportedText,
};
use crate::foreign::shapes::ShapeContext;

pub(crate) fn read_goose(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    let Some(ServerTable { path, entries }) = ServerTable::find(document, &["extensions"])? else {
        return Ok(file);
    };
    let is_server = |entry: &Json| {
        let kind = entry.get("type").and_then(Json::as_str).unwrap_or_default();
        matches!(kind, "stdio" | "sse" | "streamable_http")
    };
    let (servers, built_in): (Map<_, _>, Map<_, _>) =
        entries.clone().into_iter().partition(|(_, entry)| is_server(entry));
    let table = ServerTable { path, entries: &servers };
    table.read_entries(context.references, &mut file, read_entry);
    if !built_in.is_empty() {
        let names: Vec<_> = built_in.keys().map(String::as_str).collect();
        let names = names.join(", ");
        file.notes.push(format!("these are parts of Goose itself, not MCP servers: {names}"));
    }
    Ok(file)
}

fn read_entry(name: &str, mut fields: ForeignFields<'_>) -> Result<ImportedServer, FieldFault> {
    let kind = fields.take_string("type")?.unwrap_or_default();
    let mut keys = fields.take_strings("env_keys")?;
    let target = if kind == "stdio" {
        read_command(&mut fields, &keys)?
    } else {
        let Some(url) = fields.take_text("uri")? else {
            return Err(fields.report_missing("uri", "a URL"));
        };
        let headers = fields.take_pairs("headers")?;
        let transport = if kind == "sse" { "sse" } else { "streamable" };
        ImportedTarget::Http { url, headers, transport: Some(transport) }
    };
    let mut server = ImportedServer::new(name, target);
    if let Some(time) = fields.take_number("timeout")? {
        push_timeout(&mut server, "timeout", time, TimeUnit::Seconds);
    }
    // Goose writes an empty list for all tools.
    server.allow = fields.take_strings("available_tools")?;
    if !fields.take_bool("enabled")?.unwrap_or(true) {
        server.mark_switched_off();
    }
    fields.skip(&["name", "display_name", "description", "bundled"]);
    server.notes = fields.finish();
    keys.dedup();
    if !keys.is_empty() {
        let keys = keys.join(", ");
        server
            .notes
            .push(format!("Goose keeps these in its keyring; set them as variables: {keys}"));
    }
    Ok(server)
}

fn read_command(
    fields: &mut ForeignFields<'_>,
    keys: &[String],
) -> Result<ImportedTarget, FieldFault> {
    let Some(command) = fields.take_text("cmd")? else {
        return Err(fields.report_missing("cmd", "a command"));
    };
    let mut env = fields.take_pairs("envs")?;
    for key in keys {
        env.push((key.clone(), ImportedText(vec![ImportedPiece::Variable(key.clone())])));
    }
    Ok(ImportedTarget::Command {
        command,
        args: fields.take_texts("args")?,
        env,
        pass_env: Vec::new(),
        cwd: fields.take_text("cwd")?,
    })
}
