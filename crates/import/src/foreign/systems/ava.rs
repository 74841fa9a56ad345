//! AVA: `mcp.servers` and `contexts` of `config/ai-agent.yaml`.
//!
//! AVA calls a tool `mcp_{server}_{tool}` unless `expose_as` sets another name, and a context lists
//! the tools of a call by these names. A tool with an explicit name keeps it.

use serde_json::Value as Json;

use crate::documents::fields::{FieldFault, ForeignFields, ServerTable};
use crate::documents::imported::{
    ImportedFile, ImportedProfile, ImportedServer, ImportedTarget, ImportedTool,
    InactiveEntryFault, SettingText,
};
use crate::foreign::clients::programs::{TimeUnit, duration_text, push_timeout, read_command_line};
use crate::foreign::shapes::ShapeContext;

pub(crate) fn read_ava(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    let Some(table) = ServerTable::find(document, &["mcp", "servers"])? else { return Ok(file) };
    let mcp = document.get("mcp").unwrap_or(&Json::Null);
    let mut mcp = ForeignFields::open("mcp", mcp, context.references)?;
    let is_on = mcp.take_bool("enabled")?.unwrap_or(true);
    table.read_entries(context.references, &mut file, |name, fields| {
        let mut server = read_entry(name, fields)?;
        if !is_on {
            server.inactive = Some(InactiveEntryFault::NotEnabled { setting: "mcp.enabled" });
        }
        Ok(server)
    });
    if !file.servers.is_empty() {
        file.notes.push(TOOL_NAMES_HINT.to_owned());
    }
    mcp.skip(&["servers"]);
    file.notes.extend(mcp.finish());
    read_contexts(document, &mut file, context)?;
    Ok(file)
}

/// Names of the tools that the file does not list.
const TOOL_NAMES_HINT: &str = "AVA calls every tool mcp_SERVER_TOOL: for those that it does not list set \
    `name_format = \"mcp_{server}_{tool}\"` and `name_case = \"snake\"` in [gateway]";

fn read_entry(name: &str, mut fields: ForeignFields<'_>) -> Result<ImportedServer, FieldFault> {
    fields.skip(&["transport"]);
    let target = match fields.take_text("url")? {
        Some(url) => {
            let headers = fields.take_pairs("headers")?;
            ImportedTarget::Http { url, headers, transport: None }
        }
        None => read_command_line(&mut fields, "env")?,
    };
    let mut server = ImportedServer::new(name, target);
    read_restart(&mut fields, &mut server)?;
    read_defaults(&mut fields, &mut server)?;
    for tool in fields.take_objects("tools")? {
        let tool = read_tool(tool, &mut server)?;
        server.tools.push(tool);
    }
    server.notes.extend(fields.finish());
    Ok(server)
}

fn read_restart(
    fields: &mut ForeignFields<'_>,
    server: &mut ImportedServer,
) -> Result<(), FieldFault> {
    let Some(mut restart) = fields.take_object("restart")? else { return Ok(()) };
    let is_on = restart.take_bool("enabled")?.unwrap_or(true);
    let most = restart.take_number("max_restarts")?;
    let restarts = if is_on { most } else { Some(0.0) };
    if let Some(restarts) = restarts {
        // Restarts are few; a number above the limit is as good as the maximum.
        let restarts = format!("{:.0}", restarts.min(1000.0)).parse().unwrap_or(5);
        server.settings.push(("max_restarts", SettingText::Number(restarts)));
    }
    if restart.take_number("backoff_ms")?.is_some() {
        server.notes.push(
            "`restart.backoff_ms` has no counterpart: the wait between restarts grows by itself"
                .to_owned(),
        );
    }
    server.notes.extend(restart.finish().iter().map(|note| format!("restart: {note}")));
    Ok(())
}

/// Reads the settings that each tool inherits.
fn read_defaults(
    fields: &mut ForeignFields<'_>,
    server: &mut ImportedServer,
) -> Result<(), FieldFault> {
    let Some(mut defaults) = fields.take_object("defaults")? else { return Ok(()) };
    if let Some(time) = defaults.take_number("timeout_ms")? {
        push_timeout(server, "timeout", time, TimeUnit::Milliseconds);
    }
    let slow = read_slow_response(&mut defaults)?.into_iter();
    server.settings.extend(slow.map(|(name, text)| (name, SettingText::Text(text))));
    server.notes.extend(defaults.finish().iter().map(|note| format!("defaults: {note}")));
    Ok(())
}

