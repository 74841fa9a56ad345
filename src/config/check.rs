//! The rules between settings. They look at the file again rather than at the
//! finished configuration, so that they hold, and have lines, whatever else is
//! wrong in it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};

use toml::de::DeTable;

use crate::call::{ProfileName, PublicName};

use super::clients::KeyHash;
use super::gateway::{Admin, Anonymous, Gateway};
use super::network::{Header, Host};
use super::numbers::Count;
use super::pattern::Pattern;
use super::problem::Problem;
use super::reader::{Node, Reader, Table};
use super::server::{Isolation, Server};
use super::setting::{Section, Setting};
use super::units::Lasting;
use super::wording::{nearest, shortened};

/// Checks every rule between settings.
pub(super) fn all(root: &Table<'_>, reader: &mut Reader<'_>) {
    listeners(root, reader);
    let clients = root.node("clients").and_then(|node| node.as_table());
    let clients: Vec<_> = clients.iter().flat_map(Table::nodes).collect();
    let clients: Vec<_> = clients.iter().filter_map(Node::as_table).collect();
    keys(&clients, reader);
    let servers = root.node("servers").and_then(|node| node.as_table());
    let servers: Vec<_> = servers.iter().flat_map(Table::nodes).collect();
    let servers: Vec<_> = servers.iter().filter_map(Node::as_table).collect();
    let profiles = root.node("profiles").and_then(|node| node.as_table());
    let profiles: Vec<_> = profiles.iter().flat_map(Table::nodes).collect();
    let profiles: Vec<_> = profiles.iter().filter_map(Node::as_table).collect();
    profiles_of_clients(&clients, &profiles, reader);
    servers_of_profiles(&profiles, &servers, reader);
    for server in &servers {
        timeouts(server, reader);
        instances(server, reader);
        owners(server, reader);
        forwarded(server, reader);
        if !clients.is_empty() {
            keys_forwarded(server, reader);
        }
    }
    public_names(&servers, reader);
}

/// Whether two listeners cannot both have their address. Port 0 is always a new one.
pub(super) fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || any(a.ip()) || any(b.ip()))
}

/// Whether others can reach a listener without a host name that it answers to:
/// the guard against DNS rebinding would refuse them all.
pub(super) fn lacks_hosts(address: SocketAddr, allowed_hosts: &[String]) -> bool {
    allowed_hosts.is_empty() && is_open(address)
}

/// Whether others than this machine can reach an address.
pub(super) fn is_open(address: SocketAddr) -> bool {
    !address.ip().to_canonical().is_loopback()
}

/// Each listener needs an address of its own, and names if others can reach it.
fn listeners(root: &Table<'_>, reader: &mut Reader<'_>) {
    let empty = DeTable::new();
    let section = |name| root.node(name).and_then(|node| node.as_table());
    let gateway = section("gateway").unwrap_or_else(|| Table::root(&empty));
    let admin = section("admin").unwrap_or_else(|| Table::root(&empty));
    let open = value::<Gateway, SocketAddr>(&gateway, "listen", reader);
    let inner = value::<Admin, Option<SocketAddr>>(&admin, "listen", reader).flatten();
    hosts::<Gateway>(&gateway, open, reader);
    hosts::<Admin>(&admin, inner, reader);
    someone_known(root, &gateway, open, reader);
    // Told where one can mend it: at one of the two that is written down.
    if let (Some(open), Some(inner)) = (open, inner)
        && collide(open, inner)
        && let Some(node) = admin.node("listen").or_else(|| gateway.node("listen"))
    {
        node.fault(reader, Problem::SameAddress);
    }
}

fn hosts<S: Section>(table: &Table<'_>, address: Option<SocketAddr>, reader: &mut Reader<'_>) {
    if let Some(address) = address
        && let Some(allowed) = value::<S, Vec<Host>>(table, "allowed_hosts", reader)
        && lacks_hosts(address, &allowed)
        && let Some(node) = table.node("listen")
    {
        node.fault(reader, Problem::HostsMissing { address });
    }
}

/// Whoever reaches the gateway uses its credentials: where others can, it has
/// to know who they are, or to be told that it need not.
fn someone_known(
    root: &Table<'_>,
    gateway: &Table<'_>,
    open: Option<SocketAddr>,
    reader: &mut Reader<'_>,
) {
    let clients = root.node("clients").and_then(|node| node.as_table());
    if let Some(address) = open.filter(|address| is_open(*address))
        && clients.is_none_or(|clients| clients.nodes().is_empty())
        && value::<Gateway, Anonymous>(gateway, "anonymous", reader) == Some(Anonymous::Loopback)
        && let Some(node) = gateway.node("listen")
    {
        node.fault(reader, Problem::ClientsMissing { address });
    }
}

