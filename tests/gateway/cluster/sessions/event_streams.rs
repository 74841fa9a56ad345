//! Event streams of 2024-11-05, whose messages are posted to other replicas.

use serde_json::{Value, json};
use tokio::net::TcpListener;
use trunkline::call::{Endpoint, Principal};

use crate::cluster::peers::envelopes::Owner;
use crate::cluster::sessions::failures::silent_replica;
use crate::cluster::sessions::revival::{ReplicaProcess, keys};
use crate::cluster::{RedisServer, forwarded, free_port, knows, start_replicas};
use crate::sse_clients::{Old, echo, post_to};
use crate::support::gateway::Builder;
use crate::support::{
    Client, Gateway, Step, Upstream, client_table, poll_for, until_async, within,
};

const NEW: &str = r#"{"name":"new","inputSchema":{"type":"object"}}"#;

fn gateway_of(upstream: &Upstream) -> Builder {
    Gateway::with("s", upstream.http()).gateway("sse = true")
}

fn with_clients(upstream: &Upstream) -> Builder {
    gateway_of(upstream)
        .toml("[profiles.p]\n")
        .toml(&client_table("one", "key-one", ""))
        .toml(&client_table("two", "key-two", ""))
}

fn ping() -> Value {
    json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" })
}

/// A server with a tool that asks for a message of the client's model, when it is released.
async fn asking_server() -> Upstream {
    let upstream = Upstream::legacy().await;
    let prompt = json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": "Who?" } }],
        "maxTokens": 9,
    });
    upstream.does("ask", move |_| {
        let question = Step::Ask("q", "sampling/createMessage", prompt.clone());
        vec![Step::Open, Step::Hold, question, Step::Await("q"), Step::Answers]
    });
    upstream
}

/// The answer to the question of [`asking_server`].
fn answer() -> Value {
    json!({ "role": "assistant", "content": { "type": "text", "text": "Ada" }, "model": "m" })
}

#[tokio::test]
async fn messages_are_posted_through_any_replica_and_answered_on_the_stream() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b, c] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let mut old = Old::connect(a.plain(), "/sse").await;
    old.client = b.plain();
    let hello = old.initialize().await;
    assert_eq!(hello["result"]["protocolVersion"], "2024-11-05", "{hello}");
    let answer = old.request("tools/call", echo("s__echo")).await;
    assert_eq!(answer["result"]["content"][0]["text"], r#"{"a":1}"#, "{answer}");
    // Progress comes before the answer.
    let counts = json!({ "name": "s__count", "_meta": { "progressToken": "t" } });
    let counted = old.ask("tools/call", counts).await;
    for progress in 1..=3 {
        let notice = old.stream.message().await.unwrap();
        assert_eq!(notice["params"]["progress"], progress, "{notice}");
    }
    assert_eq!(old.stream.message().await.unwrap()["id"], counted);
    // A call is cancelled through another replica than the one that it was posted to.
    let held = old.ask("tools/call", echo("s__hold")).await;
    upstream.heard("tools/call", 3).await;
    old.client = c.plain();
    old.notify("notifications/cancelled", json!({ "requestId": held })).await;
    upstream.heard("notifications/cancelled", 1).await;
    a.wait_for(|status| status["streams"] == 1).await;
    upstream.set_tools([NEW]).announce().await;
    let change = old.stream.message().await.unwrap();
    assert_eq!(change["method"], "notifications/tools/list_changed");
    assert_eq!([forwarded(&b, "answered").await, forwarded(&c, "answered").await], [5, 1]);
    assert_eq!(forwarded(&a, "answered").await, 0, "the owner forwards nothing");
    let sessions = async |replica: &Gateway| replica.status().await["sessions"].clone();
    assert_eq!([sessions(&a).await, sessions(&b).await, sessions(&c).await], [1, 0, 0]);
    // No replica can revive the session: it has no record.
    assert_eq!(keys(&redis, "sessions").await, Vec::<String>::new());
    assert_eq!(a.status().await["cluster"]["recorded_sessions"], 0);
}

