//! The URL of the store that replicas share: one server, sentinels, or a cluster.

use serde_json::{Value as Json, json};
use url::Url;

use super::cluster::is_own_host;
use crate::faults::cluster::ClusterFault;
use crate::reader::setting::Setting;
use crate::reader::{ConfigNode, ConfigReader};
use crate::source::secret::Secret;

/// The URL of the store. It may contain a password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreUrl {
    kind: StoreKind,
    hosts: Vec<StoreHost>,
    /// User and password as they are in a URL, with their `@`; empty without any.
    credentials: Secret,
    /// Digits, or empty for the first one.
    database: String,
    is_tls: bool,
}

/// The kind of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreKind {
    /// One server.
    Server,
    /// Sentinels, which know the primary of a service.
    Sentinels {
        /// The name of the service.
        service: String,
    },
    /// Redis Cluster.
    Cluster,
}

/// A host and a port of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreHost {
    /// The host, an IPv6 address in brackets.
    pub host: String,
    /// The port.
    pub port: u16,
}

impl StoreHost {
    /// Returns true if the host is this machine.
    pub fn is_own_machine(&self) -> bool {
        is_own_host(self.host.trim_matches(['[', ']']))
    }
}

impl std::fmt::Display for StoreHost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl StoreUrl {
    /// Parses a URL.
    ///
    /// # Errors
    /// The violated rule, without any part of the text.
    pub fn parse(text: &str) -> Result<Self, ClusterFault> {
        let (scheme, rest) = text.split_once("://").ok_or(ClusterFault::StoreUrl)?;
        let (protocol, kind) = scheme.split_once('+').unwrap_or((scheme, ""));
        let is_tls = match (protocol, kind) {
            ("redis" | "rediss", "" | "sentinel" | "cluster") => protocol == "rediss",
            ("redis" | "rediss" | "valkey" | "valkeys", _) => return Err(ClusterFault::StoreKind),
            _ => return Err(ClusterFault::StoreUrl),
        };
        if rest.contains(['?', '#']) {
            return Err(ClusterFault::StoreUrl);
        }
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (credentials, hosts) = match authority.rfind('@') {
            Some(end) => authority.split_at(end + 1),
            None => ("", authority),
        };
        let port = if kind == "sentinel" { SENTINEL_PORT } else { STORE_PORT };
        let hosts = hosts.split(',').map(|host| parse_host(host, port));
        let hosts = hosts.collect::<Option<Vec<_>>>().ok_or(ClusterFault::StoreUrl)?;
        let is_one = kind.is_empty();
        if hosts.len() > MAX_STORE_HOSTS || (is_one && hosts.len() > 1) {
            return Err(ClusterFault::StoreHosts);
        }
        let (kind, database) = match kind {
            "sentinel" => {
                let (service, database) = path.split_once('/').unwrap_or((path, ""));
                if !is_service(service) {
                    return Err(ClusterFault::StoreService);
                }
                (StoreKind::Sentinels { service: service.to_owned() }, database)
            }
            "cluster" if path.is_empty() => (StoreKind::Cluster, ""),
            "cluster" => return Err(ClusterFault::ClusterDatabase),
            _ => (StoreKind::Server, path),
        };
        if database.len() > MAX_DATABASE_DIGITS || !database.bytes().all(|it| it.is_ascii_digit()) {
            return Err(ClusterFault::StoreUrl);
        }
        let url = Self {
            kind,
            hosts,
            credentials: Secret::new(credentials.to_owned()),
            database: database.to_owned(),
            is_tls,
        };
        // Credentials with other characters than a URL has.
        if url.hosts.iter().any(|host| Url::parse(&url.node_url(host)).is_err()) {
            return Err(ClusterFault::StoreUrl);
        }
        // A program that reads the connection would learn the password.
        if !is_tls && !url.is_own_machine() {
            return Err(ClusterFault::PlainStore);
        }
        Ok(url)
    }

    /// Returns the kind.
    pub fn kind(&self) -> &StoreKind {
        &self.kind
    }

    /// Returns the hosts: of the server, of the sentinels, or of nodes of the cluster.
    pub fn hosts(&self) -> &[StoreHost] {
        &self.hosts
    }

    /// Returns true if connections have TLS.
    pub fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Returns the URL of one server, with credentials and database.
    pub fn node_url(&self, host: &StoreHost) -> String {
        let (credentials, database) = (self.credentials.expose(), &self.database);
        format!("{}://{credentials}{host}/{database}", self.node_scheme())
    }

    /// Returns the URLs of one sentinel: without credentials, and with them if there are any.
    pub fn sentinel_urls(&self, host: &StoreHost) -> Vec<String> {
        let credentials = self.credentials.expose();
        let with = Some(credentials).filter(|it| !it.is_empty());
        let all = [Some(""), with].into_iter().flatten();
        all.map(|credentials| format!("{}://{credentials}{host}/", self.node_scheme())).collect()
    }

    fn node_scheme(&self) -> &'static str {
        if self.is_tls { "rediss" } else { "redis" }
    }

    /// Returns the URL without credentials and database, for logs.
    pub fn place(&self) -> String {
        let hosts: Vec<_> = self.hosts.iter().map(ToString::to_string).collect();
        let (scheme, hosts) = (self.node_scheme(), hosts.join(","));
        match &self.kind {
            StoreKind::Server => format!("{scheme}://{hosts}"),
            StoreKind::Sentinels { service } => format!("{scheme}+sentinel://{hosts}/{service}"),
            StoreKind::Cluster => format!("{scheme}+cluster://{hosts}"),
        }
    }

    /// Returns true if all hosts are this machine.
    pub fn is_own_machine(&self) -> bool {
        self.hosts.iter().all(StoreHost::is_own_machine)
    }
}

