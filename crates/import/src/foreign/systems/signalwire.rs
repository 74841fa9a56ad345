//! SignalWire: the list `mcp_servers` within a block `SWAIG`, anywhere in a document of SWML.

use serde_json::Value as Json;
use url::Url;

use crate::documents::fields::{FieldFault, ForeignFields};
use crate::documents::imported::{ImportedFile, ImportedServer, ImportedTarget, SettingText};
use crate::foreign::shapes::ShapeContext;

pub(crate) fn read_signalwire(document: &Json, context: &ShapeContext<'_>) -> ImportedFile {
    let mut file = ImportedFile::default();
    for (at, entry) in find_servers(document).into_iter().enumerate() {
        match read_entry(at, entry, context) {
            Ok(server) => file.servers.push(server),
            Err(fault) => file.leave_out(&format!("mcp_servers[{at}]"), &fault),
        }
    }
    file
}

/// Returns true if a document has such a list.
pub(crate) fn has_servers(document: &Json) -> bool {
    !find_servers(document).is_empty()
}

/// Returns the entries of every list `mcp_servers` at the top level or within a `SWAIG`.
fn find_servers(document: &Json) -> Vec<&Json> {
    let mut found = Vec::new();
    let top = document.get("mcp_servers").and_then(Json::as_array);
    found.extend(top.into_iter().flatten());
    collect_blocks(document, &mut found);
    found
}

fn collect_blocks<'a>(value: &'a Json, found: &mut Vec<&'a Json>) {
    match value {
        Json::Object(fields) => {
            for (key, inner) in fields {
                if key == "SWAIG" {
                    let servers = inner.get("mcp_servers").and_then(Json::as_array);
                    found.extend(servers.into_iter().flatten());
                } else {
                    collect_blocks(inner, found);
                }
            }
        }
        Json::Array(items) => items.iter().for_each(|item| collect_blocks(item, found)),
        _ => {}
    }
}

fn read_entry(
    at: usize,
    entry: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedServer, FieldFault> {
    let path = format!("mcp_servers[{at}]");
    let mut fields = ForeignFields::open(path, entry, context.references)?;
    let plain_url = entry.get("url").and_then(Json::as_str).unwrap_or_default().to_owned();
    let url = fields.take_text("url")?.filter(|_| !plain_url.is_empty());
    let Some(url) = url else {
        return Err(fields.report_missing("url", "a URL"));
    };
    let headers = fields.take_pairs("headers")?;
    let target = ImportedTarget::Http { url, headers, transport: None };
    let mut server = ImportedServer::new(name_from_url(&plain_url), target);
    let wants_resources = fields.take_bool("resources")?.unwrap_or_default();
    let (vars, by_call): (Vec<_>, Vec<_>) =
        fields.take_pairs("resource_vars")?.into_iter().partition(|(_, text)| text.is_plain());
    if !vars.is_empty() {
        server.settings.push(("resource_vars", SettingText::Pairs(vars)));
    }
    // SignalWire waits for 30 s in total, with or without progress. A model that learns of a slow
    // server can continue, and one without an answer cannot.
    for setting in ["timeout", "max_timeout"] {
        server.settings.push((setting, SettingText::Text(CALL_TIME.to_owned())));
    }
    server.notes = fields.finish();
    server.notes.extend(by_call.iter().map(|(name, _)| {
        format!(
            "`resource_vars.{name}` differs from call to call: the gateway has one value for all"
        )
    }));
    if !wants_resources {
        server.notes.push(
            "`resources` is off: SignalWire reads no resources of this server, whatever is listed"
                .to_owned(),
        );
    }
    Ok(server)
}

/// Time limit of a call, below SignalWire's.
const CALL_TIME: &str = "25s";

/// Derives a name from the host, because the list has no names. Skips labels that most hosts share.
fn name_from_url(url: &str) -> String {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    let host = host.unwrap_or_else(|| "server".to_owned());
    if host.parse::<std::net::IpAddr>().is_ok() {
        return host;
    }
    let labels = host.split('.').filter(|label| !matches!(*label, "www" | "api" | "mcp"));
    labels.map(str::to_owned).next().unwrap_or(host)
}
