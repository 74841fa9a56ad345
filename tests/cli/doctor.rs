//! `trunkline doctor`: findings about the machine, files and addresses, each with its cure.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;

use crate::process::{TRUNKLINE, eventually};
use crate::redis_command::{REDIS_PACKAGE, redis_command};
use crate::{DONE, FAILURE, Ran, WRONG_USE, trunkline};

/// Runs the command for a configuration, as a user without configurations of clients.
fn doctor(folder: &Path, text: &str, options: &[&str]) -> Ran {
    let file = folder.join("gateway.toml");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(TRUNKLINE);
    command.env_remove("TRUNKLINE_CONFIG").env("HOME", folder).env("XDG_CONFIG_HOME", folder);
    command.current_dir(folder).arg("doctor").arg(&file).args(options);
    Ran(command.stdin(Stdio::null()).output().unwrap())
}

/// Returns the checks of an area, as JSON.
fn checks(ran: &Ran, area: &str) -> Vec<Value> {
    let report: Value = serde_json::from_str(&ran.said()).unwrap();
    let all = report["checks"].as_array().unwrap();
    all.iter().filter(|check| check["area"] == area).cloned().collect()
}

#[track_caller]
fn has_finding(ran: &Ran, area: &str, setting: &str, words: &str) {
    let found = checks(ran, area);
    let meant = found.iter().find(|check| check["setting"] == setting);
    let meant = meant.unwrap_or_else(|| panic!("{found:?}"));
    assert_eq!(meant["verdict"], "finding", "{meant}");
    assert!(meant["text"].as_str().unwrap().contains(words), "{meant}");
    assert!(!meant["cure"].as_str().unwrap().is_empty(), "{meant}");
    assert!(meant["line"].as_u64().is_some(), "{meant}");
}

const FREE: &str = "[gateway]\nlisten = \"127.0.0.1:0\"\n[admin]\nlisten = \"off\"\n";

#[test]
fn a_fine_configuration_has_no_findings_and_the_report_fits_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let text = format!("{FREE}[servers.s]\ncommand = {TRUNKLINE:?}\nargs = [\"example\"]\n");
    // The machine of the test may allow few open files.
    let text = text.replace("[admin]", "limits.connections = 16\n[admin]");
    let ran = doctor(folder.path(), &text, &["--offline"]).exits_with(DONE);
    let said = ran.said();
    for area in ["configuration", "descriptors", "clock", "runtimes", "certificates", "ports"] {
        assert!(said.contains(&format!("ok       {area} ")), "{said}");
    }
    assert!(said.contains("skipped  servers") && said.ends_with("No findings.\n"), "{said}");
    let is_path = |line: &str| line.split_whitespace().any(|word| word.len() > 57);
    assert!(said.lines().all(|line| line.chars().count() <= 80 || is_path(line)), "{said}");
}

#[test]
fn an_occupied_port_a_missing_program_and_an_expired_key_are_findings_with_their_lines() {
    let folder = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let key = "0".repeat(64);
    let text = format!(
        "[gateway]\nlisten = \"{address}\"\n[admin]\nlisten = \"off\"\n\
         [servers.s]\ncommand = \"/no/such/program\"\n\
         [clients.ci]\nkeys = [{{ hash = \"{key}\", expires = 2020-01-01 }}]\n"
    );
    let ran = doctor(folder.path(), &text, &["--json", "--offline"]).exits_with(FAILURE);
    has_finding(&ran, "ports", "gateway.listen", "is in use by");
    has_finding(&ran, "runtimes", "servers.s.command", "there is no program");
    has_finding(&ran, "certificates", "clients.ci.keys[0]", "has expired");
}

/// A Redis server that ends with the test.
struct StoreServer(Child);

