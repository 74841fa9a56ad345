//! Notifications of clients about a changed list of tools.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::client::Piece;
use crate::support::{Gateway, Reply, Step, Upstream, every_kind, poll_for, until, within};

const NEW: &str = r#"{"name":"new","inputSchema":{"type":"object"}}"#;
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

async fn is_told(stream: &mut Reply) {
    let message = stream.message().await.expect("a change");
    assert_eq!(message["method"], "notifications/tools/list_changed", "{message}");
}

#[tokio::test]
async fn a_server_that_says_so_changes_the_list_of_every_client() {
    let kinds = every_kind().await;
    for kind in &kinds {
        let gateway = Gateway::with("s", &kind.lines).start().await;
        let both = gateway.both().await;
        let mut streams = Vec::new();
        for (_, client) in &both {
            streams.push(client.listen().await);
        }
        kind.upstream.set_tools([NEW]).announce().await;
        for stream in &mut streams {
            is_told(stream).await;
        }
        for (era, client) in &both {
            assert_eq!(client.tool_names().await, ["s__new"], "{} {era}", kind.name);
            assert!(client.call("s__echo", json!({})).await.is_error());
            assert_eq!(client.call("s__never", json!({})).await.code(), -32602);
        }
    }
}

#[tokio::test]
async fn a_listen_stream_begins_with_its_topics_and_tags_every_message() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.modern();
    for id in [json!("sub"), json!(77)] {
        let filter = json!({ "notifications": { "toolsListChanged": true, "promptsListChanged": true, "resourceSubscriptions": ["a://b"] } });
        let mut stream = client.ask("subscriptions/listen", filter).id(id.clone()).send().await;
        assert_eq!(stream.header("x-accel-buffering").as_deref(), Some("no"));
        let first = stream.message().await.unwrap();
        assert_eq!(first["method"], "notifications/subscriptions/acknowledged");
        let agreed = json!({ "toolsListChanged": true });
        assert_eq!(first["params"]["notifications"], agreed, "there is nothing else");
        assert_eq!(first["params"]["_meta"][SUBSCRIPTION], id);
        let tools = if id == 77 { vec![] } else { vec![NEW] };
        upstream.set_tools(tools).announce().await;
        let change = stream.message().await.unwrap();
        assert_eq!(change["method"], "notifications/tools/list_changed");
        assert_eq!(change["params"]["_meta"][SUBSCRIPTION], id);
    }
}

#[tokio::test]
async fn who_does_not_ask_for_changes_of_the_tools_hears_of_none() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).gateway("keep_alive = \"1s\"").start().await;
    let client = gateway.modern();
    let ask = client.ask("subscriptions/listen", json!({ "notifications": {} }));
    let mut stream = ask.send().await;
    let first = stream.message().await.unwrap();
    assert_eq!(first["params"]["notifications"], json!({}));
    upstream.set_tools([NEW]).announce().await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 1).await;
    assert_eq!(stream.piece().await, Some(Piece::Comment), "kept alive, and nothing else");
}

#[tokio::test]
async fn a_listen_without_a_filter_is_refused() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.modern();
    for params in [
        json!({}),
        json!({ "notifications": 1 }),
        json!({ "notifications": { "toolsListChanged": "yes" } }),
    ] {
        let said = client.request("subscriptions/listen", params.clone()).await;
        assert_eq!(said.code(), -32602, "{params}");
    }
}

#[tokio::test]
async fn quiet_streams_are_kept_alive_with_comments() {
    let gateway = Gateway::alone().gateway("keep_alive = \"1s\"").start().await;
    for (era, client) in gateway.both().await {
        let mut stream = client.listen().await;
        let began = Instant::now();
        for _ in 0..2 {
            assert_eq!(stream.piece().await, Some(Piece::Comment), "{era}");
        }
        assert!(began.elapsed() < Duration::from_secs(10), "{era}: {:?}", began.elapsed());
    }
}

#[tokio::test]
async fn a_quiet_call_becomes_a_stream_and_is_kept_alive() {
    let kinds = every_kind().await;
    let gateway = Gateway::alone().kinds(&kinds).gateway("keep_alive = \"1s\"").start().await;
    for (era, client) in gateway.both().await {
        let calls = kinds.iter().map(|kind| async {
            let tool = format!("{}__hold", kind.name);
            let mut reply = client.ask_call(&tool, json!({})).send().await;
            assert!(reply.is_stream(), "{era} {}", kind.name);
            assert_eq!(reply.piece().await, Some(Piece::Comment), "{era} {}", kind.name);
            kind.upstream.release(1);
            assert_eq!(reply.said().await.text(), "held", "{era} {}", kind.name);
        });
        futures_util::future::join_all(calls).await;
    }
}

#[tokio::test]
async fn a_change_before_the_get_stream_is_reported_on_it() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await;
    upstream.set_tools([NEW]).announce().await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 1).await;
    is_told(&mut client.listen().await).await;
}

#[tokio::test]
async fn a_change_that_may_be_lost_with_a_stream_is_repeated_until_the_client_lists() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).gateway("keep_alive = \"1s\"").start().await;
    let client = gateway.legacy().await;
    let mut first = client.listen().await;
    upstream.set_tools([NEW]).announce().await;
    is_told(&mut first).await;
    drop(first);
    is_told(&mut client.listen().await).await;
    client.tools().await;
    let mut third = client.listen().await;
    assert_eq!(third.piece().await, Some(Piece::Comment), "nothing new");
}

#[tokio::test]
async fn a_new_get_stream_takes_the_place_of_the_old_one() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let client = gateway.legacy().await;
    let mut old = client.listen().await;
    let mut new = client.listen().await;
    assert_eq!(old.message().await, None, "the old one ends");
    upstream.set_tools([NEW]).announce().await;
    is_told(&mut new).await;
}

