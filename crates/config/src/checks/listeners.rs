//! Rules between the settings of listeners: their addresses, host names, and clients.

use std::net::{IpAddr, SocketAddr};

use toml::de::DeTable;

use crate::faults::problem::SettingFault;
use crate::reader::{ConfigReader, ConfigTable, setting_value};
use crate::sections::gateway::admin::AdminConfig;
use crate::sections::gateway::network::{HostSetting, is_reachable_by_others};
use crate::sections::gateway::{AnonymousAccess, GatewayConfig};

/// Each listener needs its own address, and that for clients allowed host names if other machines
/// can reach it. Both have the same certificates.
pub(super) fn check_listeners(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let empty = DeTable::new();
    let section = |name| root.find_table(name).unwrap_or_else(|| ConfigTable::root_table(&empty));
    let (gateway, admin) = (section("gateway"), section("admin"));
    let open = setting_value::<GatewayConfig, SocketAddr>(&gateway, "listen", reader);
    let inner =
        setting_value::<AdminConfig, Option<SocketAddr>>(&admin, "listen", reader).flatten();
    // Its host is allowed.
    if gateway.find_node("public_url").is_none() {
        check_allowed_hosts(&gateway, open, reader);
    }
    check_clients_exist(root, &gateway, open, reader);
    if setting_value::<AdminConfig, bool>(&admin, "tls", reader) == Some(true)
        && gateway.find_node("tls").is_none()
        && let Some(node) = admin.find_node("tls")
    {
        node.report_fault(reader, SettingFault::AdminCertificateMissing);
    }
    // Reported at an address that the file contains, where it can be corrected.
    if let (Some(open), Some(inner)) = (open, inner)
        && addresses_collide(open, inner)
        && let Some(node) = admin.find_node("listen").or_else(|| gateway.find_node("listen"))
    {
        node.report_fault(reader, SettingFault::SameAddress);
    }
}

fn check_allowed_hosts(
    gateway: &ConfigTable<'_>,
    address: Option<SocketAddr>,
    reader: &mut ConfigReader<'_>,
) {
    if let Some(address) = address
        && let Some(allowed) =
            setting_value::<GatewayConfig, Vec<HostSetting>>(gateway, "allowed_hosts", reader)
        && lacks_allowed_hosts(address, &allowed)
        && let Some(node) = gateway.find_node("listen")
    {
        node.report_fault(reader, SettingFault::HostsMissing { address });
    }
}

/// A client of the gateway uses its credentials: a gateway that other machines can reach must
/// authenticate clients, or be configured not to.
fn check_clients_exist(
    root: &ConfigTable<'_>,
    gateway: &ConfigTable<'_>,
    open: Option<SocketAddr>,
    reader: &mut ConfigReader<'_>,
) {
    if let Some(address) = open.filter(|address| is_reachable_by_others(*address))
        && root.find_nodes("clients").is_empty()
        && root.find_nodes("issuers").is_empty()
        && setting_value::<GatewayConfig, AnonymousAccess>(gateway, "anonymous", reader)
            == Some(AnonymousAccess::Loopback)
        && let Some(node) = gateway.find_node("listen")
    {
        node.report_fault(reader, SettingFault::ClientsMissing { address });
    }
}

/// Returns true if two listeners cannot both bind their addresses. Port 0 never collides.
pub(crate) fn addresses_collide(a: SocketAddr, b: SocketAddr) -> bool {
    let any = |ip: IpAddr| ip.is_unspecified();
    a.port() == b.port() && a.port() != 0 && (a.ip() == b.ip() || any(a.ip()) || any(b.ip()))
}

/// Returns true if a listener is reachable by other machines but has no allowed host names: the
/// guard against DNS rebinding would reject every request from them.
pub(crate) fn lacks_allowed_hosts(address: SocketAddr, allowed_hosts: &[String]) -> bool {
    allowed_hosts.is_empty() && is_reachable_by_others(address)
}
