//! The rules between settings. They look at the file again rather than at the
//! finished configuration, so that they hold, and have lines, whatever else is
//! wrong in it.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use super::gateway::{Admin, Gateway};
use super::kinds::Lasting;
use super::network::Host;
use super::problem::Problem;
use super::reader::{Node, Reader, Table};
use super::server::Server;
use super::setting::Section;

/// Checks every rule between settings.
pub(super) fn all(root: &Table<'_>, reader: &mut Reader<'_>) {
    let gateway = listener::<Gateway>(root, "gateway", reader);
    let admin = listener::<Admin>(root, "admin", reader);
    if let (Some(gateway), Some(admin)) = (gateway, admin)
        && collide(gateway, admin)
    {
        // Told where one can mend it: at whichever of the two is written down.
        let node =
            ["admin", "gateway"].into_iter().find_map(|section| child(root, section, "listen"));
        if let Some(node) = node {
            node.fault(reader, Problem::SameAddress);
        }
    }
    let servers = root.node("servers").and_then(|node| node.as_table());
    let servers: Vec<_> = servers.iter().flat_map(Table::nodes).collect();
    let servers: Vec<_> = servers.iter().filter_map(Node::as_table).collect();
    servers.iter().for_each(|server| timeouts(server, reader));
    public_names(&servers, reader);
}

/// Where a section listens, if it does; tells if others can reach it there and
/// no host name is allowed.
fn listener<S: Section>(
    root: &Table<'_>,
    section: &str,
    reader: &mut Reader<'_>,
) -> Option<SocketAddr> {
    let Some(node) = child(root, section, "listen") else {
        let row = S::rows().into_iter().find(|row| row.key == "listen")?;
        return row.default?.trim_matches('"').parse().ok();
    };
    let address = reader.peek::<Option<SocketAddr>>(&node)??;
    let hosts = child(root, section, "allowed_hosts");
    let none = match hosts {
        Some(hosts) => reader.peek::<Vec<Host>>(&hosts).is_some_and(|hosts| hosts.is_empty()),
        None => true,
    };
    if none && !address.ip().to_canonical().is_loopback() {
        node.fault(reader, Problem::HostsMissing { address });
    }
    Some(address)
}

/// Whether two listeners cannot both have their address. Port 0 is always a new one.
pub(super) fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || any(a.ip()) || any(b.ip()))
}

/// `max_timeout` must leave `timeout` room.
fn timeouts(server: &Table<'_>, reader: &mut Reader<'_>) {
    let read = |key| -> Option<Duration> {
        match server.node(key) {
            Some(node) => reader.peek::<Lasting>(&node),
            None => {
                let row = Server::rows().into_iter().find(|row| row.key == key)?;
                let quiet = &mut Reader::new(reader.folder, reader.surroundings);
                server.setting::<Lasting>(row.key, row.default, quiet)
            }
        }
    };
    if let (Some(timeout), Some(max)) = (read("timeout"), read("max_timeout"))
        && max < timeout
        && let Some(node) = server.node("max_timeout").or_else(|| server.node("timeout"))
    {
        node.fault(reader, Problem::TimeoutOrder);
    }
}

/// No two tools may be given one public name.
fn public_names(servers: &[Table<'_>], reader: &mut Reader<'_>) {
    let mut taken: HashMap<String, String> = HashMap::new();
    for server in servers {
        let tools = server.node("tools").and_then(|node| node.as_table());
        for node in tools.iter().flat_map(Table::nodes) {
            let Some(name) = node.as_table().and_then(|tool| tool.node("name")) else { continue };
            let Some(public) = reader.peek::<crate::call::PublicName>(&name) else { continue };
            match taken.get(public.as_str()) {
                Some(other) => {
                    let problem = Problem::PublicNameTaken { other: other.clone() };
                    name.fault(reader, problem);
                }
                None => {
                    taken.insert(public.as_str().to_owned(), node.key);
                }
            }
        }
    }
}

/// The value under `section.key`.
fn child<'a>(root: &Table<'a>, section: &str, key: &str) -> Option<Node<'a>> {
    root.node(section)?.as_table()?.node(key)
}
