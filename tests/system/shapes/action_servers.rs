//! A framework of agents with action servers as tools: plain HTTP APIs that describe themselves by
//! OpenAPI, at one of four paths, and may require a bearer token. An agent has the actions of the
//! server in its file, and gets others while it runs.

use serde_json::{Value, json};

use super::{Project, fixture, refresh};
use crate::process::{Process, eventually};
use crate::support::api::{Page, PlainApi};
use crate::support::{Client, poll_for, until_async};

fn actions() -> Value {
    serde_json::from_str(&fixture("systems/email_actions.json")).unwrap()
}

/// Starts an action server that requires a bearer token for all requests.
async fn email_server() -> PlainApi {
    let api = PlainApi::with(&actions()).await;
    api.sets("/send-email", Page::json(&json!({ "result": "Email sent successfully" })));
    api.demands("email-token");
    api
}

/// Returns the framework's file with servers: the one in the documentation, with a token, or
/// another.
fn servers(name: &str, url: &str, token: &str) -> String {
    let file = fixture("import/agents/action_servers.json");
    let mut file: Value = serde_json::from_str(&file).unwrap();
    let mut server = file["servers"]["email_mcp"].take();
    server["name"] = json!(name);
    server["url"] = json!(url);
    server["auth_token"] = json!(token);
    file["servers"] = json!({ name: server });
    file.to_string()
}

/// Returns the framework's files, with one agent in `agent_configs`.
fn project(api: &PlainApi) -> Project {
    let project = Project::new("list_wait = \"10s\"");
    project.has("action_servers.json", &servers("email_mcp", &api.url(""), "email-token"));
    let agent = fixture("import/agents/agent_configs/bob.json");
    project.has("agent_configs/bob.json", &agent);
    project.imports("action_servers.json");
    project
}

/// Returns a worker agent, which has the profile of its name.
fn worker(gateway: &Process, name: &str) -> Client {
    Client::modern(gateway.address).at(&format!("/mcp/{name}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_finds_its_actions_and_their_servers_get_the_extracted_values() {
    let api = email_server().await;
    let gateway = project(&api).serves();
    gateway.ready(&["email_mcp"]);
    let bob = worker(&gateway, "bob");
    let tools = bob.tools().await;
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["email_mcp__send-email", "email_mcp__read-emails"]);
    // The texts by which a model selects a tool, and extracts values.
    assert_eq!(tools[1]["description"], "Read emails\n\nRetrieve and read emails from inbox");
    let limit = &tools[1]["inputSchema"]["properties"]["limit"];
    assert_eq!(limit["description"], "Maximum number of items to return (e.g., 5, 10, 20)");

    let said = bob.call("email_mcp__send-email", json!({ "to": "a@example.com" })).await;
    assert_eq!(said.result()["structuredContent"]["result"], "Email sent successfully");
    let sent = api.last();
    assert_eq!((&*sent.method, &*sent.target), ("POST", "/send-email"));
    assert_eq!(sent.header("authorization"), Some("Bearer email-token"));
    assert_eq!(&sent.body[..], br#"{"to":"a@example.com"}"#);

    // The framework fills every parameter, with empty texts, and numbers as texts.
    let extracted =
        json!({ "limit": "2", "sender": "", "subject_contains": "", "unread_only": "" });
    let said = bob.call("email_mcp__read-emails", extracted).await;
    assert!(!said.is_error(), "{said:?}");
    assert_eq!(&api.last().body[..], br#"{"limit":2}"#);

    let said = bob.call("email_mcp__send-email", json!({ "subject": "no recipient" })).await;
    assert!(said.is_error() && said.text().contains("to"), "{said:?}");
    api.sets("/send-email", Page::new(422, "application/json", r#"{"detail":"no such mailbox"}"#));
    let said = bob.call("email_mcp__send-email", json!({ "to": "a" })).await;
    let answer = "HTTP 422 Unprocessable Entity: {\"detail\":\"no such mailbox\"}";
    assert_eq!((said.is_error(), said.text()), (true, answer));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_action_server_is_found_at_each_of_its_four_paths() {
    let paths = ["/openapi.json", "/", "/api/openapi.json", "/docs/openapi.json"];
    let mut servers = Vec::new();
    for at in paths {
        let api = PlainApi::start().await;
        for path in paths {
            api.sets(path, Page::new(404, "application/json", r#"{"detail":"Not Found"}"#));
        }
        api.sets(at, Page::json(&actions()));
        servers.push(api);
    }
    let entries = servers.iter().enumerate().map(|(number, api)| {
        let name = format!("server{number}");
        (name.clone(), json!({ "name": name, "url": api.url(""), "auto_discover": true }))
    });
    let entries: serde_json::Map<_, _> = entries.collect();
    let mut project = Project::new("");
    project.has("action_servers.json", &json!({ "servers": entries }).to_string());
    project.imports("action_servers.json");
    let gateway = project.serves();
    gateway.ready(&["server0", "server1", "server2", "server3"]);
    let client = Client::modern(gateway.address);
    for (number, api) in servers.iter().enumerate() {
        let said = client.call(&format!("server{number}__read-emails"), json!({})).await;
        assert!(!said.is_error(), "{said:?}");
        assert_eq!(api.last().target, "/read-emails");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_gets_actions_while_the_gateway_runs() {
    let api = email_server().await;
    let calendar = PlainApi::with(&actions()).await;
    let mut project = project(&api);
    let gateway = project.serves();
    gateway.ready(&["email_mcp"]);
    let frank = worker(&gateway, "frank");
    let is_there = || async { frank.ask("tools/list", json!({})).send().await.status() == 200 };
    assert!(!is_there().await, "nobody has assigned anything to it");

    project.has("action_servers.json", &servers("calendar", &calendar.url(""), "other-token"));
    let agent = json!({ "agent_name": "frank", "action_server": "calendar" });
    project.has("agent_configs/frank.json", &agent.to_string());
    project.imports("action_servers.json");
    until_async(is_there).await;
    gateway.ready(&["calendar"]);
    assert_eq!(frank.tool_names().await, ["calendar__send-email", "calendar__read-emails"]);
    let refused = frank.call("email_mcp__send-email", json!({ "to": "a" })).await;
    assert_eq!(refused.error()["code"], -32602, "it is bob's");

    // The action server gets a new action, and a refresh is requested.
    let mut more = actions();
    let mut delete = more["paths"]["/send-email"].clone();
    delete["post"]["operationId"] = json!("delete-email");
    more["paths"]["/delete-email"] = delete;
    calendar.sets("/openapi.json", Page::json(&more));
    // A recently read document is not read again.
    let report = poll_for(async || {
        let report = refresh(&gateway, "calendar", "").await.json();
        Some(report).filter(|report| report["changed"] == true)
    });
    assert_eq!(report.await["lists"]["tools"]["added"], json!(["delete-email"]));
    eventually("the action is listed", || gateway.server("calendar")["tools"] == 3);
    assert_eq!(frank.tool_names().await.len(), 3);
}
