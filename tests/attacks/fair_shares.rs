//! One client that takes as much as possible of a shared resource.

use std::net::{IpAddr, Ipv4Addr};

use serde_json::{Value, json};
use tokio::task::JoinSet;
use trunkline::call::{Answer, Call, Event, Failure, Params, Principal};
use trunkline::mcp::Method;

use crate::support::{Client, Gateway, Step, Upstream, client_table, until, within};
use crate::{ATTACKER, BYSTANDER, context, two_clients};

#[tokio::test]
async fn calls_of_one_client_leave_slots_and_a_queue_to_the_others() {
    let upstream = Upstream::modern().await;
    let lines = upstream.http() + "in_flight = 4\nqueue = 4\nqueue_timeout = \"1h\"\n";
    let gateway = Gateway::with("s", lines).gateway("limits.share = \"75%\"");
    let gateway = two_clients(gateway).start().await;
    let mut calls = JoinSet::new();
    for _ in 0..12 {
        let attacker = gateway.modern().key(ATTACKER);
        calls.spawn(async move { attacker.call("s__hold", json!({})).await });
    }
    // Three are in flight, three wait, and six are refused.
    for _ in 0..6 {
        let refused = calls.join_next().await.unwrap().unwrap();
        assert_eq!(refused.error()["data"]["limit"], "in_flight:s", "{refused:?}");
    }
    until(|| upstream.calls().len() == 3).await;
    let bystander = gateway.modern().key(BYSTANDER);
    assert_eq!(bystander.call("s__echo", json!({})).await.text(), "{}");
    // They stay in the queue behind the attacker's own slots.
    assert_eq!(upstream.calls().len(), 4);
    for _ in 0..6 {
        upstream.release(1);
        assert_eq!(calls.join_next().await.unwrap().unwrap().text(), "held");
    }
}

#[tokio::test]
async fn streams_of_one_client_leave_some_to_the_others() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).gateway("limits.streams = 4");
    let gateway = two_clients(gateway).start().await;
    let attacker = gateway.modern().key(ATTACKER);
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(attacker.listen().await);
    }
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let refused = attacker.request("subscriptions/listen", filter).await;
    assert_eq!(refused.status, 503, "{refused:?}");
    assert!(refused.error()["message"].as_str().unwrap().contains("the limit is 3"));
    let [(_, modern), (_, legacy)] = gateway.both_as(BYSTANDER, "/mcp").await;
    drop(modern.listen().await);
    let opened = async { while legacy.get_stream().send().await.status() != 200 {} };
    within(opened).await;
}

#[tokio::test]
async fn subscriptions_of_one_client_leave_some_to_the_others() {
    let upstream = Upstream::legacy().await;
    upstream.resources(&["a:0", "a:1", "a:2", "a:3"]);
    let gateway = Gateway::with("s", upstream.http()).gateway("limits.all_subscriptions = 4");
    let gateway = two_clients(gateway).start().await;
    let subscribe = async |client: &Client, number: u32| {
        let uri = format!("mcp://s/a:{number}");
        client.request("resources/subscribe", json!({ "uri": uri })).await
    };
    let [_, (_, attacker)] = gateway.both_as(ATTACKER, "/mcp").await;
    for number in 0..3 {
        subscribe(&attacker, number).await.result();
    }
    let refused = subscribe(&attacker, 3).await;
    assert!(refused.error()["message"].as_str().unwrap().contains("the limit is 3"), "{refused:?}");
    let [_, (_, bystander)] = gateway.both_as(BYSTANDER, "/mcp").await;
    subscribe(&bystander, 3).await.result();
}

#[tokio::test]
async fn instances_of_one_client_leave_some_to_the_others() {
    let upstream = Upstream::legacy().await;
    let lines = upstream.stdio() + "isolation = \"client\"\nmax_instances = 4\n";
    let gateway = two_clients(Gateway::with("s", lines)).start().await;
    let mut sessions = Vec::new();
    for number in 0..4 {
        let [_, (_, attacker)] = gateway.both_as(ATTACKER, "/mcp").await;
        let said = attacker.call("s__echo", json!({})).await;
        assert_eq!(said.is_error(), number == 3, "{number}: {said:?}");
        sessions.push(attacker);
    }
    let [_, (_, bystander)] = gateway.both_as(BYSTANDER, "/mcp").await;
    assert_eq!(bystander.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn sessions_of_one_client_make_room_for_its_own_alone() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).gateway("limits.sessions = 2");
    let gateway = two_clients(gateway).toml(&client_table("late", "late", "")).start().await;
    let [_, (_, bystander)] = gateway.both_as(BYSTANDER, "/mcp").await;
    for _ in 0..10 {
        gateway.both_as(ATTACKER, "/mcp").await;
    }
    assert_eq!(bystander.call("s__echo", json!({})).await.text(), "{}");
    // A client without a session cannot end another's.
    let late = gateway.plain().key("late");
    assert_eq!(late.initialize("2025-11-25").await.status(), 503);
    bystander.http("DELETE", "/mcp").of_session().send().await;
    assert_eq!(late.initialize("2025-11-25").await.status(), 200);
}

/// Calls a tool without a key, from an address that this machine does not have.
async fn call_from(gateway: &Gateway, address: Ipv4Addr, tool: &str) -> Result<Answer, Failure> {
    let params = json!({ "name": tool, "arguments": {} }).to_string();
    let context = context(Principal::Anonymous, IpAddr::V4(address));
    let params = Params::parse(Some(params.into())).unwrap();
    let call = Call { method: Method::ToolsCall, params, context, input: None };
    let pipeline = &gateway.running.gateway;
    let snapshot = pipeline.snapshots.load_full();
    let mut active = within(pipeline.call(snapshot, Box::new(call))).await;
    match within(active.next()).await {
        Some(Event::Answer(answer)) => answer,
        other => panic!("no answer, but {other:?}"),
    }
}

#[tokio::test]
async fn parked_calls_of_one_address_leave_some_to_the_others() {
    let upstream = Upstream::legacy().await;
    upstream.does("ask", |_| vec![Step::Ask("q", "roots/list", Value::Null), Step::Never]);
    let gateway = Gateway::with("s", upstream.http())
        .gateway("anonymous = \"anyone\"")
        .gateway("limits.parked_each = 2")
        .start()
        .await;
    let [attacker, bystander] = [1, 2].map(|host| Ipv4Addr::new(192, 0, 2, host));
    for _ in 0..2 {
        call_from(&gateway, attacker, "s__ask").await.unwrap();
    }
    let refused = call_from(&gateway, attacker, "s__ask").await.unwrap_err();
    let over = matches!(&refused, Failure::OverLimit { limit, .. } if limit == "parked_each");
    assert!(over, "{refused:?}");
    call_from(&gateway, bystander, "s__ask").await.unwrap();
}

#[tokio::test]
async fn a_gateway_without_clients_is_all_its_users_own() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).gateway("limits.streams = 4").start().await;
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(gateway.modern().listen().await);
    }
}
