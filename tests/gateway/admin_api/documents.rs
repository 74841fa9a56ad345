//! Documents for operators: output that viewers do not see, the catalog's reasons, sessions of Modern
//! clients, calls in flight, and refusals of the guard.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::resources::{get, post};
use super::{STATUS, code, send, with_roles};
use crate::pins::pinned;
use crate::support::upstream::offers::{prompt, resource};
use crate::support::upstream::{Received, tool};
use crate::support::{Client, Gateway, Step, Upstream, client_table, until_async, within};

fn element(page: &Value, native: &str) -> Value {
    let elements = page["elements"].as_array().unwrap();
    let found = elements.iter().find(|one| one["native"] == native);
    found.unwrap_or_else(|| panic!("{native}: {page:#}")).clone()
}

#[tokio::test]
async fn a_viewer_reads_no_output_of_a_server_where_a_fault_quotes_it() {
    let script =
        "echo \"no message of confidential-1\"; echo \"a word of confidential-2\" >&2; exit 3";
    let failing = format!("command = \"sh\"\nargs = [\"-c\", '''{script}''']\nmax_restarts = 1\n");
    let gateway = with_roles(Gateway::with("s", failing)).start_at_once().await;
    gateway.wait_for(|status| status["servers"][0]["state"] == "failed").await;
    let (viewer, operator) = ("looks-key", "acts-key");
    let read = async |key: &str, path: &str| {
        let said = send(&gateway.remote_operator().key(key), "GET", path).await;
        assert_eq!(said.status, 200, "{path}: {said:?}");
        said.body
    };
    for path in ["/status", STATUS, "/api/v1/servers", "/api/v1/servers/s", "/api/v1/activity"]
        .into_iter()
        .chain(["/api/v1/servers/s/faults", "/api/v1/tools", "/api/v1/scan", "/api/v1/catalog"])
    {
        let (seen, whole) = (read(viewer, path).await, read(operator, path).await);
        assert!(whole.contains("confidential-2"), "{path}: {whole}");
        assert!(!seen.contains("confidential"), "{path}: {seen}");
        assert!(seen.contains("operators can see its output"), "{path}: {seen}");
        assert!(seen.contains("exit status: 3"), "{path}: {seen}");
    }
}

#[tokio::test]
async fn the_catalog_has_the_reason_that_clients_do_not_see_an_element() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything();
    upstream.set_tools(["seen", "unshown", "dropped", "denied"].map(|name| tool(name).to_string()));
    upstream.lists("prompts", [prompt("greet")]);
    upstream.lists("resources", [resource("file:///a.txt")]);
    let lines = upstream.http() + "tools.deny = [\"dropped\"]";
    let builder = Gateway::with("s", lines)
        .toml(&client_table("ann", "ann-key", ""))
        .toml("[profiles.default]\ntools = [\"s__seen\", \"s__denied\"]\n")
        .toml("[policy.rules.never]\neffect = \"deny\"\ntools = [\"s__denied\"]\n")
        .toml("[policy.rules.rest]\neffect = \"allow\"\n");
    let line = builder.text().lines().position(|line| line.starts_with("tools.deny")).unwrap() + 1;
    let gateway = builder.start().await;
    let page = get(&gateway, "/catalog").await;
    let hidden =
        format!("hidden by servers.s.tools.deny, line {line}: remove the pattern that matches it");
    for (native, reasons) in [
        ("seen", json!([])),
        ("unshown", json!(["no profile shows it"])),
        ("dropped", json!([hidden])),
        (
            "denied",
            json!(["rules, scopes or profiles hide it from every client of the configuration"]),
        ),
    ] {
        assert_eq!(element(&page, native)["reasons"], reasons, "{native}: {page:#}");
    }
    // Every definition is counted, also those of prompts and resources, and hidden ones.
    for one in page["elements"].as_array().unwrap() {
        assert!(one["tokens"].as_u64().unwrap() > 5, "{one}");
    }
    let started = get(&gateway, "/status").await["started_at"].clone();
    assert_eq!(page["counted_since"], started);
    assert_eq!(get(&gateway, "/clients").await["counted_since"], started);
}

#[tokio::test]
async fn the_catalog_has_elements_that_are_listed_for_some_clients_only() {
    let upstream = Upstream::legacy().await;
    let told: Arc<Mutex<HashMap<String, String>>> = Arc::default();
    let child = |asked: &Received| asked.header("mcp-session-id").unwrap().to_owned();
    let opened = Arc::clone(&told);
    upstream
        .when_asked("initialize", move |asked| {
            let can = asked.params["capabilities"].as_object().unwrap().keys();
            let can = can.cloned().collect::<Vec<_>>().join("_");
            opened.lock().unwrap().insert(child(asked), format!("tool_{can}"));
            vec![Step::Result(json!({
                "protocolVersion": "2025-11-25", "capabilities": { "tools": {} },
                "serverInfo": { "name": "choosy", "version": "1" },
            }))]
        })
        .when_asked("tools/list", move |asked| {
            let name = told.lock().unwrap()[&child(asked)].clone();
            vec![Step::Result(json!({ "tools": [tool(&name)] }))]
        });
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let rooted = gateway.legacy().await.offering(json!({ "roots": {} })).await;
    assert_eq!(rooted.tool_names().await, ["s__tool_roots"]);
    let page = get(&gateway, "/catalog").await;
    assert_eq!(element(&page, "tool_")["reasons"], json!([]), "{page:#}");
    let some = element(&page, "tool_roots");
    assert_eq!(
        (&some["public"], &some["profiles"]),
        (&json!("s__tool_roots"), &json!(["default"]))
    );
    assert!(some["reasons"].to_string().contains("for some clients only"), "{some}");
}

