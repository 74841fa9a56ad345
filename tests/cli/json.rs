//! `--json`: one document on standard output, for each command that has one of its own.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::process::{Process, TRUNKLINE, Tag, eventually};
use super::{CONFIG_FAULT, DONE, FAILURE, Ran, WRONG_USE, clock, file, trunkline};

/// Reads the only document on standard output.
#[track_caller]
fn document(ran: &Ran) -> Value {
    let said = ran.said();
    serde_json::from_str(&said).unwrap_or_else(|fault| panic!("{fault}: {:?}", ran.0))
}

#[test]
fn check_prints_faults_with_their_places_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let faulty = file(
        folder.path(),
        "[gateway]\nlimts = {}\n[servers.a]\nurl = \"ftp://x\"\nheaders = { A = \"s3cret\" }\n",
    );
    let ran = trunkline(&["check", "--json", &faulty]).exits_with(FAILURE);
    assert!(ran.0.stderr.is_empty() && !ran.said().contains("s3cret"), "{:?}", ran.0);
    let report = document(&ran);
    assert_eq!((&report["is_fine"], &report["servers"]), (&json!(false), &Value::Null), "{report}");
    let faults = report["faults"].as_array().unwrap();
    let found = |setting: &str| faults.iter().find(|fault| fault["setting"] == setting);
    let unknown = found("gateway.limts").unwrap();
    assert_eq!((&unknown["file"], &unknown["line"]), (&json!(faulty), &json!(2)), "{report}");
    assert_eq!(unknown["column"], 1, "{report}");
    assert!(unknown["text"].as_str().unwrap().contains("unknown"), "{report}");
    assert!(unknown["help"].as_str().unwrap().contains("limits"), "{report}");
    assert_eq!(found("servers.a.url").unwrap()["line"], 4, "{report}");

    let missing = folder.path().join("missing.toml").display().to_string();
    let report = document(&trunkline(&["check", "--json", &missing]).exits_with(CONFIG_FAULT));
    let fault = &report["faults"][0];
    assert!(fault["text"].as_str().unwrap().starts_with("cannot read "), "{report}");
    assert_eq!((&fault["line"], &fault["setting"]), (&Value::Null, &Value::Null), "{report}");

    let used =
        "[gateway]\ntls = { cert = \"no.pem\", key = \"no.key\" }\nlisten = \"127.0.0.1:0\"\n";
    let used = file(folder.path(), used);
    let report = document(&trunkline(&["check", "--json", &used]).exits_with(FAILURE));
    assert_eq!(report["faults"][0]["line"], 2, "{report}");
    let report =
        document(&trunkline(&["check", "--json", "--log", "shout", &used]).exits_with(WRONG_USE));
    assert!(report["faults"][0]["text"].as_str().unwrap().contains("--log"), "{report}");
}

#[test]
fn check_prints_warnings_and_the_scan() {
    let (folder, tag) = (tempfile::tempdir().unwrap(), Tag::new());
    let expired = "[clients.ci]\nkeys = [{ hash = \"sha256:0000000000000000000000000000000000000000000000000000000000000001\", expires = 2020-01-31 }]\n";
    let config = file(folder.path(), &(clock(&tag) + expired));
    let ran =
        trunkline(&["check", "--json", "--scan", "--offline", "-c", &config]).exits_with(DONE);
    let report = document(&ran);
    assert_eq!((&report["is_fine"], &report["servers"]), (&json!(true), &json!(1)), "{report}");
    let warnings = report["warnings"].as_array().unwrap();
    let expiry = warnings.iter().find(|it| it["setting"].as_str().is_some());
    let expiry = expiry.unwrap_or_else(|| panic!("no expiry: {report}"));
    assert!(expiry["setting"].as_str().unwrap().starts_with("clients.ci"), "{report}");
    assert!(expiry["line"].is_u64(), "{report}");
    assert_eq!(report["scan"]["servers"], json!(["clock"]), "{report}");
    assert_eq!(report["scan"]["findings"], json!([]), "{report}");
    let plain = document(&trunkline(&["check", "--json", "-c", &config]).exits_with(DONE));
    assert_eq!(plain["scan"], Value::Null, "{plain}");
}

