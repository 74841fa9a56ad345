//! Commands that print, check or write something, and exit.

use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};

use serde_json::Value;

use super::process::TRUNKLINE;
use super::{CONFIG_FAULT, DONE, FAILURE, Ran, WRONG_USE, contains_all, file, trunkline};

#[test]
fn commands_that_only_print_print_and_succeed() {
    trunkline(&["version"]).exits_with(DONE).prints(&["trunkline 0."]);
    trunkline(&["--version"]).exits_with(DONE).prints(&["trunkline 0."]);
    trunkline(&["--help"])
        .exits_with(DONE)
        .prints(&["serve", "check", "schema", "cert", "key", "bench", "example"]);
    trunkline(&["serve", "--help"]).exits_with(DONE).prints(&["--config", "--listen", "--log"]);
    trunkline(&["stdio", "--help"]).exits_with(DONE).prints(&[
        "--config",
        "--connect",
        "--header",
        "--listen",
        "--profile",
        "TRUNKLINE_KEY",
    ]);
    trunkline(&["bench", "--help"]).exits_with(DONE).prints(&["\"{{n}}\"", "--expect"]);
    trunkline(&["example"]).exits_with(DONE).prints(&["clock", "notes", "load", "proxy"]);
    trunkline(&["completions", "bash"]).exits_with(DONE).prints(&["trunkline"]);
    let schema = trunkline(&["schema"]).exits_with(DONE).prints(&["servers"]);
    assert!(serde_json::from_slice::<Value>(&schema.0.stdout).unwrap().is_object());
}

#[test]
fn a_wrong_command_line_differs_from_a_failure() {
    trunkline(&["juggle"]).exits_with(WRONG_USE).complains_of(&["juggle"]);
    trunkline(&["serve", "--listen", "x"]).exits_with(WRONG_USE).complains_of(&["--listen"]);
    trunkline(&["serve", "--listen", "nowhere"]).exits_with(WRONG_USE).complains_of(&["nowhere"]);
    for (options, word) in [
        (["--connect", "x", "--log", "info"], "--connect"),
        (["--connect", "ftp://a.test/", "--log", "info"], "http://"),
        (["--connect", "http://a.test/", "--listen", "127.0.0.1:0"], "--listen"),
        (["--connect", "http://a.test/", "--header", "a b: c"], "a b"),
        (["--connect", "http://a.test/", "--ca", "/nowhere.pem"], "/nowhere.pem"),
        (["--connect", "http://a.test/", "--log", "shout"], "shout"),
        (["--config", "x", "--header", "a: b"], "--connect"),
        (["--connect", "http://a.test/", "--profile", "x"], "--profile"),
    ] {
        let args: Vec<_> = ["stdio"].into_iter().chain(options).collect();
        trunkline(&args).exits_with(WRONG_USE).complains_of(&[word]);
    }
    trunkline(&["stdio", "--config", "/nowhere.toml"])
        .exits_with(CONFIG_FAULT)
        .complains_of(&["/nowhere.toml"]);
    trunkline(&["completions", "cmd"]).exits_with(WRONG_USE).complains_of(&["bash"]);
    let folder = tempfile::tempdir().unwrap();
    let fine = file(folder.path(), "");
    let loud = ["check", "--config", &fine, "--log", "shout"];
    trunkline(&loud).exits_with(WRONG_USE).complains_of(&["--log", "not a log filter"]);
    let taken = ["check", "--config", &fine, "--listen", "127.0.0.1:8081"];
    trunkline(&taken).exits_with(WRONG_USE).complains_of(&["--listen", "admin"]);
}

#[test]
fn a_configuration_that_cannot_be_read_is_a_configuration_fault() {
    let folder = tempfile::tempdir().unwrap();
    let missing = folder.path().join("missing.toml");
    let missing = missing.to_str().unwrap();
    for command in ["check", "serve"] {
        let ran = trunkline(&[command, "--config", missing]);
        ran.exits_with(CONFIG_FAULT).complains_of(&["cannot read", missing, "No such file"]);
        let ran = trunkline(&[command, "--config", folder.path().to_str().unwrap()]);
        ran.exits_with(CONFIG_FAULT).complains_of(&["cannot read", "directory"]);
    }
}

