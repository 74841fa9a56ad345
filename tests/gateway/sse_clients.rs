//! Clients of the transport of 2024-11-05: one stream, and messages posted to the address that the
//! stream names.

use serde_json::{Value, json};

use crate::support::client::Piece;
use crate::support::{Client, Gateway, Reply, Step, Upstream, client_table, every_kind, within};

const NEW: &str = r#"{"name":"new","inputSchema":{"type":"object"}}"#;

/// An old client: its stream, and the address for its posts.
pub struct Old {
    /// Posts the messages.
    pub client: Client,
    pub stream: Reply,
    pub messages: String,
    next_id: u64,
}

impl Old {
    pub async fn connect(client: Client, path: &str) -> Self {
        // The media type in requests of browsers' own event sources.
        let mut stream = client.http("GET", path).accept("text/event-stream").send().await;
        assert_eq!(stream.status(), 200);
        let Some(Piece::Endpoint(messages)) = stream.piece().await else { panic!("no endpoint") };
        Self { client, stream, messages, next_id: 1 }
    }

    pub async fn post(&self, message: &Value) -> Reply {
        post_to(&self.client, &self.messages, message).await
    }

    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let reply = self.post(&request).await;
        assert_eq!(reply.status(), 202, "{:?}", reply.said().await);
        id
    }

    pub async fn notify(&self, method: &str, params: Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        assert_eq!(self.post(&message).await.status(), 202);
    }

    /// Answers a request of the gateway.
    pub async fn answer(&self, question: &Value, result: Value) {
        let message = json!({ "jsonrpc": "2.0", "id": question["id"], "result": result });
        assert_eq!(self.post(&message).await.status(), 202);
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        loop {
            let message = self.stream.message().await.expect("an answer");
            if message["id"] == id {
                return message;
            }
        }
    }

    pub async fn initialize(&mut self) -> Value {
        self.initialize_offering(json!({})).await
    }

    pub async fn initialize_offering(&mut self, capabilities: Value) -> Value {
        let hello = json!({ "protocolVersion": "2024-11-05", "capabilities": capabilities, "clientInfo": { "name": "old", "version": "1" } });
        let answer = self.request("initialize", hello).await;
        self.notify("notifications/initialized", json!({})).await;
        answer
    }
}

/// Posts a message to the address of a stream.
pub async fn post_to(client: &Client, address: &str, message: &Value) -> Reply {
    let post = client.http("POST", address).header("content-type", "application/json");
    post.body(message.to_string()).send().await
}

pub fn echo(tool: &str) -> Value {
    json!({ "name": tool, "arguments": { "a": 1 } })
}

#[tokio::test]
async fn an_old_client_lists_and_calls_every_kind_of_server() {
    let kinds = every_kind().await;
    let gateway = Gateway::alone().gateway("sse = true").kinds(&kinds).start().await;
    for client in [gateway.plain(), gateway.plain().h2()] {
        let mut old = Old::connect(client, "/sse").await;
        let hello = old.initialize().await;
        assert_eq!(hello["result"]["protocolVersion"], "2024-11-05", "{hello}");
        let list = old.request("tools/list", json!({})).await;
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 16);
        for kind in &kinds {
            let answer = old.request("tools/call", echo(&format!("{}__echo", kind.name))).await;
            assert_eq!(answer["result"]["content"][0]["text"], r#"{"a":1}"#, "{answer}");
        }
        assert_eq!(old.request("ping", json!({})).await["result"], json!({}));
        assert_eq!(old.request("a/b", json!({})).await["error"]["code"], -32601);
    }
}

#[tokio::test]
async fn progress_comes_before_the_answer_and_a_call_can_be_taken_back() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).gateway("sse = true").start().await;
    let mut old = Old::connect(gateway.plain(), "/sse").await;
    old.initialize().await;
    let counted = old
        .ask("tools/call", json!({ "name": "s__count", "_meta": { "progressToken": "t" } }))
        .await;
    for progress in 1..=3 {
        let notice = old.stream.message().await.unwrap();
        assert_eq!(notice["params"]["progress"], progress, "{notice}");
        assert_eq!(notice["params"]["progressToken"], "t");
    }
    assert_eq!(old.stream.message().await.unwrap()["id"], counted);
    let held = old.ask("tools/call", echo("s__hold")).await;
    upstream.heard("tools/call", 2).await;
    old.notify("notifications/cancelled", json!({ "requestId": held })).await;
    upstream.heard("notifications/cancelled", 1).await;
    let answer = old.request("tools/call", echo("s__echo")).await;
    assert!(answer["result"].is_object(), "{answer}");
}