#[test]
fn pin_lists_definitions_and_decisions() {
    let (folder, tag) = (tempfile::tempdir().unwrap(), Tag::new());
    let pins = folder.path().join("pins");
    fs::create_dir(&pins).unwrap();
    let config = folder.path().join("gateway.toml");
    let text = super::process::text(&clock(&tag));
    fs::write(&config, text.replace("drain = ", &format!("pin_dir = {pins:?}\ndrain = "))).unwrap();
    let mut gateway = Process::start_with(folder, &config, &[]);
    gateway.ready(&["clock"]);
    gateway.signal(rustix::process::Signal::TERM);
    gateway.ended();
    let pin = |args: &[&str]| {
        let config = gateway.config().display().to_string();
        trunkline(&[&["pin"], args, &["--json", "-c", &config]].concat())
    };
    let listed = document(&pin(&["list"]).exits_with(DONE));
    let definitions = listed["definitions"].as_array().unwrap();
    let now = definitions.iter().find(|it| it["name"] == "now").unwrap();
    assert_eq!((&now["server"], &now["state"]), (&json!("clock"), &json!("first_seen")), "{now}");
    assert_eq!((now["sha256"].as_str().unwrap().len(), &now["reasons"]), (64, &json!([])), "{now}");
    let none = json!({ "pending": [], "rejected": [] });
    assert_eq!(document(&pin(&["diff", "clock"]).exits_with(DONE)), none);
    for (command, member) in [("approve", "approved"), ("reject", "rejected")] {
        let decided = document(&pin(&[command, "clock"]).exits_with(DONE));
        assert_eq!(decided, json!({ member: [], "missing": [] }));
        let missing = document(&pin(&[command, "clock", "now"]).exits_with(FAILURE));
        assert_eq!(missing, json!({ member: [], "missing": ["now"] }));
    }
}

#[test]
fn pending_definitions_are_compared_and_decided() {
    let folder = tempfile::tempdir().unwrap();
    let pins = folder.path().join("pins");
    fs::create_dir(&pins).unwrap();
    let servers: String = ["s", "t"]
        .map(|name| super::scan::server(folder.path(), name, super::scan::GRAVE, ""))
        .concat();
    let text = super::process::text(&servers);
    let config = folder.path().join("gateway.toml");
    fs::write(
        &config,
        text.replace("drain = ", &format!("pin_dir = {pins:?}\npins = \"hold\"\ndrain = ")),
    )
    .unwrap();
    let mut gateway = Process::start_with(folder, &config, &[]);
    // Held tools are not listed.
    let is_ready = |server: &str| gateway.server(server)["state"] == "ready";
    eventually("both servers are ready", || is_ready("s") && is_ready("t"));
    let config = gateway.config().display().to_string();
    let pin = |args: &[&str]| trunkline(&[&["pin"], args, &["--json", "-c", &config]].concat());
    let pending = || {
        let document = document(&pin(&["diff"]));
        let of_tools = |it: &&Value| it["kind"] == "tools";
        document["pending"].as_array().unwrap().iter().filter(of_tools).cloned().collect::<Vec<_>>()
    };
    eventually("both wait for approval", || pending().len() == 2);
    gateway.signal(rustix::process::Signal::TERM);
    gateway.ended();
    let [first, second] = &pending()[..] else { panic!() };
    assert_eq!((&first["server"], &second["server"]), (&json!("s"), &json!("t")));
    assert_eq!((&first["name"], &first["rejected"]), (&json!("add"), &json!(false)), "{first}");
    assert!(first["diff"].as_str().unwrap().contains("Adds two numbers"), "{first}");
    assert_eq!(first["sha256"].as_str().unwrap().len(), 64, "{first}");
    // A definition has several forms.
    let has_state = |server: &str, state: &str| {
        let listed = document(&pin(&["list", server]));
        let forms = listed["definitions"].as_array().unwrap().clone();
        forms.iter().any(|it| it["name"] == "add" && it["state"] == state)
    };
    assert!(["s", "t"].iter().all(|server| has_state(server, "pending")));
    let add = json!([{ "kind": "tools", "name": "add" }]);
    let decided = document(&pin(&["approve", "s", "add"]).exits_with(DONE));
    assert_eq!(decided, json!({ "approved": add, "missing": [] }));
    let decided = document(&pin(&["reject", "t", "add", "sub"]).exits_with(FAILURE));
    assert_eq!(decided, json!({ "rejected": add, "missing": ["sub"] }));
    assert!(has_state("s", "approved") && !has_state("s", "pending"));
    assert!(has_state("t", "rejected") && !has_state("t", "pending"));
    let after = document(&pin(&["diff", "t"]).exits_with(DONE));
    assert_eq!(after["rejected"][0]["name"], "add", "{after}");
}

