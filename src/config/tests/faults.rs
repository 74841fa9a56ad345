//! Reported faults.

use super::*;

#[test]
fn each_rule_is_told_with_line_key_and_help() {
    for (text, told) in RULES {
        assert_eq!(faults(text), [*told], "{text}");
    }
}

#[test]
fn each_rule_for_a_server_is_told_with_line_key_and_help() {
    for (lines, told) in SERVER_RULES {
        let found = faults(&format!("[servers.x]\n{lines}"));
        assert_eq!(found.len(), 1, "{lines}: {found:?}");
        assert!(found[0].starts_with(told), "{lines}:\n{}\n{told}", found[0]);
    }
}

#[test]
fn a_webhook_on_this_machine_needs_no_tls() {
    for (url, is_accepted) in [
        ("https://hooks.example.com/x?token=y", true),
        ("http://localhost:9000/x", true),
        ("http://127.0.0.2/x", true),
        ("http://[::1]:9000/x", true),
        ("http://[::ffff:127.0.0.1]/x", true),
        ("http://localhost.example.com/x", false),
        ("http://0.0.0.0/x", false),
        ("http://192.168.0.1/x", false),
    ] {
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
        let text = format!("[events]\nurl = \"{url}\"\nsecret = \"{secret}\"");
        assert_eq!(World::new().read(&text).is_ok(), is_accepted, "{url}");
    }
}

#[test]
fn headers_that_the_gateway_writes_itself_are_refused() {
    for name in [
        "Connection",
        "Transfer-Encoding",
        "Host",
        "Content-Length",
        "Content-Type",
        "Accept",
        "Mcp-Session-Id",
        "mcp-protocol-version",
        "Mcp-Param-X",
        "Proxy-Authorization",
    ] {
        let text = format!("[servers.x]\nurl = \"http://x\"\nheaders = {{ {name} = \"x\" }}");
        let told = World::new().read(&text).unwrap_err();
        assert!(
            matches!(told.list()[0].problem, ConfigProblem::HeaderReserved { .. }),
            "{name}: {told}"
        );
    }
}