impl Drop for StoreServer {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_store_of_replicas_is_written_and_read() {
    let folder = tempfile::tempdir().unwrap();
    let free = || TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let (port, peers) = (free(), free());
    let mut server = redis_command(port, folder.path());
    let server = server.args(["--requirepass", "secret"]).stdout(Stdio::null()).spawn();
    let server = server.expect(REDIS_PACKAGE);
    let server = StoreServer(server);
    let config = |password: &str| {
        FREE.replace("[admin]", "state_keys = [\"a key that all replicas share\"]\n[admin]")
            + &format!(
                "[cluster]\nstore = \"redis://:{password}@127.0.0.1:{port}\"\n\
                 listen = \"127.0.0.1:{peers}\"\nadvertise = \"127.0.0.1:{peers}\"\n"
            )
    };
    eventually("the server answers", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let ran = doctor(folder.path(), &config("secret"), &["--json"]);
    let found = checks(&ran, "servers");
    let is_store = |check: &&Value| check["text"].as_str().unwrap().contains("cluster.store");
    assert_eq!(found.iter().find(is_store).expect("a check")["verdict"], "fine", "{found:?}");
    let ran = doctor(folder.path(), &config("wrong"), &["--json"]).exits_with(FAILURE);
    has_finding(&ran, "servers", "cluster.store", "redis://127.0.0.1");
    assert!(!ran.said().contains("wrong@"), "{}", ran.said());
    drop(server);
    let ran = doctor(folder.path(), &config("secret"), &["--json"]).exits_with(FAILURE);
    has_finding(&ran, "servers", "cluster.store", "redis://127.0.0.1");
}

#[test]
fn servers_are_asked_without_effect_and_their_silence_and_refusal_are_findings() {
    let folder = tempfile::tempdir().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = closed.local_addr().unwrap();
    drop(closed);
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let answering_at = server.local_addr().unwrap();
    let answering = std::thread::spawn(move || {
        let mut heads = Vec::new();
        for status in ["405 Method Not Allowed", "401 Unauthorized"] {
            let (mut stream, _) = server.accept().unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap();
            heads.push(String::from_utf8_lossy(&head[..read]).into_owned());
            let date = "date: Sat, 01 Jan 2000 00:00:00 GMT";
            let answer = format!(
                "HTTP/1.1 {status}\r\n{date}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).unwrap();
        }
        heads
    });
    let server = |name: &str, address, more: &str| {
        format!("[servers.{name}]\nurl = \"http://{address}/mcp\"\n{more}\n")
    };
    let text = FREE.to_owned() + &server("fine", answering_at, "");
    let ran = doctor(folder.path(), &text, &["--json"]).exits_with(FAILURE);
    let servers = checks(&ran, "servers");
    assert_eq!(servers[0]["verdict"], "fine", "{servers:?}");
    let clock = checks(&ran, "clock");
    assert!(clock.iter().any(|check| check["verdict"] == "finding"), "{clock:?}");
    let text = FREE.to_owned()
        + &server("refused", answering_at, "headers = { Authorization = \"Bearer hunter2\" }")
        + &server("gone", gone, "");
    let ran = doctor(folder.path(), &text, &["--json"]).exits_with(FAILURE);
    has_finding(&ran, "servers", "servers.refused.url", "401");
    has_finding(&ran, "servers", "servers.gone.url", "");
    assert!(!ran.said().contains("hunter2"));
    let heads = answering.join().unwrap();
    assert!(heads.iter().all(|head| head.starts_with("HEAD /mcp HTTP/1.1\r\n")), "{heads:?}");
}

/// A server of plain HTTP that answers the head of a request; returns its address.
fn page_server(answer: impl Fn(SocketAddr, &str) -> String + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let read = stream.read(&mut head).unwrap();
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            let _ = stream.write_all(answer(address, &head).as_bytes());
        }
    });
    address
}

fn path_of(head: &str) -> &str {
    head.split(' ').nth(1).unwrap_or_default()
}

fn page(status: &str, headers: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\n{headers}content-type: application/json\r\n\
         content-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

#[test]
fn documents_and_addresses_of_apis_are_asked() {
    let folder = tempfile::tempdir().unwrap();
    let heads: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&heads);
    let there = page_server(move |_, head| {
        seen.lock().unwrap().push(head.to_owned());
        match path_of(head) {
            "/locked.json" => page("401 Unauthorized", "", ""),
            _ => page("200 OK", "", ""),
        }
    });
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = closed.local_addr().unwrap();
    drop(closed);
    let text = format!(
        "{FREE}[servers.fine]\nopenapi = \"http://{there}/openapi.json\"\n\
         [servers.locked]\nopenapi = \"http://{there}/locked.json\"\n\
         [servers.gone]\nopenapi = \"http://{gone}/openapi.json\"\n\
         [servers.split]\nopenapi = \"http://{there}/openapi.json\"\n\
         base_url = \"http://{gone}/v1\"\nheaders = {{ X-Secret = \"hunter2\" }}\n"
    );
    let ran = doctor(folder.path(), &text, &["--json"]).exits_with(FAILURE);
    has_finding(&ran, "servers", "servers.locked.openapi", "401");
    has_finding(&ran, "servers", "servers.gone.openapi", "");
    has_finding(&ran, "servers", "servers.split.base_url", "");
    let fine = checks(&ran, "servers");
    let fine: Vec<_> = fine.iter().filter(|check| check["verdict"] == "fine").collect();
    assert_eq!(fine.len(), 2, "fine, and the document of split: {fine:?}");
    let heads = heads.lock().unwrap();
    assert!(heads.iter().all(|head| head.starts_with("HEAD ")), "{heads:?}");
    assert!(!heads.iter().any(|head| head.contains("hunter2")), "it is for the API: {heads:?}");
}

