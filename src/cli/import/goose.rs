//! Goose: `extensions.NAME` of `config.yaml`.

use serde_json::Value as Json;

use super::fields::{FieldFault, ForeignFields};
use super::imported::{ImportedFile, ImportedPiece, ImportedServer, ImportedTarget, ImportedText};
use super::server_map::{TimeUnit, program_path, push_timeout};
use super::shapes::ShapeContext;

pub(super) fn read_goose(document: &Json, context: &ShapeContext<'_>) -> ImportedFile {
    let mut file = ImportedFile::default();
    let table = document.get("extensions").and_then(Json::as_object).into_iter().flatten();
    let mut built_in = Vec::new();
    for (name, entry) in table {
        let kind = entry.get("type").and_then(Json::as_str).unwrap_or_default();
        if !matches!(kind, "stdio" | "sse" | "streamable_http") {
            built_in.push(name.as_str());
            continue;
        }
        match read_entry(name, kind, entry, context) {
            Ok(server) => file.servers.push(server),
            Err(fault) => file.notes.push(format!("`{name}` is left out: {fault}")),
        }
    }
    if !built_in.is_empty() {
        let names = built_in.join(", ");
        file.notes.push(format!("these are parts of Goose itself, not MCP servers: {names}"));
    }
    file
}

fn read_entry(
    name: &str,
    kind: &str,
    entry: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedServer, FieldFault> {
    let path = format!("extensions.{name}");
    let mut fields = ForeignFields::open(path, entry, context.references)?;
    let mut keys = fields.take_strings("env_keys")?;
    let mut server = if kind == "stdio" {
        ImportedServer::new(name, read_command(&mut fields, &keys)?)
    } else {
        let path = fields.field_path("uri");
        let Some(url) = fields.take_text("uri")? else {
            return Err(format!("{path}: expected a URL"));
        };
        let headers = fields.take_pairs("headers")?;
        let transport = if kind == "sse" { "sse" } else { "streamable" };
        ImportedServer::new(name, ImportedTarget::Http { url, headers, transport: Some(transport) })
    };
    if let Some(time) = fields.take_number("timeout")? {
        push_timeout(&mut server, "timeout", time, TimeUnit::Seconds);
    }
    server.allow = fields.take_strings("available_tools")?;
    if !fields.take_bool("enabled")?.unwrap_or(true) {
        server.mark_switched_off();
    }
    fields.skip(&["type", "name", "display_name", "description", "bundled"]);
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
    let path = fields.field_path("cmd");
    let Some(command) = fields.take_string("cmd")? else {
        return Err(format!("{path}: expected a command"));
    };
    let mut env = fields.take_pairs("envs")?;
    for key in keys {
        env.push((key.clone(), ImportedText(vec![ImportedPiece::Variable(key.clone())])));
    }
    Ok(ImportedTarget::Command {
        command: program_path(command, None),
        args: fields.take_texts("args")?,
        env,
        pass_env: Vec::new(),
        cwd: fields.take_string("cwd")?,
    })
}
