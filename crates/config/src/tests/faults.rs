//! Reported faults.

use super::*;

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
            matches!(told.list()[0].problem, SettingFault::HeaderReserved { .. }),
            "{name}: {told}"
        );
    }
}

#[test]
fn all_faults_of_a_file_are_reported_at_once_in_line_order() {
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
            &["2: the text has no closing quote", "3: gateway.drain: expected"][..],
        ),
        // An unquoted value is reported once, not also as a wrong type.
        (
            "[gateway]\nlisten = 127.0.0.1:1\n[servers.x]\ncomand = 1",
            &["2: a text needs quotes; write listen = ", "4: servers.x.comand: unknown key"],
        ),
        // An unclosed bracket invalidates the rest.
        (
            "[gateway]\ndrain = 3\n[servers.x]\nargs = [\"a\"\n# note\ncommand = \"x\"\n[servers.y]",
            &["2: gateway.drain: expected", "6: missing comma"],
        ),
        ("[gateway\nlisten = \"127.0.0.1:1\"", &["1: unclosed table"]),
        (
            "[servers.x]\ncommand = \"a\"\n[servers.y]\ncommand = \"c\"\ncommand = \"b\"",
            &["5: `command` is there twice: first on line 4; keep one of them"],
        ),
        (
            "# A table.\n[servers.x]\ncommand = \"a\"\n[servers.y]\ncommand = \"b\"\n\
             [servers.x]\ncommand = \"c\"\nargs = []\n",
            &["6: `[servers.x]` is there twice: first on line 2; rename one, or merge them"],
        ),
        ("servers.x = { command = \"a\", command = \"b\" }", &["1: duplicate key"]),
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
fn a_rendering_shows_the_line_and_the_correction() {
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
    assert!(matches!(faults.list()[ConfigFaults::MAX].problem, SettingFault::More { count: 150 }));
    assert!(
        faults
            .to_string()
            .ends_with("150 more faults are not shown; fix the faults above, then check again")
    );
}

#[test]
fn binary_files_are_reported_as_such() {
    let faults = World::new().read_bytes(b"[gateway]\nlisten = \"\xff\"").unwrap_err();
    assert!(matches!(faults.list()[0].problem, SettingFault::NotUtf8));
    assert_eq!(faults.list()[0].line, 2);
}

#[test]
fn a_file_that_cannot_be_read_is_named_for_the_watcher() {
    let text = "[servers.x]\nurl = \"http://x\"\nheaders = { A = \"${file:later}\" }";
    let faults = World::new().read(text).unwrap_err();
    assert_eq!(faults.files(), [PathBuf::from("/etc/trunkline/later")]);
}

#[test]
fn a_fault_that_appears_at_use_has_the_line_of_its_setting() {
    let text = "[gateway]\ntls = { cert = \"a.pem\", key = \"a.key\" }\n[servers.a]\nurl = \"x\"\n";
    let (name, folder) = ("gateway.toml".into(), "/etc/trunkline".into());
    let source = ConfigSource { name, folder, bytes: text.as_bytes().to_vec() };
    let fault = |key: &str| LateFault {
        key: key.to_owned(),
        text: "no such file".to_owned(),
        help: "create it".to_owned(),
    };
    let told =
        ConfigFaults::of_late(&source, vec![fault("servers.a.ca"), fault("gateway.tls.key")]);
    assert_eq!(
        told.to_string(),
        "gateway.toml:2: gateway.tls.key: no such file; create it\n\
         gateway.toml:3: servers.a.ca: no such file; create it"
    );
    let drawn = told.render(Color::Never);
    assert!(drawn.contains("key = \"a.key\"") && !drawn.contains("a.pem"), "{drawn}");
}
