//! Rules about names: settings that refer to another table, and names that must be unique.

use std::collections::HashMap;

use trunkline_protocol::call::PublicName;

use crate::faults::problem::SettingFault;
use crate::reader::setting::Setting;
use crate::reader::values::pattern::Pattern;
use crate::reader::wording::{nearest_choice, shorten_text};
use crate::reader::{ConfigNode, ConfigReader, ConfigTable, setting_value};
use crate::sections::gateway::GatewayConfig;
use crate::sections::gateway::naming::NamingChoice;
use crate::sections::interceptors::InterceptorName;

/// Checks that settings of names have a naming scheme that uses them.
pub(super) fn check_naming(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let Some(gateway) = root.find_table("gateway") else { return };
    let naming = setting_value::<GatewayConfig, NamingChoice>(&gateway, "naming", reader);
    if naming != Some(NamingChoice::None) {
        return;
    }
    let settings = ["name_format", "name_case", "reserved_names"];
    for node in settings.iter().filter_map(|key| gateway.find_node(key)) {
        node.report_fault_at_key(reader, SettingFault::NoNaming);
    }
}

/// Interceptors that servers and profiles name must exist.
pub(super) fn check_interceptors<'a, 'b: 'a>(
    root: &ConfigTable<'_>,
    users: impl Iterator<Item = &'a ConfigTable<'b>>,
    reader: &mut ConfigReader<'_>,
) {
    let known = root.find_nodes("interceptors");
    let names: Vec<_> = known.iter().map(ConfigNode::key_name).collect();
    for node in users.filter_map(|user| user.find_node("interceptors")) {
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        for item in node.expect_items::<Vec<InterceptorName>>(quiet).into_iter().flatten() {
            let Some(name) = <InterceptorName as Setting>::read_value(&item, quiet) else {
                continue;
            };
            if !names.contains(&name.as_str()) {
                let meant = nearest_choice(name.as_str(), &names);
                let name = shorten_text(name.as_str());
                item.report_fault(reader, SettingFault::NoInterceptor { name, meant });
            }
        }
    }
}

/// Exact server names must exist; wildcard patterns need not match.
pub(super) fn check_profile_servers(
    profiles: &[ConfigTable<'_>],
    servers: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    let names: Vec<_> = servers.iter().map(|server| server.name).collect();
    for node in profiles.iter().filter_map(|profile| profile.find_node("servers")) {
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        for item in node.expect_items::<Vec<Pattern>>(quiet).into_iter().flatten() {
            let Some(pattern) = <Pattern as Setting>::read_value(&item, quiet) else { continue };
            let name = pattern.as_str();
            if !name.contains(['*', '?']) && !names.contains(&name) {
                let (name, meant) = (shorten_text(name), nearest_choice(name, &names));
                item.report_fault(reader, SettingFault::NoServer { name, meant });
            }
        }
    }
}

/// Configured public names of tools must be unique.
pub(super) fn check_public_names(
    own_tools: &[ConfigTable<'_>],
    servers: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    let own = own_tools.iter().map(|tool| (PublicName::new(tool.name), tool.key.clone()));
    let mut taken: HashMap<PublicName, String> = own.collect();
    for server in servers {
        for tool in server.find_tables("tools") {
            let Some(name) = tool.find_node("name") else { continue };
            let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
            let Some(public) = <PublicName as Setting>::read_value(&name, quiet) else { continue };
            if let Some(other) = taken.get(&public) {
                name.report_fault(reader, SettingFault::PublicNameTaken { other: other.clone() });
            } else {
                taken.insert(public, tool.key);
            }
        }
    }
}

/// The gateway's own tools call only tools of servers, so that calls cannot form a cycle.
pub(super) fn check_nested_tools(own_tools: &[ConfigTable<'_>], reader: &mut ConfigReader<'_>) {
    for call in own_tools.iter().flat_map(|tool| tool.find_tables("calls")) {
        let Some(tool) = call.find_node("tool") else { continue };
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let called = <PublicName as Setting>::read_value(&tool, quiet);
        let called = called.filter(|name| own_tools.iter().any(|own| own.name == name.as_str()));
        if let Some(name) = called {
            tool.report_fault(reader, SettingFault::NestedOwnTool { name: name.to_string() });
        }
    }
}
