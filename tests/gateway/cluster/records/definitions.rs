//! Accepted definitions, which all replicas share.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::cluster::{RedisServer, StoreGate, free_port, replica_at, start_replicas};
use crate::pins::{described, is_unknown_or_gone, pin, pinned, printed, server};
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Said, Upstream, poll_for, until_async};

const HOLD_LINES: &str = "trusted = true\npins = \"hold\"";
const FIRST_TEXT: &str = "Adds two numbers.";

/// Configures a gateway that holds changes, and keeps nothing in files.
fn holding(upstream: &Upstream) -> Builder {
    Gateway::with("s", holding_lines(upstream))
}

/// Returns the settings of a server whose changes are held.
pub fn holding_lines(upstream: &Upstream) -> String {
    format!("{}\n{HOLD_LINES}\nscan = \"off\"", upstream.http())
}

/// Waits until a client sees these tools.
pub async fn sees(client: &Client, names: &[&str]) {
    until_async(|| async { client.tool_names().await == names }).await;
}

/// Waits until a replica holds so many definitions.
pub async fn holds(replica: &Gateway, count: usize) -> Value {
    replica.wait_for(|status| status["servers"][0]["definitions"]["held"] == count).await
}

/// Returns the digests of the forms that wait for approval; `None` while there are none.
async fn pending(replica: &Gateway) -> Option<Vec<String>> {
    let said = replica.admin("/api/v1/definitions").await;
    let all = said.json()["pending"].as_array()?.clone();
    let digests = all.iter().map(|one| one["sha256"].as_str().unwrap().to_owned());
    Some(digests.collect::<Vec<_>>()).filter(|digests| !digests.is_empty())
}

async fn decide(replica: &Gateway, decision: &str, digests: &[String]) -> Said {
    let path = format!("/api/v1/servers/s/definitions/{decision}");
    let body = json!({ "sha256": digests }).to_string();
    let operator = replica.operator();
    let ask = operator.http("POST", &path).body(body);
    ask.header("content-type", "application/json").send().await.said().await
}

fn has_code(said: &Said, status: u16, code: &str) -> bool {
    said.status == status && said.json()["code"] == code
}

/// Changes the only tool of a server, and waits until these replicas hold it.
async fn change(upstream: &Upstream, text: &str, replicas: &[&Gateway]) {
    upstream.set_tools([described("add", text)]).announce().await;
    for replica in replicas {
        holds(replica, 1).await;
        sees(&replica.modern(), &[]).await;
    }
}

#[tokio::test]
async fn a_definition_that_is_approved_at_one_replica_is_served_by_all() {
    let (redis, upstream) = (RedisServer::start().await, server().await);
    let [a, b, c] = start_replicas(&redis.url(), || holding(&upstream)).await;
    for replica in [&a, &b, &c] {
        sees(&replica.modern(), &["s__add"]).await;
    }
    change(&upstream, "Adds a secret number.", &[&a, &b, &c]).await;
    assert!(is_unknown_or_gone(&b.modern().call("s__add", json!({})).await));
    // Approved where it waits, with the texts that any replica has seen.
    let digests = poll_for(async || pending(&c).await).await;
    let page = c.admin("/api/v1/definitions").await.json();
    let diff = page["pending"][0]["diff"].as_str().unwrap();
    assert!(diff.contains("-  \"description\": \"Adds two numbers.\","), "{diff}");
    assert_eq!(decide(&a, "approve", &digests).await.status, 200);
    for replica in [&a, &b, &c] {
        sees(&replica.modern(), &["s__add"]).await;
        assert_eq!(replica.modern().call("s__add", json!({})).await.text(), "sum");
    }
    // The store has neither names nor texts in clear, and the record stays.
    let names = redis.command("KEYS trunkline:definitions:*").await;
    let name = names.lines().find(|line| line.starts_with("trunkline:definitions:")).unwrap();
    assert_eq!(name.trim().len(), "trunkline:definitions:".len() + 64, "{names}");
    assert_eq!(redis.command(&format!("PTTL {}", name.trim())).await.trim(), ":-1");
    let record = redis.command(&format!("GET {}", name.trim())).await;
    assert!(!record.contains("secret") && !record.contains("Adds"), "{record}");
}

