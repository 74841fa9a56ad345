//! A library for swarms of agents, with an MCP object for each client. It lists, looks up and calls
//! tools, renews the cache of one client or of all, cancels a call by its signal, and reports
//! events by callbacks. It has no configuration: an adapter keeps a session for each of its
//! clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};

use super::{Project, refresh};
use crate::process::Process;
use crate::support::upstream::tool;
use crate::support::webhook::{Webhook, own_certificate};
use crate::support::{Client, Reply, Said, Step, Upstream, client_table, within};

/// The library's MCP of one client: its session, and its cached tools.
struct ClientMcp {
    client: Client,
    stream: Reply,
    cache: BTreeMap<String, Value>,
}

impl ClientMcp {
    /// `onInit`: opens the client's session, with its capabilities.
    async fn open(gateway: &Process, id: &str, capabilities: Value, profile: &str) -> Self {
        let client = Client::sessionless(gateway.address, "2025-11-25").key(&format!("{id}-key"));
        let client = client.at(&format!("/mcp/{profile}")).offering(capabilities).await;
        let stream = client.listen().await;
        let mut mcp = Self { client, stream, cache: BTreeMap::new() };
        mcp.fetch().await;
        mcp
    }

    async fn fetch(&mut self) {
        let tools = self.client.tools().await;
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        self.cache = tools.into_iter().map(|tool| (name(&tool), tool)).collect();
    }

    /// `listTools`, from the cache.
    fn list(&self) -> Vec<&str> {
        self.cache.keys().map(String::as_str).collect()
    }

    /// `hasTool`.
    fn has(&self, tool: &str) -> bool {
        self.cache.contains_key(tool)
    }

    /// `callTool`; the library's own parameters of the call stay with it.
    async fn call(&self, tool: &str, params: Value) -> Said {
        self.client.call(tool, params).await
    }

    /// Renews the cache after the gateway's notification.
    async fn updated(&mut self) {
        let told = within(self.stream.message()).await.unwrap();
        assert_eq!(told["method"], "notifications/tools/list_changed");
        self.fetch().await;
    }
}

/// Starts a server with tools that depend on its client's capabilities, and have a version.
async fn versioned() -> (Upstream, Arc<AtomicUsize>) {
    let upstream = Upstream::legacy().await;
    let version = Arc::new(AtomicUsize::new(0));
    let current = Arc::clone(&version);
    upstream.when_asked("tools/list", move |asked| {
        let is_main = asked.header("mcp-session-id") == Some("child-1");
        let name = if is_main { "base" } else { "own" };
        let name = format!("{name}{}", current.load(Ordering::SeqCst));
        vec![Step::Result(json!({ "tools": [tool(&name), tool("echo"), tool("hold")] }))]
    });
    (upstream, version)
}

