//! Codex: `[mcp_servers.NAME]` of `config.toml`.

use serde_json::Value as Json;

use super::fields::{FieldFault, ForeignFields};
use super::imported::{ImportedFile, ImportedPiece, ImportedServer, ImportedTarget, ImportedText};
use super::server_map::{TimeUnit, push_timeout, read_program};
use super::shapes::ShapeContext;

pub(super) fn read_codex(document: &Json, context: &ShapeContext<'_>) -> ImportedFile {
    let mut file = ImportedFile::default();
    let table = document.get("mcp_servers").and_then(Json::as_object).into_iter().flatten();
    for (name, entry) in table {
        match read_entry(name, entry, context) {
            Ok(server) => file.servers.push(server),
            Err(fault) => file.notes.push(format!("`{name}` is left out: {fault}")),
        }
    }
    file
}

fn read_entry(
    name: &str,
    entry: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedServer, FieldFault> {
    let path = format!("mcp_servers.{name}");
    let mut fields = ForeignFields::open(path, entry, context.references)?;
    let target = match fields.take_text("url")? {
        Some(url) => read_http(url, &mut fields)?,
        None => read_command(&mut fields)?,
    };
    let mut server = ImportedServer::new(name, target);
    for (field, setting, unit) in [
        ("startup_timeout_sec", "start_timeout", TimeUnit::Seconds),
        ("startup_timeout_ms", "start_timeout", TimeUnit::Milliseconds),
        ("tool_timeout_sec", "timeout", TimeUnit::Seconds),
    ] {
        if let Some(time) = fields.take_number(field)? {
            push_timeout(&mut server, setting, time, unit);
        }
    }
    server.allow = fields.take_strings("enabled_tools")?;
    server.deny = fields.take_strings("disabled_tools")?;
    if !fields.take_bool("enabled")?.unwrap_or(true) {
        server.mark_switched_off();
    }
    server.notes = fields.finish();
    Ok(server)
}

fn read_command(fields: &mut ForeignFields<'_>) -> Result<ImportedTarget, FieldFault> {
    let path = fields.field_path("command");
    let Some(command) = fields.take_string("command")? else {
        return Err(format!("{path}: expected a command or a URL, found neither"));
    };
    let mut target = read_program(fields, &command)?;
    if let ImportedTarget::Command { pass_env, .. } = &mut target {
        *pass_env = fields.take_strings("env_vars")?;
    }
    Ok(target)
}

fn read_http(
    url: ImportedText,
    fields: &mut ForeignFields<'_>,
) -> Result<ImportedTarget, FieldFault> {
    let mut headers = fields.take_pairs("http_headers")?;
    for (header, variable) in fields.take_pairs("env_http_headers")? {
        headers.push((header, ImportedText(vec![ImportedPiece::Variable(variable.plain_text()?)])));
    }
    if let Some(variable) = fields.take_string("bearer_token_env_var")? {
        let bearer =
            vec![ImportedPiece::Plain("Bearer ".to_owned()), ImportedPiece::Variable(variable)];
        headers.push(("Authorization".to_owned(), ImportedText(bearer)));
    }
    Ok(ImportedTarget::Http { url, headers, transport: None })
}
