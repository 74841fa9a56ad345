//! The resources of the API: servers, catalog, clients and sessions, configuration, definitions.

use serde_json::{Value, json};

use super::{code, send, with_roles};
use crate::pins::pinned;
use crate::support::upstream::offers::{prompt, resource, template};
use crate::support::{Client, Gateway, Said, Step, Upstream, client_table, within};

pub(super) async fn get(gateway: &Gateway, path: &str) -> Value {
    let said = gateway.admin(&format!("/api/v1{path}")).await;
    assert_eq!(said.status, 200, "{path}: {said:?}");
    said.json()
}

pub(super) async fn post(gateway: &Gateway, path: &str, body: &Value) -> Said {
    let operator = gateway.operator();
    let ask = operator.http("POST", &format!("/api/v1{path}")).body(body.to_string());
    ask.header("content-type", "application/json").send().await.said().await
}

/// Sends a request to each endpoint of the document, by every role.
#[tokio::test]
async fn every_endpoint_is_refused_to_the_roles_below_its_own() {
    let gateway = with_roles(Gateway::alone()).start().await;
    let document = get(&gateway, "/openapi.json").await;
    let roles = ["viewer", "operator", "admin"];
    let keys = ["plain-key", "looks-key", "acts-key", "rules-key"];
    let mut checked = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = ["{server}", "{session}", "{id}", "{version}", "{login}"]
            .iter()
            .fold(path.clone(), |path, name| path.replace(name, "none"));
        for (method, operation) in methods.as_object().unwrap() {
            let least = operation["x-trunkline-role"].as_str().unwrap();
            let least = roles.iter().position(|role| *role == least).unwrap();
            for (rank, key) in keys.into_iter().enumerate() {
                let client = gateway.remote_operator().key(key);
                // An event stream has no end.
                let status = client.http(&method.to_uppercase(), &path).send().await.status();
                assert_eq!(status == 403, rank <= least, "{method} {path} {key} {status}");
                checked += 1;
            }
        }
    }
    assert!(checked >= 4 * 10, "{checked}");
}

#[tokio::test]
async fn a_restarted_server_has_another_process_and_calls_in_flight_finish() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.modern();
    let before = get(&gateway, "/servers/s").await;
    let call = client.call("s__hold", json!({}));
    let restart = async {
        upstream.heard("tools/call", 1).await;
        let restarted = post(&gateway, "/servers/s/restart", &json!({})).await;
        assert_eq!(restarted.status, 200, "{restarted:?}");
        upstream.release(1);
        restarted.json()
    };
    let (held, after) = tokio::join!(call, restart);
    assert!(!held.is_error(), "{held:?}");
    assert_eq!((&after["state"], &after["name"]), (&json!("ready"), &json!("s")));
    assert_ne!(after["pid"], before["pid"]);
    client.call("s__echo", json!({})).await.text();
    for (method, path) in [("GET", "/servers/x"), ("POST", "/servers/x/restart")] {
        let said = send(&gateway.operator(), method, &format!("/api/v1{path}")).await;
        assert_eq!(code(&said, 404), "unknown_server");
    }
    assert_eq!(get(&gateway, "/servers").await["servers"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn sessions_are_listed_without_their_ids_and_can_be_ended() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http())
        .toml(&client_table("ann", "ann-key", "role = \"operator\""))
        .start()
        .await;
    let ann = Client::sessionless(gateway.running.address, "2025-11-25").key("ann-key");
    let ann = ann.named("ed\u{1b}itor", "3").initialized().await;
    let page = get(&gateway, "/clients").await;
    let session = &page["sessions"][0];
    for (member, value) in [
        ("principal", "ann"),
        ("profile", "default"),
        ("software", "editor"),
        ("version", "3"),
        ("protocol_version", "2025-11-25"),
    ] {
        assert_eq!(session[member], value, "{session}");
    }
    assert!(!page.to_string().contains(ann.session()), "the id opens the session");
    assert_eq!(page["clients"][0]["name"], "ann");
    let path = format!("/api/v1/sessions/{}", session["session"].as_str().unwrap());
    assert_eq!(
        code(&send(&gateway.operator(), "DELETE", "/api/v1/sessions/none").await, 404),
        "unknown_session"
    );
    assert_eq!(send(&gateway.operator(), "DELETE", &path).await.status, 200);
    assert_eq!(ann.ask("ping", json!({})).send().await.status(), 404, "ended");
    assert_eq!(code(&send(&gateway.operator(), "DELETE", &path).await, 404), "unknown_session");
    assert_eq!(get(&gateway, "/clients").await["sessions"], json!([]));
}

