//! The faults of `[cluster]`.

/// A fault of `[cluster]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ClusterFault {
    /// The store's URL is not one of a Redis server.
    #[error("not the URL of a Redis or Valkey server")]
    StoreUrl,
    /// The store is a Unix socket, or has another scheme than Redis.
    #[error("this kind of store is not supported")]
    StoreKind,
    /// The store has too many hosts.
    #[error("too many hosts: one server, or at most 16 sentinels or nodes of a cluster")]
    StoreHosts,
    /// The name of the service of sentinels is missing.
    #[error("the sentinels need the name of the service: letters, digits, `.`, `-` and `_`")]
    StoreService,
    /// Redis Cluster has no databases.
    #[error("a cluster has one database")]
    ClusterDatabase,
    /// The store is on another machine, and its connection has no TLS.
    #[error("a store on another machine needs TLS")]
    PlainStore,
    /// The advertised address is not one.
    #[error("not a host with a port that other replicas can connect to")]
    Advertise,
    /// `[gateway] state_keys` is missing.
    #[error("`gateway.state_keys` is missing, from which the keys between replicas are derived")]
    NoStateKeys,
    /// A certificate, a key or a CA is missing.
    #[error("`{missing}` is missing: `cert`, `key` and `ca` are set together")]
    Incomplete {
        /// The missing setting.
        missing: &'static str,
    },
    /// Other machines are involved, and there are no certificates.
    #[error("replicas or a store on other machines need `cert`, `key` and `ca`")]
    NoCertificates,
    /// The address of another listener.
    #[error("`cluster.listen` is the address of another listener")]
    SameAddress,
}

impl ClusterFault {
    /// Returns the correction, as an imperative.
    pub(crate) fn help(self) -> &'static str {
        match self {
            Self::StoreUrl => "write redis://HOST:PORT, or rediss:// for TLS",
            Self::StoreKind => {
                "write rediss://HOST:PORT, rediss+sentinel://HOST,HOST/SERVICE, or \
                 rediss+cluster://HOST,HOST"
            }
            Self::StoreHosts => "name some of them: they know the others",
            Self::StoreService => "write redis+sentinel://HOST:PORT,HOST:PORT/SERVICE",
            Self::ClusterDatabase => "remove the path after the hosts",
            Self::PlainStore => "use rediss, with a certificate of a platform CA or SSL_CERT_FILE",
            Self::Advertise => "write an address or a name, and the port of `listen`",
            Self::NoStateKeys => {
                "add state_keys = [\"${file:/run/secrets/state.key}\"] to [gateway], the same on all \
                 replicas"
            }
            Self::Incomplete { .. } => "add it, or remove the others",
            Self::NoCertificates => {
                "create a CA for the replicas alone, and a certificate for each of them"
            }
            Self::SameAddress => "give it a port of its own",
        }
    }
}
