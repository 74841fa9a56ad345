//! Rules between the settings of tokens and scopes.

use std::collections::HashMap;
use std::net::SocketAddr;

use toml::de::DeTable;

use crate::Config;
use crate::faults::issuer::IssuerFault;
use crate::reader::{ConfigReader, ConfigTable, setting_value};
use crate::sections::gateway::GatewayConfig;
use crate::sections::gateway::network::is_reachable_by_others;
use crate::sections::issuers::IssuerUrl;

/// Checks `[issuers]`, `gateway.public_url`, and that clients can have the required scopes.
pub(crate) fn check_tokens(
    root: &ConfigTable<'_>,
    issuers: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    for issuer in issuers {
        check_issuer(issuer, reader);
    }
    check_unique_issuers(issuers, reader);
    if issuers.is_empty() {
        if root.find_nodes("clients").is_empty() {
            refuse_scopes(root, reader);
        }
    } else {
        check_public_url(root, reader);
    }
}

/// Checks that an issuer has one source of keys, and accepts something.
fn check_issuer(issuer: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    if let (Some(_), Some(file)) = (issuer.find_node("jwks_url"), issuer.find_node("jwks_file")) {
        file.report_fault_at_key(reader, IssuerFault::TwoKeySources.into());
    }
    for key in ["algorithms", "scope_claims"] {
        let Some(node) = issuer.find_node(key) else { continue };
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        if node.expect_items::<Vec<String>>(quiet).is_some_and(|items| items.is_empty()) {
            node.report_fault(reader, IssuerFault::NoneAccepted.into());
        }
    }
}

/// Checks that the `iss` of a token leads to one issuer.
fn check_unique_issuers(issuers: &[ConfigTable<'_>], reader: &mut ConfigReader<'_>) {
    let mut taken: HashMap<String, String> = HashMap::new();
    for issuer in issuers {
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let aliases = issuer.find_node("issuer_aliases");
        let aliases = aliases.and_then(|node| node.expect_items::<Vec<String>>(quiet));
        let main = issuer.find_node("issuer");
        for node in main.into_iter().chain(aliases.into_iter().flatten()) {
            let Some(text) = node.expect_plain_string::<IssuerUrl>(quiet) else { continue };
            if let Some(other) = taken.get(text) {
                node.report_fault(reader, IssuerFault::Taken { other: other.clone() }.into());
            } else {
                taken.insert(text.to_owned(), node.key);
            }
        }
    }
}

/// Checks that the URL in tokens is known. A gateway for this machine alone takes it from the
/// `Host` header, which is one of its own names; any other needs `public_url`.
fn check_public_url(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let empty = DeTable::new();
    let gateway = root.find_table("gateway");
    let gateway = gateway.unwrap_or_else(|| ConfigTable::root_table(&empty));
    let open = setting_value::<GatewayConfig, SocketAddr>(&gateway, "listen", reader);
    if let Some(address) = open.filter(|address| is_reachable_by_others(*address))
        && gateway.find_node("public_url").is_none()
        && let Some(node) = gateway.find_node("listen")
    {
        node.report_fault(reader, IssuerFault::NoPublicUrl { address }.into());
    }
}

/// Reports required scopes if there are neither clients nor issuers: then no client has a scope.
fn refuse_scopes(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let servers = root.find_tables("servers");
    let tools: Vec<_> = servers.iter().flat_map(|server| server.find_tables("tools")).collect();
    for owner in root.find_tables("profiles").iter().chain(&servers).chain(&tools) {
        let Some(node) = owner.find_node("scopes") else { continue };
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        if node.expect_items::<Vec<String>>(quiet).is_some_and(|items| !items.is_empty()) {
            node.report_fault(reader, IssuerFault::NoScopeHolder.into());
        }
    }
}

/// Returns true if tokens for a gateway at this address need a URL from the configuration.
pub(crate) fn needs_public_url(config: &Config, address: SocketAddr) -> bool {
    !config.issuers.is_empty()
        && config.gateway.public_url.is_none()
        && is_reachable_by_others(address)
}