#[tokio::test]
async fn the_catalog_names_the_servers_whose_elements_are_missing() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).server("t", upstream.http()).start().await;
    assert_eq!(get(&gateway, "/catalog").await["unlisted"], json!([]));
    post(&gateway, "/servers/t/disable", &json!({})).await;
    let page = get(&gateway, "/catalog").await;
    assert_eq!(page["unlisted"][0]["name"], "t", "{page:#}");
    let reason = page["unlisted"][0]["reason"].as_str().unwrap();
    assert!(
        reason.contains("disabled by uid") && reason.contains("trunkline enable t"),
        "{reason}"
    );
}

#[tokio::test]
async fn a_session_of_a_caller_without_a_table_has_the_rest_of_its_limits() {
    let upstream = Upstream::modern().await;
    let lines = upstream.http() + "quota_each = \"7/day\"";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.legacy().await;
    client.call("s__echo", json!({})).await.text();
    let page = get(&gateway, "/clients").await;
    let limit = &page["sessions"][0]["limits"][0];
    assert_eq!((&limit["limit"], &limit["remaining"]), (&json!("quota:server:s"), &json!(6)));
}

#[tokio::test]
async fn the_streams_of_a_modern_client_are_listed_and_can_be_ended() {
    let upstream = Upstream::modern().await;
    let builder = Gateway::with("s", upstream.http()).toml(&client_table("ann", "ann-key", ""));
    let gateway = builder.toml(&client_table("bob", "bob-key", "")).start().await;
    let ann = gateway.modern().key("ann-key").named("editor", "3");
    let bob = gateway.modern().key("bob-key").named("editor", "3");
    let (mut first, mut second) = (ann.listen().await, ann.listen().await);
    let mut other = bob.listen().await;
    let recent = async |name: &str| {
        let page = get(&gateway, "/clients").await;
        let all = page["recent"].as_array().unwrap().clone();
        all.into_iter().find(|one| one["principal"] == name).unwrap()
    };
    let listed = recent("ann").await;
    assert_eq!((&listed["streams"], &recent("bob").await["streams"]), (&json!(2), &json!(1)));
    let path = format!("/api/v1/sessions/{}", listed["session"].as_str().unwrap());
    let ended = send(&gateway.operator(), "DELETE", &path).await;
    assert_eq!((ended.status, &ended.json()["streams"]), (200, &json!(2)), "{ended:?}");
    for stream in [&mut first, &mut second] {
        let last = stream.message().await.unwrap();
        assert_eq!(last["result"]["resultType"], "complete", "ends properly");
        assert_eq!(stream.message().await, None);
    }
    until_async(async || recent("ann").await["streams"] == 0).await;
    assert_eq!(code(&send(&gateway.operator(), "DELETE", &path).await, 404), "unknown_session");
    // Another client of the same software is not affected.
    assert_eq!(recent("bob").await["streams"], 1);
    upstream.set_tools([tool("new").to_string()]).announce().await;
    assert!(other.message().await.is_some());
}

#[tokio::test]
async fn a_decision_about_definitions_is_recorded_with_their_digests() {
    let upstream = Upstream::legacy().await;
    upstream.set_tools([tool("add").to_string()]);
    let builder = pinned(&upstream, "pins = \"hold\"");
    let gateway = builder.toml("[audit]\nfile = \"audit.jsonl\"\n").start().await;
    let pending = async || {
        let all = get(&gateway, "/definitions").await["pending"].clone();
        let all = all.as_array().unwrap().iter();
        all.map(|one| one["sha256"].clone()).collect::<Vec<_>>()
    };
    until_async(async || pending().await.len() == 2).await;
    let digests = pending().await;
    let record = async |path: &str, sha256: Value| {
        let sent = post(&gateway, path, &json!({ "sha256": sha256 })).await;
        let found =
            async || get(&gateway, "/audit?kind=change&limit=1").await["records"][0].clone();
        until_async(async || found().await["path"] == path).await;
        (sent.status, found().await)
    };
    let (status, rejected) = record("/servers/s/definitions/reject", json!([digests[0]])).await;
    assert_eq!((status, &rejected["digests"]), (200, &json!([digests[0]])), "{rejected}");
    let texts = json!([digests[1], "a text\nof a client"]);
    let (status, approved) = record("/servers/s/definitions/approve", texts).await;
    assert_eq!(status, 200);
    assert_eq!(
        (&approved["digests"], &approved["digest_count"]),
        (&json!([digests[1]]), &json!(1)),
        "{approved}"
    );
}