#[tokio::test]
async fn a_get_has_to_take_events() {
    let gateway = Gateway::alone().start().await;
    let client = gateway.legacy().await;
    let refused = client.get_stream().header("accept", "application/json").send().await;
    assert_eq!(refused.status(), 406);
    let without_session = gateway.plain();
    let refused = without_session.http("GET", "/mcp").header("accept", "text/event-stream");
    assert_eq!(refused.send().await.status(), 405);
}

#[tokio::test]
async fn a_list_that_stays_the_same_is_no_change() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).gateway("keep_alive = \"1s\"").start().await;
    let mut stream = gateway.modern().listen().await;
    let lists = upstream.all("tools/list").len();
    upstream.announce().await;
    upstream.heard("tools/list", lists + 1).await;
    assert_eq!(stream.piece().await, Some(Piece::Comment), "nothing but a sign of life");
}

#[tokio::test]
async fn draining_ends_streams_gracefully() {
    let gateway = Gateway::alone().start().await;
    let ask = gateway.modern();
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut modern = ask.ask("subscriptions/listen", filter).id(json!("sub")).send().await;
    modern.message().await.unwrap();
    let mut legacy = gateway.legacy().await.listen().await;
    gateway.stop().await;
    let last = modern.message().await.unwrap();
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&json!("sub"), &json!("complete")));
    assert_eq!(last["result"]["_meta"][SUBSCRIPTION], "sub");
    assert_eq!(modern.message().await, None);
    assert_eq!(legacy.message().await, None);
}

#[tokio::test]
async fn calls_in_flight_finish_while_the_gateway_drains() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let mut held = Vec::new();
    for (_, client) in gateway.both().await {
        held.push(tokio::spawn(async move { client.call("s__hold", json!({})).await }));
    }
    upstream.heard("tools/call", 2).await;
    let stopping = tokio::spawn(gateway.stop());
    upstream.release(2);
    for call in held {
        assert_eq!(call.await.unwrap().text(), "held");
    }
    within(stopping).await.unwrap();
}

#[tokio::test]
async fn a_short_ttl_has_the_list_fetched_again() {
    let upstream = Upstream::modern().await;
    *upstream.inner.list_ttl.lock().unwrap() = Some(0);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let mut stream = gateway.modern().listen().await;
    upstream.set_tools([NEW]);
    let told = async { is_told(&mut stream).await };
    let ask = poll_for(|| async {
        gateway.modern().tools().await;
        None::<()>
    });
    tokio::select! {
        () = told => {}
        () = ask => {}
    }
    let names: Vec<Value> = gateway.modern().tools().await;
    assert_eq!(names[0]["name"], "s__new");
}

#[tokio::test]
async fn streams_are_capped_in_number() {
    let gateway = Gateway::alone().gateway("limits.streams = 1").start().await;
    let (modern, legacy) = (gateway.modern(), gateway.legacy().await);
    let open = modern.listen().await;
    assert_eq!(legacy.get_stream().send().await.status(), 503);
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let refused = modern.request("subscriptions/listen", filter).await;
    assert_eq!((refused.status, refused.code()), (503, 42_900));
    assert_eq!(refused.header("retry-after"), Some("1"));
    drop(open);
    gateway.wait_for(|status| status["streams"] == 0).await;
    legacy.listen().await;
}

#[tokio::test]
async fn a_call_of_an_unknown_name_waits_two_seconds_for_a_list_that_is_due() {
    for upstream in Upstream::both().await {
        let gateway = Gateway::with("s", upstream.http()).start().await;
        gateway.ready("s").await;
        let both = gateway.both().await;
        for (era, client) in &both {
            // The fastest of several, because a busy machine delays one or the other.
            let mut fastest = Duration::MAX;
            for _ in 0..5 {
                let begun = Instant::now();
                assert_eq!(client.call("s__new", json!({})).await.code(), -32602, "{era}");
                fastest = fastest.min(begun.elapsed());
            }
            assert!(fastest < Duration::from_millis(1900), "{era}: nothing is due: {fastest:?}");
        }
        let asked = upstream.all("tools/list").len();
        upstream.does("new", |_| vec![Step::text("done")]);
        upstream.before_tools([Step::Hold]);
        upstream.announce().await;
        until(|| upstream.all("tools/list").len() > asked).await;
        let (era, client) = &both[0];
        let begun = Instant::now();
        assert_eq!(client.call("s__new", json!({})).await.code(), -32602, "{era}");
        let waited = begun.elapsed();
        // A refresh of a list takes at most five seconds, which this is not.
        assert!((1900..4900).contains(&waited.as_millis()), "{era} {waited:?}");
        upstream.release(100);
        for (era, client) in &both {
            gateway.wait_for(|status| status["catalog"]["tools"] == 5).await;
            assert_eq!(client.call("s__new", json!({})).await.text(), "done", "{era}");
        }
    }
}

#[tokio::test]
async fn any_number_of_changes_is_reported_within_a_second() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    let mut stream = client.listen().await;
    // Earlier, the first ones arrived at once, and later ones after 5 to 30 seconds.
    let begun = Instant::now();
    for number in 0..14 {
        let name = format!("t{number}");
        let tool = json!({ "name": name, "inputSchema": { "type": "object" } }).to_string();
        upstream.set_tools([tool]).announce().await;
        is_told(&mut stream).await;
        assert_eq!(client.tool_names().await, [format!("s__{name}")]);
    }
    // A second for each, and the delays of a busy machine.
    assert!(begun.elapsed() < Duration::from_secs(14 + 20), "{:?}", begun.elapsed());
    // The list at the start, and one for each change: at most one in a second.
    assert!(upstream.all("tools/list").len() <= 15);
}
