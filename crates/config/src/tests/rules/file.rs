//! The rules for the whole file.

/// Every rule: a text that violates it, and the reported fault.
pub(super) const RULES: &[(&str, &str)] = &[
    ("[gatway]", "1: gatway: unknown key; did you mean `gateway`?"),
    (
        "x = 1",
        "1: x: unknown key; expected one of: gateway, admin, log, telemetry, events, audit, vault, cluster, servers, tools, policy, interceptors, profiles, search, code, clients, issuers",
    ),
    (
        "gateway = 1",
        "1: gateway: expected a table, found an integer; write its settings below a [header] of its own, or within { }",
    ),
    (
        "[issuers.\"a:b\"]\nissuer = \"https://a.test\"",
        "1: issuers.\"a:b\": not the name of an issuer; use 1 to 32 characters of a-z, A-Z, 0-9, `_`, `-` and `.`",
    ),
    (
        "[issuers.a]\nissuer = \"http://a.test\"",
        "2: issuers.a.issuer: not a usable URL: it is plain `http` to another machine; write https://, or an address of this machine",
    ),
    (
        "[issuers.a]\nissuer = \"https://a.test\"\n[issuers.b]\nissuer = \"https://b.test\"\nissuer_aliases = [\"https://a.test\"]",
        "5: issuers.b.issuer_aliases[0]: `issuers.a.issuer` accepts the same `iss`; keep one of them",
    ),
    (
        "[issuers.a]\nissuer = \"https://a.test\"\njwks_url = \"https://a.test/k\"\njwks_file = \"k\"",
        "4: issuers.a.jwks_file: the issuer has both `jwks_url` and `jwks_file`; keep one of them",
    ),
    (
        "[issuers.a]\nissuer = \"https://a.test\"\nalgorithms = []",
        "3: issuers.a.algorithms: the list is empty, so no token would be accepted; name at least one, or remove the setting",
    ),
    (
        "[issuers.a]\nissuer = \"https://a.test\"\nprofiles = [\"x\"]",
        "3: issuers.a.profiles[0]: unknown profile `x`; add a [profiles.NAME], or write \"default\" for /mcp itself",
    ),
    (
        "[gateway]\nlisten = \"0.0.0.0:1\"\nallowed_hosts = [\"x\"]\n[issuers.a]\nissuer = \"https://a.test\"",
        "2: gateway.listen: 0.0.0.0:1 is reachable by other machines, but there is no `public_url`; add the URL by which clients reach the gateway, such as public_url = \"https://mcp.example.com\"",
    ),
    (
        "[gateway]\npublic_url = \"http://mcp.example.com\"",
        "2: gateway.public_url: not a usable URL: it is plain `http` to another machine; write https://, or an address of this machine",
    ),
    (
        "[profiles.a]\nscopes = [\"x\"]",
        "2: profiles.a.scopes: scopes are needed, but there are neither `[clients]` nor `[issuers]`; add an [issuers.NAME] or a [clients.NAME], or remove them",
    ),
    (
        "[servers.s]\ncommand = \"x\"\ntools.t.scopes = [\"x\"]",
        "3: servers.s.tools.t.scopes: scopes are needed, but there are neither `[clients]` nor `[issuers]`; add an [issuers.NAME] or a [clients.NAME], or remove them",
    ),
    (
        "[issuers.a]\nissuer = \"https://a.test\"\n[profiles.a]\nscopes = [\"offline_access\"]",
        "4: profiles.a.scopes[0]: `offline_access` is a matter of clients and authorization servers; remove it",
    ),
    (
        "[issuers.a]\nissuer = \"https://a.test\"\n[profiles.a]\nscopes = [\"a b\"]",
        "4: profiles.a.scopes[0]: \"a b\" is not a scope; write visible ASCII characters without spaces, `\"` and `\\`, such as \"mcp:read\"",
    ),
    (
        "[issuers.a]\nissuer = \"https://a.test\"\n[gateway]\nscopes = { \"a b\" = [\"c\"] }",
        "4: gateway.scopes.\"a b\": not the name of a scope; use visible ASCII characters without spaces, `\"` and `\\`",
    ),
    (
        "[events]\nurl = \"http://hooks.example.com\"\nsecret = \"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\"",
        "2: events.url: not a usable URL: it is plain `http` to another machine; write https://, or an address of this machine",
    ),
    (
        "[events]\nurl = \"https://hooks.example.com\"",
        "2: events.url: `url` needs a `secret`, which signs the requests; add secret = \"${env:WEBHOOK_SECRET}\"",
    ),
    (
        "[events]\nurl = \"http://[::1]/\"\nsecret = \"hush\"",
        "3: events.secret: not a signing key: expected `whsec_` and 24 to 64 bytes in Base64; create one: echo \"whsec_$(openssl rand -base64 32)\"",
    ),
    (
        "[events]\ncommand = \"x\"\nfile = \"y\"",
        "3: events.file: `[events]` has more than one of `url`, `command` and `file`; keep one of them",
    ),
    (
        "[audit]\nfile = \"x\"\nstdout = true",
        "3: audit.stdout: `[audit]` has more than one of `file`, `stdout` and `syslog`; keep one of them",
    ),
    (
        "[audit]\nstdout = false",
        "1: audit: `[audit]` has none of `file`, `stdout` and `syslog`; add file = \"audit.jsonl\", stdout = true or syslog = \"unix:/dev/log\"",
    ),
    (
        "[audit]\nstdout = true\nkeep = 1",
        "3: audit.keep: this setting has no effect without `file`; add that one, or remove this one",
    ),
    (
        "[audit]\nstdout = true\nchain = true\nchain_key = \"short\"",
        "4: audit.chain_key: the key of the chain has fewer than 32 bytes; create one: openssl rand -hex 32",
    ),
    (
        "[audit]\nsyslog = \"udp://host\"",
        "2: audit.syslog: \"udp://host\" is not a syslog receiver; write `unix:PATH`, `udp://HOST:PORT` or `tcp://HOST:PORT`, such as \"unix:/dev/log\"",
    ),
    (
        "[audit]\nstdout = true\narguments = true\nredact_keys = [\"(\"]",
        "4: audit.redact_keys[0]: at character 1: unclosed group; write a regular expression as in docs.rs/regex, such as '^iban$'",
    ),
    (
        "[audit]\nstdout = true\narguments = true\narguments_size = \"1MiB\"",
        "4: audit.arguments_size: out of range; expected a value from 1B to 256KiB",
    ),
    (
        "[admin]\ntls = true",
        "2: admin.tls: `[gateway.tls]` is missing, whose certificates this listener uses; add [gateway.tls], or remove this setting",
    ),
    (
        "[audit]\nsyslog = \"udp://127.0.0.1:514\"\nrequired = true\narguments = true\narguments_size = \"32KiB\"",
        "5: audit.arguments_size: a required record has to fit into a datagram; write \"24KiB\" or less, or use tcp://",
    ),
    (
        "[events]\ntypes = [\"*\"]",
        "1: events: `[events]` has none of `url`, `command` and `file`; add url = \"https://…\", command = \"…\" or file = \"…\"",
    ),
    (
        "[events]\nfile = \"x\"\nargs = [\"y\"]",
        "3: events.args: this setting is only for events with `command`; remove it, or use the other receiver",
    ),
    (
        "[events]\nfile = \"x\"\ntypes = [\"servers.*\"]",
        "3: events.types[0]: no type of event matches; write a name from docs/events.md, such as \"server.ready\", or a pattern such as \"server.*\"",
    ),
    (
        "[gateway]\nlisten = \"localhost\"",
        "2: gateway.listen: \"localhost\" is not an address with port; write an IP address and a port, such as \"127.0.0.1:8080\"",
    ),
    (
        "[gateway]\nlisten = \"0.0.0.0:1\"\nallowed_hosts = [\"x\"]",
        "2: gateway.listen: 0.0.0.0:1 is reachable by other machines, but there are no `[clients]`; add a [clients.NAME] (see `trunkline key`), or write anonymous = \"anyone\" if a proxy in front of the gateway authenticates clients",
    ),
    (
        "[gateway]\nlisten = \"0.0.0.0:1\"\nanonymous = \"anyone\"",
        "2: gateway.listen: 0.0.0.0:1 is reachable by other machines, but `allowed_hosts` is empty; add the host names that clients use, such as allowed_hosts = [\"mcp.example.com\"], or public_url = \"https://mcp.example.com\"",
    ),
    (
        "[gateway]\nlisten = \"127.0.0.1:8081\"",
        "2: gateway.listen: `gateway.listen` and `admin.listen` are the same address; give the admin listener a port of its own, or write \"off\"",
    ),
    (
        "[gateway]\nnaming = \"conflicts\"",
        "2: gateway.naming: \"conflicts\" is not one of the choices; did you mean `conflict`?",
    ),
    (
        "[gateway]\nname_format = \"{tool}\"",
        "2: gateway.name_format: not a format of names; write {server} and {tool} once each, such as \"mcp_{server}_{tool}\", with at most 16 of a-z, A-Z, 0-9, `_` and `-` around them",
    ),
    (
        "[gateway]\nname_format = \"{server}.{tool}\"",
        "2: gateway.name_format: not a format of names; write {server} and {tool} once each, such as \"mcp_{server}_{tool}\", with at most 16 of a-z, A-Z, 0-9, `_` and `-` around them",
    ),
    (
        "[gateway]\nnaming = \"none\"\nname_case = \"snake\"",
        "3: gateway.name_case: this setting has no effect with naming = \"none\"; remove it, or choose another `naming`",
    ),
    (
        "[gateway]\ndrain = 10",
        "2: gateway.drain: expected a duration, found an integer; write \"10s\"",
    ),
    (
        "[gateway]\ndrain = \"367d\"",
        "2: gateway.drain: out of range; expected a value from 0s to 366d",
    ),
    (
        "[gateway]\nkeep_alive = \"0s\"",
        "2: gateway.keep_alive: out of range; expected a value from 1ms to 366d",
    ),
    (
        "[gateway]\npage_size = 0",
        "2: gateway.page_size: out of range; expected a value from 1 to 10000",
    ),
    (
        "[gateway]\ntitle = \"${env:X}\"",
        "2: gateway.title: substitution is not supported in this setting; ${…} works in headers, env, url, endpoint and args",
    ),
    (
        "[gateway]\nallowed_hosts = [\"http://x\"]",
        "2: gateway.allowed_hosts[0]: \"http://x\" is not a host name; write \"x\"",
    ),
    (
        "[gateway]\nallowed_origins = [\"x\"]",
        "2: gateway.allowed_origins[0]: \"x\" is not an origin; write a scheme and a host, without path, such as \"https://app.example.com\"",
    ),
    (
        "[gateway.limits]\nbody = \"4MB\"",
        "2: gateway.limits.body: \"4MB\" is not a size; write \"4MiB\"",
    ),
    (
        "[gateway.limits]\nbody = \"3GiB\"",
        "2: gateway.limits.body: out of range; expected a value from 1B to 2GiB",
    ),
    (
        "[gateway.tls]\ncert = \"x\"",
        "1: gateway.tls: `key` is missing; add key = \"certs/server.pem\"",
    ),
    (
        "[log]\nlevel = \"info,=\"",
        "2: log.level: not a log filter; write a level, such as \"info\", or \"info,trunkline::upstream=debug\"",
    ),
    (
        "[telemetry]\nsample = 1.5",
        "2: telemetry.sample: out of range; expected a value from 0 to 1",
    ),
    (
        "[telemetry]\nendpoint = \"collector:4318\"",
        "2: telemetry.endpoint: not a usable URL: its scheme is neither `http` nor `https`; write a complete URL that starts with https:// or http://",
    ),
    (
        "[servers.x]",
        "1: servers.x: the server has none of `command`, `url` and `openapi`; add command = \"…\" for a child process, url = \"https://…\" for a server over HTTP, or openapi = \"…\" for a plain HTTP API",
    ),
    (
        "[servers.a__b]\ncommand = \"x\"",
        "1: servers.a__b: a server name must not contain `__`, which separates server and tool; rename the table, such as [servers.github]",
    ),
    (
        "[clients.ci]\nrate = \"1/s\"",
        "1: clients.ci: the client has neither `key` nor `keys`; `trunkline key` creates a key and its hash; `trunkline key --hash` hashes an existing key",
    ),
    (
        "[clients.ci]\nkeys = [\"tlk_plain\"]",
        "2: clients.ci.keys[0]: not a SHA-256 hash in hexadecimal: only a key's hash belongs here; `trunkline key` creates a key and its hash; `trunkline key --hash` hashes an existing key",
    ),
    (
        "[clients.ci]\nkeys = [{ expires = 2027-01-31 }]",
        "2: clients.ci.keys[0]: `hash` is missing; add hash = \"sha256:…\"",
    ),
    (
        "[clients.ci]\nkeys = [{ hash = \"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\", expires = 2027-01-31T18:00:00 }]",
        "2: clients.ci.keys[0].expires: \"2027-01-31T18:00:00\" is not a date; write 2027-01-31 or 2027-01-31T18:00:00Z",
    ),
    (
        "[profiles.\"a b\"]",
        "1: profiles.\"a b\": not a profile's name; use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`",
    ),
    (
        "[servers.github]\ncommand = \"x\"\n[profiles.a]\nservers = [\"github\", \"gihub\", \"later*\"]",
        "4: profiles.a.servers[1]: unknown server `gihub`; did you mean `github`?",
    ),
    (
        "[profiles.a]\ntools = [\"\"]",
        "2: profiles.a.tools[0]: \"\" is not a pattern; write 1 to 128 characters, with `*` and `?`, such as \"search_*\"",
    ),
    (
        "[profiles.support]\n[clients.ci]\nkey = \"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"\nprofiles = [\"default\", \"support\", \"suport\"]",
        "4: clients.ci.profiles[2]: unknown profile `suport`; did you mean `support`?",
    ),
    (
        "[clients.ci]\nkey = \"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"\nprofiles = []",
        "3: clients.ci.profiles: the list of profiles is empty; name at least one, or remove the setting to allow all",
    ),
    (
        "[clients.\"a b\"]\nkey = \"sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\"",
        "1: clients.\"a b\": not a client's name; use 1 to 64 characters of a-z, A-Z, 0-9, `_`, `-`, `.` and `@`; not `anonymous`",
    ),
    (
        "[[servers]]\ncommand = \"x\"",
        "1: servers: expected a table, found an array; write its settings below a [header] of its own, or within { }",
    ),
];
