//! Servers on the transport of 2024-11-05.

use serde_json::json;

use crate::support::{Gateway, Old, Step, Upstream, until};

#[tokio::test]
async fn a_server_that_refuses_initialize_is_spoken_to_as_the_old_ones_are() {
    for status in [400, 404, 405] {
        let upstream = Upstream::legacy().await;
        let old = Old::before(&upstream).await;
        old.refuses_with(status);
        let gateway = Gateway::with("s", old.lines()).start().await;
        for (era, client) in gateway.both().await {
            assert_eq!(client.tool_names().await.len(), 4, "{status} {era}");
            let said = client.call("s__echo", json!({ "a": 1 })).await;
            assert_eq!(said.text(), r#"{"a":1}"#, "{status} {era}");
            let counted = client.ask_call("s__count", json!({})).token(json!("t")).send().await;
            assert_eq!(counted.said().await.messages.len(), 4, "{status} {era}");
        }
        assert_eq!(gateway.server("s").await["era"], "legacy");
        gateway.stop().await;
        old.is_closed().await;
    }
}

#[tokio::test]
async fn other_refusals_say_nothing_of_the_transport() {
    let upstream = Upstream::legacy().await;
    let old = Old::before(&upstream).await;
    for status in [401, 403, 500, 503] {
        old.refuses_with(status);
        let gateway = Gateway::with("s", old.lines()).start().await;
        let error = gateway.server("s").await["last_error"].to_string();
        assert!(error.contains(&status.to_string()), "{error}");
        assert_eq!(old.seen().0, 0, "{status}");
    }
}

#[tokio::test]
async fn the_transport_can_be_configured() {
    let upstream = Upstream::legacy().await;
    let old = Old::before(&upstream).await;
    let lines = format!("{}transport = \"sse\"\n", old.lines());
    let gateway = Gateway::with("s", lines).start().await;
    assert_eq!(gateway.modern().call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(old.seen(), (1, 0), "nothing is posted to the stream's address");

    let old = Old::before(&upstream).await;
    let lines = format!("{}transport = \"streamable\"\n", old.lines());
    let gateway = Gateway::with("s", lines).start().await;
    assert!(gateway.server("s").await["last_error"].to_string().contains("405"));
    assert_eq!(old.seen().0, 0);
}

#[tokio::test]
async fn the_address_of_messages_is_the_servers_own() {
    let upstream = Upstream::legacy().await;
    let other = Upstream::legacy().await;
    let old = Old::before(&upstream).await;
    let (own, foreign) = (old.address, other.http_address());
    for (endpoint, fine) in [
        ("/messages?session_id={}".to_owned(), true),
        ("messages?session_id={}".to_owned(), true),
        (format!("http://{own}/elsewhere?session_id={{}}"), true),
        (format!("http://{foreign}/messages?session_id={{}}"), false),
        (format!("//{foreign}/messages?session_id={{}}"), false),
        (format!("https://{own}/messages?session_id={{}}"), false),
        ("http://".to_owned(), false),
    ] {
        old.names(&endpoint);
        let lines = format!("{}transport = \"sse\"\n", old.lines());
        let gateway = Gateway::with("s", lines).start().await;
        let server = gateway.server("s").await;
        assert_eq!(server["state"] == "ready", fine, "{endpoint}: {server}");
        if !fine {
            assert!(server["last_error"].to_string().contains("not followed"), "{server}");
        }
    }
    assert!(other.received().is_empty());
}

#[tokio::test]
async fn a_call_that_is_taken_back_is_taken_back_at_the_server() {
    let upstream = Upstream::legacy().await;
    let old = Old::before(&upstream).await;
    let gateway = Gateway::with("s", old.lines()).start().await;
    let client = gateway.modern();
    let reply = client.ask_call("s__hold", json!({})).send();
    let held = upstream.heard("tools/call", 1);
    tokio::select! {
        _ = reply => panic!("it holds"),
        _ = held => {}
    }
    upstream.heard("notifications/cancelled", 1).await;
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn a_stream_that_breaks_off_fails_its_calls_and_is_opened_again() {
    let upstream = Upstream::legacy().await;
    let old = Old::before(&upstream).await;
    let gateway = Gateway::with("s", old.lines()).start().await;
    let client = gateway.modern();
    let call = client.call("s__hold", json!({}));
    let breaking = async {
        upstream.heard("tools/call", 1).await;
        old.break_off();
    };
    let (said, ()) = tokio::join!(call, breaking);
    assert!(said.result()["isError"] == true, "{said:?}");
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(old.seen().0, 2);
}

#[tokio::test]
async fn a_message_that_the_server_refuses_fails_its_own_call_and_no_other() {
    let upstream = Upstream::legacy().await;
    let old = Old::before(&upstream).await;
    let gateway = Gateway::with("s", old.lines()).start().await;
    let client = gateway.modern();
    let held = client.call("s__hold", json!({}));
    let refused = async {
        upstream.heard("tools/call", 1).await;
        old.answers("tools/call", Some(500));
        let said = client.call("s__echo", json!({})).await;
        assert!(said.answer().to_string().contains("500"), "{said:?}");
        old.answers("tools/call", None);
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
        upstream.release(1);
    };
    let (said, ()) = tokio::join!(held, refused);
    assert_eq!(said.text(), "held");
    assert_eq!(old.seen().0, 1);
    // A lost session is another matter.
    old.answers("tools/call", Some(404));
    assert_eq!(client.call("s__echo", json!({})).await.result()["isError"], true);
    old.answers("tools/call", None);
    until(|| old.seen().0 == 2).await;
    gateway.ready("s").await;
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn a_server_may_answer_a_post_when_its_request_is_done() {
    let upstream = Upstream::legacy().await;
    upstream.does("ask", |_| {
        vec![
            Step::Send(json!({ "jsonrpc": "2.0", "id": "q", "method": "ping" })),
            Step::text("asked"),
        ]
    });
    let old = Old::before(&upstream).await;
    old.answers_late();
    let gateway = Gateway::with("s", old.lines()).start().await;
    let client = gateway.modern();
    let held = client.call("s__hold", json!({}));
    let others = async {
        upstream.heard("tools/call", 1).await;
        assert_eq!(client.call("s__ask", json!({})).await.text(), "asked");
        upstream.release(1);
    };
    let (said, ()) = tokio::join!(held, others);
    assert_eq!(said.text(), "held");
}