/// Sends lines to the admin listener; returns the status line, and the document of the answer.
async fn ask_raw(gateway: &Gateway, lines: &str) -> (String, Value) {
    let mut stream = TcpStream::connect(gateway.running.admin.unwrap()).await.unwrap();
    let request = format!("GET {STATUS} HTTP/1.1\r\nconnection: close\r\n{lines}\r\n");
    within(stream.write_all(request.as_bytes())).await.unwrap();
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/problem+json"), "{answer}");
    (head.lines().next().unwrap().to_owned(), serde_json::from_str(body).unwrap())
}

#[tokio::test]
async fn refusals_of_the_guard_are_problems_with_codes_and_name_the_setting() {
    let gateway = with_roles(Gateway::alone()).start().await;
    let many = format!("host: localhost\r\nx-a: {}\r\n", "a".repeat(40_000));
    for (lines, status, code, words) in [
        ("host: gw.example.com\r\n", 403, "foreign_host", "`admin.allowed_hosts`"),
        (
            "host: localhost\r\norigin: https://evil.example.com\r\n",
            403,
            "foreign_page",
            "`admin.allowed_origins`",
        ),
        ("host: localhost\r\norigin: null\r\n", 403, "foreign_page", "Origin"),
        ("host: a b\r\n", 400, "invalid_request", "Host"),
        (
            "host: localhost\r\ntransfer-encoding: gzip, chunked\r\n",
            501,
            "unknown_coding",
            "chunked",
        ),
        (&many, 431, "head_too_large", "limits.header"),
    ] {
        let (line, problem) = ask_raw(&gateway, lines).await;
        assert!(line.contains(&status.to_string()), "{line} {problem}");
        assert_eq!((&problem["code"], &problem["status"]), (&json!(code), &json!(status)));
        assert_eq!(problem["type"], format!("urn:trunkline:problem:{code}"));
        assert!(problem["detail"].as_str().unwrap().contains(words), "{problem}");
    }
}

#[tokio::test]
async fn observed_calls_in_flight_are_listed_with_their_step_until_they_end() {
    let upstream = Upstream::modern().await;
    let builder = Gateway::with("s", upstream.http()).toml(&client_table("ci", "ci-key", ""));
    let gateway = builder.start().await;
    let client: Client = gateway.modern().key("ci-key");
    // The look begins the observation.
    assert_eq!(get(&gateway, "/calls").await["in_flight"], json!([]));
    let call = client.call("s__hold", json!({ "text": "secret-argument" }));
    let look = async {
        upstream.heard("tools/call", 1).await;
        let page = get(&gateway, "/calls").await;
        let others = get(&gateway, "/calls?client=other").await;
        upstream.release(1);
        (page, others)
    };
    let (_, (page, others)) = tokio::join!(call, look);
    let flying = &page["in_flight"][0];
    for (member, value) in [
        ("client", "ci"),
        ("profile", "default"),
        ("method", "tools/call"),
        ("name", "s__hold"),
        ("step", "server"),
    ] {
        assert_eq!(flying[member], value, "{page:#}");
    }
    assert!(flying["since"].is_string() && !page.to_string().contains("secret-argument"));
    assert_eq!(others["in_flight"], json!([]));
    let page = get(&gateway, "/calls").await;
    assert_eq!((&page["in_flight"], &page["calls"][0]["id"]), (&json!([]), &flying["id"]));
}

#[tokio::test]
async fn the_last_use_of_an_element_and_a_key_survives_a_restart_with_a_folder_for_state() {
    let upstream = Upstream::modern().await;
    let builder = || {
        let gateway = Gateway::with("s", upstream.http()).gateway("state_dir = \"state\"");
        gateway.toml(&client_table("ci", "ci-key", ""))
    };
    let first = builder().start().await;
    first.modern().key("ci-key").call("s__echo", json!({})).await.text();
    let used = async |gateway: &Gateway| {
        let page = get(gateway, "/catalog").await;
        let clients = get(gateway, "/clients").await;
        let second = |value: &Value| {
            let text = value.as_str().unwrap_or_else(|| panic!("{page:#} {clients:#}"));
            text[..19].to_owned()
        };
        let unused = element(&page, "fail")["last_used_at"].clone();
        assert_eq!(unused, Value::Null);
        let key = second(&clients["clients"][0]["last_used_at"]);
        let since = second(&page["counted_since"]);
        [second(&element(&page, "echo")["last_used_at"]), key, since]
    };
    let before = used(&first).await;
    let folder = first.stop().await;
    let again = builder().in_folder(folder).start().await;
    assert_eq!(used(&again).await, before);
}
