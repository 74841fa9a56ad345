//! The rules for `[cluster]`.

/// Every rule: settings of the section and of the gateway, and the reported fault.
pub(super) const RULES: &[([&str; 4], &str)] = &[
    (
        ["redis+sentinel://u:secret@h:1/x", LISTEN, LISTEN, KEYS],
        "2: cluster.store: this kind of store is not supported: expected one server with redis:// or rediss://; write the URL of the primary server, or of a proxy in front of it",
    ),
    (
        ["http://h", LISTEN, LISTEN, KEYS],
        "2: cluster.store: not the URL of a Redis or Valkey server; write redis://HOST:PORT, or rediss:// for TLS",
    ),
    (
        [STORE, LISTEN, "0.0.0.0:7070", KEYS],
        "4: cluster.advertise: not a host with a port that other replicas can connect to; write an address or a name, and the port of `listen`",
    ),
    (
        [STORE, LISTEN, LISTEN, ""],
        "1: cluster: `gateway.state_keys` is missing, from which the keys between replicas are derived; add state_keys = [\"${file:/run/secrets/state.key}\"] to [gateway], the same on all replicas",
    ),
    (
        ["redis://:secret@valkey:6379", LISTEN, LISTEN, KEYS],
        "2: cluster.store: a store on another machine needs TLS; use rediss://, with a certificate of a platform CA or SSL_CERT_FILE",
    ),
    (["rediss://valkey:6379", LISTEN, LISTEN, KEYS], NO_CERTIFICATES),
    ([STORE, "0.0.0.0:7070", LISTEN, KEYS], NO_CERTIFICATES),
    ([STORE, LISTEN, "gateway-0:7070", KEYS], NO_CERTIFICATES),
    (
        [STORE, LISTEN, "127.0.0.1:7070\"\ncert = \"x\"\nkey = \"x", KEYS],
        "1: cluster: `ca` is missing: `cert`, `key` and `ca` are set together; add it, or remove the others",
    ),
    (
        [STORE, "127.0.0.1:8081", LISTEN, KEYS],
        "3: cluster.listen: `cluster.listen` is the address of another listener; give it a port of its own",
    ),
    (
        [STORE, "127.0.0.1:8080", LISTEN, KEYS],
        "3: cluster.listen: `cluster.listen` is the address of another listener; give it a port of its own",
    ),
];

const STORE: &str = "redis://127.0.0.1:6379";
const LISTEN: &str = "127.0.0.1:7070";
const KEYS: &str = "[gateway]\nstate_keys = [\"x\"]";
const NO_CERTIFICATES: &str = "1: cluster: replicas or a store on other machines need `cert`, `key` and `ca`; create a CA for the replicas alone, and a certificate for each of them";
