//! Sessions of replicas that are gone, at the replica that receives their next request.

use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::cluster::{
    RedisServer, StoreGate, forwarded, free_port, knows, replica_at, start_replicas, through,
};
use crate::support::gateway::{Builder, TRUNKLINE};
use crate::support::upstream::news::{PROMPTS, RESOURCES, TOOLS, UPDATED};
use crate::support::{Client, Gateway, Said, Step, Upstream, client_table, poll_for, until_async};

/// A replica in a process of its own, which can be killed.
pub struct ReplicaProcess {
    child: Child,
    pub address: SocketAddr,
    peer_port: u16,
    _folder: TempDir,
}

impl ReplicaProcess {
    pub async fn start(builder: Builder, store: &str, peer_port: u16) -> Self {
        let (port, admin) = (free_port(), free_port());
        let text = replica_at(builder, store, peer_port, "").text();
        let text = text.replacen("127.0.0.1:0", &format!("127.0.0.1:{port}"), 1);
        let text = text.replacen("127.0.0.1:0", &format!("127.0.0.1:{admin}"), 1);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gateway.toml");
        std::fs::write(&path, text).unwrap();
        let mut command = Command::new(TRUNKLINE);
        command.args(["serve", "--config"]).arg(&path).env("XDG_RUNTIME_DIR", folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        until_async(async || TcpStream::connect(address).await.is_ok()).await;
        Self { child, address, peer_port, _folder: folder }
    }

    pub(super) async fn client(&self, key: Option<&str>) -> Client {
        let client = Client::sessionless(self.address, "2025-11-25");
        let client = match key {
            Some(key) => client.key(key),
            None => client,
        };
        client.offering(json!({ "elicitation": { "form": {} } })).await
    }

    /// Stops the process as a debugger does, or lets it go on.
    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().try_into().unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for ReplicaProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(super) fn gateway_of(upstream: &Upstream) -> Builder {
    Gateway::with("s", upstream.http())
}

/// Returns the keys in the store with this prefix.
pub async fn keys(redis: &RedisServer, prefix: &str) -> Vec<String> {
    let answer = redis.command(&format!("KEYS trunkline:{prefix}:*")).await;
    answer.lines().filter(|line| line.starts_with("trunkline:")).map(str::to_owned).collect()
}

/// Waits until the store has so many records of sessions.
pub(super) async fn recorded(redis: &RedisServer, sessions: usize) -> Vec<String> {
    poll_for(async || Some(keys(redis, "sessions").await).filter(|it| it.len() == sessions)).await
}

/// Ends the lease of a replica that was killed, as the store does after 10 seconds. `alive` are the
/// others.
async fn end_leases(redis: &RedisServer, alive: &[&Gateway]) {
    let mut ids = Vec::new();
    for replica in alive {
        ids.push(replica.status().await["cluster"]["id"].as_str().unwrap().to_owned());
    }
    for key in keys(redis, "replicas").await {
        if !ids.iter().any(|id| key.ends_with(id)) {
            redis.command(&format!("DEL {key}")).await;
        }
    }
}

/// Returns the number of sessions of lost replicas with an outcome.
pub(super) async fn revivals(replica: &Gateway, outcome: &str) -> u64 {
    let metrics = replica.metrics().await;
    let line = format!("trunkline_session_revivals_total{{outcome=\"{outcome}\"}} ");
    let count = metrics.lines().find_map(|it| it.strip_prefix(&line));
    count.map_or(0, |count| count.parse().unwrap())
}

pub(super) async fn sessions(replica: &Gateway) -> u64 {
    replica.status().await["sessions"].as_u64().unwrap()
}

pub(super) async fn revived_together(replicas: &[&Gateway]) -> u64 {
    let mut sum = 0;
    for replica in replicas {
        sum += revivals(replica, "revived").await;
    }
    sum
}

fn reason(said: &Said) -> String {
    said.error()["message"].as_str().unwrap().to_owned()
}

/// Defines a tool that writes log lines of two levels.
fn logs(upstream: &Upstream) {
    let line = |level: &str| {
        Step::Send(json!({
            "jsonrpc": "2.0",
            "method": "notifications/message",
            "params": { "level": level, "data": "hello" },
        }))
    };
    upstream.logs();
    upstream.does("chatty", move |_| vec![line("info"), line("alert"), Step::text("done")]);
}

#[tokio::test]
async fn a_session_of_a_killed_replica_goes_on_at_exactly_one_other() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    upstream.resources(&["a:1"]);
    logs(&upstream);
    let [a, b] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let mut killed = ReplicaProcess::start(gateway_of(&upstream), &redis.url(), free_port()).await;
    for replica in [&a, &b] {
        knows(replica, 2).await;
        replica.ready("s").await;
    }
    let client = killed.client(None).await;
    let record = recorded(&redis, 1).await.remove(0);
    let size = async || {
        let size = redis.command(&format!("STRLEN {record}")).await;
        size.trim_start_matches(':').trim().parse::<u32>().unwrap()
    };
    let first = size().await;
    client.request("logging/setLevel", json!({ "level": "alert" })).await.result();
    assert!(client.subscribes("mcp://s/a:1").await);
    // Both changes are in the store.
    until_async(async || size().await > first + 30).await;
    assert!(size().await < 1024);
    let value = redis.command(&format!("GET {record}")).await;
    assert!(!value.contains("a-test") && !record.contains(client.session()), "{value}");
    killed.kill();
    // While its lease remains, no replica takes the session over.
    let at_a = through(&a, &client, None);
    let early = at_a.request("ping", json!({})).await;
    assert_eq!((early.status, early.header("retry-after")), (503, Some("1")));
    assert!(reason(&early).contains("cannot be reached"), "{early:?}");
    assert_eq!(revived_together(&[&a, &b]).await, 0);
    end_leases(&redis, &[&a, &b]).await;
    let clients: Vec<_> = [&a, &b].into_iter().cycle().take(16).collect();
    let requests = clients.into_iter().enumerate().map(|(number, replica)| {
        let client = through(replica, &client, None);
        let id = json!(100 + number);
        async move {
            client.ask_call("s__echo", json!({ "x": 1 })).id(id).send().await.said().await
        }
    });
    for said in futures_util::future::join_all(requests).await {
        assert_eq!(said.text(), r#"{"x":1}"#);
    }
    assert_eq!(revived_together(&[&a, &b]).await, 1);
    assert_eq!(sessions(&a).await + sessions(&b).await, 1);
    // The log level.
    let at_b = through(&b, &client, None);
    let said = at_b.call("s__chatty", json!({})).await;
    let levels: Vec<_> = said.notices().iter().map(|line| &line["params"]["level"]).collect();
    assert_eq!(levels, ["alert"]);
    // The subscription, and the changes that the client may have missed.
    let mut stream = at_b.resume("0-3").await;
    let mut told = Vec::new();
    while told.len() < 4 {
        let message = stream.message().await.expect("a notification");
        told.push(message["method"].as_str().unwrap().to_owned());
    }
    told.sort();
    let mut expected = [TOOLS, PROMPTS, RESOURCES, UPDATED].map(str::to_owned);
    expected.sort();
    assert_eq!(told, expected);
    upstream.update("a:1").await;
    let update = stream.message().await.expect("an update");
    assert_eq!(update["params"]["uri"], "mcp://s/a:1", "{update}");
    // The end.
    drop(stream);
    assert_eq!(at_b.http("DELETE", "/mcp").of_session().send().await.status(), 204);
    recorded(&redis, 0).await;
    for client in [&at_a, &at_b] {
        assert_eq!(client.request("ping", json!({})).await.status, 404);
    }
}

#[tokio::test]
async fn a_session_is_revived_for_its_own_principal_and_endpoint_alone() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let builder = || {
        gateway_of(&upstream)
            .toml("[profiles.p]\n")
            .toml(&client_table("one", "key-one", ""))
            .toml(&client_table("two", "key-two", ""))
    };
    let [a] = start_replicas(&redis.url(), builder).await;
    let mut killed = ReplicaProcess::start(builder(), &redis.url(), free_port()).await;
    let client = killed.client(Some("key-one")).await;
    recorded(&redis, 1).await;
    killed.kill();
    end_leases(&redis, &[&a]).await;
    for other in
        [through(&a, &client, Some("key-two")), through(&a, &client, Some("key-one")).at("/mcp/p")]
    {
        assert_eq!(other.request("ping", json!({})).await.status, 404);
    }
    assert_eq!((sessions(&a).await, revivals(&a, "revived").await), (0, 0));
    let own = through(&a, &client, Some("key-one"));
    assert_eq!(own.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(revivals(&a, "revived").await, 1);
    let other = through(&a, &client, Some("key-two"));
    assert_eq!(other.request("ping", json!({})).await.status, 404);
}

#[tokio::test]
async fn a_replica_that_stops_hands_its_sessions_over_while_its_calls_complete() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    upstream.does("long", |_| vec![Step::Progress(1), Step::Hold, Step::text("completed")]);
    let [a, b] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let client = a.legacy().await;
    let at_b = through(&b, &client, None);
    let mut call = at_b.ask_call("s__long", json!({})).token(json!(1)).send().await;
    call.message().await.expect("progress");
    recorded(&redis, 1).await;
    let meanwhile = async {
        // Its lease is gone before its calls are.
        until_async(async || keys(&redis, "replicas").await.len() == 1).await;
        assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
        assert_eq!(revivals(&b, "revived").await, 1);
        upstream.release(1);
        assert_eq!(call.said().await.text(), "completed");
    };
    tokio::join!(a.stop(), meanwhile);
    assert_eq!(at_b.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(recorded(&redis, 1).await.len(), 1);
}

#[tokio::test]
async fn without_the_store_a_session_of_a_lost_replica_is_neither_revived_nor_lost() {
    let (mut redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let mut killed = ReplicaProcess::start(gateway_of(&upstream), &redis.url(), free_port()).await;
    let client = killed.client(None).await;
    recorded(&redis, 1).await;
    killed.kill();
    redis.kill();
    let said = through(&a, &client, None).request("ping", json!({})).await;
    assert_eq!((said.status, said.header("retry-after")), (503, Some("1")));
    assert!(reason(&said).contains("the store"), "{said:?}");
    assert_eq!(sessions(&a).await, 0);
}

#[tokio::test]
async fn a_replica_that_restarts_at_the_same_address_is_another_one() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let mut killed = ReplicaProcess::start(gateway_of(&upstream), &redis.url(), free_port()).await;
    knows(&a, 1).await;
    let client = killed.client(None).await;
    let at_a = through(&a, &client, None);
    assert_eq!(at_a.call("s__echo", json!({})).await.text(), "{}");
    recorded(&redis, 1).await;
    killed.kill();
    let port = killed.peer_port;
    let restarted = ReplicaProcess::start(gateway_of(&upstream), &redis.url(), port).await;
    until_async(async || TcpStream::connect(("127.0.0.1", port)).await.is_ok()).await;
    // Its lease is there until it expires. The old connection may fail only now.
    poll_for(async || {
        let said = at_a.request("ping", json!({})).await;
        assert!([200, 502, 503].contains(&said.status), "{said:?}");
        (said.status == 200).then_some(())
    })
    .await;
    let own = Client::plain(restarted.address).becomes(client.kind());
    assert_eq!(own.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(revivals(&a, "revived").await, 1);
}

#[tokio::test]
async fn the_answer_to_a_call_of_a_lost_replica_is_refused_with_an_explicit_error() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let form = json!({
        "mode": "form",
        "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {} },
    });
    upstream.does("ask", move |_| {
        let ask = Step::Ask("who", "elicitation/create", form.clone());
        vec![ask, Step::Await("who"), Step::Answers]
    });
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let mut killed = ReplicaProcess::start(gateway_of(&upstream), &redis.url(), free_port()).await;
    let client = killed.client(None).await;
    let mut call = client.ask_call("s__ask", json!({})).id(json!(77)).send().await;
    let asked = call.message().await.expect("a question");
    recorded(&redis, 1).await;
    killed.kill();
    end_leases(&redis, &[&a]).await;
    let at_a = through(&a, &client, None);
    let answer = |id: &Value| {
        let answer = json!({
            "jsonrpc": "2.0", "id": id, "result": { "action": "accept", "content": {} },
        });
        let post = at_a.http("POST", "/mcp").of_session().body(answer.to_string());
        post.header("content-type", "application/json").send()
    };
    let lost = answer(&asked["id"]).await;
    assert_eq!(lost.status(), 502);
    assert!(reason(&lost.said().await).contains("replica"), "the session was revived");
    // The call itself, whose client resumes its stream.
    let mut resumed = at_a.resume(call.last_id()).await;
    let lost = resumed.message().await.expect("an error");
    assert_eq!((&lost["id"], &lost["error"]["code"]), (&json!(77), &json!(50_300)), "{lost}");
    assert_eq!(resumed.message().await, None);
    // The same call at its new owner.
    let mut call = at_a.ask_call("s__ask", json!({})).send().await;
    let again = call.message().await.expect("a question");
    assert_ne!(again["id"], asked["id"]);
    assert_eq!(answer(&again["id"]).await.status(), 202);
    assert!(call.said().await.text().contains("accept"));
}

#[tokio::test]
async fn an_old_record_that_the_store_restores_takes_no_session_from_its_owner() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a, b] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let client = a.legacy().await;
    let record = recorded(&redis, 1).await.remove(0);
    redis.command(&format!("COPY {record} old")).await;
    a.stop().await;
    let at_b = through(&b, &client, None);
    assert_eq!(at_b.request("ping", json!({})).await.status, 200);
    redis.command(&format!("COPY old {record} REPLACE")).await;
    let c = replica_at(gateway_of(&upstream), &redis.url(), free_port(), "").start().await;
    knows(&b, 1).await;
    // The owner writes its own record over the old one.
    at_b.request("logging/setLevel", json!({ "level": "alert" })).await.result();
    let old = redis.command("GET old").await;
    until_async(async || redis.command(&format!("GET {record}")).await != old).await;
    let at_c = through(&c, &client, None);
    assert_eq!(at_c.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!((sessions(&b).await, sessions(&c).await), (1, 0));
    assert_eq!(forwarded(&c, "answered").await, 1);
    // The record of one session is none of another.
    let other = b.legacy().await;
    let records = recorded(&redis, 2).await;
    let others: Vec<_> = records.iter().filter(|it| **it != record).collect();
    redis.command(&format!("COPY {record} {} REPLACE", others[0])).await;
    b.stop().await;
    assert_eq!(through(&c, &other, None).request("ping", json!({})).await.status, 404);
    assert_eq!(at_c.request("ping", json!({})).await.status, 200);
}

#[tokio::test]
async fn a_replica_without_its_lease_does_not_answer_for_sessions_that_others_may_revive() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let gate = StoreGate::start(&redis).await;
    let refusing = "degrade = \"refuse\"\n";
    let cut = replica_at(gateway_of(&upstream), &gate.url(), free_port(), refusing).start().await;
    let b = replica_at(gateway_of(&upstream), &redis.url(), free_port(), "").start().await;
    knows(&b, 1).await;
    knows(&cut, 1).await;
    let client = cut.legacy().await;
    recorded(&redis, 1).await;
    gate.close();
    // It answers until its lease is over, and refuses from then on.
    let refused = poll_for(async || {
        let said = client.request("ping", json!({})).await;
        (said.status != 200).then_some(said)
    })
    .await;
    assert_eq!(refused.status, 503);
    assert!(reason(&refused).contains("the store"), "{refused:?}");
    let at_b = through(&b, &client, None);
    until_async(async || at_b.request("ping", json!({})).await.status == 200).await;
    assert_eq!(revivals(&b, "revived").await, 1);
    assert_eq!(client.request("ping", json!({})).await.status, 503);
    assert_eq!((sessions(&cut).await, sessions(&b).await), (1, 1));
    gate.open();
    until_async(async || client.request("ping", json!({})).await.status == 200).await;
    assert_eq!((sessions(&cut).await, sessions(&b).await), (0, 1));
    assert_eq!(revivals(&cut, "moved").await, 1);
}