#[test]
fn check_and_serve_tell_every_fault_with_its_line_and_key() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = file(
        folder.path(),
        "[gateway]\nlisten = \"here\"\nlimts = {}\n[servers.a]\nurl = \"ftp://x\"\n[servers.b]\n",
    );
    for (command, exit) in [("check", FAILURE), ("serve", CONFIG_FAULT)] {
        trunkline(&[command, "--config", &faulty]).exits_with(exit).complains_of(&[
            "gateway.listen",
            "gateway.limts",
            "limits",
            "servers.a.url",
            "servers.b",
            "gateway.toml:2",
        ]);
    }
    let broken = file(folder.path(), "[gateway\n");
    trunkline(&["check", "--config", &broken])
        .exits_with(FAILURE)
        .complains_of(&["gateway.toml:1"]);
    let key = file(
        folder.path(),
        "[gateway]\ntls = { cert = \"no.pem\", key = \"no.key\" }\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"off\"\n",
    );
    for (command, exit) in [("check", FAILURE), ("serve", CONFIG_FAULT)] {
        trunkline(&[command, "--config", &key]).exits_with(exit).complains_of(&["no.pem"]);
    }
}

#[test]
fn check_says_that_all_is_well_without_starting_anything() {
    let folder = tempfile::tempdir().unwrap();
    let ran = folder.path().join("ran");
    let server = format!("[servers.a]\ncommand = \"touch\"\nargs = [{ran:?}]\n");
    let fine = file(folder.path(), &server);
    trunkline(&["check", "--config", &fine]).exits_with(DONE).prints(&["fine", "1 server"]);
    assert!(!ran.exists());
}

#[test]
fn the_command_of_the_image_works() {
    let root = env!("CARGO_MANIFEST_DIR");
    let dockerfile = std::fs::read_to_string(format!("{root}/Dockerfile")).unwrap();
    let runs = dockerfile.lines().find_map(|line| line.strip_prefix("CMD ")).unwrap();
    let runs: Vec<String> = serde_json::from_str(runs).unwrap();
    let shipped = format!("{root}/gateway.toml");
    let args = runs.iter().map(|arg| match arg.as_str() {
        // The same, without the sockets.
        "serve" => "check",
        "/etc/trunkline/gateway.toml" => &shipped,
        arg => arg,
    });
    trunkline(&args.collect::<Vec<_>>()).exits_with(DONE);
    let build = "cargo build --profile dist --locked --features full ";
    assert!(dockerfile.contains(build), "linked as one, with every feature");
}

#[test]
fn certificates_are_never_overwritten_and_an_unwritable_folder_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("certs");
    let out = out.to_str().unwrap();
    let ran = trunkline(&["cert", "--dir", out]).exits_with(DONE);
    assert!(ran.0.stderr.is_empty() && !ran.0.stdout.is_empty());
    trunkline(&["cert", "--dir", out]).exits_with(FAILURE).complains_of(&["exists", "--force"]);
    let nowhere = trunkline(&["cert", "--dir", "/proc/nowhere"]);
    nowhere.exits_with(FAILURE).complains_of(&["/proc/nowhere"]);
}

#[test]
fn the_shipped_configuration_finds_the_certificates_that_cert_writes() {
    let folder = tempfile::tempdir().unwrap();
    let shipped = include_str!("../../gateway.toml");
    let config = file(folder.path(), &shipped.replacen("#tls = ", "tls = ", 1));
    trunkline(&["check", "--config", &config]).exits_with(FAILURE);
    let out = folder.path().join("certs");
    trunkline(&["cert", "--dir", out.to_str().unwrap()]).exits_with(DONE);
    trunkline(&["check", "--config", &config]).exits_with(DONE).prints(&["fine"]);
}

#[test]
fn the_output_of_key_can_be_pasted() {
    for (name, table) in [("ci", "ci"), ("ann@example.com", "\"ann@example.com\"")] {
        let ran = trunkline(&["key", name]).exits_with(DONE);
        let said = ran.prints(&["tlk_", &format!("[clients.{table}]"), "sha256:"]).said();
        let folder = tempfile::tempdir().unwrap();
        let pasted = said.split("For gateway.toml:").nth(1).unwrap();
        let config = file(folder.path(), pasted);
        trunkline(&["check", "--config", &config]).exits_with(DONE).prints(&["fine"]);
        let key = said.split_whitespace().find(|word| word.starts_with("tlk_")).unwrap();
        let hash = key_hash(key).exits_with(DONE).said();
        assert!(pasted.contains(hash.trim()), "{pasted} {hash}");
    }
    trunkline(&["key", "--help"]).exits_with(DONE).prints(&["--plain", "--hash", "> ci.key"]);
}