#[tokio::test]
async fn the_stream_tells_of_changes_and_with_it_ends_the_session() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).gateway("sse = true").start().await;
    let mut old = Old::connect(gateway.plain(), "/sse").await;
    old.initialize().await;
    gateway.wait_for(|status| status["streams"] == 1).await;
    upstream.set_tools([NEW]).announce().await;
    let change = old.stream.message().await.unwrap();
    assert_eq!(change["method"], "notifications/tools/list_changed");
    old.ask("tools/call", echo("s__hold")).await;
    assert_eq!(gateway.status().await["sessions"], 1);
    let Old { client, stream, messages, .. } = old;
    drop(stream);
    gateway.wait_for(|status| status["sessions"] == 0 && status["streams"] == 0).await;
    let post = client.http("POST", &messages).header("content-type", "application/json");
    let late = post.body(r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#).send().await;
    assert_eq!(late.status(), 404);
}

#[tokio::test]
async fn without_the_setting_there_is_no_such_door() {
    let gateway = Gateway::alone().start().await;
    for (method, path) in [("GET", "/sse"), ("POST", "/sse"), ("POST", "/message?session=x")] {
        let reply = gateway.plain().http(method, path).send().await;
        assert_eq!(reply.status(), 404, "{method} {path}");
    }
}

#[tokio::test]
async fn posts_to_other_urls_and_invalid_messages_are_refused() {
    let gateway = Gateway::alone().gateway("sse = true").start().await;
    let mut old = Old::connect(gateway.plain(), "/sse").await;
    let other = Old::connect(gateway.plain(), "/sse").await;
    assert_ne!(old.messages, other.messages);
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    for (method, path, status) in [
        // Signs by which a client of a newer transport recognises the old one.
        ("POST", "/sse", 405),
        ("GET", &old.messages, 405),
        ("DELETE", "/sse", 405),
        ("POST", "/message", 404),
        ("POST", "/message?session=0123", 404),
        ("POST", "/messages", 404),
        ("GET", "/sse2", 404),
    ] {
        let client = gateway.plain();
        let ask = client.http(method, path).header("content-type", "application/json");
        assert_eq!(ask.body(ping.to_string()).send().await.status(), status, "{method} {path}");
    }
    for (body, code) in [("{", -32700), ("{}", -32600), ("[]", -32600)] {
        let post = old.client.http("POST", &old.messages);
        let said =
            post.header("content-type", "application/json").body(body).send().await.said().await;
        match body {
            // Arrays are answered on the stream, like all requests.
            "[]" => assert_eq!(old.stream.message().await.unwrap()["error"]["code"], code),
            _ => assert_eq!((said.status, said.code()), (400, code), "{body}"),
        }
    }
    let outside = old.request("tools/list", json!({})).await;
    assert_eq!(outside["error"]["code"], -32600, "no session yet: {outside}");
    let huge = old.client.http("POST", &old.messages).header("content-type", "application/json");
    let huge = huge.body(format!("\"{}\"", "x".repeat(5 << 20))).send().await;
    assert_eq!(huge.status(), 413);
}

