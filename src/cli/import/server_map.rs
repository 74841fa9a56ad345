//! A table of servers: Claude Desktop, Claude Code, Cursor, VS Code, Windsurf, Gemini CLI, Zed,
//! Cline and LM Studio.
//!
//! They differ in the key of the table, in the words for a URL and in the references that they
//! replace; the fields of all of them are read everywhere, because people copy entries from one to
//! another.

use serde_json::Value as Json;

use super::fields::{FieldFault, ForeignFields};
use super::imported::{ImportedFile, ImportedServer, ImportedTarget, SettingText};
use super::references::{ReferenceContext, absolute_path};
use super::shapes::ShapeContext;

/// The unit of a `timeout`.
#[derive(Debug, Clone, Copy)]
pub(super) enum TimeUnit {
    Milliseconds,
    Seconds,
}

/// A table of servers under a key.
pub(super) fn read_client(
    document: &Json,
    key: &str,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    read_table(document.get(key), key, TimeUnit::Milliseconds, context, &mut file)?;
    Ok(file)
}

/// `~/.claude.json` has servers of the user at the top, and those of each project in `projects`.
/// Of these, the ones of the current project are read.
pub(super) fn read_claude_code(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = read_client(document, "mcpServers", context)?;
    let projects = document.get("projects").and_then(Json::as_object).into_iter().flatten();
    for (folder, project) in projects {
        let servers = project.get("mcpServers").and_then(Json::as_object);
        let Some(count) = servers.map(serde_json::Map::len).filter(|count| *count > 0) else {
            continue;
        };
        if std::env::current_dir().is_ok_and(|current| current.as_os_str() == folder.as_str()) {
            let unit = TimeUnit::Milliseconds;
            read_table(project.get("mcpServers"), "mcpServers", unit, context, &mut file)?;
        } else {
            file.notes.push(format!(
                "{count} server(s) of the project {folder} are not included: run the command there"
            ));
        }
    }
    Ok(file)
}

/// Cline's timeouts are in seconds.
pub(super) fn read_cline(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    let table = document.get("mcpServers");
    read_table(table, "mcpServers", TimeUnit::Seconds, context, &mut file)?;
    Ok(file)
}

fn read_table(
    table: Option<&Json>,
    key: &str,
    unit: TimeUnit,
    context: &ShapeContext<'_>,
    file: &mut ImportedFile,
) -> Result<(), FieldFault> {
    let Some(table) = table else { return Ok(()) };
    let Some(table) = table.as_object() else {
        return Err(format!("{key}: expected a table of servers"));
    };
    for (name, entry) in table {
        match read_entry(name, key, entry, unit, context.references) {
            Ok(server) => file.servers.push(server),
            Err(fault) => file.notes.push(format!("`{name}` is left out: {fault}")),
        }
    }
    Ok(())
}

fn read_entry(
    name: &str,
    key: &str,
    entry: &Json,
    unit: TimeUnit,
    references: &ReferenceContext,
) -> Result<ImportedServer, FieldFault> {
    let mut fields = ForeignFields::open(format!("{key}.{name}"), entry, references)?;
    let mut server = match read_http(&mut fields)? {
        Some(target) => ImportedServer::new(name, target),
        None => ImportedServer::new(name, read_command(&mut fields)?),
    };
    read_switches(&mut fields, &mut server)?;
    if let Some(timeout) = fields.take_number("timeout")? {
        push_timeout(&mut server, "timeout", timeout, unit);
    }
    for name in ["includeTools", "enabledTools", "tools"] {
        server.allow.extend(fields.take_strings(name)?.into_iter().filter(|tool| tool != "*"));
    }
    for name in ["excludeTools", "disabledTools"] {
        server.deny.extend(fields.take_strings(name)?);
    }
    // Words for people, and marks of the editor that wrote the entry.
    fields.skip(&["description", "name", "icon", "gallery", "version", "source", "settings"]);
    server.notes = fields.finish();
    Ok(server)
}

/// An entry with a URL, under any of the words for it.
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

/// The gateway's word for a client's word for a transport.
fn transport_of(kind: &str) -> Option<&'static str> {
    match kind {
        "sse" => Some("sse"),
        // A server of this type may speak the older transport, too.
        "http" | "remote" => Some("auto"),
        "streamableHttp" | "streamable-http" | "streamable_http" => Some("streamable"),
        _ => None,
    }
}

/// An entry with a command. Zed once wrote it as an object with `path`.
fn read_command(fields: &mut ForeignFields<'_>) -> Result<ImportedTarget, FieldFault> {
    fields.skip(&["type", "transport"]);
    let nested = match fields.take_string("command") {
        Ok(Some(command)) => return read_program(fields, &command),
        Ok(None) => None,
        Err(_) => fields.take_object("command")?,
    };
    let path = fields.field_path("command");
    let Some(mut nested) = nested else {
        return Err(format!("{path}: expected a command or a URL, found neither"));
    };
    let Some(command) = nested.take_string("path")? else {
        return Err(format!("{path}.path: expected a text"));
    };
    read_program(&mut nested, &command)
}

pub(super) fn read_program(
    fields: &mut ForeignFields<'_>,
    command: &str,
) -> Result<ImportedTarget, FieldFault> {
    let project = fields.references().project.clone();
    let command = fields.split_text(command);
    Ok(ImportedTarget::Command {
        command: program_path(command.plain_text()?, project.as_deref()),
        args: fields.take_texts("args")?,
        env: fields.take_pairs("env")?,
        pass_env: Vec::new(),
        cwd: fields
            .take_text("cwd")?
            .map(|text| text.plain_text())
            .transpose()?
            .map(|folder| absolute_path(&folder, project.as_deref())),
    })
}

/// A program with a folder is relative to the project; a name is looked up in `PATH`.
pub(super) fn program_path(command: String, project: Option<&std::path::Path>) -> String {
    if command.contains('/') { absolute_path(&command, project) } else { command }
}

/// Entries that are switched off.
fn read_switches(
    fields: &mut ForeignFields<'_>,
    server: &mut ImportedServer,
) -> Result<(), FieldFault> {
    let disabled = fields.take_bool("disabled")?.unwrap_or_default();
    let enabled = fields.take_bool("enabled")?.unwrap_or(true);
    if disabled || !enabled {
        server.mark_switched_off();
    }
    Ok(())
}

/// A timeout, and the maximum that must not be below it.
pub(super) fn push_timeout(
    server: &mut ImportedServer,
    setting: &'static str,
    value: f64,
    unit: TimeUnit,
) {
    let text = duration_text(value, unit);
    if setting == "timeout" && unit.to_milliseconds(value) > DEFAULT_MAX_TIMEOUT {
        server.settings.push(("max_timeout", SettingText::Text(text.clone())));
    }
    server.settings.push((setting, SettingText::Text(text)));
}

/// A duration as the configuration writes it.
pub(super) fn duration_text(value: f64, unit: TimeUnit) -> String {
    // A year is more than any program waits.
    let milliseconds = unit.to_milliseconds(value).clamp(1.0, 31_536_000_000.0).round();
    if milliseconds % 1000.0 == 0.0 {
        format!("{}s", milliseconds / 1000.0)
    } else {
        format!("{milliseconds}ms")
    }
}

impl TimeUnit {
    fn to_milliseconds(self, value: f64) -> f64 {
        match self {
            Self::Milliseconds => value,
            Self::Seconds => value * 1000.0,
        }
    }
}

/// The default of `max_timeout`, in milliseconds.
const DEFAULT_MAX_TIMEOUT: f64 = 600_000.0;
