//! Rules that involve several settings. They read the file's tables rather than the finished
//! configuration, so that they apply, and report lines, even if other settings are invalid.

pub(crate) mod costs;
pub(crate) mod sent_secrets;
pub(crate) mod server_secrets;
pub(crate) mod token_checks;

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use toml::de::DeTable;

use trunkline_protocol::call::{ProfileName, PublicName};

use crate::reader::faults::problem::SettingFault;
use crate::reader::faults::wording::{nearest_choice, shorten_text};
use crate::reader::setting::{Section, Setting};
use crate::reader::values::numbers::CountSetting;
use crate::reader::values::pattern::Pattern;
use crate::reader::values::units::DurationSetting;
use crate::reader::{ConfigNode, ConfigReader, ConfigTable};
use crate::sections::clients::{CertificateName, ClientKeySetting, KeyHash};
use crate::sections::gateway::audit::AuditConfig;
use crate::sections::gateway::discovery::check_discovery;
use crate::sections::gateway::embeddings::check_embeddings;
use crate::sections::gateway::naming::NamingChoice;
use crate::sections::gateway::network::{HeaderSetting, HostSetting};
use crate::sections::gateway::{AdminConfig, AnonymousAccess, GatewayConfig};
use crate::sections::interceptors::InterceptorName;
use crate::sections::server::oauth::check_oauth;
use crate::sections::server::{Isolation, ServerConfig, is_openapi};
use costs::{ChargedTables, check_costs};
use token_checks::check_tokens;

/// Checks all rules that involve several settings.
pub(super) fn check_settings(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    check_listeners(root, reader);
    check_naming(root, reader);
    check_events(root, reader);
    check_audit(root, reader);
    let clients = root.find_node("clients").and_then(|node| node.as_table());
    let clients: Vec<_> = clients.iter().flat_map(ConfigTable::all_nodes).collect();
    let clients: Vec<_> = clients.iter().filter_map(ConfigNode::as_table).collect();
    check_unique_keys(&clients, reader);
    check_certificates(root, &clients, reader);
    let servers = root.find_node("servers").and_then(|node| node.as_table());
    let servers: Vec<_> = servers.iter().flat_map(ConfigTable::all_nodes).collect();
    let servers: Vec<_> = servers.iter().filter_map(ConfigNode::as_table).collect();
    let profiles = root.find_node("profiles").and_then(|node| node.as_table());
    let profiles: Vec<_> = profiles.iter().flat_map(ConfigTable::all_nodes).collect();
    let profiles: Vec<_> = profiles.iter().filter_map(ConfigNode::as_table).collect();
    check_client_profiles(&clients, &profiles, reader);
    let issuers = find_tables(root, "issuers");
    let issuers: Vec<_> = issuers.iter().filter_map(ConfigNode::as_table).collect();
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
    let own_tools = root.find_node("tools").and_then(|node| node.as_table());
    let own_tools: Vec<_> = own_tools.iter().flat_map(ConfigTable::all_nodes).collect();
    let own_tools: Vec<_> = own_tools.iter().filter_map(ConfigNode::as_table).collect();
    check_nested_tools(&own_tools, reader);
    check_discovery(&profiles, &own_tools, reader);
    check_embeddings(root, reader);
    check_public_names((&own_tools, &servers), reader);
    check_interceptors(root, servers.iter().chain(&profiles), reader);
    let charged = ChargedTables {
        servers: &servers,
        profiles: &profiles,
        clients: &clients,
        issuers: &issuers,
    };
    check_costs(root, charged, reader);
}

/// The tables below a key of the file, in its order.
fn find_tables<'a>(root: &ConfigTable<'a>, key: &str) -> Vec<ConfigNode<'a>> {
    let table = root.find_node(key).and_then(|node| node.as_table());
    table.map(|table| table.all_nodes()).unwrap_or_default()
}

