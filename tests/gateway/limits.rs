//! What is over a limit is refused with the limit's name.

use serde_json::json;

use crate::support::{Gateway, Said, Step, Upstream};

fn is_over(said: &Said, limit: &str) {
    assert_eq!((said.status, said.code()), (429, 42_900), "{limit}: {said:?}");
    let data = &said.error()["data"];
    assert_eq!(data["limit"], limit, "{said:?}");
    let wait = data["retryAfterMs"].as_u64().unwrap();
    let header: u64 = said.header("retry-after").unwrap().parse().unwrap();
    assert!(wait > 0 && header * 1000 >= wait && header <= wait / 1000 + 1, "{said:?}");
    let text = said.error()["message"].as_str().unwrap();
    assert!(text.contains(limit) && text.contains("try again"), "{text}");
}

#[tokio::test]
async fn every_rate_is_enforced_and_told_by_its_name() {
    for (limit, gateway_line, server_lines) in [
        ("gateway", "rate = \"3/h\"", ""),
        ("client", "client_rate = \"3/h\"", ""),
        ("server:s", "", "rate = \"2/h\""),
        ("tool:s/echo", "", "tools.echo.rate = \"2/h\""),
    ] {
        let upstream = Upstream::modern().await;
        let gateway =
            Gateway::with("s", upstream.http() + server_lines).gateway(gateway_line).start().await;
        for client in [gateway.modern(), gateway.modern().h2()] {
            client.call("s__echo", json!({})).await.text();
        }
        let legacy = async || gateway.plain().initialize("2025-11-25").await.said().await;
        if limit.contains(':') {
            let legacy = gateway.legacy().await;
            is_over(&legacy.call("s__echo", json!({})).await, limit);
        } else {
            // The third of three, and one too many.
            legacy().await.result();
            is_over(&legacy().await, limit);
        }
        is_over(&gateway.modern().call("s__echo", json!({})).await, limit);
        if limit == "tool:s/echo" {
            assert_eq!(gateway.modern().call("s__count", json!({})).await.text(), "counted");
        }
        assert_eq!(
            upstream.calls().iter().filter(|c| c.params["name"] == "echo").count(),
            2,
            "{limit}"
        );
        let metrics = gateway.metrics().await;
        assert!(
            metrics.lines().any(|line| line.contains(limit) && line.ends_with(" 2")),
            "{metrics}"
        );
    }
}

#[tokio::test]
async fn a_rate_that_has_been_used_up_survives_a_reload() {
    let upstream = Upstream::modern().await;
    let lines = upstream.http() + "rate = \"1/h\"";
    let gateway = Gateway::with("s", &lines).start().await;
    gateway.modern().call("s__echo", json!({})).await.text();
    gateway.reload(Gateway::with("s", lines).gateway("title = \"Other\"")).await;
    is_over(&gateway.modern().call("s__echo", json!({})).await, "server:s");
}

#[tokio::test]
async fn calls_beyond_the_cap_wait_in_a_bounded_queue() {
    let upstream = Upstream::modern().await;
    let lines = upstream.stdio() + "in_flight = 1\nqueue = 1\n";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.modern();
    let held = async || client.call("s__hold", json!({})).await;
    let crowd = async {
        gateway.wait_for(|status| status["servers"][0]["queued"] == 1).await;
        let status = gateway.server("s").await;
        assert_eq!((&status["in_flight"], &status["queued"]), (&json!(1), &json!(1)));
        is_over(&client.call("s__echo", json!({})).await, "in_flight:s");
        assert_eq!(upstream.calls().len(), 1, "the second waits here");
        upstream.release(2);
    };
    let (first, second, ()) = tokio::join!(held(), held(), crowd);
    assert_eq!((first.text(), second.text()), ("held", "held"));
}

#[tokio::test]
async fn waiting_for_a_place_has_an_end() {
    let upstream = Upstream::modern().await;
    let lines = upstream.stdio() + "in_flight = 1\nqueue_timeout = \"100ms\"\n";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.modern();
    let second = async {
        upstream.heard("tools/call", 1).await;
        is_over(&client.call("s__hold", json!({})).await, "in_flight:s");
        upstream.release(1);
    };
    let (first, ()) = tokio::join!(client.call("s__hold", json!({})), second);
    assert_eq!(first.text(), "held");
    assert_eq!(upstream.calls().len(), 1);
}

#[tokio::test]
async fn a_call_that_is_given_up_leaves_its_place() {
    let upstream = Upstream::modern().await;
    upstream.does("begin", |_| vec![Step::Progress(1), Step::Never]);
    let gateway = Gateway::with("s", upstream.http() + "in_flight = 1").start().await;
    let client = gateway.modern();
    for _ in 0..3 {
        let mut reply = client.ask_call("s__begin", json!({})).token(json!(1)).send().await;
        reply.message().await.unwrap();
    }
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn bodies_and_headers_and_nesting_are_bounded() {
    let gateway = Gateway::alone()
        .gateway("limits.body = \"2KiB\"\nlimits.depth = 16\nlimits.header = \"16KiB\"")
        .start()
        .await;
    for (era, client) in gateway.both().await {
        let long = "x".repeat(2048);
        let said = client.call("x", json!({ "long": long })).await;
        assert_eq!((said.status, said.code()), (413, -32600), "{era} {said:?}");
        assert!(said.error()["message"].to_string().contains("2048"), "{said:?}");
        let deep = format!("{}{}", "[".repeat(20), "]".repeat(20));
        let ask = client.ask_call("x", json!("HERE"));
        let body = ask.message().to_string().replace("\"HERE\"", &deep);
        let said = ask.body(body).send().await.said().await;
        assert_eq!((said.status, said.code()), (400, -32700), "{era} {said:?}");
        let media = client.ask("tools/list", json!({})).header("content-type", "text/plain");
        assert_eq!(media.send().await.status(), 415, "{era}");
        let head = client.ask("tools/list", json!({})).header("x-long", &"x".repeat(20_000));
        assert_eq!(head.send().await.status(), 431, "{era}");
    }
}