#[tokio::test]
async fn a_servers_question_is_answered_through_another_replica_also_during_the_drain() {
    let (redis, upstream) = (RedisServer::start().await, asking_server().await);
    let [a, b] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let mut old = Old::connect(a.plain(), "/sse").await;
    old.client = b.plain();
    old.initialize_offering(json!({ "sampling": {} })).await;
    let call = old.ask("tools/call", json!({ "name": "s__ask" })).await;
    upstream.heard("tools/call", 1).await;
    upstream.release(1);
    answer_question(&mut old, &call).await;
    let held = old.ask("tools/call", json!({ "name": "s__ask" })).await;
    upstream.heard("tools/call", 2).await;
    let stopping = tokio::spawn(a.stop());
    // It has handed its sessions over.
    until_async(async || keys(&redis, "replicas").await.len() == 1).await;
    upstream.release(1);
    answer_question(&mut old, &held).await;
    // The stream ends with its last call, and the address with the stream.
    assert_eq!(old.stream.message().await, None);
    within(stopping).await.unwrap();
    assert_eq!(old.post(&ping()).await.status(), 404);
    knows(&b, 0).await;
    assert_eq!(old.post(&ping()).await.status(), 404);
}

/// Answers the question of a call, and reads its result.
async fn answer_question(old: &mut Old, call: &Value) {
    let question = old.stream.message().await.expect("a question");
    assert_eq!(question["method"], "sampling/createMessage", "{question}");
    old.answer(&question, answer()).await;
    let result = old.stream.message().await.expect("the result");
    assert_eq!(&result["id"], call, "{result}");
    assert!(result["result"].to_string().contains("Ada"), "{result}");
}

#[tokio::test]
async fn the_address_of_a_stream_is_worthless_to_another_principal_and_at_another_endpoint() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b] = start_replicas(&redis.url(), || with_clients(&upstream)).await;
    let mut old = Old::connect(a.plain().key("key-one"), "/sse").await;
    old.initialize().await;
    let with_key = |replica: &Gateway, key: &str| replica.plain().key(key);
    old.client = with_key(&b, "key-one");
    assert_eq!(old.request("ping", json!({})).await["result"], json!({}));
    assert_eq!(forwarded(&b, "answered").await, 1);
    let id = old.messages.split_once("session=").unwrap().1;
    let elsewhere = format!("/message/p?session={id}");
    let narrowed = format!("/message?tools=s__e*&session={id}");
    let other = if id.starts_with('A') { 'B' } else { 'A' };
    let altered = format!("/message?session={other}{}", &id[1..]);
    for replica in [&a, &b] {
        for (key, address, status) in [
            ("key-two", &old.messages, 404),
            ("key-wrong", &old.messages, 401),
            ("key-one", &elsewhere, 404),
            ("key-one", &narrowed, 404),
            ("key-one", &altered, 404),
            ("key-two", &altered, 404),
        ] {
            let reply = post_to(&with_key(replica, key), address, &ping()).await;
            assert_eq!(reply.status(), status, "{key} {address}");
        }
        // It is not the id of a session.
        let as_session = with_key(replica, "key-one");
        let ask = as_session.ask("ping", json!({})).header("mcp-session-id", id);
        assert_eq!(ask.header("mcp-protocol-version", "2025-11-25").send().await.status(), 404);
    }
    let read = with_key(&b, "key-one").http("GET", &old.messages).send().await;
    assert_eq!(read.status(), 405);
    assert_eq!(forwarded(&b, "answered").await, 1, "nothing more was forwarded");
}

#[tokio::test]
async fn a_profile_and_a_narrowing_have_addresses_of_their_own() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let profile = "[profiles.few]\ntools = [\"s__echo\", \"s__count\"]\n";
    let [a, b] = start_replicas(&redis.url(), || gateway_of(&upstream).toml(profile)).await;
    for (path, tools) in [("/sse", 4), ("/sse/few", 2), ("/sse/few?tools=s__e*", 1)] {
        let mut old = Old::connect(a.plain(), path).await;
        old.client = b.plain();
        old.initialize().await;
        let list = old.request("tools/list", json!({})).await;
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), tools, "{path}");
    }
    assert_eq!(forwarded(&b, "answered").await, 9);
}