#[test]
fn keys_are_made_and_hashed_for_scripts() {
    let [one, other] = [(); 2].map(|()| trunkline(&["key", "--plain"]).exits_with(DONE).said());
    assert!(one != other && one.starts_with("tlk_") && one.trim_end().len() == 47, "{one}");
    // The line end is not part of the key.
    assert_eq!(key_hash(&one).said(), key_hash(one.trim_end()).said());
    key_hash("").exits_with(CONFIG_FAULT).complains_of(&["no key"]);
    key_hash("two words").exits_with(CONFIG_FAULT).complains_of(&["no key"]);
    trunkline(&["key", "--plain", "--hash"]).exits_with(WRONG_USE).complains_of(&["--hash"]);
}

/// Runs `trunkline key --hash` with a key on its standard input.
fn key_hash(key: &str) -> Ran {
    let mut child = Command::new(TRUNKLINE)
        .args(["key", "--hash"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
    Ran(child.wait_with_output().unwrap())
}

#[test]
fn a_gateway_that_is_open_to_anyone_says_so_and_a_file_that_opens_it_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let open = "[gateway]\nlisten = \"0.0.0.0:0\"\nallowed_hosts = [\"x\"]\n";
    let fault = file(folder.path(), open);
    for (command, exit) in [("check", FAILURE), ("serve", CONFIG_FAULT)] {
        let ran = trunkline(&[command, "--config", &fault]).exits_with(exit);
        ran.complains_of(&["gateway.listen", "[clients.NAME]", "anonymous = \"anyone\""]);
    }
    let said = file(folder.path(), &format!("{open}anonymous = \"anyone\"\n"));
    trunkline(&["check", "--config", &said]).exits_with(DONE).prints(&["fine"]);
    let known =
        "[clients.ci]\nkey = \"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"";
    let known = file(folder.path(), &format!("{open}{known}\n"));
    trunkline(&["check", "--config", &known]).exits_with(DONE).prints(&["fine"]);
    // A container listens on all addresses; its host controls the access.
    let plain = file(folder.path(), "");
    let args = ["check", "--config", &plain, "--listen", "0.0.0.0:8080"];
    let ran = trunkline(&args).exits_with(DONE);
    let warned = String::from_utf8(ran.0.stderr.clone()).unwrap();
    assert!(warned.contains("warning: other machines can reach the gateway"), "{warned}");
}

#[test]
fn check_warns_of_admin_pages_that_rebound_names_or_other_machines_can_read() {
    let folder = tempfile::tempdir().unwrap();
    for (admin, is_rebindable, is_public) in [
        ("listen = \"127.0.0.1:8081\"\nallowed_hosts = [\"*\"]", true, false),
        ("listen = \"0.0.0.0:8081\"\nallowed_hosts = [\"*\"]", true, true),
        ("listen = \"0.0.0.0:8081\"", false, true),
        ("listen = \"off\"\nallowed_hosts = [\"*\"]", false, false),
        ("allowed_hosts = [\"10.0.0.0/8\", \"admin.example.com\"]", false, false),
    ] {
        let config = file(folder.path(), &format!("[admin]\n{admin}\n"));
        let ran = trunkline(&["check", "--config", &config]).exits_with(DONE);
        let warned = String::from_utf8(ran.0.stderr.clone()).unwrap();
        assert_eq!(warned.contains("warning: admin.allowed_hosts: "), is_rebindable, "{warned}");
        assert_eq!(warned.contains("warning: admin.listen: "), is_public, "{warned}");
    }
    let config = file(folder.path(), "[gateway]\nallowed_hosts = [\"*\"]\n");
    trunkline(&["check", "--config", &config])
        .exits_with(FAILURE)
        .complains_of(&["gateway.allowed_hosts[0]", "host name"]);
}

#[test]
fn check_warns_of_credentials_of_clients_that_go_on_to_servers() {
    let folder = tempfile::tempdir().unwrap();
    for (lines, header) in [
        ("forward_headers = [\"Authorization\", \"X-Tenant\"]", Some("authorization")),
        ("call_headers = { X-A = \"${header:Cookie}\" }", Some("cookie")),
        ("call_headers = { X-A = \"${header:X-Tenant}\" }", None),
    ] {
        let config = file(folder.path(), &format!("[servers.s]\nurl = \"http://x/\"\n{lines}\n"));
        let ran = trunkline(&["check", "--config", &config]).exits_with(DONE);
        let warned = String::from_utf8(ran.0.stderr.clone()).unwrap();
        let told = header
            .map(|it| format!("warning: servers.s: the `{it}` header of clients is forwarded"));
        match told {
            Some(told) => assert!(warned.contains(&told) && !warned.contains("tenant"), "{warned}"),
            None => assert!(!warned.contains("is forwarded"), "{warned}"),
        }
    }
}

#[test]
fn check_warns_of_callbacks_at_which_answers_can_be_mixed_up() {
    let folder = tempfile::tempdir().unwrap();
    let server = |name: &str, more: &str| {
        format!(
            "[servers.{name}]\nurl = \"https://mcp.example/{name}\"\n[servers.{name}.oauth]\n{more}\n"
        )
    };
    let configured = "client_id = \"c\"\n";
    for (settings, is_warned) in [
        (configured.to_owned(), true),
        ("client_metadata_url = \"https://g.example/c.json\"\n".to_owned(), true),
        (format!("{configured}callback = \"server\"\n"), false),
        (format!("{configured}require_iss = true\n"), false),
        (String::new(), false),
    ] {
        let config = file(folder.path(), &(server("a", &settings) + &server("b", "")));
        let ran = trunkline(&["check", "--config", &config]).exits_with(DONE);
        let warned = String::from_utf8(ran.0.stderr.clone()).unwrap();
        assert_eq!(warned.contains("warning: servers.a.oauth: its answers"), is_warned, "{warned}");
        assert!(!warned.contains("servers.b.oauth"), "{warned}");
    }
    // No other login could receive its answers.
    let alone = file(folder.path(), &server("a", configured));
    let ran = trunkline(&["check", "--config", &alone]).exits_with(DONE);
    assert!(ran.0.stderr.is_empty(), "{:?}", ran.0);
}

#[test]
fn check_reports_settings_that_only_a_shell_would_understand() {
    let folder = tempfile::tempdir().unwrap();
    let lines = "[servers.a]\ncommand = \"npx -y x\"\ncwd = \"~/work\"\nargs = [\"a\", \"--root=~/docs\"]\n\
                 env = { DIR = \"~/secret-place\" }\n\
                 [servers.b]\ncommand = \"cat\"\nargs = [\"/tmp/~\"]\n";
    let config = file(folder.path(), lines);
    let ran = trunkline(&["check", "--config", &config]).exits_with(DONE);
    let warned = String::from_utf8(ran.0.stderr.clone()).unwrap();
    for expected in [
        "warning: servers.a.cwd: `~` is not the home folder",
        "warning: servers.a.args[1]: `~`",
        "warning: servers.a.env.DIR: `~`",
        "servers.a.command: there is no program \"npx -y x\": write command = \"npx\" and args = [\"-y\", \"x\"]",
    ] {
        assert!(warned.contains(expected), "{expected}: {warned}");
    }
    assert!(!warned.contains("servers.b") && !warned.contains("secret-place"), "{warned}");
}

#[test]
fn unread_output_is_no_failure() {
    let mut child = Command::new(TRUNKLINE)
        .arg("schema")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}

#[test]
fn check_warns_of_many_operations_without_a_selection() {
    let folder = tempfile::tempdir().unwrap();
    let paths: Vec<_> = (0..41).map(|at| format!("\"/p{at}\":{{\"get\":{{}}}}")).collect();
    let document = format!("{{\"openapi\":\"3.1.0\",\"paths\":{{{}}}}}", paths.join(","));
    std::fs::write(folder.path().join("many.json"), document).unwrap();
    let lines = "[servers.many]\nopenapi = \"many.json\"\nbase_url = \"http://127.0.0.1:9/\"\n";
    let config = file(folder.path(), lines);
    let ran = trunkline(&["check", "--config", &config]).exits_with(DONE);
    let words = ["servers.many: 41 operations", "`include`", "`trunkline openapi`"];
    contains_all(&ran.0.stderr, &words);
    let config = file(folder.path(), &format!("{lines}exclude = [\"/p1*\"]\n"));
    let ran = trunkline(&["check", "--config", &config]).exits_with(DONE);
    assert!(!String::from_utf8_lossy(&ran.0.stderr).contains("operations"), "chosen");
}

#[test]
fn neither_a_document_nor_a_secret_reaches_the_terminal_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let document = serde_json::json!({
        "openapi": "3.1.0", "info": { "title": "\x1b]0;owned\x07", "version": "\x1b[2J" },
        "servers": [{ "url": "http://127.0.0.1:9/" }],
        "paths": { "/\x1b[31m": { "get": {
            "parameters": [{ "name": "a\x1b[0m", "in": "query" }], "security": [{ "\x1b[1m": [] }],
        } }, "/\x1b[5m": { "get": { "parameters": [{ "$ref": "\x1b[7m" }] } } },
    });
    let path = folder.path().join("evil.json");
    std::fs::write(&path, document.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let base = ["--base-url", "http://127.0.0.1:9/"];
    let header = ["-H", "Authorization: Bearer hunter2-hunter2", "-H", "X-Key: ${env:HOME}"];
    let args: Vec<_> = ["openapi", path].into_iter().chain(base).chain(header).collect();
    let shown = trunkline(&args).exits_with(DONE);
    let config = file(folder.path(), &format!("[servers.evil]\nopenapi = {path:?}\n"));
    let checked = trunkline(&["check", "--config", &config]).exits_with(DONE);
    for ran in [&shown, &checked] {
        let text = [&*ran.0.stdout, &*ran.0.stderr].concat();
        let text = String::from_utf8_lossy(&text);
        assert!(!text.contains('\x1b') && !text.contains("hunter2"), "{text:?}");
        assert!(text.contains("\\u{1b}[5m"), "it is shown: {text:?}");
    }
    shown.prints(&["\"Authorization\" = \"${env:HEADER}\", \"X-Key\" = \"${env:HOME}\""]);
}

#[test]
fn check_reads_the_documents_at_urls_only_if_it_is_asked_to() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let document = r#"{"openapi":"3.1.0","info":{},"security":[{"key":[]}],"paths":{"/a":{"get":{}}},"components":{"securitySchemes":{"key":{"type":"apiKey","in":"header","name":"k"}}}}"#;
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), &format!("[servers.a]\nopenapi = \"{url}openapi.json\"\n"));
    // No server answers yet.
    trunkline(&["check", "--config", &config]).exits_with(DONE).prints(&["fine"]);
    let serving = std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let _ = socket.read(&mut [0; 4096]).unwrap();
        let length = document.len();
        write!(socket, "HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{document}").unwrap();
    });
    let ran = trunkline(&["check", "--apis", "--config", &config]).exits_with(DONE);
    contains_all(&ran.0.stderr, &["servers.a: the security scheme \"key\" has no value"]);
    serving.join().unwrap();
}