#[test]
fn the_faults_of_a_whole_file_are_told_at_once_in_line_order() {
    let text = "
[gateway]
listn = \"127.0.0.1:1\"
drain = \"soon\"

[servers.b]
url = \"ftp://b\"
headers = { Authorization = \"${env:A} ${env:B}\", Host = \"b\" }
tools.allow = [\"\", \"ok\", \"\"]

[servers.a]
comand = \"a\"

[admin]
listen = \"127.0.0.1:8080\"
";
    let found = faults(text);
    let places: Vec<_> =
        found.iter().map(|told| told.split("; ").next().unwrap().to_owned()).collect();
    assert_eq!(
        places,
        [
            "3: gateway.listn: unknown key",
            "4: gateway.drain: \"soon\" is not a duration",
            "7: servers.b.url: not a usable URL: its scheme is neither `http` nor `https`",
            "8: servers.b.headers.Authorization: the environment variable `A` is not set",
            "8: servers.b.headers.Authorization: the environment variable `B` is not set",
            "8: servers.b.headers.Host: this header cannot be configured: it follows from the URL",
            "9: servers.b.tools.allow[0]: \"\" is not a pattern",
            "9: servers.b.tools.allow[2]: \"\" is not a pattern",
            "11: servers.a: the server has none of `command`, `url` and `openapi`",
            "12: servers.a.comand: unknown key",
            "15: admin.listen: `gateway.listen` and `admin.listen` are the same address",
        ]
    );
}

#[test]
fn public_names_are_unique_across_servers() {
    let text = "[servers.a]\ncommand = \"a\"\ntools.t.name = \"n\"\n[servers.b]\ncommand = \"b\"\ntools.t.name = \"n\"";
    assert_eq!(
        faults(text),
        [
            "6: servers.b.tools.t.name: `servers.a.tools.t` has the same public name; give one of them another `name`"
        ]
    );
}

#[test]
fn syntax_faults_stand_beside_the_others_without_their_echoes() {
    for (text, told) in [
        // An unclosed quote invalidates only its own line.
        (
            "[gateway]\nlisten = \"127.0.0.1\ndrain = 3",
            &["2: invalid basic string", "3: gateway.drain: expected"][..],
        ),
        // An unquoted value is reported once, not also as a wrong type.
        (
            "[gateway]\nlisten = 127.0.0.1:1\n[servers.x]\ncomand = 1",
            &["2: invalid float", "4: servers.x.comand: unknown key"],
        ),
        // An unclosed bracket invalidates the rest.
        (
            "[gateway]\ndrain = 3\n[servers.x]\nargs = [\"a\"\n# note\ncommand = \"x\"\n[servers.y]",
            &["2: gateway.drain: expected", "6: missing comma"],
        ),
        ("[gateway\nlisten = \"127.0.0.1:1\"", &["1: unclosed table"]),
        ("[servers.x]\ncommand = \"a\"\ncommand = \"b\"", &["3: duplicate key"]),
        ("[gateway]\nnaming =\n\n\ndrain 3", &["2: ", "5: key with no value"]),
    ] {
        let found = faults(text);
        assert_eq!(found.len(), told.len(), "{text}: {found:?}");
        for (found, told) in found.iter().zip(told) {
            assert!(found.starts_with(told), "{text}: {found}");
        }
    }
}

#[test]
fn a_rendering_shows_the_line_and_what_would_be_right() {
    let text = "[gateway]\nlisten = \"127.0.0.1:8080\"\n\n[servers.x]\ncomand = \"npx\" # é\n";
    let faults = World::new().read(text).unwrap_err();
    assert!(faults.render(Color::Always).contains("\u{1b}["));
    assert_eq!(
        faults.render(Color::Never),
        "\
error: servers.x: the server has none of `command`, `url` and `openapi`
 --> gateway.toml:4:10
  |
4 | [servers.x]
  |          ^
  |
  = help: add command = \"…\" for a child process, url = \"https://…\" for a server over HTTP, or openapi = \"…\" for a plain HTTP API

error: servers.x.comand: unknown key
 --> gateway.toml:5:1
  |
5 | comand = \"***\" # é
  | ^^^^^^
  |
  = help: did you mean `command`?"
    );
}

#[test]
fn a_key_is_one_clients_and_stands_there_once() {
    let world = World::new().file("/etc/trunkline/ci.sha256", HASH_OF_SHA256SUM);
    let text = format!(
        "[clients.ci]\nkey = \"${{file:ci.sha256}}\"\nkeys = [\"{HASH}\"]\n[clients.desk]\nkey = \"sha256:{}\"",
        HASH.to_uppercase()
    );
    let told = world.read(&text).unwrap_err().to_string();
    let told: Vec<_> = told.lines().collect();
    assert_eq!(
        told,
        [
            "gateway.toml:3: clients.ci.keys[0]: `clients.ci.key` has the same key; create a key for each client: `trunkline key`",
            "gateway.toml:5: clients.desk.key: `clients.ci.key` has the same key; create a key for each client: `trunkline key`",
        ]
    );
}

#[test]
fn the_header_that_carries_keys_goes_on_to_no_server() {
    let server =
        "[servers.x]\nurl = \"http://x\"\nforward_headers = [\"Authorization\", \"X-Api-Key\"]\n";
    World::new().read(server).expect("without clients it is a header like any other");
    assert_eq!(
        faults(&format!("{server}[clients.ci]\nkey = \"{HASH}\"")),
        [
            "3: servers.x.forward_headers[1]: this header carries client keys, which are never forwarded; remove it"
        ]
    );
}

const HASH: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const HASH_OF_SHA256SUM: &str =
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  ci.key\n";

#[test]
fn no_telling_shows_a_secret() {
    let world = World::new().variable("TOKEN", "hide-me\n").variable("URL", "hide-me");
    for text in [
        "[servers.x]\nurl = \"http://x\"\nheaders = { A = \"hide-me\", \"b c\" = \"hide-me\" }",
        "[servers.x]\nurl = \"http://x\"\nheaders = { A = \"hide-me\\n\" }",
        "[servers.x]\nurl = \"http://x\"\nheaders = { A = \"${env:TOKEN}\" }",
        "[servers.x]\nurl = \"${env:URL}\"",
        "[servers.x]\nurl = \"http://x\"\nheader = { A = \"hide-me\" }",
        r#"servers.x = { url = "http://x", header = { A = "\\\"hide-me\"hide-me" } }"#,
        "[servers.x]\nurl = \"http://x\"\nheaders = [\"hide-me\"]",
        "[servers.x]\nurl = \"http://x\"\nheaders = \"hide-me\"",
        "[servers.x]\nurl = \"http://user:hide-me@x\"",
        "[servers.x]\nurl = \"http://x\"\nenv = { A = \"hide-me\" }",
        "[servers]\nx = { headers = { A = \"hide-me\" } }",
        "[servers]\nx = [{ headers = { A = \"hide-me\" } }]",
        "servers = [\"hide-me\"]",
        "[servers.x]\ncommand = \"x\"\nenv = { A = \"hide-me\" \ntimeout = \"1s\"",
        "[servers.x]\ncommand = \"x\"\nenv = { A = hide-me }",
        "[servers.x]\ncommand = \"x\"\nenv.A = \"\"\"\nhide-me\nB = 1",
        "[servers.x]\ncommand = \"x\"\nenv.A = \"x\"\nenv.A = \"hide-me\"",
        "[clients.x]\nkey = \"hide-me\"",
        "[clients.x]\nkeys = [\"${env:TOKEN}\", \"hide-me\"]",
        "[telemetry]\nheaders = { A = \"hide-me\", Host = \"hide-me\" }",
    ] {
        let faults = world.read(text).unwrap_err();
        for told in [faults.to_string(), faults.render(Color::Never), format!("{faults:?}")] {
            assert!(!told.contains("hide-me"), "{text}\n{told}");
        }
    }
}

#[test]
fn a_flood_of_faults_is_cut_and_counted() {
    let faults =
        World::new().read(&(0..250).fold(String::new(), |text, n| text + &format!("k{n} = 1\n")));
    let faults = faults.unwrap_err();
    assert_eq!(faults.list().len(), ConfigFaults::MAX + 1);
    assert!(matches!(faults.list()[ConfigFaults::MAX].problem, ConfigProblem::More { count: 150 }));
    assert!(
        faults
            .to_string()
            .ends_with("150 more faults are not shown; fix the faults above, then check again")
    );
}

#[test]
fn what_is_no_text_is_told_as_such() {
    let faults = World::new().read_bytes(b"[gateway]\nlisten = \"\xff\"").unwrap_err();
    assert!(matches!(faults.list()[0].problem, ConfigProblem::NotUtf8));
    assert_eq!(faults.list()[0].line, 2);
}

#[test]
fn a_file_that_cannot_be_read_is_named_for_the_watcher() {
    let text = "[servers.x]\nurl = \"http://x\"\nheaders = { A = \"${file:later}\" }";
    let faults = World::new().read(text).unwrap_err();
    assert_eq!(faults.files(), [PathBuf::from("/etc/trunkline/later")]);
}

/// Every rule for the whole file: a text that violates it, and the reported fault.
const RULES: &[(&str, &str)] = &[
    ("[gatway]", "1: gatway: unknown key; did you mean `gateway`?"),
    (
        "x = 1",
        "1: x: unknown key; expected one of: gateway, admin, log, telemetry, events, servers, profiles, clients",
    ),
    (
        "gateway = 1",
        "1: gateway: expected a table, found an integer; write its settings below a [header] of its own, or within { }",
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
        "2: gateway.listen: 0.0.0.0:1 is reachable by other machines, but there are no `[clients]`; add a [clients.NAME] (see `trunkline key`), or write anonymous = \"anyone\" where something before the gateway knows who is calling",
    ),
    (
        "[gateway]\nlisten = \"0.0.0.0:1\"\nanonymous = \"anyone\"",
        "2: gateway.listen: 0.0.0.0:1 is reachable by other machines, but `allowed_hosts` is empty; add the host names that clients use, such as allowed_hosts = [\"mcp.example.com\"]",
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
        "2: gateway.drain: expected a duration, found an integer; write a whole number with ms, s, m, h or d, such as \"30s\"",
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
        "2: gateway.allowed_hosts[0]: \"http://x\" is not a host name; write a name without scheme and path, such as \"mcp.example.com\"",
    ),
    (
        "[gateway]\nallowed_origins = [\"x\"]",
        "2: gateway.allowed_origins[0]: \"x\" is not an origin; write a scheme and a host, without path, such as \"https://app.example.com\"",
    ),
    (
        "[gateway.limits]\nbody = \"4MB\"",
        "2: gateway.limits.body: \"4MB\" is not a size; write a whole number with B, KiB, MiB or GiB, such as \"4MiB\"",
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

/// Every rule for one server: the lines of its table that violate it, and the start of the report.
const SERVER_RULES: &[(&str, &str)] = &[
    (
        "openapi = \"x.json\"\nurl = \"http://x\"",
        "2: servers.x.openapi: the server has more than one of `command`, `url` and `openapi`; keep one of them, or configure two servers",
    ),
    (
        "openapi = \"https://x/openapi.json\"\nera = \"legacy\"",
        "3: servers.x.era: this setting is only for servers that speak MCP; remove it, or use the other kind of server",
    ),
    (
        "openapi = \"x.json\"\ntransport = \"sse\"",
        "3: servers.x.transport: this setting is only for servers with `url`; remove it, or use the other kind of server",
    ),
    (
        "url = \"http://x\"\ninclude = []",
        "3: servers.x.include: this setting is only for servers with `openapi`; remove it, or use the other kind of server",
    ),
    (
        "command = \"x\"\nkind = \"openapi\"",
        "3: servers.x.kind: this setting is only for servers with `openapi`; remove it, or use the other kind of server",
    ),
    (
        "openapi = \"x.json\"\ninclude = [\"get /x\"]",
        "3: servers.x.include[0]: \"get /x\" is not an operation; write an operationId, \"METHOD /path\", \"tag:NAME\", or a table",
    ),
    (
        "openapi = \"x.json\"\nauth = { key = \"a\\nb\" }",
        "3: servers.x.auth.key: the header value contains a character that is not allowed in headers; headers are one line",
    ),
    (
        "command = \"x\"\nurl = \"http://x\"",
        "3: servers.x.url: the server has more than one of `command`, `url` and `openapi`; keep one of them, or configure two servers",
    ),
    (
        "command = \"x\"\nheaders = {}",
        "3: servers.x.headers: this setting is only for servers with `url`; remove it, or use the other kind of server",
    ),
    (
        "url = \"http://x\"\nargs = []",
        "3: servers.x.args: this setting is only for servers with `command`; remove it, or use the other kind of server",
    ),
    (
        "command = \"x\"\nargs = [\n\"a\",\n1]",
        "5: servers.x.args[1]: expected text, found an integer; write it in quotes; ${env:NAME} and ${file:PATH} work in them",
    ),
    (
        "command = \"x\"\nenv = { \"A=B\" = \"\" }",
        "3: servers.x.env.\"A=B\": not the name of an environment variable; write a name such as LOG_LEVEL",
    ),
    (
        "command = \"x\"\nenv = { A = \"a\\u0000\" }",
        "3: servers.x.env.A: the value contains a NUL byte; remove the NUL byte",
    ),
    (
        "command = \"x\"\npass_env = [\"*\"]",
        "3: servers.x.pass_env[0]: \"*\" is not a variable; write a name, or the beginning of names and a star, such as \"AWS_REGION\"",
    ),
    (
        "command = \"x\"\ntimeout = \"20m\"",
        "3: servers.x.timeout: `max_timeout` is shorter than `timeout`; progress extends `timeout` up to `max_timeout`: increase `max_timeout`",
    ),
    (
        "command = \"x\"\nrate = \"0/s\"",
        "3: servers.x.rate: \"0/s\" is not a rate; write 1 to 1000000 per s, min, h or d, such as \"100/min\"",
    ),
    (
        "command = \"x\"\nmax_restarts = -1",
        "3: servers.x.max_restarts: out of range; expected a value from 0 to 1000",
    ),
    (
        "url = \"http://x\"\nforward_headers = [\"Host\"]",
        "3: servers.x.forward_headers[0]: this header cannot be configured: it follows from the URL; remove it",
    ),
    (
        "command = \"x\"\ntools.alow = [\"x\"]",
        "3: servers.x.tools.alow: unknown key; did you mean `allow`?",
    ),
    (
        "command = \"x\"\ntools.t.name = \"a b\"",
        "3: servers.x.tools.t.name: not a public tool name; use 1 to 64 characters of a-z, A-Z, 0-9, `_` and `-`",
    ),
    (
        "command = \"x\"\ntools.t.name = \"a\"\ntools.\"u v\".name = \"a\"",
        "4: servers.x.tools.\"u v\".name: `servers.x.tools.t` has the same public name; give one of them another `name`",
    ),
    (
        "command = \"x\"\nprofile = \"client\"",
        "3: servers.x.profile: unknown key; expected one of: ",
    ),
    (
        "url = \"http://u:p@x\"",
        "2: servers.x.url: not a usable URL: it carries a user name or a password; send credentials as headers = { Authorization = \"…\" }",
    ),
    (
        "url = \"http://x/#f\"",
        "2: servers.x.url: not a usable URL: it has a fragment; write a complete URL that starts with https:// or http://",
    ),
    (
        "url = \"http://x\"\nheaders = { \"a b\" = \"x\" }",
        "3: servers.x.headers.\"a b\": not a header name; write a name such as Authorization or X-Api-Key",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"x\", a = \"y\" }",
        "3: servers.x.headers.a: duplicate name in another spelling; keep one of them",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"x\\ny\" }",
        "3: servers.x.headers.A: the header value contains a character that is not allowed in headers; headers are one line of visible characters",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${env:NONE}\" }",
        "3: servers.x.headers.A: the environment variable `NONE` is not set; set it before the gateway starts, or use ${file:PATH}",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${file:none}\" }",
        "3: servers.x.headers.A: the file `none` cannot be read: entity not found; a relative path starts at the configuration file's folder",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${vault:x}\" }",
        "3: servers.x.headers.A: unknown substitution after `${`, expected `env:` or `file:`; write ${env:NAME} or ${file:PATH}; a plain ${ is written $${",
    ),
    (
        "url = \"http://x\"\nheaders = { A = \"${env:X\" }",
        "3: servers.x.headers.A: unknown substitution after `${`, expected `env:` or `file:`; write ${env:NAME} or ${file:PATH}; a plain ${ is written $${",
    ),
    (
        "command = \"x\"\nconnect_timeout = \"1s\"",
        "3: servers.x.connect_timeout: this setting is only for servers with `url`",
    ),
    (
        "command = \"x\"\nisolation = \"client\"\nmax_instances = 0",
        "4: servers.x.max_instances: `isolation = \"client\"` needs instances, but `max_instances` is 0; raise `max_instances`, or write isolation = \"shared\"",
    ),
    (
        "url = \"http://x\"\nidle_stop = \"1s\"",
        "3: servers.x.idle_stop: this setting is only for servers with `command`",
    ),
    (
        "url = \"http://x\"\nforward_headers = [\"A\"]\nheaders = { a = \"1\" }",
        "4: servers.x.headers.a: `forward_headers` contains this header too; keep one of them",
    ),
    (
        "command = \"x\"\ntools.t.arguments = 7",
        "3: servers.x.tools.t.arguments: expected a table, found an integer",
    ),
    (
        "command = \"x\"\ntools.t.arguments = \"strct\"",
        "3: servers.x.tools.t.arguments: \"strct\" is not one of the choices; did you mean `strict`?",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a = { valu = 1 }",
        "3: servers.x.tools.t.arguments.a.valu: unknown key; did you mean `value`?",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a = { value = 1, default = 2 }",
        "3: servers.x.tools.t.arguments.a.default: it has no effect beside `value`, which hides the argument from clients; remove one of them",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a = { hide = true, from = \"b\" }",
        "3: servers.x.tools.t.arguments.a.hide: it has no effect beside `from`, which hides",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = \"${env:NONE}\"",
        "3: servers.x.tools.t.arguments.a.value: the environment variable `NONE` is not set",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = \"${header:a b}\"",
        "3: servers.x.tools.t.arguments.a.value: not a header name",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = [\"${header:X-A}\"]",
        "3: servers.x.tools.t.arguments.a.value[0]: unknown substitution after `${`, expected `env:`",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = inf",
        "3: servers.x.tools.t.arguments.a.value: JSON has no such number",
    ),
    (
        "command = \"x\"\ntools.t.arguments.a.value = 2026-11-23",
        "3: servers.x.tools.t.arguments.a.value: expected a JSON value, found a date; write a text, a number,",
    ),
    (
        "command = \"x\"\ntools.t.result.field = \"a..b\"",
        "3: servers.x.tools.t.result.field: \"a..b\" is not a path of a value; write names with dots",
    ),
    (
        "command = \"x\"\ntools.t.result.template = \"{a\"",
        "3: servers.x.tools.t.result.template: \"{a\" is not a template; write a text with paths",
    ),
    (
        "command = \"x\"\nresult.max_size = \"512B\"",
        "3: servers.x.result.max_size: out of range; expected a value from 1KiB to 2GiB",
    ),
    ("command = \"x\"\nresult.field = \"a\"", "3: servers.x.result.field: unknown key"),
    (
        "command = \"x\"\nresult.when_larger = \"cut\"",
        "3: servers.x.result.when_larger: \"cut\" is not one of the choices",
    ),
    (
        "command = \"x\"\ncheck_output = \"on\"",
        "3: servers.x.check_output: \"on\" is not one of the choices",
    ),
    (
        "command = \"x\"\ntools.t.input_schema = { properties = {} }",
        "3: servers.x.tools.t.input_schema: not a JSON Schema of an object; write a schema with type",
    ),
    (
        "command = \"x\"\ntools.t.input_schema = { type = \"object\", title = \"${env:A}\" }",
        "3: servers.x.tools.t.input_schema.title: substitution is not supported in this setting",
    ),
    (
        "command = \"x\"\ntools.t.input_schema = \"none.json\"",
        "3: servers.x.tools.t.input_schema: the file `none.json` cannot be read",
    ),
    (
        "command = \"x\"\ntools.t.arguments = { a = { rename = \"b\" }, b = { default = 1 } }",
        "3: servers.x.tools.t.arguments.a.rename: not a free name for an argument",
    ),
    (
        "command = \"x\"\ntools.t.arguments = { a = { from = \"b\" }, b = { from = \"c\" } }",
        "3: servers.x.tools.t.arguments.a.from: not an argument with a value of its own",
    ),
];