#[test]
fn providers_of_servers_are_asked_for_their_metadata_and_for_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let seen = Arc::clone(&asked);
    let provider = page_server(move |own, head| {
        let path = path_of(head);
        seen.lock().unwrap().push(path.to_owned());
        let challenge = |place: &str| {
            format!("www-authenticate: Bearer resource_metadata=\"http://{own}{place}\"\r\n")
        };
        let metadata = |resource: &str, issuer: &str| {
            format!(
                "{{\"resource\":\"http://{own}{resource}\",\"authorization_servers\":[\"http://{own}{issuer}\"]}}"
            )
        };
        match path {
            "/good/mcp" => page("401 Unauthorized", &challenge("/good.json"), ""),
            "/bad/mcp" => page("401 Unauthorized", &challenge("/bad.json"), ""),
            "/good.json" => page("200 OK", "", &metadata("/good/mcp", "")),
            "/bad.json" => page("200 OK", "", &metadata("/bad/mcp", "/other")),
            "/.well-known/oauth-authorization-server" => {
                let all = format!(
                    "{{\"issuer\":\"http://{own}\",\"authorization_endpoint\":\"http://{own}/authorize\",\
                     \"token_endpoint\":\"http://{own}/token\",\
                     \"registration_endpoint\":\"http://{own}/register\",\
                     \"code_challenge_methods_supported\":[\"S256\"]}}"
                );
                page("200 OK", "", &all)
            }
            _ => page("404 Not Found", "", ""),
        }
    });
    let text = format!(
        "{FREE}[servers.good]\nurl = \"http://{provider}/good/mcp\"\noauth = {{}}\n\
         [servers.bad]\nurl = \"http://{provider}/bad/mcp\"\noauth = {{}}\n"
    );
    let ran = doctor(folder.path(), &text, &["--json"]).exits_with(FAILURE);
    has_finding(&ran, "providers", "servers.bad.oauth", "has no metadata");
    let providers = checks(&ran, "providers");
    let good = providers.iter().find(|check| check["verdict"] == "fine");
    let good = good.unwrap_or_else(|| panic!("{providers:?}"));
    assert_eq!(good["text"], format!("servers.good.oauth: http://{provider}"));
    // A server that asks for a login is no finding.
    assert!(checks(&ran, "servers").iter().all(|check| check["verdict"] == "fine"));
    let asked = asked.lock().unwrap();
    let has_effect = |path: &String| ["/authorize", "/token", "/register"].contains(&path.as_str());
    assert!(!asked.iter().any(has_effect), "{asked:?}");
    let offline = doctor(folder.path(), &text, &["--json", "--offline"]);
    assert!(checks(&offline, "providers").is_empty());
}

#[test]
fn an_issuer_without_keys_is_a_finding() {
    let folder = tempfile::tempdir().unwrap();
    let text = FREE.replace("[admin]", "public_url = \"http://127.0.0.1\"\n[admin]")
        + "[issuers.corp]\nissuer = \"https://login.example.com\"\njwks_file = \"missing.json\"\n";
    let ran = doctor(folder.path(), &text, &["--json"]).exits_with(FAILURE);
    has_finding(&ran, "providers", "issuers.corp.issuer", "");
}

#[test]
fn a_client_that_starts_servers_of_the_gateway_itself_is_a_finding_with_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let entry = format!("{{\"command\":{TRUNKLINE:?},\"args\":[\"example\"]}}");
    std::fs::create_dir(folder.path().join(".cursor")).unwrap();
    let file = folder.path().join(".cursor/mcp.json");
    std::fs::write(&file, format!("{{\"mcpServers\":{{\"s\":{entry}}}}}")).unwrap();
    let text = format!("{FREE}[servers.s]\ncommand = {TRUNKLINE:?}\nargs = [\"example\"]\n");
    let ran = doctor(folder.path(), &text, &["--json", "--offline"]).exits_with(FAILURE);
    let clients = checks(&ran, "clients");
    let found = clients.iter().find(|check| check["verdict"] == "finding");
    let cure = &found.unwrap_or_else(|| panic!("{clients:?}"))["cure"];
    assert_eq!(cure, "trunkline export --client cursor --write --replace");
}

#[test]
fn a_configuration_with_faults_is_one_finding_beside_those_of_the_machine() {
    let folder = tempfile::tempdir().unwrap();
    let ran = doctor(folder.path(), "[gateway]\nlisen = 1\n", &["--json"]).exits_with(FAILURE);
    let configuration = checks(&ran, "configuration");
    assert_eq!(configuration[0]["cure"], "see trunkline check");
    assert_eq!(checks(&ran, "descriptors").len(), 1);
    assert_eq!(checks(&ran, "ports").len(), 0);
    trunkline(&["doctor", "--no-such-option"]).exits_with(WRONG_USE);
}