/// Hostile documents, and the expected message about each.
fn hostile_documents() -> [(&'static str, String, &'static str); 4] {
    let paths = (0..100_000).map(|at| format!("\"/p{at}\":{{\"get\":{{}}}}"));
    let paths = paths.collect::<Vec<_>>().join(",");
    let mut bomb = "openapi: 3.1.0\na0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for at in 1..12 {
        let row = [format!("*a{}", at - 1).as_str(); 10].join(", ");
        bomb += &format!("a{at}: &a{at} [{row}]\n");
    }
    // Each schema refers to the next one twice.
    let doubling = (0..60).map(|at| {
        let next = format!("{{\"$ref\":\"#/components/schemas/S{}\"}}", at + 1);
        format!("\"S{at}\":{{\"properties\":{{\"a\":{next},\"b\":{next}}}}}")
    });
    let doubling = doubling.chain(["\"S60\":{}".to_owned()]).collect::<Vec<_>>().join(",");
    [
        ("large.json", " ".repeat(50 << 20), "at most 33554432 bytes"),
        (
            "many.json",
            format!("{{\"openapi\":\"3.1.0\",\"paths\":{{{paths}}}}}"),
            "20000 operations",
        ),
        ("bomb.yaml", bomb, "alias"),
        (
            "doubling.json",
            format!(
                "{{\"openapi\":\"3.1.0\",\"paths\":{{\"/a\":{{\"post\":{{\"requestBody\":{{\"content\":{{\"application/json\":{{\"schema\":{{\"$ref\":\"#/components/schemas/S0\"}}}}}}}}}}}}}},\"components\":{{\"schemas\":{{{doubling}}}}}}}"
            ),
            "Tools: 1",
        ),
    ]
}