#[tokio::test]
async fn one_approval_that_is_used_at_three_replicas_at_once_succeeds_once() {
    let (redis, upstream) = (RedisServer::start().await, server().await);
    let [a, b, c] = start_replicas(&redis.url(), || holding(&upstream)).await;
    for text in ["One.", "Two.", "Three."] {
        for replica in [&a, &b, &c] {
            sees(&replica.modern(), &["s__add"]).await;
        }
        change(&upstream, text, &[&a, &b, &c]).await;
        let digests = poll_for(async || pending(&a).await).await;
        let said = join_all([&a, &b, &c].map(|it| decide(it, "approve", &digests))).await;
        let approved = said.iter().filter(|said| said.status == 200).count();
        let refused = said.iter().filter(|said| has_code(said, 409, "not_pending")).count();
        assert_eq!((approved, refused), (1, 2), "{said:?}");
    }
}

#[tokio::test]
async fn a_rejection_holds_at_every_replica() {
    let (redis, upstream) = (RedisServer::start().await, server().await);
    let [a, b] = start_replicas(&redis.url(), || holding(&upstream)).await;
    for replica in [&a, &b] {
        sees(&replica.modern(), &["s__add"]).await;
    }
    change(&upstream, "Worse.", &[&a, &b]).await;
    let digests = poll_for(async || pending(&a).await).await;
    assert_eq!(decide(&a, "reject", &digests).await.status, 200);
    b.wait_for(|status| status["servers"][0]["definitions"]["rejected"] == 1).await;
    assert_eq!(b.modern().tool_names().await, Vec::<String>::new());
}

#[tokio::test]
async fn a_replica_that_starts_later_compares_with_the_baseline_of_the_first() {
    let (redis, upstream) = (RedisServer::start().await, server().await);
    let a = replica_at(holding(&upstream), &redis.url(), free_port(), "").start().await;
    sees(&a.modern(), &["s__add"]).await;
    drop(a.stop().await);
    upstream.set_tools([described("add", "Adds, and more.")]);
    let b = replica_at(holding(&upstream), &redis.url(), free_port(), "").start().await;
    holds(&b, 1).await;
    assert_eq!(b.modern().tool_names().await, Vec::<String>::new());
    assert_eq!(b.server("s").await["definitions"]["found"][0]["reasons"], json!(["changed"]));
}

#[tokio::test]
async fn without_the_store_decisions_stay_in_force_and_no_others_are_made() {
    for degrade in ["local", "refuse"] {
        let (redis, upstream) = (RedisServer::start().await, server().await);
        let gate = StoreGate::start(&redis).await;
        let more = format!("degrade = \"{degrade}\"\n");
        let replica = replica_at(holding(&upstream), &gate.url(), free_port(), &more);
        let replica = replica.start().await;
        let client = replica.modern();
        sees(&client, &["s__add"]).await;
        change(&upstream, "Another one.", &[&replica]).await;
        let digests = poll_for(async || pending(&replica).await).await;
        gate.close();
        let unavailable = |said: &Said| has_code(said, 503, "store_unavailable");
        let refused = decide(&replica, "approve", &digests).await;
        assert!(unavailable(&refused), "{degrade}: {refused:?}");
        assert!(unavailable(&replica.admin("/api/v1/definitions").await), "{degrade}");
        assert_eq!(client.tool_names().await, Vec::<String>::new(), "{degrade}");
        // The accepted form is served, and another change is held.
        upstream.set_tools([described("add", FIRST_TEXT)]).announce().await;
        sees(&client, &["s__add"]).await;
        change(&upstream, "A third one.", &[&replica]).await;
        gate.open();
        let digests = poll_for(async || {
            pending(&replica).await.filter(|found| found.len() == 1 && *found != digests)
        })
        .await;
        assert_eq!(decide(&replica, "approve", &digests).await.status, 200, "{degrade}");
        sees(&client, &["s__add"]).await;
    }
}