fn described(name: &str, text: &str) -> String {
    json!({ "name": name, "description": text, "inputSchema": { "type": "object" } }).to_string()
}

#[tokio::test]
async fn definitions_are_approved_in_exactly_the_form_that_was_seen() {
    let upstream = Upstream::legacy().await;
    upstream.does("add", |_| vec![Step::text("sum")]);
    upstream.set_tools([described("add", "Adds.")]);
    let gateway = pinned(&upstream, "pins = \"hold\"").start().await;
    let client = gateway.modern();
    // Besides the tool, the server's description of itself waits.
    let pending = async || {
        let all = get(&gateway, "/definitions").await["pending"].clone();
        let tools = all.as_array().unwrap().iter().filter(|one| one["kind"] == "tools");
        tools.cloned().collect::<Vec<_>>()
    };
    let waits = async |count: usize| {
        within(async { while pending().await.len() != count {} }).await;
    };
    waits(1).await;
    let first = pending().await[0].clone();
    assert_eq!((&first["server"], &first["name"]), (&json!("s"), &json!("add")));
    assert!(first["diff"].as_str().unwrap().contains("Adds."), "{first}");
    let path = "/servers/s/definitions/approve";
    for (body, status, expected) in [
        (json!({ "sha256": ["0".repeat(64)] }), 409, "not_pending"),
        (json!({ "sha256": [] }), 400, "invalid_request"),
        (json!({ "names": ["add"] }), 400, "invalid_request"),
    ] {
        assert_eq!(code(&post(&gateway, path, &body).await, status), expected, "{body}");
    }
    let reject = "/servers/s/definitions/reject";
    let none = post(&gateway, reject, &json!({ "sha256": ["0".repeat(64)] })).await;
    assert_eq!(code(&none, 409), "not_pending");
    let info = get(&gateway, "/definitions").await["pending"].clone();
    let info = info.as_array().unwrap().iter().find(|one| one["kind"] == "serverInfo").unwrap();
    let rejected = post(&gateway, reject, &json!({ "sha256": [info["sha256"]] })).await;
    assert_eq!(rejected.json()["rejected"][0]["kind"], "serverInfo", "{rejected:?}");
    let page = get(&gateway, "/definitions").await;
    assert_eq!(
        (page["pending"].as_array().unwrap().len(), &page["rejected"][0]["kind"]),
        (1, &json!("serverInfo"))
    );
    assert_eq!(client.tool_names().await, Vec::<String>::new());
    let approved = post(&gateway, path, &json!({ "sha256": [first["sha256"]] })).await;
    assert_eq!(approved.json()["approved"], json!([{ "kind": "tools", "name": "add" }]));
    within(async { while client.tool_names().await != ["s__add"] {} }).await;
    waits(0).await;
    let unknown =
        post(&gateway, "/servers/x/definitions/approve", &json!({ "sha256": ["1"] })).await;
    assert_eq!(code(&unknown, 404), "unknown_server");
}

#[tokio::test]
async fn definitions_that_are_not_stored_cannot_be_approved() {
    let gateway = Gateway::alone().start().await;
    let said = gateway.admin("/api/v1/definitions").await;
    assert_eq!(code(&said, 409), "state_dir_needed");
}