/// Reads the message for slow calls. A server and a tool have the same settings for it.
fn read_slow_response(
    fields: &mut ForeignFields<'_>,
) -> Result<Vec<(&'static str, String)>, FieldFault> {
    let time = fields.take_number("slow_response_threshold_ms")?;
    // The setting accepts no duration of zero.
    let after = time.map(|time| match duration_text(time, TimeUnit::Milliseconds) {
        text if time > 0.0 => text,
        _ => "off".to_owned(),
    });
    let message = fields.take_string("slow_response_message")?;
    let after = after.map(|after| ("slow_after", after));
    Ok(after.into_iter().chain(message.map(|message| ("slow_message", message))).collect())
}

fn read_tool(
    mut fields: ForeignFields<'_>,
    server: &mut ImportedServer,
) -> Result<ImportedTool, FieldFault> {
    let native = fields.require_string("name", "a text")?;
    let public = fields.take_string("expose_as")?;
    let public = public.unwrap_or_else(|| exposed_name(&server.name, &native));
    let field = fields.take_string("speech_field")?;
    let mut settings = Vec::new();
    match (fields.take_string("speech_template")?, field) {
        // The gateway's template would start at the field, AVA's starts at the whole.
        (Some(template), field) => {
            if field.is_some() {
                let note =
                    format!("tool `{native}`: `speech_template` is used, `speech_field` is not");
                server.notes.push(note);
            }
            settings.push(("result.template", template));
        }
        (None, Some(field)) => settings.push(("result.field", field)),
        // AVA's own text in that case.
        (None, None) => settings.push(("result.fallback", "I've fetched the result.".to_owned())),
    }
    settings.extend(read_slow_response(&mut fields)?);
    let description = fields.take_string("description")?;
    let notes = fields.finish();
    server.notes.extend(notes.iter().map(|note| format!("tool `{native}`: {note}")));
    Ok(ImportedTool { native, public: Some(public), description, settings })
}

/// Returns AVA's name of a tool.
fn exposed_name(server: &str, tool: &str) -> String {
    let snake = |text: &str| {
        let plain = text.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' });
        plain.collect::<String>().to_ascii_lowercase()
    };
    let name = format!("mcp_{}_{}", snake(server), snake(tool));
    trunkline_core::text::clip(&name, 64).to_owned()
}

/// Turns a context into a profile with the tools that belong to a server.
fn read_contexts(
    document: &Json,
    file: &mut ImportedFile,
    context: &ShapeContext<'_>,
) -> Result<(), FieldFault> {
    let contexts = document.get("contexts").and_then(Json::as_object).into_iter().flatten();
    for (name, entry) in contexts {
        let mut fields =
            ForeignFields::open(format!("contexts.{name}"), entry, context.references)?;
        let (mut tools, mut others) = (Vec::new(), Vec::new());
        for tool in fields.take_strings("tools")? {
            if is_server_tool(&tool, file) { tools.push(tool) } else { others.push(tool) }
        }
        let mut notes = Vec::new();
        if !others.is_empty() {
            notes.push(format!("AVA's own tools stay with AVA: {}", others.join(", ")));
        }
        file.profiles.push(ImportedProfile {
            name: name.clone(),
            servers: None,
            tools: Some(tools),
            notes,
        });
    }
    Ok(())
}

/// Returns true if a context's tool belongs to a server. An unlisted tool belongs to the server
/// with the longest matching name; its table then gets AVA's own name for the tool.
fn is_server_tool(public: &str, file: &mut ImportedFile) -> bool {
    let has_name = |tool: &ImportedTool| tool.public.as_deref() == Some(public);
    if file.servers.iter().any(|server| server.tools.iter().any(has_name)) {
        return true;
    }
    let matching = file.servers.iter_mut().filter_map(|server| {
        let native = public.strip_prefix(&exposed_name(&server.name, ""))?;
        (!native.is_empty()).then(|| (native.to_owned(), server))
    });
    let Some((native, server)) = matching.min_by_key(|(native, _)| native.len()) else {
        return false;
    };
    server.notes.push(format!(
        "the server's own name of `{public}` is assumed to be `{native}`: correct it if it differs"
    ));
    server.tools.push(ImportedTool {
        native,
        public: Some(public.to_owned()),
        ..ImportedTool::default()
    });
    true
}
