//! OpenLegion: the lists `mcp_servers` of each agent in `config/agents.yaml`.

use serde_json::Value as Json;

use crate::documents::fields::{FieldFault, ForeignFields};
use crate::documents::imported::{ImportedFile, ImportedProfile, ImportedServer};
use crate::foreign::clients::programs::read_program;
use crate::foreign::shapes::ShapeContext;

pub(crate) fn read_openlegion(
    document: &Json,
    context: &ShapeContext<'_>,
) -> Result<ImportedFile, FieldFault> {
    let mut file = ImportedFile::default();
    let agents = document.get("agents").and_then(Json::as_object).into_iter().flatten();
    for (agent, entry) in agents {
        let mut fields = ForeignFields::open(format!("agents.{agent}"), entry, context.references)?;
        let entries = fields.take_objects("mcp_servers")?;
        if entries.is_empty() {
            continue;
        }
        let mut names = Vec::new();
        for entry in entries {
            match read_entry(entry) {
                Ok(server) => names.push(add_server(server, agent, &mut file)),
                Err(fault) => file.leave_out(agent, &fault),
            }
        }
        file.profiles.push(ImportedProfile {
            name: agent.clone(),
            servers: Some(names),
            tools: None,
            notes: Vec::new(),
        });
    }
    if !file.servers.is_empty() {
        file.notes.push(TOOL_NAMES_HINT.to_owned());
    }
    Ok(file)
}

/// Hint for the names of the tools in OpenLegion.
const TOOL_NAMES_HINT: &str = "OpenLegion shows the first tool of a name as it is, and calls another one \
    mcp_SERVER_TOOL: for the same names set `naming = \"first\"`, `name_format = \
    \"mcp_{server}_{tool}\"` and, with the names of its own skills, `reserved_names` in [gateway]";

fn read_entry(mut fields: ForeignFields<'_>) -> Result<ImportedServer, FieldFault> {
    let name = fields.require_string("name", "a text")?;
    let mut server = ImportedServer::new(name, read_program(&mut fields, "command")?);
    server.notes = fields.finish();
    Ok(server)
}

/// Adds the server of an agent, and returns its name. Agents with the same description of a server
/// share it; a different server with the same name is named after its agent.
fn add_server(mut server: ImportedServer, agent: &str, file: &mut ImportedFile) -> String {
    match file.servers.iter().find(|known| known.name == server.name) {
        Some(known) if known.target == server.target => return server.name,
        Some(_) => {
            let name = format!("{}-{agent}", server.name);
            server.notes.push(format!(
                "another agent has a different server `{}`: the tools of this one are called \
                 mcp_{name}_TOOL where two servers have one of a name",
                server.name
            ));
            server.name = name;
        }
        None => {}
    }
    let name = server.name.clone();
    file.servers.push(server);
    name
}
