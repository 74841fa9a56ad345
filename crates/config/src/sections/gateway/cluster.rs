//! `[cluster]`: several gateways behind one endpoint.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use http::uri::Authority;
use serde_json::{Value as Json, json};
use url::Url;

use crate::faults::cluster::ClusterFault;
use crate::faults::problem::SettingFault;
use crate::reader::macros::{choice, section};
use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};
use crate::source::secret::Secret;

section! {
    /// Replicas: several gateways with the same clients, behind one address ([replicas](cluster.md)).
    /// A session of a Legacy client is reachable through each of them. Needs `gateway.state_keys`, the
    /// same on all replicas. Read at the start.
    #[derive(Debug, Clone, PartialEq)]
    pub struct ClusterConfig {
        settings {
            /// The Redis or Valkey server with the list of replicas: `redis://HOST:PORT/DATABASE`, or
            /// `rediss://` for TLS, which a server on another machine needs. User and password are parts of the URL.
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

/// The URL of the store. It may contain a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    url: Secret,
    place: String,
    is_own_machine: bool,
}

impl StoreUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// The violated rule, without any part of the text.
    pub fn parse(text: &str) -> Result<Self, ClusterFault> {
        let url = Url::parse(text).map_err(|_| ClusterFault::StoreUrl)?;
        match url.scheme() {
            "redis" | "rediss" => {}
            scheme if scheme.starts_with("redis") || scheme.starts_with("valkey") => {
                return Err(ClusterFault::StoreKind);
            }
            _ => return Err(ClusterFault::StoreUrl),
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or(ClusterFault::StoreUrl)?;
        let database = url.path().trim_start_matches('/');
        if url.query().is_some()
            || url.fragment().is_some()
            || !database.bytes().all(|byte| byte.is_ascii_digit())
        {
            return Err(ClusterFault::StoreUrl);
        }
        let place = format!("{}://{host}:{}", url.scheme(), url.port().unwrap_or(STORE_PORT));
        // The host of an unknown scheme is not parsed as an address.
        let is_own_machine = is_own_host(host.trim_matches(['[', ']']));
        // A program that reads the connection would learn the password.
        if url.scheme() == "redis" && !is_own_machine {
            return Err(ClusterFault::PlainStore);
        }
        Ok(Self { url: Secret::new(text.to_owned()), place, is_own_machine })
    }

    /// Returns the whole URL, for the connection.
    pub fn expose(&self) -> &str {
        self.url.expose()
    }

    /// Returns scheme, host and port, for logs.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns true if the store is on this machine.
    pub fn is_own_machine(&self) -> bool {
        self.is_own_machine
    }
}

impl Setting for StoreUrl {
    type Value = Self;

    fn kind_word() -> String {
        "Redis URL, with substitution".into()
    }

    fn example_value() -> String {
        "\"rediss://valkey.internal:6379\"".into()
    }

    fn read_value(node: &ConfigNode<'_>, reader: &mut ConfigReader<'_>) -> Option<Self> {
        reader.hidden.push(node.span.clone());
        let text = node.substitute_text::<Self>(reader)?;
        Self::parse(&text).map_err(|fault| node.report_fault(reader, fault.into())).ok()
    }

    fn json_schema() -> Json {
        json!({ "type": "string" })
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
fn is_own_host(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The port of a store whose URL has none.
const STORE_PORT: u16 = 6379;
/// The longest host with its port: a name has at most 253 bytes.
const MAX_PEER_HOST_BYTES: usize = 262;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_is_one_redis_server_and_its_place_shows_no_password() {
        for (text, place, is_own) in [
            ("redis://127.0.0.1:7000", Ok("redis://127.0.0.1:7000"), true),
            ("redis://[::1]", Ok("redis://[::1]:6379"), true),
            ("redis://localhost/3", Ok("redis://localhost:6379"), true),
            (
                "rediss://u:secret@valkey.internal:6380/0",
                Ok("rediss://valkey.internal:6380"),
                false,
            ),
            ("redis://valkey.internal:6379", Err(ClusterFault::PlainStore), false),
            ("redis://u:secret@192.0.2.7", Err(ClusterFault::PlainStore), false),
            ("redis+sentinel://h:1/name", Err(ClusterFault::StoreKind), false),
            ("redis+cluster://h:1", Err(ClusterFault::StoreKind), false),
            ("redis+unix:///run/redis.sock", Err(ClusterFault::StoreKind), false),
            ("http://h", Err(ClusterFault::StoreUrl), false),
            ("redis://h/names", Err(ClusterFault::StoreUrl), false),
            ("redis://h?protocol=resp3", Err(ClusterFault::StoreUrl), false),
            ("h:6379", Err(ClusterFault::StoreUrl), false),
        ] {
            let parsed = StoreUrl::parse(text);
            assert_eq!(
                parsed.as_ref().map(StoreUrl::place),
                place.as_ref().map(|it| *it),
                "{text}"
            );
            assert_eq!(parsed.is_ok_and(|url| url.is_own_machine()), is_own, "{text}");
        }
    }

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