/// Starts a gateway that sends its events to the library by HTTPS.
fn serve(first: &Upstream, second: &Upstream, hook: &Webhook, trust: &std::path::Path) -> Process {
    let mut project = Project::new("naming = \"first\"\nlist_wait = \"10s\"");
    project.sets("SSL_CERT_FILE", trust.to_str().unwrap());
    project.adds(&client_table("ann", "ann-key", ""));
    project.adds(&client_table("bob", "bob-key", ""));
    project.adds(&format!("{}types = [\"*\"]", hook.section()));
    project.adds(&format!("[servers.first]\n{}", first.stdio()));
    project.adds(&format!("[servers.second]\n{}", second.stdio()));
    project.adds("[profiles.merged]\nservers = [\"first\", \"second\"]");
    project.adds("[profiles.noop]\ntools = []");
    let gateway = project.serves();
    gateway.ready(&["first", "second"]);
    gateway
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tools_are_listed_called_and_renewed_for_one_client_and_for_all() {
    let ((first, version), second) = (versioned().await, Upstream::legacy().await);
    second.set_tools(Vec::<String>::new());
    second.does("search", |call| vec![Step::text(call.arguments()["q"].to_string())]);
    let certificate = tempfile::tempdir().unwrap();
    let (tls, trust) = own_certificate(certificate.path());
    let hook = Webhook::with_tls(tls);
    let gateway = serve(&first, &second, &hook, &trust);
    let mut ann = ClientMcp::open(&gateway, "ann", json!({ "roots": {} }), "merged").await;
    let mut bob = ClientMcp::open(&gateway, "bob", json!({}), "merged").await;
    assert_eq!(ann.list(), ["echo", "hold", "own0", "search"]);
    assert_eq!(bob.list(), ["base0", "echo", "hold", "search"]);
    assert!(ann.has("own0") && !bob.has("own0"));
    // Each tool is called at its own MCP.
    assert_eq!(ann.call("search", json!({ "q": "x" })).await.text(), "\"x\"");
    assert_eq!(ann.call("echo", json!({ "a": 1 })).await.text(), "{\"a\":1}");

    version.store(1, Ordering::SeqCst);
    let report = refresh(&gateway, "first", "?client=ann").await.json();
    let tools = &report["lists"]["tools"];
    assert_eq!((&report["client"], &tools["added"]), (&json!("ann"), &json!(["own1"])));
    ann.updated().await;
    assert_eq!(ann.list(), ["echo", "hold", "own1", "search"]);
    bob.fetch().await;
    assert_eq!(bob.list(), ["base0", "echo", "hold", "search"], "only ann's were renewed");
    version.store(2, Ordering::SeqCst);
    refresh(&gateway, "first", "").await;
    ann.updated().await;
    bob.updated().await;
    assert!(ann.has("own2") && bob.has("base2"));

    let noop = ClientMcp::open(&gateway, "ann", json!({}), "noop").await;
    assert_eq!(noop.list(), [""; 0]);
    assert_eq!(noop.call("search", json!({})).await.error()["message"], "unknown tool: search");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_call_is_cancelled_at_its_server_and_every_step_has_its_callback() {
    let ((first, _), second) = (versioned().await, Upstream::legacy().await);
    let certificate = tempfile::tempdir().unwrap();
    let (tls, trust) = own_certificate(certificate.path());
    let mut hook = Webhook::with_tls(tls);
    let gateway = serve(&first, &second, &hook, &trust);
    // onInit: of the MCP, and of the client's own.
    let ready = hook.next_of("server.ready").await;
    assert!(["first", "second"].contains(&ready["subject"].as_str().unwrap()));
    let ann = ClientMcp::open(&gateway, "ann", json!({}), "merged").await;
    assert_eq!(hook.next_of("client.opened").await["data"]["client"], "ann");

    let call = ann.client.ask_call("hold", json!({})).id(json!(7)).send();
    let abort = async {
        first.heard("tools/call", 1).await;
        let params = json!({ "requestId": 7, "reason": "the signal was aborted" });
        let sent = ann.client.ask("notifications/cancelled", params).notification().send().await;
        assert_eq!(sent.status(), 202);
        first.heard("notifications/cancelled", 1).await
    };
    let (reply, cancelled) = within(async { tokio::join!(call, abort) }).await;
    assert!(reply.said().await.messages.iter().all(|message| message.get("result").is_none()));
    let held = &first.calls()[0];
    assert_eq!(&cancelled.params["requestId"], held.id.as_ref().unwrap(), "the call at the server");

    // onCall, and its end.
    let begun = hook.next_of("call.begun").await;
    let facts = (&begun["data"]["client"], &begun["data"]["tool"]);
    assert_eq!(facts, (&json!("ann"), &json!("hold")));
    let ended = hook.next_of("call.ended").await;
    assert_eq!(ended["data"]["call"], begun["data"]["call"]);
    assert_eq!(ended["data"]["outcome"], "cancelled");
    // onUpdate.
    first.when_asked("tools/list", |_| vec![Step::Result(json!({ "tools": [tool("new")] }))]);
    refresh(&gateway, "first", "").await;
    assert_eq!(hook.next_of("list.changed").await["data"]["servers"], json!(["first"]));
    // onDispose.
    ann.client.http("DELETE", "/mcp/merged").of_session().send().await;
    let closed = hook.next_of("client.closed").await;
    assert_eq!((&closed["subject"], &closed["data"]["client"]), (&json!("ann"), &json!("ann")));
}
