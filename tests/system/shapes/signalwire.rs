//! SignalWire's AI agent: Streamable HTTP by POSTs that accept JSON alone, at 2025-06-18. It
//! discovers everything at the start of a session, has a resource's text as a variable with the
//! resource's name, and never lists again.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{Project, fixture};
use crate::process::Process;
use crate::support::client::Kind;
use crate::support::upstream::offers::{everything, resource, template};
use crate::support::webhook::down_address;
use crate::support::{Client, Said, Step, Upstream, client_table};

/// An agent in a session.
struct Agent {
    client: Client,
    /// `global_data`: the texts of resources, by the resources' names.
    data: BTreeMap<String, Value>,
    /// The SWAIG functions: the schema of each tool, by the tool's name.
    functions: BTreeMap<String, Value>,
}

impl Agent {
    /// Performs SignalWire's steps at the start of a session.
    async fn discovers(gateway: &Process) -> Self {
        let client = open_session(gateway).await;
        let mut agent = Self { client, data: BTreeMap::new(), functions: BTreeMap::new() };
        let listed = agent.request("resources/list", json!({})).await.result().clone();
        for resource in listed["resources"].as_array().unwrap() {
            let read = agent.request("resources/read", json!({ "uri": resource["uri"] })).await;
            let text = read.result()["contents"][0]["text"].as_str().unwrap().to_owned();
            let value = serde_json::from_str(&text).unwrap_or(Value::String(text));
            agent.data.insert(resource["name"].as_str().unwrap().to_owned(), value);
        }
        let listed = agent.request("tools/list", json!({})).await.result().clone();
        for tool in listed["tools"].as_array().unwrap() {
            let name = tool["name"].as_str().unwrap().to_owned();
            agent.functions.insert(name, tool["inputSchema"].clone());
        }
        agent
    }

    /// Makes one attempt, which must return one JSON body.
    async fn request(&self, method: &str, params: Value) -> Said {
        let said = self.client.ask(method, params).accept("application/json").send().await;
        let said = said.said().await;
        assert_eq!((said.status, said.streamed), (200, false), "{method}: {said:?}");
        assert_eq!(said.header("content-type"), Some("application/json"), "{method}");
        said
    }

    /// Returns the model's view of a call: the texts, joined by line ends, or the error's message.
    async fn calls(&self, function: &str, arguments: Value) -> String {
        let params = json!({ "name": function, "arguments": arguments });
        let said = self.request("tools/call", params).await;
        let Some(result) = said.answer().get("result") else {
            return said.error()["message"].as_str().unwrap().to_owned();
        };
        let parts = result["content"].as_array().unwrap().iter();
        parts.filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n")
    }
}

async fn open_session(gateway: &Process) -> Client {
    let client = Client::sessionless(gateway.address, VERSION).key("agent-key");
    let params = json!({
        "protocolVersion": VERSION,
        "capabilities": {},
        "clientInfo": { "name": "signalwire-ai-agent", "version": "2.0" },
    });
    let ask = client.ask("initialize", params).without("mcp-protocol-version");
    let said = ask.accept("application/json").send().await.said().await;
    assert_eq!(said.result()["protocolVersion"], VERSION);
    let capabilities = &said.result()["capabilities"];
    assert!(capabilities["tools"].is_object() && capabilities["resources"].is_object());
    let session = said.header("mcp-session-id").map(str::to_owned);
    let client = client.becomes(Kind::Legacy { session, version: VERSION.into() });
    let noted = client.ask("notifications/initialized", Value::Null).notification();
    assert_eq!(noted.accept("application/json").send().await.status(), 202);
    client
}

const VERSION: &str = "2025-06-18";

/// Starts a server like those of SignalWire's customers.
async fn crm() -> Upstream {
    let crm = Upstream::legacy().await;
    *crm.inner.version.lock().unwrap() = VERSION.into();
    crm.set_tools(Vec::<String>::new());
    crm.tool(&lookup(), |_| {
        let log = json!({ "level": "error", "data": "a line of the server's log" });
        vec![
            Step::Send(
                json!({ "jsonrpc": "2.0", "method": "notifications/message", "params": log }),
            ),
            Step::Result(json!({ "content": [
                { "type": "text", "text": "Jenny" },
                { "type": "image", "data": "AA==", "mimeType": "image/png" },
                { "type": "text", "text": "gold" },
            ] })),
        ]
    });
    crm.does("close_ticket", |_| {
        let content = json!([{ "type": "text", "text": "the ticket is not yours" }]);
        vec![Step::Result(json!({ "content": content, "isError": true }))]
    });
    crm.does("sidecar_skip", |_| vec![Step::text("skipped")]);
    crm
}

fn lookup() -> Value {
    json!({
        "name": "lookup_customer",
        "description": "Finds a customer by number.",
        "inputSchema": {
            "type": "object",
            "properties": { "number": { "type": "string", "description": "The caller's number" } },
            "required": ["number"],
        },
    })
}

