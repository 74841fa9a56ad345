//! The rules for `[cluster]`.

/// Every rule: settings of the section and of the gateway, and the reported fault.
pub(super) const RULES: &[([&str; 4], &str)] = &[
    (
        ["redis+unix:///run/secret.sock", LISTEN, LISTEN, KEYS],
        "2: cluster.store: this kind of store is not supported; write rediss://HOST:PORT, rediss+sentinel://HOST,HOST/SERVICE, or rediss+cluster://HOST,HOST",
    ),
    (
        ["rediss://:secret@h:1,h:2", LISTEN, LISTEN, KEYS],
        "2: cluster.store: too many hosts: one server, or at most 16 sentinels or nodes of a cluster; name some of them: they know the others",
    ),
    (
        ["redis+sentinel://:secret@127.0.0.1", LISTEN, LISTEN, KEYS],
        "2: cluster.store: the sentinels need the name of the service: letters, digits, `.`, `-` and `_`; write redis+sentinel://HOST:PORT,HOST:PORT/SERVICE",
    ),
    (
        ["redis+cluster://:secret@127.0.0.1/1", LISTEN, LISTEN, KEYS],
        "2: cluster.store: a cluster has one database; remove the path after the hosts",
    ),
    (
        ["redis+sentinel://:secret@127.0.0.1,h:1/x", LISTEN, LISTEN, KEYS],
        "2: cluster.store: a store on another machine needs TLS; use rediss, with a certificate of a platform CA or SSL_CERT_FILE",
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
        "2: cluster.store: a store on another machine needs TLS; use rediss, with a certificate of a platform CA or SSL_CERT_FILE",
    ),
    (["rediss://valkey:6379", LISTEN, LISTEN, KEYS], NO_CERTIFICATES),
    (["rediss+cluster://127.0.0.1,valkey", LISTEN, LISTEN, KEYS], NO_CERTIFICATES),
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