/// Returns true if two listeners cannot both bind their addresses. Port 0 never collides.
pub(super) fn addresses_collide(a: SocketAddr, b: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || any(a.ip()) || any(b.ip()))
}

/// Returns true if a listener is reachable by other machines but has no allowed host names: the
/// guard against DNS rebinding would reject every request from them.
pub(super) fn lacks_allowed_hosts(address: SocketAddr, allowed_hosts: &[String]) -> bool {
    allowed_hosts.is_empty() && is_reachable_by_others(address)
}

/// Returns true if other machines can reach an address.
pub(super) fn is_reachable_by_others(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// Each listener needs its own address, and allowed host names if other machines can reach it.
fn check_listeners(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let empty = DeTable::new();
    let section = |name| root.find_node(name).and_then(|node| node.as_table());
    let gateway = section("gateway").unwrap_or_else(|| ConfigTable::root_table(&empty));
    let admin = section("admin").unwrap_or_else(|| ConfigTable::root_table(&empty));
    let open = setting_value::<GatewayConfig, SocketAddr>(&gateway, "listen", reader);
    let inner =
        setting_value::<AdminConfig, Option<SocketAddr>>(&admin, "listen", reader).flatten();
    check_allowed_hosts::<GatewayConfig>(&gateway, open, reader);
    check_allowed_hosts::<AdminConfig>(&admin, inner, reader);
    check_clients_exist(root, &gateway, open, reader);
    // Reported at an address that the file contains, where it can be corrected.
    if let (Some(open), Some(inner)) = (open, inner)
        && addresses_collide(open, inner)
        && let Some(node) = admin.find_node("listen").or_else(|| gateway.find_node("listen"))
    {
        node.report_fault(reader, SettingFault::SameAddress);
    }
}

fn check_allowed_hosts<S: Section>(
    table: &ConfigTable<'_>,
    address: Option<SocketAddr>,
    reader: &mut ConfigReader<'_>,
) {
    if let Some(address) = address
        && let Some(allowed) = setting_value::<S, Vec<HostSetting>>(table, "allowed_hosts", reader)
        && lacks_allowed_hosts(address, &allowed)
        && let Some(node) = table.find_node("listen")
    {
        node.report_fault(reader, SettingFault::HostsMissing { address });
    }
}

/// Checks that settings of names have a naming scheme that uses them.
fn check_naming(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let Some(gateway) = root.find_node("gateway").and_then(|node| node.as_table()) else { return };
    let naming = setting_value::<GatewayConfig, NamingChoice>(&gateway, "naming", reader);
    if naming != Some(NamingChoice::None) {
        return;
    }
    let settings = ["name_format", "name_case", "reserved_names"];
    for node in settings.iter().filter_map(|key| gateway.find_node(key)) {
        node.report_fault_at_key(reader, SettingFault::NoNaming);
    }
}

/// Events have one receiver, with its own settings only; requests to a webhook are signed.
fn check_events(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    const OWNED_SETTINGS: [(&str, &str); 2] = [("url", "secret"), ("command", "args")];
    let Some(events) = root.find_node("events").and_then(|node| node.as_table()) else { return };
    let receivers = ["url", "command", "file"].map(|key| events.find_node(key));
    match receivers.iter().flatten().collect::<Vec<_>>()[..] {
        [] if events.all_nodes().is_empty() => {}
        [] => reader.report_fault(events.name_span.clone(), &events.key, SettingFault::NoReceiver),
        [_] => {}
        [_, second, ..] => second.report_fault_at_key(reader, SettingFault::ManyReceivers),
    }
    for (owner, key) in OWNED_SETTINGS {
        if let (None, Some(node)) = (events.find_node(owner), events.find_node(key)) {
            node.report_fault_at_key(reader, SettingFault::OtherReceiver { owner });
        }
    }
    if let (Some(url), None) = (events.find_node("url"), events.find_node("secret")) {
        url.report_fault_at_key(reader, SettingFault::Unsigned);
    }
}

/// An audit log has one sink, and settings of files only beside `file`.
fn check_audit(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let Some(audit) = root.find_node("audit").and_then(|node| node.as_table()) else { return };
    let stdout = audit.find_node("stdout");
    let stdout = stdout
        .filter(|_| setting_value::<AuditConfig, bool>(&audit, "stdout", reader) != Some(false));
    let sinks = [audit.find_node("file"), stdout, audit.find_node("syslog")];
    match sinks.iter().flatten().collect::<Vec<_>>()[..] {
        [] if audit.all_nodes().is_empty() => {}
        [] => reader.report_fault(audit.name_span.clone(), &audit.key, SettingFault::NoAuditSink),
        [_] => {}
        [_, second, ..] => second.report_fault_at_key(reader, SettingFault::ManyAuditSinks),
    }
    for (owner, key) in AUDIT_OWNED {
        if let (None, Some(node)) = (audit.find_node(owner), audit.find_node(key)) {
            node.report_fault_at_key(reader, SettingFault::OtherAuditSetting { owner });
        }
    }
}

/// Settings of the audit log that have no effect without another one.
const AUDIT_OWNED: [(&str, &str); 7] = [
    ("file", "rotate_size"),
    ("file", "rotate_every"),
    ("file", "keep"),
    ("chain", "chain_key"),
    ("arguments", "arguments_size"),
    ("arguments", "redact_keys"),
    ("arguments", "redact_values"),
];

/// A client of the gateway uses its credentials: a gateway that other machines can reach must
/// authenticate clients, or be configured not to.
fn check_clients_exist(
    root: &ConfigTable<'_>,
    gateway: &ConfigTable<'_>,
    open: Option<SocketAddr>,
    reader: &mut ConfigReader<'_>,
) {
    let clients = root.find_node("clients").and_then(|node| node.as_table());
    if let Some(address) = open.filter(|address| is_reachable_by_others(*address))
        && clients.is_none_or(|clients| clients.all_nodes().is_empty())
        && find_tables(root, "issuers").is_empty()
        && setting_value::<GatewayConfig, AnonymousAccess>(gateway, "anonymous", reader)
            == Some(AnonymousAccess::Loopback)
        && let Some(node) = gateway.find_node("listen")
    {
        node.report_fault(reader, SettingFault::ClientsMissing { address });
    }
}

/// Each key belongs to one client, without duplicates.
fn check_unique_keys(clients: &[ConfigTable<'_>], reader: &mut ConfigReader<'_>) {
    let mut taken: HashMap<KeyHash, String> = HashMap::new();
    for client in clients {
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let more = client
            .find_node("keys")
            .and_then(|node| node.expect_items::<Vec<ClientKeySetting>>(quiet));
        for node in client.find_node("key").into_iter().chain(more.into_iter().flatten()) {
            let Some(key) = <ClientKeySetting as Setting>::read_value(&node, quiet) else {
                continue;
            };
            if let Some(other) = taken.get(&key.hash) {
                node.report_fault(reader, SettingFault::KeyTaken { other: other.clone() });
            } else {
                taken.insert(key.hash, node.key);
            }
        }
    }
}

/// Checks that each certificate name identifies one client, and that `gateway.tls` has a
/// `client_ca`: without one, clients are not asked for a certificate.
fn check_certificates(
    root: &ConfigTable<'_>,
    clients: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    let gateway = root.find_node("gateway");
    let tls = gateway.as_ref().and_then(ConfigNode::as_table).and_then(|it| it.find_node("tls"));
    let tls = tls.as_ref().and_then(ConfigNode::as_table);
    let has_ca = tls.is_some_and(|tls| tls.find_node("client_ca").is_some());
    let mut known: HashMap<CertificateName, String> = HashMap::new();
    for node in clients.iter().filter_map(|client| client.find_node("certificates")) {
        if !has_ca {
            node.report_fault(reader, SettingFault::NoClientCa);
        }
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let Some(items) = node.expect_items::<Vec<CertificateName>>(quiet) else { continue };
        for item in items {
            let Some(name) = <CertificateName as Setting>::read_value(&item, quiet) else {
                continue;
            };
            if let Some(other) = known.insert(name, item.key.clone()) {
                item.report_fault(reader, SettingFault::CertificateTaken { other });
            }
        }
    }
}

/// Checks that the profiles of clients and issuers exist, and that each list of them has at least
/// one.
fn check_client_profiles(
    clients: &[ConfigTable<'_>],
    profiles: &[ConfigTable<'_>],
    reader: &mut ConfigReader<'_>,
) {
    let mut names: Vec<_> = profiles.iter().map(|profile| profile.name).collect();
    names.push(ProfileName::DEFAULT);
    for node in clients.iter().filter_map(|client| client.find_node("profiles")) {
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let Some(items) = node.expect_items::<Vec<ProfileName>>(quiet) else { continue };
        if items.is_empty() {
            node.report_fault(reader, SettingFault::NoProfiles);
        }
        for item in items {
            let Some(name) = <ProfileName as Setting>::read_value(&item, quiet) else { continue };
            if !names.contains(&name.as_str()) {
                let meant = nearest_choice(name.as_str(), &names);
                item.report_fault(
                    reader,
                    SettingFault::NoProfile { name: name.to_string(), meant },
                );
            }
        }
    }
}

/// Interceptors that servers and profiles name must exist.
fn check_interceptors<'a, 'b: 'a>(
    root: &ConfigTable<'_>,
    users: impl Iterator<Item = &'a ConfigTable<'b>>,
    reader: &mut ConfigReader<'_>,
) {
    let known = root.find_node("interceptors").and_then(|node| node.as_table());
    let known: Vec<_> = known.iter().flat_map(ConfigTable::all_nodes).collect();
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
fn check_profile_servers(
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

/// `X-API-Key` always carries the client's key; `Authorization` may be for the server if the client
/// sends its key in the other header (`identity`).
fn check_forwarded_keys(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
    let names = server
        .find_node("forward_headers")
        .and_then(|node| node.expect_items::<Vec<HeaderSetting>>(quiet));
    for node in names.into_iter().flatten() {
        if <HeaderSetting as Setting>::read_value(&node, quiet)
            .is_some_and(|name| name == "x-api-key")
        {
            node.report_fault(reader, SettingFault::KeyForwarded);
        }
    }
}

/// `max_timeout` must not be below `timeout`.
fn check_timeouts(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let read = |key| setting_value::<ServerConfig, DurationSetting>(server, key, reader);
    if let (Some(timeout), Some(max)) = (read("timeout"), read("max_timeout"))
        && max < timeout
        && let Some(node) = server.find_node("max_timeout").or_else(|| server.find_node("timeout"))
    {
        node.report_fault(reader, SettingFault::TimeoutOrder);
    }
}

/// An instance for each client requires a positive `max_instances`.
fn check_instances(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let isolation =
        setting_value::<ServerConfig, Option<Isolation>>(server, "isolation", reader).flatten();
    let most = setting_value::<ServerConfig, Option<CountSetting<0, 1_000_000>>>(
        server,
        "max_instances",
        reader,
    );
    if isolation == Some(Isolation::Client)
        && most.flatten() == Some(0)
        && let Some(node) = server.find_node("max_instances")
    {
        node.report_fault(reader, SettingFault::NoInstances);
    }
}

/// A setting that has no effect on this kind of server is a mistake.
fn check_setting_owners(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    const OF_CHILDREN: [&str; 4] = ["idle_stop", "max_restarts", "restart_window", "stop_timeout"];
    const OF_HTTP: [&str; 3] = ["call_headers", "connect_timeout", "forward_headers"];
    const OF_MCP: [&str; 5] =
        ["era", "isolation", "max_instances", "instance_idle", "client_capabilities"];
    let has = |key| server.find_node(key).is_some();
    let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
    let is_openapi = is_openapi(server, quiet) == Some(true);
    let is_http = has("url") || is_openapi;
    // A server of no kind is reported elsewhere.
    let is_any = has("command") || is_http;
    let mut refuse = |keys: &[&str], problem: fn() -> SettingFault| {
        for node in keys.iter().filter_map(|key| server.find_node(key)) {
            node.report_fault_at_key(reader, problem());
        }
    };
    if is_any && !has("command") {
        refuse(&OF_CHILDREN, || SettingFault::OtherTarget { owner: "command" });
    }
    if is_any && !is_http {
        refuse(&OF_HTTP, || SettingFault::OtherTarget { owner: "url" });
    }
    if is_openapi {
        refuse(&OF_MCP, || SettingFault::McpOnly);
    }
}

/// A header has one source: `headers`, `call_headers`, or the client's request.
fn check_header_sources(server: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let table = |key| server.find_node(key).and_then(|node| node.as_table());
    let (fixed, of_calls) = (table("headers"), table("call_headers"));
    let fixed: Vec<_> = fixed.iter().flat_map(ConfigTable::all_nodes).collect();
    let of_calls: Vec<_> = of_calls.iter().flat_map(ConfigTable::all_nodes).collect();
    let forwarded =
        setting_value::<ServerConfig, Vec<HeaderSetting>>(server, "forward_headers", reader);
    let forwarded = forwarded.unwrap_or_default();
    for node in fixed.iter().chain(&of_calls) {
        if forwarded.iter().any(|name| name.as_str().eq_ignore_ascii_case(node.key_name())) {
            let problem = SettingFault::TwoHeaderSources { other: "forward_headers" };
            node.report_fault_at_key(reader, problem);
        }
    }
    for node in &of_calls {
        if fixed.iter().any(|other| other.key_name().eq_ignore_ascii_case(node.key_name())) {
            node.report_fault_at_key(reader, SettingFault::TwoHeaderSources { other: "headers" });
        }
    }
}

/// Configured public names of tools must be unique.
fn check_public_names(
    (own_tools, servers): (&[ConfigTable<'_>], &[ConfigTable<'_>]),
    reader: &mut ConfigReader<'_>,
) {
    let own = own_tools.iter().map(|tool| (PublicName::new(tool.name), tool.key.clone()));
    let mut taken: HashMap<PublicName, String> = own.collect();
    for server in servers {
        let tools = server.find_node("tools").and_then(|node| node.as_table());
        for tool in tools.iter().flat_map(ConfigTable::all_nodes) {
            let Some(name) = tool.as_table().and_then(|table| table.find_node("name")) else {
                continue;
            };
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
fn check_nested_tools(own_tools: &[ConfigTable<'_>], reader: &mut ConfigReader<'_>) {
    let calls = own_tools.iter().filter_map(|tool| tool.find_node("calls"));
    let calls: Vec<_> = calls.filter_map(|calls| calls.as_table()).collect();
    let calls: Vec<_> = calls.iter().flat_map(ConfigTable::all_nodes).collect();
    for call in calls.iter().filter_map(ConfigNode::as_table) {
        let Some(tool) = call.find_node("tool") else { continue };
        let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
        let called = <PublicName as Setting>::read_value(&tool, quiet);
        let called = called.filter(|name| own_tools.iter().any(|own| own.name == name.as_str()));
        if let Some(name) = called {
            tool.report_fault(reader, SettingFault::NestedOwnTool { name: name.to_string() });
        }
    }
}

/// A setting's value, or its default. Silent, because its own faults are already reported.
pub(super) fn setting_value<Sec: Section, S: Setting>(
    table: &ConfigTable<'_>,
    key: &str,
    reader: &ConfigReader<'_>,
) -> Option<S::Value> {
    let row = Sec::setting_rows().into_iter().find(|row| row.key == key)?;
    let quiet = &mut ConfigReader::new(reader.folder, reader.surroundings);
    table.read_setting::<S>(row.key, row.default, quiet)
}
