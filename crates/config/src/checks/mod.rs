//! Rules that involve several settings. They read the file's tables rather than the finished
//! configuration, so that they apply, and report lines, even if other settings are invalid.

mod clients;
mod cluster;
mod costs;
pub(crate) mod listeners;
mod names;
mod receivers;
mod servers;
pub(crate) mod token_checks;

use crate::reader::{ConfigReader, ConfigTable};
use crate::sections::gateway::discovery::{check_code_mode, check_discovery};
use crate::sections::gateway::embeddings::check_embeddings;
use crate::sections::server::oauth::check_oauth;
use clients::{check_certificates, check_client_profiles, check_unique_keys};
use cluster::check_cluster;
use costs::{ChargedTables, check_costs};
use listeners::check_listeners;
use names::{
    check_interceptors, check_naming, check_nested_tools, check_profile_servers, check_public_names,
};
use receivers::{check_audit, check_events};
use servers::{
    check_forwarded_keys, check_header_sources, check_instances, check_setting_owners,
    check_timeouts,
};
use token_checks::check_tokens;

/// Checks all rules that involve several settings.
pub(crate) fn check_settings(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    check_listeners(root, reader);
    check_cluster(root, reader);
    check_naming(root, reader);
    check_events(root, reader);
    check_audit(root, reader);
    let clients = root.find_tables("clients");
    check_unique_keys(&clients, reader);
    check_certificates(root, &clients, reader);
    let servers = root.find_tables("servers");
    let profiles = root.find_tables("profiles");
    check_client_profiles(&clients, &profiles, reader);
    let issuers = root.find_tables("issuers");
    check_client_profiles(&issuers, &profiles, reader);
    check_tokens(root, &issuers, reader);
    check_profile_servers(&profiles, &servers, reader);
    for server in &servers {
        check_timeouts(server, reader);
        check_instances(server, reader);
        check_oauth(server, &issuers, reader);
        check_setting_owners(server, reader);
        check_header_sources(server, reader);
        if !clients.is_empty() || !issuers.is_empty() {
            check_forwarded_keys(server, reader);
        }
    }
    let own_tools = root.find_tables("tools");
    check_nested_tools(&own_tools, reader);
    check_discovery(&profiles, &own_tools, reader);
    check_code_mode(root, &profiles, reader);
    check_embeddings(root, reader);
    check_public_names(&own_tools, &servers, reader);
    check_interceptors(root, servers.iter().chain(&profiles), reader);
    let charged = ChargedTables {
        servers: &servers,
        profiles: &profiles,
        clients: &clients,
        issuers: &issuers,
    };
    check_costs(root, charged, reader);
}