/// Starts a server with one resource and two templates; the configuration binds one of the
/// templates completely.
async fn knowledge() -> Upstream {
    let knowledge = Upstream::modern().await;
    knowledge.set_tools(Vec::<String>::new()).can(everything());
    let named = |mut listed: Value, name: &str| {
        listed["name"] = json!(name);
        listed
    };
    knowledge.lists("resources", [named(resource("kb://hours"), "opening_hours")]);
    let templates = [
        named(template("crm://customers/{customer_id}"), "customer"),
        named(template("crm://customers/{customer_id}/orders/{order}"), "order"),
    ];
    knowledge.lists("resourceTemplates", templates);
    knowledge.when_asked("resources/read", |asked| {
        let text = match asked.params["uri"].as_str().unwrap() {
            "crm://customers/8675309" => r#"{"name":"Jenny","tier":"gold"}"#,
            _ => "nine to five",
        };
        let contents = json!([{ "uri": asked.params["uri"], "text": text }]);
        let result = json!({ "contents": contents, "ttlMs": 0, "cacheScope": "private" });
        vec![Step::Result(result)]
    });
    knowledge
}

/// Starts the gateway on the imported document, with a third server that is unreachable.
fn serve(crm: &Upstream, knowledge: &Upstream, down: &str) -> (Project, Process) {
    let mut project = Project::new(
        "naming = \"first\"\nreserved_names = [\"sidecar_skip\"]\nlist_wait = \"10s\"",
    );
    project.adds(&client_table("agent", "agent-key", ""));
    project.sets("CRM_TOKEN", "crm-token");
    let port = crm.http_address().port();
    let document = fixture("import/signalwire.json")
        .replace("https://crm.example.com", &format!("http://localhost:{port}"))
        .replace("https://mcp.kb.example.org", &format!("http://{}", knowledge.http_address()));
    let mut document: Value = serde_json::from_str(&document).unwrap();
    let servers = document["ai"]["SWAIG"]["mcp_servers"].as_array_mut().unwrap();
    servers.push(json!({ "url": format!("http://{down}/mcp") }));
    project.has("agent.json", &document.to_string());
    project.imports("agent.json");
    let gateway = project.serves();
    (project, gateway)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_discovers_reads_and_calls_by_posts_that_accept_json_alone() {
    let (crm, knowledge) = (crm().await, knowledge().await);
    let down = down_address();
    let (_, gateway) = serve(&crm, &knowledge, &down.local_addr().unwrap().to_string());
    let agent = Agent::discovers(&gateway).await;

    let data = json!({ "name": "Jenny", "tier": "gold" });
    let expected = [("customer", data), ("opening_hours", json!("nine to five"))];
    assert_eq!(agent.data, expected.map(|(name, value)| (name.to_owned(), value)).into());
    let functions: Vec<_> = agent.functions.keys().map(String::as_str).collect();
    // SignalWire's sidecar has a function `sidecar_skip` of its own.
    assert_eq!(functions, ["close_ticket", "localhost__sidecar_skip", "lookup_customer"]);
    assert_eq!(agent.functions["lookup_customer"], lookup()["inputSchema"], "as it is");

    assert_eq!(agent.calls("lookup_customer", json!({ "number": "1" })).await, "Jenny\ngold");
    assert_eq!(agent.calls("close_ticket", json!({})).await, "the ticket is not yours");
    assert_eq!(agent.calls("localhost__sidecar_skip", json!({})).await, "skipped");
    assert_eq!(agent.calls("no_such_function", json!({})).await, "unknown tool: no_such_function");
    let said = agent.calls("lookup_customer", json!({ "number": 1 })).await;
    assert!(said.contains("/number: type: expected string"), "{said}");
    for call in crm.calls() {
        assert_eq!(call.header("authorization"), Some("Bearer crm-token"));
        assert_eq!(call.header("mcp-protocol-version"), Some(VERSION));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_of_an_agent_ends_with_its_delete_and_needs_the_key() {
    let (crm, knowledge) = (crm().await, knowledge().await);
    let down = down_address();
    let (_, gateway) = serve(&crm, &knowledge, &down.local_addr().unwrap().to_string());
    let agent = Agent::discovers(&gateway).await;
    let stranger = Client::sessionless(gateway.address, VERSION).becomes(agent.client.kind());
    assert_eq!(list_status(&stranger).await, 401);
    let ended = agent.client.http("DELETE", "/mcp").of_session().send().await;
    assert!(ended.status() == 200 || ended.status() == 204, "{}", ended.status());
    assert_eq!(list_status(&agent.client).await, 404);
}

async fn list_status(client: &Client) -> u16 {
    client.ask("tools/list", json!({})).accept("application/json").send().await.status()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_definition_of_a_tool_wins_and_its_server_gets_the_call() {
    let crm = crm().await;
    let mut project = Project::new("naming = \"first\"");
    project.adds(&client_table("agent", "agent-key", ""));
    let url = format!("http://localhost:{}/mcp", crm.http_address().port());
    let document = json!({ "SWAIG": { "mcp_servers": [{ "url": url }] } });
    project.has("agent.json", &document.to_string());
    project.imports("agent.json");
    project.adds(
        "[servers.localhost.tools.lookup_customer]\n\
         description = \"Looks the caller up.\"\n\
         input_schema = { type = \"object\", properties = { number = { type = \"string\" }, reason = { type = \"string\" } } }\n",
    );
    let gateway = project.serves();
    gateway.ready(&["localhost"]);
    let client = Client::sessionless(gateway.address, VERSION).key("agent-key").initialized().await;
    let tools = client.tools().await;
    let tool = tools.iter().find(|tool| tool["name"] == "lookup_customer").unwrap();
    assert_eq!(tool["description"], "Looks the caller up.");
    assert!(tool["inputSchema"]["properties"]["reason"].is_object());
    let arguments = json!({ "number": "1", "reason": "a refund" });
    assert_eq!(client.call("lookup_customer", arguments).await.text(), "Jenny");
    assert_eq!(crm.calls()[0].arguments()["number"], "1");
}