#[test]
fn policy_test_prints_each_outcome() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    fs::write(path("gateway.toml"), "[servers.git]\nurl = \"http://127.0.0.1:9/mcp\"\n[policy.rules.all]\ntools = [\"git__push\"]\n").unwrap();
    let cases = "[[case]]\ntool = \"git__push\"\nexpect = \"allow\"\nrule = \"all\"\n\
                 [[case]]\ntool = \"git__pull\"\nexpect = \"allow\"\n";
    fs::write(path("cases.toml"), cases).unwrap();
    let args = ["policy", "test", &path("cases.toml"), "--json", "-c", &path("gateway.toml")];
    let report = document(&trunkline(&args).exits_with(FAILURE));
    assert_eq!(report["failed"], 1, "{report}");
    assert_eq!(
        report["cases"][0],
        json!({
            "number": 1, "is_expected": true, "principal": "anonymous", "subject": "git__push",
            "outcome": "allow", "rule": "all", "fault": null, "expected_outcome": "allow",
            "expected_rule": "all",
        })
    );
    let second = &report["cases"][1];
    assert_eq!((&second["is_expected"], &second["outcome"]), (&json!(false), &json!("hidden")));
}

#[test]
fn audit_verify_prints_the_faults_of_a_chain() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("audit.jsonl").display().to_string();
    fs::write(&path, super::audit::log()).unwrap();
    let verify = || trunkline(&["audit", "verify", "--json", &path]);
    let report = document(&verify().exits_with(DONE));
    assert_eq!((&report["is_intact"], &report["records"]), (&json!(true), &json!(2)), "{report}");
    assert_eq!((&report["last"], &report["lost"]), (&json!(2), &json!(3)), "{report}");
    assert_eq!(report["last_hash"].as_str().unwrap().len(), 64, "{report}");
    fs::write(&path, super::audit::log().replace("call", "list")).unwrap();
    let report = document(&verify().exits_with(FAILURE));
    assert_eq!(
        (&report["is_intact"], &report["fault_count"]),
        (&json!(false), &json!(1)),
        "{report}"
    );
    let fault = &report["faults"][0];
    assert_eq!((&fault["file"], &fault["line"]), (&json!(path), &json!(1)), "{report}");
    assert!(fault["text"].as_str().unwrap().contains("was altered"), "{report}");
    // The verification ends at a record that needs a key.
    let keyed = format!(
        "{{\"seq\":3,\"event\":\"call\",\"prev\":\"{0}\",\"hmac\":\"{0}\"}}\n",
        "0".repeat(64)
    );
    fs::write(&path, super::audit::log().replace("call", "list") + &keyed).unwrap();
    let report = document(&verify().exits_with(WRONG_USE));
    assert_eq!((&report["is_intact"], &report["records"]), (&json!(false), &json!(3)), "{report}");
    let texts = [0, 1].map(|place| report["faults"][place]["text"].as_str().unwrap());
    assert!(texts[0].contains("was altered") && texts[1].contains("--key-file"), "{report}");
    assert_eq!(report["fault_count"], 2, "{report}");
}