/// Parses `HOST` or `HOST:PORT`.
fn parse_host(text: &str, port: u16) -> Option<StoreHost> {
    let url = Url::parse(&format!("redis://{text}")).ok()?;
    let host = url.host_str().filter(|host| !host.is_empty())?;
    let port = url.port().unwrap_or(port);
    let is_host_alone = url.username().is_empty()
        && url.password().is_none()
        && url.path().is_empty()
        && !text.contains(['@', '%']);
    (is_host_alone && port != 0).then(|| StoreHost { host: host.to_owned(), port })
}

/// Returns true for a name that sentinels have for a service.
fn is_service(text: &str) -> bool {
    let is_valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=MAX_SERVICE_BYTES).contains(&text.len()) && text.bytes().all(is_valid)
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

/// The port of a server whose URL has none.
const STORE_PORT: u16 = 6379;
/// The port of a sentinel whose URL has none.
const SENTINEL_PORT: u16 = 26379;
/// Maximum number of hosts of a store.
const MAX_STORE_HOSTS: usize = 16;
/// The longest number of a database.
const MAX_DATABASE_DIGITS: usize = 5;
/// The longest name of a service.
const MAX_SERVICE_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_store_shows_no_password_and_plain_connections_stay_on_this_machine() {
        for (text, place, is_own) in [
            ("redis://127.0.0.1:7000", Ok("redis://127.0.0.1:7000"), true),
            ("redis://[::1]", Ok("redis://[::1]:6379"), true),
            ("redis://localhost/3", Ok("redis://localhost:6379"), true),
            (
                "rediss://u:secret@valkey.internal:6380/0",
                Ok("rediss://valkey.internal:6380"),
                false,
            ),
            (
                "rediss+sentinel://u:secret@a,b:7,127.0.0.1/main/2",
                Ok("rediss+sentinel://a:26379,b:7,127.0.0.1:26379/main"),
                false,
            ),
            (
                "redis+sentinel://[::1],localhost:1/m",
                Ok("redis+sentinel://[::1]:26379,localhost:1/m"),
                true,
            ),
            (
                "redis+cluster://127.0.0.1:1,127.0.0.1:2",
                Ok("redis+cluster://127.0.0.1:1,127.0.0.1:2"),
                true,
            ),
            ("rediss+cluster://:secret@n1,n2/", Ok("rediss+cluster://n1:6379,n2:6379"), false),
            ("redis://valkey.internal:6379", Err(ClusterFault::PlainStore), false),
            ("redis://u:secret@192.0.2.7", Err(ClusterFault::PlainStore), false),
            ("redis+sentinel://127.0.0.1,h/main", Err(ClusterFault::PlainStore), false),
            ("redis+cluster://127.0.0.1,h:1", Err(ClusterFault::PlainStore), false),
            ("redis+unix:///run/redis.sock", Err(ClusterFault::StoreKind), false),
            ("valkey://127.0.0.1", Err(ClusterFault::StoreKind), false),
            ("redis+sentinel://127.0.0.1", Err(ClusterFault::StoreService), false),
            ("redis+sentinel://127.0.0.1/a b", Err(ClusterFault::StoreService), false),
            ("redis+sentinel://127.0.0.1/main/x", Err(ClusterFault::StoreUrl), false),
            ("redis+cluster://127.0.0.1/1", Err(ClusterFault::ClusterDatabase), false),
            ("redis://127.0.0.1,127.0.0.1:1", Err(ClusterFault::StoreHosts), false),
            ("redis+cluster://127.0.0.1,", Err(ClusterFault::StoreUrl), false),
            ("redis+cluster://127.0.0.1:0", Err(ClusterFault::StoreUrl), false),
            ("http://h", Err(ClusterFault::StoreUrl), false),
            ("redis://127.0.0.1/names", Err(ClusterFault::StoreUrl), false),
            ("redis://127.0.0.1?protocol=resp3", Err(ClusterFault::StoreUrl), false),
            ("h:6379", Err(ClusterFault::StoreUrl), false),
        ] {
            let parsed = StoreUrl::parse(text);
            let found = parsed.as_ref().map(StoreUrl::place);
            assert_eq!(found, place.as_ref().map(|place| (*place).to_owned()), "{text}");
            assert_eq!(parsed.is_ok_and(|url| url.is_own_machine()), is_own, "{text}");
        }
        let hosts = vec!["127.0.0.1"; MAX_STORE_HOSTS].join(",");
        assert!(StoreUrl::parse(&format!("redis+cluster://{hosts}")).is_ok());
        let more = StoreUrl::parse(&format!("redis+cluster://{hosts},127.0.0.1"));
        assert_eq!(more, Err(ClusterFault::StoreHosts));
    }

    #[test]
    fn servers_get_the_credentials_and_sentinels_only_if_they_need_them() {
        let url = StoreUrl::parse("rediss+sentinel://u:p%40@a,b/main/3").unwrap();
        let [a, b] = url.hosts() else { panic!("{url:?}") };
        assert_eq!(url.node_url(a), "rediss://u:p%40@a:26379/3");
        assert_eq!(url.sentinel_urls(b), ["rediss://b:26379/", "rediss://u:p%40@b:26379/"]);
        let open = StoreUrl::parse("redis+sentinel://127.0.0.1/main").unwrap();
        assert_eq!(open.sentinel_urls(&open.hosts()[0]).len(), 1);
        assert!(!format!("{url:?}").contains("p%40"), "{url:?}");
    }
}