#[tokio::test]
async fn messages_count_once_at_the_replica_with_the_stream() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let limited = || {
        let rate = "client_rate = \"3/h\"";
        gateway_of(&upstream).gateway(rate).toml(&client_table("one", "key-one", ""))
    };
    let [a, b] = start_replicas(&redis.url(), limited).await;
    let mut old = Old::connect(a.plain().key("key-one"), "/sse").await;
    old.client = b.plain().key("key-one");
    old.initialize().await;
    // A body in several pieces is not counted before it is read.
    let large = json!({ "name": "s__echo", "arguments": { "x": "y".repeat(300_000) } });
    for call in [large, echo("s__echo")] {
        assert!(old.request("tools/call", call).await["result"].is_object());
    }
    let refused = old.request("tools/call", echo("s__echo")).await;
    assert!(refused["error"]["message"].as_str().unwrap().contains("over the limit"), "{refused}");
}

#[tokio::test]
async fn messages_of_a_killed_replica_are_refused_and_the_client_connects_again() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let mut killed = ReplicaProcess::start(gateway_of(&upstream), &redis.url(), free_port()).await;
    knows(&a, 1).await;
    let mut old = Old::connect(Client::plain(killed.address), "/sse").await;
    old.client = a.plain();
    old.initialize().await;
    assert!(old.request("tools/call", echo("s__echo")).await["result"].is_object());
    killed.kill();
    // The end of its connection may not be known yet.
    let refused = poll_for(async || {
        let refused = old.post(&ping()).await.said().await;
        assert!([404, 502].contains(&refused.status), "{refused:?}");
        (refused.status == 404).then_some(refused)
    });
    assert!(refused.await.error()["message"].as_str().unwrap().contains("session"));
    let mut again = Old::connect(a.plain(), "/sse").await;
    again.initialize().await;
    assert!(again.request("tools/call", echo("s__echo")).await["result"].is_object());
}

#[tokio::test]
async fn a_message_to_a_replica_that_hangs_ends_with_an_error() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    // It accepts connections, and never answers.
    let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let owner = silent_replica(&redis, hanging.local_addr().unwrap().port());
    knows(&a, 1).await;
    let id = owner.new_stream_id(&Principal::Anonymous, &Endpoint::default()).unwrap();
    let (client, address, message) = (a.plain(), format!("/message?session={id}"), ping());
    let posting = post_to(&client, &address, &message);
    let (reply, accepted) = within(async { tokio::join!(posting, hanging.accept()) }).await;
    assert_eq!(reply.status(), 502);
    drop(accepted);
}

#[tokio::test]
async fn a_stream_is_not_opened_for_another_replica_and_a_message_is_forwarded_once() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [gateway] = start_replicas(&redis.url(), || with_clients(&upstream)).await;
    let owner = Owner::of(&gateway).await;
    let elsewhere = silent_replica(&redis, free_port());
    knows(&gateway, 1).await;
    let one = Principal::Client("one".into());
    let foreign = elsewhere.new_stream_id(&one, &Endpoint::default()).unwrap();
    let foreign = format!("/message?session={foreign}");
    for (method, path, body, status) in
        [("GET", "/sse", String::new(), 403), ("POST", foreign.as_str(), ping().to_string(), 404)]
    {
        let sealed = owner.seal(owner.envelope_at(path, method, &body));
        assert_eq!(owner.send_by(method, path, &body, &sealed).await, status, "{method} {path}");
    }
    assert_eq!(forwarded(&gateway, "owner_gone").await, 0, "nothing was forwarded");
}

#[tokio::test]
async fn without_a_cluster_the_address_of_a_stream_is_random_digits() {
    let gateway = Gateway::alone().gateway("sse = true").toml("[profiles.p]\n").start().await;
    for path in ["/sse", "/sse/p"] {
        let old = Old::connect(gateway.plain(), path).await;
        let id = old.messages.strip_prefix("/message?session=").unwrap();
        assert!(id.len() == 32 && id.bytes().all(|it| it.is_ascii_hexdigit()), "{id}");
        let at_profile = format!("/message/p?session={id}");
        assert_eq!(post_to(&gateway.plain(), &at_profile, &ping()).await.status(), 404);
    }
}
