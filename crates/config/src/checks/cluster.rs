//! Rules between the settings of replicas.

use std::net::SocketAddr;

use toml::de::DeTable;

use crate::faults::cluster::ClusterFault;
use crate::reader::{ConfigReader, ConfigTable, setting_value};
use crate::sections::gateway::GatewayConfig;
use crate::sections::gateway::admin::AdminConfig;
use crate::sections::gateway::cluster::{ClusterConfig, PeerHost};
use crate::sections::gateway::store_url::StoreUrl;
use crate::source::secret::Secret;

use super::listeners::addresses_collide;

/// Replicas need the keys that all of them have, certificates unless all are on this machine, and an
/// address of their own.
pub(super) fn check_cluster(root: &ConfigTable<'_>, reader: &mut ConfigReader<'_>) {
    let Some(cluster) = root.find_table("cluster") else { return };
    let empty = DeTable::new();
    let section = |name| root.find_table(name).unwrap_or_else(|| ConfigTable::root_table(&empty));
    let (gateway, admin) = (section("gateway"), section("admin"));
    let keys = setting_value::<GatewayConfig, Vec<Secret>>(&gateway, "state_keys", reader);
    if keys.is_some_and(|keys| keys.is_empty()) {
        let fault = ClusterFault::NoStateKeys.into();
        reader.report_fault(cluster.name_span.clone(), &cluster.key, fault);
    }
    let listen = setting_value::<ClusterConfig, SocketAddr>(&cluster, "listen", reader);
    check_peer_certificates(&cluster, listen, reader);
    let clients = setting_value::<GatewayConfig, SocketAddr>(&gateway, "listen", reader);
    let operators = setting_value::<AdminConfig, Option<SocketAddr>>(&admin, "listen", reader);
    let others = [clients, operators.flatten()];
    if let Some(listen) = listen
        && others.into_iter().flatten().any(|other| addresses_collide(listen, other))
        && let Some(node) = cluster.find_node("listen")
    {
        node.report_fault(reader, ClusterFault::SameAddress.into());
    }
}

fn check_peer_certificates(
    cluster: &ConfigTable<'_>,
    listen: Option<SocketAddr>,
    reader: &mut ConfigReader<'_>,
) {
    const FILES: [&str; 3] = ["cert", "key", "ca"];
    let missing = FILES.into_iter().find(|key| cluster.find_node(key).is_none());
    let Some(missing) = missing else { return };
    let fault = if FILES.into_iter().any(|key| cluster.find_node(key).is_some()) {
        ClusterFault::Incomplete { missing }
    } else {
        let store = setting_value::<ClusterConfig, StoreUrl>(cluster, "store", reader);
        let advertise = setting_value::<ClusterConfig, PeerHost>(cluster, "advertise", reader);
        let is_own_machine = listen.is_none_or(|address| address.ip().is_loopback())
            && store.is_none_or(|url| url.is_own_machine())
            && advertise.is_none_or(|host| host.is_own_machine());
        if is_own_machine {
            return;
        }
        ClusterFault::NoCertificates
    };
    reader.report_fault(cluster.name_span.clone(), &cluster.key, fault.into());
}
