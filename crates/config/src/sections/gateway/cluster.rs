//! `[cluster]`: several gateways behind one endpoint.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use http::uri::Authority;
use serde_json::{Value as Json, json};

use crate::faults::cluster::ClusterFault;
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};
use crate::sections::gateway::store_url::StoreUrl;

section! {
    /// Replicas: several gateways with the same clients, behind one address ([replicas](cluster.md)).
    /// A session of a Legacy client is reachable through each of them. Needs `gateway.state_keys`, the
    /// same on all replicas. Read at the start.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ClusterConfig {
        settings {
            /// The Redis or Valkey server with the list of replicas: `redis://HOST:PORT/DATABASE`,
            /// `redis+sentinel://HOST:PORT,HOST:PORT/SERVICE/DATABASE` for the primary that sentinels
            /// name, or `redis+cluster://HOST:PORT,HOST:PORT` for Redis Cluster. `rediss` in place of
            /// `redis` is TLS, which hosts on another machine need. User and password are parts of the
            /// URL, before the first host.
            store: StoreUrl,
            /// The address for other replicas, different from those for clients and operators.
            listen: SocketAddr,
            /// The host and port where other replicas reach `listen`.
            advertise: PeerHost,
            /// The certificate chain for connections between replicas, as PEM. It names the host of
            /// `advertise`, and is for servers and for clients. Required with `key` and `ca`, unless
            /// `store`, `listen` and `advertise` are addresses of this machine.
            cert: Option<PathBuf>,
            /// Its private key, as PEM. A reload reads the three files again, for new connections.
            key: Option<PathBuf>,
            /// The CA certificates, as PEM, that issue the replicas' certificates, and no others.
            ca: Option<PathBuf>,
            /// Treatment of requests with a rate that replicas share, while the store cannot be
            /// reached.
            degrade: DegradeChoice = "local",
        }
    }
}

choice! {
    /// Treatment of requests with a rate that replicas share, while the store cannot be reached.
    pub enum DegradeChoice {
        /// each replica counts for itself, so that all together admit up to as many times the rate
        "local" => Local,
        /// they are refused with HTTP 503
        "refuse" => Refuse,
    }
}

/// A host and a port, as other replicas reach this one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PeerHost {
    host: String,
    port: u16,
}

impl PeerHost {
    /// Parses `HOST:PORT`; an IPv6 address is in brackets.
    pub fn parse(text: &str) -> Option<Self> {
        if text.contains('@') || text.len() > MAX_PEER_HOST_BYTES {
            return None;
        }
        let authority: Authority = text.parse().ok()?;
        let port = authority.port_u16().filter(|port| *port != 0)?;
        let host = authority.host().trim_matches(['[', ']']).to_ascii_lowercase();
        let is_everywhere = host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
        (!host.is_empty() && !is_everywhere).then_some(Self { host, port })
    }

    /// Returns the host, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Returns the port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns true if the host is this machine.
    pub fn is_own_machine(&self) -> bool {
        is_own_host(&self.host)
    }
}

impl std::fmt::Display for PeerHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Setting for PeerHost {
    type Value = Self;

    fn kind_word() -> String {
        "host with port, with substitution".into()
    }

    fn example_value() -> String {
        "\"${env:POD_IP}:7070\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        let text = node.substitute_text::<Self>(reader)?;
        let host = Self::parse(&text);
        if host.is_none() {
            node.report_fault(reader, SettingFault::from(ClusterFault::Advertise));
        }
        host
    }

    fn json_schema() -> Json {
        json!({ "type": "string" })
    }
}

impl ClusterConfig {
    /// Returns true if everything is on this machine, so that connections between replicas need no TLS.
    pub fn is_own_machine(&self) -> bool {
        self.store.is_own_machine()
            && self.listen.ip().is_loopback()
            && self.advertise.is_own_machine()
    }

    /// Returns true if a reload applies all changes of the new section: those of the names of the
    /// certificate files.
    pub fn is_applied_by(&self, new: Option<&Self>) -> bool {
        let Some(new) = new else { return false };
        let has_files = |it: &Self| it.cert.is_some();
        let (cert, key, ca) = (new.cert.clone(), new.key.clone(), new.ca.clone());
        has_files(self) == has_files(new) && Self { cert, key, ca, ..self.clone() } == *new
    }
}

/// Returns true if a host is a loopback name or address.
pub(super) fn is_own_host(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The longest host with its port: a name has at most 253 bytes.
const MAX_PEER_HOST_BYTES: usize = 262;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_a_host_that_others_reach_with_a_port() {
        for (text, shown) in [
            ("10.0.0.7:7070", Some("10.0.0.7:7070")),
            ("[2001:db8::7]:7070", Some("[2001:db8::7]:7070")),
            ("Gateway-0.gateways:7070", Some("gateway-0.gateways:7070")),
            ("0.0.0.0:7070", None),
            ("[::]:7070", None),
            ("10.0.0.7", None),
            ("10.0.0.7:0", None),
            ("u@10.0.0.7:7070", None),
            (":7070", None),
        ] {
            assert_eq!(PeerHost::parse(text).map(|host| host.to_string()).as_deref(), shown);
        }
    }
}