#[test]
fn a_hostile_document_takes_bounded_memory() {
    const MEASURED: &str = "import resource, subprocess, sys\n\
        code = subprocess.run(sys.argv[1:]).returncode\n\
        print('peak', resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n\
        sys.exit(code)";
    let folder = tempfile::tempdir().unwrap();
    for (name, text, words) in hostile_documents() {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        let base = ["--base-url", "http://127.0.0.1:9/"];
        let mut command = Command::new("python3");
        command.args(["-c", MEASURED, TRUNKLINE, "openapi"]).arg(&path).args(base);
        let output = command.stdin(Stdio::null()).output().unwrap();
        let said =
            String::from_utf8_lossy(&[&*output.stdout, &*output.stderr].concat()).into_owned();
        assert!(said.contains(words), "{name}: {words:?} in {said}");
        let peak = said.lines().find_map(|line| line.strip_prefix("peak ")).unwrap();
        let peak: usize = peak.trim().parse().unwrap();
        assert!(peak < 512 * 1024, "{name}: {peak} KiB");
    }
}

#[test]
fn check_says_who_has_to_log_in_and_where() {
    let folder = tempfile::tempdir().unwrap();
    let server = |name: &str, more: &str| {
        format!(
            "[servers.{name}]\nurl = \"https://mcp.example/{name}\"\n[servers.{name}.oauth]\n{more}\n"
        )
    };
    let own = "grant = \"client_credentials\"\nclient_id = \"us\"\nclient_secret = \"mine\"";
    let alone = file(folder.path(), &(server("a", "") + &server("b", own)));
    let ran = trunkline(&["check", "--config", &alone]).exits_with(DONE).prints(&[
        "servers.a: its user has to log in to it first, at http://127.0.0.1:8080/connect",
        "`trunkline login a`, which needs [vault]",
    ]);
    assert!(!String::from_utf8_lossy(&ran.0.stdout).contains("servers.b"), "nobody has to");
    let clients = "[gateway]\npublic_url = \"https://gateway.example/tools\"\n\
                   [clients.ann]\nkey = \"0000000000000000000000000000000000000000000000000000000000000000\"\n";
    let vault =
        "[vault]\npath = \"logins.vault\"\nkeys = [\"a long key of the vault that is random\"]\n";
    let shared = server("a", "") + &server("b", "per = \"gateway\"");
    let several = file(folder.path(), &format!("{clients}{vault}{shared}"));
    trunkline(&["check", "--config", &several]).exits_with(DONE).prints(&[
        "servers.a: each client has to log in to it, at https://gateway.example/tools/connect",
        "`trunkline login a --client NAME`",
        "servers.b: its operator has to log in to it first: the gateway's status has the link",
        "`trunkline login b`",
    ]);
    let far = "listen = \"0.0.0.0:8080\"\nallowed_hosts = [\"gateway.example\"]";
    let far = clients.replace("public_url = \"https://gateway.example/tools\"", far);
    let unreachable = file(folder.path(), &format!("{far}{}", server("a", "")));
    trunkline(&["check", "--config", &unreachable])
        .exits_with(DONE)
        .prints(&["a login is needed first", "without `public_url`"]);
    let issuer = "[issuers.company]\nissuer = \"https://login.example\"\n";
    let relayed = format!("{issuer}client_id = \"mcp-clients\"\naudience = [\"api://gateway\"]\n");
    let relayed = file(folder.path(), &format!("{relayed}{}", server("b", own)));
    trunkline(&["check", "--config", &relayed]).exits_with(DONE).prints(&[
        "issuers.company: clients log in at http://127.0.0.1:8080/login/company, \
         for https://login.example; the redirect URIs of clients have to be registered for the client \
         \"mcp-clients\"",
    ]);
    let direct = file(folder.path(), &format!("{issuer}{}", server("b", own)));
    let ran = trunkline(&["check", "--config", &direct]).exits_with(DONE);
    assert!(!String::from_utf8_lossy(&ran.0.stdout).contains("issuers."), "clients log in there");
}