#[tokio::test]
async fn nothing_is_accepted_at_first_sight_before_the_store_has_it() {
    let (redis, upstream) = (RedisServer::start().await, server().await);
    let news = json!({ "listChanged": true });
    upstream.can(json!({ "tools": news, "prompts": news }));
    upstream.lists("prompts", [] as [Value; 0]);
    let gate = StoreGate::start(&redis).await;
    gate.close();
    let replica = replica_at(holding(&upstream), &gate.url(), free_port(), "").start().await;
    let is_held = |status: &Value| status["servers"][0]["definitions"]["held"].as_u64() >= Some(2);
    let status = replica.wait_for(is_held).await;
    assert!(status.to_string().contains("was not read from the store"), "{status}");
    assert_eq!(replica.modern().tool_names().await, Vec::<String>::new());
    gate.open();
    sees(&replica.modern(), &["s__add"]).await;
    // The same for kinds that are listed for the first time later.
    gate.close();
    upstream.lists("prompts", [json!({ "name": "p" })]);
    upstream.tell("notifications/prompts/list_changed", json!({})).await;
    holds(&replica, 1).await;
    gate.open();
    holds(&replica, 0).await;
}

#[tokio::test]
async fn decisions_in_files_are_added_to_the_store_and_are_seen_by_the_command() {
    let (redis, upstream) = (RedisServer::start().await, server().await);
    let alone = pinned(&upstream, "pins = \"hold\"").start().await;
    let waits = |shown: &str| shown.contains("s: tool add: not approved");
    until_async(|| async { waits(&printed(&pin(alone.folder(), &["diff"]).await)) }).await;
    let folder = alone.stop().await;
    // No gateway runs: the command writes the file.
    assert!(printed(&pin(folder.path(), &["approve", "s"]).await).contains("approved: tool add"));
    let held = || {
        let lines = format!("{}\npins = \"hold\"\nscan = \"off\"", upstream.http());
        Gateway::with("s", lines)
    };
    let b = replica_at(held(), &redis.url(), free_port(), "").start().await;
    holds(&b, 2).await;
    let builder = pinned(&upstream, "pins = \"hold\"").in_folder(folder);
    let a = replica_at(builder, &redis.url(), free_port(), "").start().await;
    for replica in [&a, &b] {
        sees(&replica.modern(), &["s__add"]).await;
    }
    // A decision at a replica without files is in the file of the other one.
    upstream.set_tools([described("add", "Other.")]).announce().await;
    let digests = poll_for(async || pending(&b).await).await;
    assert_eq!(decide(&b, "approve", &digests).await.status, 200);
    sees(&a.modern(), &["s__add"]).await;
    let listed = async || printed(&pin(a.folder(), &["list", "s"]).await);
    until_async(|| async { listed().await.matches("  approved").count() == 3 }).await;
}

#[tokio::test]
async fn a_store_that_loses_its_data_gets_the_decisions_of_replicas_back() {
    let (redis, upstream) = (RedisServer::start().await, server().await);
    let [a, b] = start_replicas(&redis.url(), || holding(&upstream)).await;
    for replica in [&a, &b] {
        sees(&replica.modern(), &["s__add"]).await;
    }
    change(&upstream, "Worse.", &[&a, &b]).await;
    redis.command("FLUSHALL").await;
    let count = async || redis.command("KEYS trunkline:definitions:*").await;
    until_async(|| async { count().await.starts_with("*1") }).await;
    let late = replica_at(holding(&upstream), &redis.url(), free_port(), "").start().await;
    for replica in [&a, &b, &late] {
        holds(replica, 1).await;
        assert_eq!(replica.modern().tool_names().await, Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_record_that_was_changed_in_the_store_accepts_nothing() {
    let (redis, upstream) = (RedisServer::start().await, server().await);
    let a = replica_at(holding(&upstream), &redis.url(), free_port(), "").start().await;
    sees(&a.modern(), &["s__add"]).await;
    let names = redis.command("KEYS trunkline:definitions:*").await;
    let name = names.lines().find(|line| line.starts_with("trunkline:definitions:")).unwrap();
    redis.command(&format!("SET {} other-bytes-of-a-record", name.trim())).await;
    let status = holds(&a, 2).await;
    assert!(status.to_string().contains("in the store of the gateway's replicas"), "{status}");
    sees(&a.modern(), &[]).await;
}
