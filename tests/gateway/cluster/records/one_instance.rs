//! Servers whose child runs at one replica (`instances = "one"`).

use std::path::Path;
use std::sync::Arc;

use http::{Method, Uri};
use serde_json::{Value, json};
use trunkline::cluster::{Envelope, RequestLine, ServerPlace};

use crate::cluster::peers::envelopes::Owner;
use crate::cluster::sessions::failures::cluster_with;
use crate::cluster::{RedisServer, StoreGate, free_port, knows, replica_at, start_replicas};
use crate::input::{ann, ask, form, required, retry};
use crate::support::gateway::Builder;
use crate::support::upstream::tool;
use crate::support::{Gateway, Step, Upstream, until, until_async};

/// Returns the configuration of replicas with a server whose child runs at one of them.
fn with_one_child(upstream: &Upstream) -> Builder {
    Gateway::with("s", upstream.stdio() + "instances = \"one\"\n")
}

/// Returns the places of the replicas that run the child.
async fn owners(replicas: &[&Gateway]) -> Vec<usize> {
    let mut owners = Vec::new();
    for (place, replica) in replicas.iter().enumerate() {
        if !replica.server("s").await["pid"].is_null() {
            owners.push(place);
        }
    }
    owners
}

/// Waits until the server is ready at each replica, and returns the place of the one with the child.
async fn owner_of(replicas: &[&Gateway]) -> usize {
    for replica in replicas {
        replica.ready("s").await;
    }
    let owners = owners(replicas).await;
    assert_eq!(owners.len(), 1, "{owners:?}");
    owners[0]
}

async fn replica_of(gateway: &Gateway) -> Value {
    gateway.server("s").await["replica"].clone()
}

#[tokio::test]
async fn one_replica_runs_the_child_and_each_serves_its_lists_and_calls() {
    for upstream in [Upstream::legacy().await, Upstream::modern().await] {
        let redis = RedisServer::start().await;
        let replicas: [Gateway; 3] =
            start_replicas(&redis.url(), || with_one_child(&upstream)).await;
        let all = replicas.each_ref();
        let owner = owner_of(&all).await;
        assert_eq!(upstream.starts(), 1);
        let id = all[owner].status().await["cluster"]["id"].clone();
        let names = all[owner].modern().tool_names().await;
        assert_eq!(names.len(), 4, "{names:?}");
        for replica in all {
            assert_eq!(replica_of(replica).await, id);
            let introduced = &replica.server("s").await["server_info"];
            assert_eq!(*introduced, all[owner].server("s").await["server_info"]);
            for (era, client) in replica.both().await {
                assert_eq!(client.tool_names().await, names, "{era}");
                let said = client.call("s__echo", json!({ "a": era })).await;
                assert_eq!(said.text(), format!(r#"{{"a":"{era}"}}"#));
            }
        }
        assert_eq!(upstream.starts(), 1);
        assert_eq!(upstream.calls().len(), 6);
        // A changed list reaches the clients of each replica.
        upstream.set_tools(["echo", "other"].map(|name| tool(name).to_string())).announce().await;
        for replica in all {
            until_async(async || replica.modern().tool_names().await.len() == 2).await;
        }
    }
}

/// Returns the two replicas of a pair: the one with the child, and the other one.
async fn sorted(replicas: [Gateway; 2]) -> [Gateway; 2] {
    let owner = owner_of(&replicas.each_ref()).await;
    let [a, b] = replicas;
    if owner == 0 { [a, b] } else { [b, a] }
}

fn is_running(pid: &Value) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[tokio::test]
async fn a_modern_child_asks_clients_of_other_replicas() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::modern().await);
    upstream.does("ask", |call| match call.params.get("inputResponses") {
        Some(said) => {
            assert_eq!(call.params["requestState"], "mine");
            vec![Step::text(said.to_string())]
        }
        None => vec![required(&[("q", "elicitation/create", form())], Some("mine"))],
    });
    let replicas = start_replicas(&redis.url(), || with_one_child(&upstream)).await;
    let [owner, other] = sorted(replicas).await;
    let able = json!({ "elicitation": { "form": {} } });
    let client = other.modern().offering(able.clone()).await;
    let asked = ask(&client, "s__ask").await;
    // The retry may arrive at any replica.
    let again = owner.modern().offering(able).await;
    let said = retry(&again, "s__ask", asked.all(&ann()), asked.state()).await;
    assert!(said.text().contains("Ann"), "{said:?}");
    assert_eq!(upstream.starts(), 1);
}

#[tokio::test]
async fn a_cancelled_call_of_another_replica_is_cancelled_at_the_child() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let replicas = start_replicas(&redis.url(), || with_one_child(&upstream)).await;
    let [_owner, other] = sorted(replicas).await;
    let client = other.modern();
    let call = client.ask_call("s__hold", json!({})).token(json!(1)).send();
    tokio::select! {
        reply = call => panic!("the call waits: {}", reply.status()),
        _ = upstream.heard("tools/call", 1) => {}
    }
    let cancelled = upstream.heard("notifications/cancelled", 1).await;
    let call = upstream.calls().remove(0);
    assert_eq!(Some(&cancelled.params["requestId"]), call.id.as_ref());
}

#[tokio::test]
async fn a_replica_that_stops_hands_the_child_over_after_its_end() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let replicas = start_replicas(&redis.url(), || with_one_child(&upstream)).await;
    let [owner, other] = sorted(replicas).await;
    let pid = owner.server("s").await["pid"].clone();
    owner.stop().await;
    assert!(!is_running(&pid));
    let said = other.modern().call("s__echo", json!({ "a": 1 })).await;
    assert_eq!(said.text(), r#"{"a":1}"#);
    assert_eq!(upstream.starts(), 2);
    assert_eq!(replica_of(&other).await, other.status().await["cluster"]["id"]);
}