#[test]
fn edits_of_the_configuration_are_described() {
    let folder = tempfile::tempdir().unwrap();
    let config = file(folder.path(), "");
    let edit = |args: &[&str]| {
        document(&trunkline(&[args, &["--json", "-c", &config]].concat()).exits_with(DONE))
    };
    let header = ["--header", "Authorization: Bearer s3cret-s3cret-s3cret"];
    let add = [&["add", "docs", "https://docs.example/mcp"], &header[..]].concat();
    let added = edit(&[&add[..], &["--dry-run"]].concat());
    assert_eq!(
        (&added["server"], &added["is_written"]),
        (&json!("docs"), &json!(false)),
        "{added}"
    );
    assert!(!added.to_string().contains("s3cret"), "{added}");
    assert_eq!(fs::read_to_string(&config).unwrap(), "");
    let added = edit(&add);
    assert_eq!((&added["file"], &added["is_written"]), (&json!(config), &json!(true)), "{added}");
    let lines = added["lines"].as_array().unwrap();
    let has = |words: &str| lines.iter().any(|line| line.as_str().unwrap().contains(words));
    assert!(has("added [servers.docs]") && !added.to_string().contains("s3cret"), "{added}");
    let removed = edit(&["remove", "docs"]);
    assert_eq!((&removed["server"], &removed["is_written"]), (&json!("docs"), &json!(true)));
    assert!(!fs::read_to_string(&config).unwrap().contains("docs"));
}

#[test]
fn a_key_and_its_hash_are_printed_once() {
    let made = document(&trunkline(&["key", "--json", "ci"]).exits_with(DONE));
    assert_eq!(made["client"], "ci", "{made}");
    let key = made["key"].as_str().unwrap();
    assert!(key.starts_with("tlk_"), "{made}");
    let mut child = Command::new(TRUNKLINE)
        .args(["key", "--hash", "--json"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(key.as_bytes()).unwrap();
    let hashed = document(&Ran(child.wait_with_output().unwrap()).exits_with(DONE));
    assert_eq!(hashed, json!({ "client": null, "key": null, "hash": made["hash"] }));
    trunkline(&["key", "--json", "--plain"]).exits_with(WRONG_USE);
    let version = document(&trunkline(&["version", "--json"]).exits_with(DONE));
    assert_eq!(version, json!({ "version": env!("CARGO_PKG_VERSION") }));
}

#[test]
fn openapi_prints_the_tools_and_the_settings() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("api.json").display().to_string();
    let api = json!({
        "openapi": "3.1.0",
        "info": { "title": "Shop\u{1b}[2J", "version": "2" },
        "paths": { "/items/{id}": { "get": {
            "operationId": "item",
            "parameters": [
                { "name": "id", "in": "path", "required": true, "schema": { "type": "string" } },
            ],
            "responses": {},
        } } },
    });
    fs::write(&path, api.to_string()).unwrap();
    let args = ["openapi", &path, "--base-url", "http://127.0.0.1:9", "--json"];
    let header = ["--header", "X-Key: s3cret-s3cret-s3cret"];
    let ran = trunkline(&[&args[..], &header].concat()).exits_with(DONE);
    assert!(!ran.said().contains('\u{1b}') && !ran.said().contains("s3cret"), "{:?}", ran.0);
    let survey = document(&ran);
    assert_eq!((&survey["title"], &survey["version"]), (&json!("Shop\u{1b}[2J"), &json!("2")));
    let tool = &survey["tools"][0];
    assert_eq!((&tool["name"], &tool["operation"]), (&json!("item"), &json!("GET /items/{id}")));
    assert_eq!(tool["arguments"], json!([{ "name": "id", "is_required": true }]));
    assert!(tool["tokens"].as_u64().unwrap() > 0, "{survey}");
    assert!(survey["configuration"].as_str().unwrap().contains("[servers.api]"), "{survey}");
}