#[tokio::test]
async fn the_catalog_has_every_element_also_those_that_no_client_sees() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything();
    upstream.set_tools([described("add", "Adds."), described("drop", "Drops.")]);
    upstream.lists("prompts", [prompt("greet")]);
    upstream.lists("resources", [resource("file:///a.txt")]);
    upstream.lists("resourceTemplates", [template("db://{table}/{id}")]);
    let server = upstream.http() + "tools.deny = [\"drop\"]";
    let gateway = Gateway::with("s", server).toml("[profiles.few]\ntools = []\n").start().await;
    let page = get(&gateway, "/catalog").await;
    let find = |native: &str| {
        let elements = page["elements"].as_array().unwrap();
        elements
            .iter()
            .find(|one| one["native"] == native)
            .unwrap_or_else(|| panic!("{page:#}"))
            .clone()
    };
    for (native, kind, public) in [
        ("add", "tools", json!("s__add")),
        ("drop", "tools", Value::Null),
        ("greet", "prompts", json!("s__greet")),
        ("file:///a.txt", "resources", json!("mcp://s/file:///a.txt")),
        ("db://{table}/{id}", "resourceTemplates", json!("mcp://s/db://{table}/{id}")),
    ] {
        let one = find(native);
        assert_eq!(
            (&one["kind"], &one["public"], &one["held"]),
            (&json!(kind), &public, &json!(false)),
            "{one}"
        );
        assert_eq!(one["reasons"] == json!([]), native != "drop", "{one}");
    }
    let add = find("add");
    assert!(add["tokens"].as_u64().unwrap() > 5, "{add}");
    assert_eq!(add["profiles"], json!(["default"]), "the profile `few` shows no tool");
}

#[tokio::test]
async fn audit_records_are_found_for_operators_by_filter_and_page() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http()))
        .toml("[audit]\nfile = \"audit.jsonl\"\n")
        .start()
        .await;
    let client = gateway.modern().key("plain-key");
    for _ in 0..3 {
        client.call("s__echo", json!({})).await;
    }
    client.call("s__none", json!({})).await;
    let page = async |query: &str| get(&gateway, &format!("/audit?{query}")).await;
    let count = async |query: &str| page(query).await["records"].as_array().unwrap().len();
    within(async { while count("kind=call").await < 4 {} }).await;
    for (query, expected) in [
        ("tool=s__echo", 3),
        ("tool=echo&client=plain&server=s&decision=allow", 3),
        ("client=plain&decision=deny", 1),
        ("client=other", 0),
        ("kind=reload", 0),
        ("kind=call&until=2020-01-01T00:00:00Z", 0),
        ("kind=call&since=2020-01-01T00:00:00Z", 4),
    ] {
        assert_eq!(count(query).await, expected, "{query}");
    }
    let first = page("tool=s__echo&limit=2").await;
    let next = format!("tool=s__echo&limit=2&cursor={}", first["next"].as_str().unwrap());
    let second = page(&next).await;
    let number = |page: &Value, at: usize| page["records"][at]["seq"].as_u64().unwrap();
    assert_eq!(second["records"].as_array().unwrap().len(), 1);
    assert!(number(&first, 0) > number(&first, 1) && number(&first, 1) > number(&second, 0));
    assert_eq!(count("tool=s__echo&limit=0").await, 1, "a page goes on");
    let after = format!("tool=s__echo&after={}", number(&first, 1));
    assert_eq!(number(&page(&after).await, 0), number(&first, 0));
    for query in ["limit=x", "limit=1001", "since=today", "cursor=x", "after=x", "other=1"] {
        let said = gateway.admin(&format!("/api/v1/audit?{query}")).await;
        assert_eq!(code(&said, 400), "invalid_request", "{query}");
    }
    let without = Gateway::alone().start().await;
    assert_eq!(code(&without.admin("/api/v1/audit").await, 409), "audit_file_needed");
}