#[tokio::test]
async fn streams_of_the_old_transport_are_bounded_with_the_others() {
    let lines = "sse = true\nlimits = { streams = 2 }";
    let gateway = Gateway::alone().gateway(lines).start().await;
    let (one, _two) =
        (Old::connect(gateway.plain(), "/sse").await, Old::connect(gateway.plain(), "/sse").await);
    let refused = gateway.plain().http("GET", "/sse").send().await;
    assert_eq!(refused.status(), 503);
    drop(one);
    within(async {
        while gateway.plain().http("GET", "/sse").send().await.status() != 200 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_message_in_several_pieces_counts_once() {
    let upstream = Upstream::legacy().await;
    let lines = ["sse = true", "client_rate = \"3/h\""];
    let gateway = Gateway::with("s", upstream.stdio()).gateway(lines[0]).gateway(lines[1]);
    let gateway = gateway.start().await;
    let mut old = Old::connect(gateway.plain(), "/sse").await;
    old.initialize().await;
    let large = json!({ "name": "s__echo", "arguments": { "x": "y".repeat(300_000) } });
    assert!(old.request("tools/call", large.clone()).await["result"].is_object());
    assert!(old.request("tools/call", echo("s__echo")).await["result"].is_object());
    let refused = old.request("tools/call", large).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("over the limit"), "{refused}");
}

#[tokio::test]
async fn a_stream_is_its_clients_alone() {
    let key = |name: &str| client_table(name, name, "");
    let gateway =
        Gateway::alone().gateway("sse = true").toml(&key("ci")).toml(&key("desk")).start().await;
    assert_eq!(gateway.plain().http("GET", "/sse").send().await.status(), 401);
    let mut old = Old::connect(gateway.plain().key("ci"), "/sse").await;
    old.initialize().await;
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" }).to_string();
    for (client, status) in [
        (gateway.plain(), 401),
        (gateway.plain().key("desk"), 404),
        (gateway.plain().key("ci"), 202),
    ] {
        let post = client.http("POST", &old.messages).header("content-type", "application/json");
        assert_eq!(post.body(ping.clone()).send().await.status(), status);
    }
    assert_eq!(old.stream.message().await.unwrap()["id"], 1);
    // Its key is revoked: the stream ends.
    let outcome = gateway.reload(Gateway::alone().gateway("sse = true").toml(&key("desk"))).await;
    assert_eq!(format!("{outcome:?}"), "Applied");
    assert_eq!(old.stream.message().await, None);
}

#[tokio::test]
async fn calls_in_progress_are_answered_before_the_gateway_ends() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).gateway("sse = true").start().await;
    let mut old = Old::connect(gateway.plain(), "/sse").await;
    old.initialize().await;
    let held = old.ask("tools/call", echo("s__hold")).await;
    upstream.heard("tools/call", 1).await;
    let operator = Client::plain(gateway.running.admin.unwrap());
    let stopping = tokio::spawn(gateway.stop());
    let is_draining = async || {
        let said = operator.http("GET", "/readyz").send().await.said().await;
        said.json()["reasons"][0] == "the gateway is draining"
    };
    within(async { while !is_draining().await {} }).await;
    upstream.release(1);
    assert_eq!(old.stream.message().await.unwrap()["id"], held);
    assert_eq!(old.stream.message().await, None);
    within(stopping).await.unwrap();
}

#[tokio::test]
async fn a_profile_and_a_narrowing_have_their_streams() {
    let upstream = Upstream::legacy().await;
    let profile = "[profiles.few]\ntools = [\"s__echo\", \"s__count\"]\n";
    let gateway = Gateway::with("s", upstream.stdio()).gateway("sse = true").toml(profile);
    let gateway = gateway.start().await;
    for (path, tools) in [("/sse", 4), ("/sse/few", 2), ("/sse/few?tools=s__e*", 1)] {
        let mut old = Old::connect(gateway.plain(), path).await;
        old.initialize().await;
        let list = old.request("tools/list", json!({})).await;
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), tools, "{path}");
    }
    let none = gateway.plain().http("GET", "/sse/many").send().await;
    assert_eq!(none.status(), 404);
}

#[tokio::test]
async fn messages_on_an_unread_stream_are_bounded() {
    const CALLS: usize = 48;
    let upstream = Upstream::legacy().await;
    upstream.does("large", |_| vec![Step::text("x".repeat(256 * 1024))]);
    let lines = ["sse = true", "limits.unread_each = \"2MiB\""];
    let gateway = Gateway::with("s", upstream.stdio()).gateway(lines[0]).gateway(lines[1]);
    let gateway = gateway.start().await;
    let mut old = Old::connect(gateway.plain(), "/sse").await;
    old.initialize().await;
    for _ in 0..CALLS {
        old.ask("tools/call", json!({ "name": "s__large" })).await;
    }
    upstream.heard("tools/call", CALLS).await;
    gateway.wait_for(|status| status["servers"][0]["in_flight"] == 0).await;
    let mut dropped = 0;
    for _ in 0..CALLS {
        let answer = old.stream.message().await.unwrap();
        let limit = &answer["error"]["data"]["limit"];
        assert!(answer["result"].is_object() || limit == "unread_each", "{limit}");
        dropped += usize::from(limit == "unread_each");
    }
    // The kernel and the connection hold a few more than the queue.
    assert!((10..CALLS).contains(&dropped), "{dropped}");
    assert!(old.request("tools/call", echo("s__echo")).await["result"].is_object());
}