#[tokio::test]
async fn a_child_of_a_lost_replica_is_started_elsewhere_after_its_lease_and_calls_wait() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let gate = StoreGate::start(&redis).await;
    // It has the lease, and is lost.
    let store = trunkline::config::StoreUrl::parse(&gate.url()).unwrap();
    let store = Arc::new(trunkline::cluster::RedisStore::new(&store).unwrap());
    let lost = cluster_with(store, trunkline::config::DegradeChoice::Local);
    let name = trunkline::call::ServerName::new("s").unwrap();
    let lease = lost.server_lease(&name, [0; 32]);
    assert!(matches!(lease.place().await, Ok(ServerPlace::Here)));
    let [replica] = start_replicas(&redis.url(), || with_one_child(&upstream)).await;
    assert_eq!(upstream.starts(), 0);
    gate.close();
    replica.ready("s").await;
    assert_eq!(upstream.starts(), 1);
    assert!(!lease.is_held());
}

#[tokio::test]
async fn a_replica_without_the_store_stops_its_child_before_another_one_starts_it() {
    for degrade in ["local", "refuse"] {
        let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
        let gate = StoreGate::start(&redis).await;
        let more = format!("degrade = \"{degrade}\"");
        let start = async |store: &str| {
            replica_at(with_one_child(&upstream), store, free_port(), &more).start().await
        };
        let owner = start(&gate.url()).await;
        let other = start(&redis.url()).await;
        knows(&owner, 1).await;
        let pid = owner.server("s").await["pid"].clone();
        assert!(is_running(&pid), "{pid}");
        gate.close();
        until(|| upstream.starts() == 2).await;
        assert!(!is_running(&pid), "it has ended before");
        other.ready("s").await;
        assert_eq!(other.modern().call("s__echo", json!({})).await.text(), "{}");
        assert!(owner.modern().call("s__echo", json!({})).await.is_error());
        // The store is back: the replica without the child uses that of the other one.
        gate.open();
        until_async(async || owner.server("s").await["state"] == "ready").await;
        assert_eq!(owner.modern().call("s__echo", json!({})).await.text(), "{}");
        assert_eq!(upstream.starts(), 2);
    }
}

#[tokio::test]
async fn during_a_rollout_a_child_with_other_settings_is_not_used() {
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let ports = [free_port(), free_port()];
    let builder = |more: &str, port| {
        let server = upstream.stdio() + "instances = \"one\"\n" + more;
        replica_at(Gateway::with("s", server), &redis.url(), port, "")
    };
    let owner = builder("", ports[0]).start().await;
    let other = builder("", ports[1]).start().await;
    other.ready("s").await;
    assert_eq!(upstream.starts(), 1);
    let changed = "env = { MODE = \"new\" }\n";
    other.reload(builder(changed, ports[1])).await;
    let error = other.wait_for(|status| !status["servers"][0]["last_error"].is_null()).await;
    let error = error["servers"][0]["last_error"]["message"].clone();
    assert!(error.as_str().unwrap().contains("other settings"), "{error}");
    assert_eq!(owner.modern().call("s__echo", json!({})).await.text(), "{}");
    owner.reload(builder(changed, ports[0])).await;
    for replica in [&owner, &other] {
        replica.ready("s").await;
        until_async(async || replica.modern().call("s__echo", json!({})).await.status == 200).await;
    }
    assert_eq!(upstream.starts(), 2);
}

#[tokio::test]
async fn only_envelopes_of_replicas_for_servers_are_accepted_at_their_paths() {
    const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let (redis, upstream) = (RedisServer::start().await, Upstream::legacy().await);
    let builder = || {
        let clients = crate::support::client_table("one", "key-one", "");
        with_one_child(&upstream).toml(&clients)
    };
    let [gateway] = start_replicas(&redis.url(), builder).await;
    gateway.ready("s").await;
    let owner = Owner::of(&gateway).await;
    let to_server = |path: &str, digest: [u8; 32]| {
        let uri: Uri = path.parse().unwrap();
        let line = RequestLine { method: &Method::POST, uri: &uri };
        owner.seal(Envelope::for_server(line, PING.into(), &digest))
    };
    let server = gateway.running.gateway.snapshots.load_full();
    let server = server.servers().next().unwrap();
    let digest = *server.server.lease().unwrap().digest();
    let send = async |path: &str, body: &str, sealed: &str| {
        owner.send_by("POST", path, body, sealed).await
    };
    let path = "/servers/s";
    let valid = to_server(path, digest);
    // The request is read, and its lack of `_meta` is noticed.
    assert_eq!(send(path, PING, &valid).await, 400);
    assert_eq!(send(path, PING, &valid).await, 403, "replayed");
    assert_eq!(send(path, "{}", &to_server(path, digest)).await, 403, "another body");
    assert_eq!(send("/servers/t", PING, &to_server(path, digest)).await, 403, "another server");
    assert_eq!(send(path, PING, "").await, 403, "no envelope");
    let of_client = owner.seal(owner.envelope_at(path, "POST", PING));
    assert_eq!(send(path, PING, &of_client).await, 403, "the envelope of a client's request");
    assert_eq!(send("/mcp", PING, &to_server("/mcp", digest)).await, 403, "at the client's path");
    assert_eq!(send(path, PING, &to_server(path, [1; 32])).await, 421, "other settings");
    assert_eq!(send("/servers/t", PING, &to_server("/servers/t", digest)).await, 421, "unknown");
    // Nothing of it is at the address for clients.
    let client = gateway.plain().key("key-one");
    let said = client.http("POST", path).body(PING).send().await;
    assert_eq!(said.status(), 404);
}