/// A key is one client's, and stands there once.
fn keys(clients: &[Table<'_>], reader: &mut Reader<'_>) {
    let mut taken: HashMap<KeyHash, String> = HashMap::new();
    for client in clients {
        let quiet = &mut Reader::new(reader.folder, reader.surroundings);
        let more = client.node("keys").and_then(|node| node.items::<Vec<KeyHash>>(quiet));
        for node in client.node("key").into_iter().chain(more.into_iter().flatten()) {
            let Some(hash) = <KeyHash as Setting>::read(&node, quiet) else { continue };
            if let Some(other) = taken.get(&hash) {
                node.fault(reader, Problem::KeyTaken { other: other.clone() });
            } else {
                taken.insert(hash, node.key);
            }
        }
    }
}

/// A client's profiles are there, and at least one.
fn profiles_of_clients(clients: &[Table<'_>], profiles: &[Table<'_>], reader: &mut Reader<'_>) {
    let mut names: Vec<_> = profiles.iter().map(|profile| profile.name).collect();
    names.push(ProfileName::DEFAULT);
    for node in clients.iter().filter_map(|client| client.node("profiles")) {
        let quiet = &mut Reader::new(reader.folder, reader.surroundings);
        let Some(items) = node.items::<Vec<ProfileName>>(quiet) else { continue };
        if items.is_empty() {
            node.fault(reader, Problem::NoProfiles);
        }
        for item in items {
            let Some(name) = <ProfileName as Setting>::read(&item, quiet) else { continue };
            if !names.contains(&name.as_str()) {
                let meant = nearest(name.as_str(), &names);
                item.fault(reader, Problem::NoProfile { name: name.to_string(), meant });
            }
        }
    }
}

/// What names one server names one that is there; a pattern may wait for it.
fn servers_of_profiles(profiles: &[Table<'_>], servers: &[Table<'_>], reader: &mut Reader<'_>) {
    let names: Vec<_> = servers.iter().map(|server| server.name).collect();
    for node in profiles.iter().filter_map(|profile| profile.node("servers")) {
        let quiet = &mut Reader::new(reader.folder, reader.surroundings);
        for item in node.items::<Vec<Pattern>>(quiet).into_iter().flatten() {
            let Some(pattern) = <Pattern as Setting>::read(&item, quiet) else { continue };
            let name = pattern.as_str();
            if !name.contains(['*', '?']) && !names.contains(&name) {
                let (name, meant) = (shortened(name), nearest(name, &names));
                item.fault(reader, Problem::NoServer { name, meant });
            }
        }
    }
}

/// `X-API-Key` is never anything but the client's key; `Authorization` may be
/// the server's, where the client shows its key in the other (`identity`).
fn keys_forwarded(server: &Table<'_>, reader: &mut Reader<'_>) {
    let quiet = &mut Reader::new(reader.folder, reader.surroundings);
    let names = server.node("forward_headers").and_then(|node| node.items::<Vec<Header>>(quiet));
    for node in names.into_iter().flatten() {
        if <Header as Setting>::read(&node, quiet).is_some_and(|name| name == "x-api-key") {
            node.fault(reader, Problem::KeyForwarded);
        }
    }
}

/// `max_timeout` must leave `timeout` room.
fn timeouts(server: &Table<'_>, reader: &mut Reader<'_>) {
    let read = |key| value::<Server, Lasting>(server, key, reader);
    if let (Some(timeout), Some(max)) = (read("timeout"), read("max_timeout"))
        && max < timeout
        && let Some(node) = server.node("max_timeout").or_else(|| server.node("timeout"))
    {
        node.fault(reader, Problem::TimeoutOrder);
    }
}

/// Instances of their own for clients are instances.
fn instances(server: &Table<'_>, reader: &mut Reader<'_>) {
    let isolation = value::<Server, Option<Isolation>>(server, "isolation", reader).flatten();
    let most = value::<Server, Option<Count<0, 1_000_000>>>(server, "max_instances", reader);
    if isolation == Some(Isolation::Client)
        && most.flatten() == Some(0)
        && let Some(node) = server.node("max_instances")
    {
        node.fault(reader, Problem::NoInstances);
    }
}

/// A setting that does nothing for this kind of server is a mistake.
fn owners(server: &Table<'_>, reader: &mut Reader<'_>) {
    const OWNED: [(&str, &[&str]); 2] = [
        ("command", &["idle_stop", "max_restarts", "restart_window", "stop_timeout"]),
        ("url", &["connect_timeout", "forward_headers"]),
    ];
    let kinds = OWNED.map(|(kind, _)| server.node(kind).is_some());
    for ((owner, keys), _) in OWNED.iter().zip(kinds).filter(|(_, has)| !has) {
        // Neither kind is told of elsewhere.
        for node in keys.iter().filter_map(|key| server.node(key)).filter(|_| kinds.contains(&true))
        {
            node.fault_at_name(reader, Problem::OtherTarget { owner });
        }
    }
}

/// A header is either fixed or the client's.
fn forwarded(server: &Table<'_>, reader: &mut Reader<'_>) {
    let fixed = server.node("headers").and_then(|node| node.as_table());
    let fixed: Vec<_> = fixed.iter().flat_map(Table::nodes).collect();
    let forwarded = value::<Server, Vec<Header>>(server, "forward_headers", reader);
    for name in forwarded.unwrap_or_default() {
        if let Some(node) =
            fixed.iter().find(|node| name.as_str().eq_ignore_ascii_case(node.name()))
        {
            node.fault_at_name(reader, Problem::FixedAndForwarded);
        }
    }
}

/// No two tools may be given one public name.
fn public_names(servers: &[Table<'_>], reader: &mut Reader<'_>) {
    let mut taken: HashMap<PublicName, String> = HashMap::new();
    for server in servers {
        let tools = server.node("tools").and_then(|node| node.as_table());
        for tool in tools.iter().flat_map(Table::nodes) {
            let Some(name) = tool.as_table().and_then(|table| table.node("name")) else { continue };
            let quiet = &mut Reader::new(reader.folder, reader.surroundings);
            let Some(public) = <PublicName as Setting>::read(&name, quiet) else { continue };
            if let Some(other) = taken.get(&public) {
                name.fault(reader, Problem::PublicNameTaken { other: other.clone() });
            } else {
                taken.insert(public, tool.key);
            }
        }
    }
}

/// A setting's value, or its default; silent, because its own faults have been told.
fn value<Sec: Section, S: Setting>(
    table: &Table<'_>,
    key: &str,
    reader: &Reader<'_>,
) -> Option<S::Value> {
    let row = Sec::rows().into_iter().find(|row| row.key == key)?;
    let quiet = &mut Reader::new(reader.folder, reader.surroundings);
    table.setting::<S>(row.key, row.default, quiet)
}