#[tokio::test]
async fn a_replica_that_was_suspended_ends_sessions_that_were_revived_meanwhile() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    logs(&upstream);
    let [a] = start_replicas(&redis.url(), || gateway_of(&upstream)).await;
    let suspended = ReplicaProcess::start(gateway_of(&upstream), &redis.url(), free_port()).await;
    let client = suspended.client(None).await;
    recorded(&redis, 1).await;
    suspended.signal(Signal::STOP);
    until_async(async || keys(&redis, "replicas").await.len() == 1).await;
    let at_a = through(&a, &client, None);
    // The connection to it is open until a ping is not answered.
    until_async(async || at_a.request("ping", json!({})).await.status == 200).await;
    at_a.request("logging/setLevel", json!({ "level": "alert" })).await.result();
    suspended.signal(Signal::CONT);
    let said = client.call("s__chatty", json!({})).await;
    let levels: Vec<_> = said.notices().iter().map(|line| &line["params"]["level"]).collect();
    assert_eq!(said.text(), "done");
    assert_eq!(levels, ["alert"], "the other one has answered");
}

#[tokio::test]
async fn limits_of_sessions_hold_for_revived_ones() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let [a] = start_replicas(&redis.url(), || {
        gateway_of(&upstream).gateway("limits = { sessions_each = 1 }")
    })
    .await;
    let mut killed = ReplicaProcess::start(gateway_of(&upstream), &redis.url(), free_port()).await;
    let clients = [killed.client(None).await, killed.client(None).await];
    recorded(&redis, 2).await;
    killed.kill();
    end_leases(&redis, &[&a]).await;
    for client in &clients {
        let said = through(&a, client, None).request("ping", json!({})).await;
        assert_eq!(said.status, 200, "{said:?}");
        assert_eq!(sessions(&a).await, 1);
    }
    // The first one has made room, and has ended for good.
    assert_eq!(through(&a, &clients[0], None).request("ping", json!({})).await.status, 404);
    recorded(&redis, 1).await;
}
