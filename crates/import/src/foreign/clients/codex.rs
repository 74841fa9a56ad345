//! Codex: `[mcp_servers.NAME]` of `config.toml`.

use serde_json::Value as Json;

use super::programs::{TimeUnit, push_timeout, read_program};
use crate::documents::fields::{FieldFault, ForeignFields, ServerTable};
use crate::documents::imported::{
    ImportedFile, ImportedPiece, ImportedServer, ImportedTarget, ImportedText,
};
use crate::foreign::shapes::ShapeContext;

pub(crate) fn read_codex(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    if let Some(table) = ServerTable::find(document, &["mcp_servers"])? {
        table.read_entries(context.references, &mut file, read_entry);
    }
    Ok(file)
}

fn read_entry(name: &str, mut fields: ForeignFields<'_>) -> Result<ImportedServer, FieldFault> {
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
    if let Some(tools) = fields.take_list("enabled_tools")? {
        server.allow_only(tools);
    }
    server.deny.extend(fields.take_strings("disabled_tools")?);
    if !fields.take_bool("enabled")?.unwrap_or(true) {
        server.mark_switched_off();
    }
    server.notes = fields.finish();
    Ok(server)
}

fn read_command(fields: &mut ForeignFields<'_>) -> Result<ImportedTarget, FieldFault> {
    let mut target = read_program(fields, "command")?;
    if let ImportedTarget::Command { pass_env, .. } = &mut target {
        *pass_env = read_variables(fields)?;
    }
    Ok(target)
}

/// Reads the variables that are passed on: names, or tables with a name and the source of the
/// value.
fn read_variables(fields: &mut ForeignFields<'_>) -> Result<Vec<String>, FieldFault> {
    let mut names = Vec::new();
    for mut variable in fields.take_objects_or_texts("env_vars", "name")? {
        let name = variable.require_string("name", "the name of a variable")?;
        if let Some(source) = variable.take_string("source")?.filter(|source| source != "local") {
            let note =
                format!("the variable {name} comes from `{source}`: here it is the gateway's own");
            fields.notes.push(note);
        }
        names.push(name);
    }
    Ok(names)
}

fn read_http(
    url: ImportedText,
    fields: &mut ForeignFields<'_>,
) -> Result<ImportedTarget, FieldFault> {
    let mut headers = fields.take_pairs("http_headers")?;
    for (header, variable) in fields.take_pairs("env_http_headers")? {
        headers.push((header, ImportedText(vec![ImportedPiece::Variable(variable.describe())])));
    }
    if let Some(variable) = fields.take_string("bearer_token_env_var")? {
        let bearer =
            vec![ImportedPiece::Plain("Bearer ".to_owned()), ImportedPiece::Variable(variable)];
        headers.push(("Authorization".to_owned(), ImportedText(bearer)));
    }
    Ok(ImportedTarget::Http { url, headers, transport: None })
}
