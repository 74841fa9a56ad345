//! A request over a limit is refused with the limit's name.

use std::time::Duration;

use serde_json::json;

use crate::support::{Gateway, Said, Step, Upstream, client_table};

#[track_caller]
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
async fn every_rate_is_enforced_and_named_in_the_error() {
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
            let over = legacy.call("s__echo", json!({})).await;
            assert_eq!((over.status, &over.error()["data"]["limit"]), (200, &json!(limit)));
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

/// The wait for a client over its rate is the time until the rate grants the next permit.
#[tokio::test]
async fn retry_after_is_the_time_until_the_next_permit() {
    for (line, seconds) in [("3/h", 1200), ("1/h", 3600), ("2/min", 30)] {
        let upstream = Upstream::modern().await;
        let lines = upstream.http() + &format!("rate = \"{line}\"");
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.modern();
        let began = std::time::Instant::now();
        let mut over = client.call("s__echo", json!({})).await;
        for _ in 0..4 {
            over = client.call("s__echo", json!({})).await;
        }
        is_over(&over, "server:s");
        let wait = over.error()["data"]["retryAfterMs"].as_u64().unwrap();
        let passed = u64::try_from(began.elapsed().as_millis()).unwrap();
        let whole = seconds * 1000;
        // The next permit has been accruing since the first call at the latest.
        assert!(wait <= whole && wait + passed + 1000 >= whole, "{line}: {wait} after {passed}");
    }
}

#[tokio::test]
async fn a_rate_grants_again_its_configured_amount() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http() + "rate = \"2/s\"").start().await;
    let client = gateway.modern();
    let began = std::time::Instant::now();
    let mut passed: f64 = 0.0;
    for _ in 0..40 {
        if passed >= 6.0 {
            break;
        }
        let said = crate::support::within(client.call("s__echo", json!({}))).await;
        if said.status == 429 {
            let wait = said.error()["data"]["retryAfterMs"].as_u64().unwrap();
            assert!(wait <= 500, "{said:?}");
            tokio::time::sleep(std::time::Duration::from_millis(wait)).await;
        } else {
            passed += 1.0;
        }
    }
    // Two at once, and four more at two a second.
    assert!(passed >= 6.0, "{passed} of 40 calls passed");
    let took = began.elapsed().as_secs_f64();
    assert!(took >= (passed - 2.0) / 2.0 - 0.1, "{passed} calls in {took} s");
    assert_eq!(upstream.calls().len(), 6);
}

/// Returns a client with its name as the key.
fn with_key(name: &str, more: &str) -> String {
    client_table(name, name, more)
}

#[tokio::test]
async fn limits_are_asked_in_one_order_and_a_refusal_uses_up_nothing_behind_it() {
    let schema = json!({ "type": "object", "required": ["city"] });
    // Two limits of one call each: the refusal of the second call names the first of them.
    for (gateway_lines, server_lines, arguments, first) in [
        ("rate = \"1/h\"\nclient_rate = \"1/h\"", "", json!({ "city": 1 }), "client"),
        ("rate = \"1/h\"", "rate = \"1/h\"", json!({ "city": 1 }), "gateway"),
        ("rate = \"1/h\"", "tools.weather.rate = \"1/h\"", json!({ "city": 1 }), "gateway"),
        (
            "",
            "rate = \"1/h\"\ntools.weather.rate = \"1/h\"",
            json!({ "city": 1 }),
            "tool:s/weather",
        ),
        ("", "tools.weather.rate = \"1/h\"", json!({}), "tool:s/weather"),
        ("", "rate = \"1/h\"", json!({}), "server:s"),
    ] {
        let upstream = Upstream::modern().await;
        upstream.tool(&json!({ "name": "weather", "inputSchema": schema }), |_| {
            vec![Step::text("fine")]
        });
        let gateway = Gateway::with("s", upstream.http() + server_lines).gateway(gateway_lines);
        let gateway = gateway.start().await;
        let client = gateway.modern();
        assert_eq!(client.call("s__weather", json!({ "city": 1 })).await.text(), "fine");
        is_over(&client.call("s__weather", arguments).await, first);
    }
}

#[tokio::test]
async fn a_client_over_its_own_rate_uses_up_nothing_that_others_share() {
    let upstream = Upstream::modern().await;
    let lines = upstream.http() + "rate = \"3/h\"\ntools.count.rate = \"1/h\"";
    let builder = Gateway::with("s", lines).gateway("rate = \"5/h\"");
    let builder = builder.toml(&with_key("greedy", "rate = \"1/h\"")).toml(&with_key("other", ""));
    let gateway = builder.start().await;
    let (greedy, other) = (gateway.modern().key("greedy"), gateway.modern().key("other"));
    assert_eq!(greedy.call("s__echo", json!({})).await.text(), "{}");
    for _ in 0..4 {
        is_over(&greedy.call("s__echo", json!({})).await, "client:greedy");
    }
    assert_eq!(other.call("s__count", json!({})).await.text(), "counted");
    // The tool's own limit is checked before the server's, which stays unchanged.
    is_over(&other.call("s__count", json!({})).await, "tool:s/count");
    assert_eq!(other.call("s__echo", json!({})).await.text(), "{}");
    // The fifth call of the gateway's five, which is the fourth of the server's three.
    is_over(&other.call("s__echo", json!({})).await, "server:s");
    is_over(&other.call("s__echo", json!({})).await, "gateway");
}

#[tokio::test]
async fn calls_that_break_the_schema_wait_for_no_place_in_flight() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "object", "required": ["city"] });
    upstream
        .tool(&json!({ "name": "weather", "inputSchema": schema }), |_| vec![Step::text("fine")]);
    let lines = upstream.stdio() + "in_flight = 1\nqueue = 0\n";
    let gateway = Gateway::with("s", lines).start().await;
    let client = gateway.modern();
    let crowd = async {
        upstream.heard("tools/call", 1).await;
        is_over(&client.call("s__weather", json!({ "city": 1 })).await, "in_flight:s");
        let said = client.call("s__weather", json!({})).await;
        assert!(said.is_error() && said.text().contains("city"), "{said:?}");
        upstream.release(1);
    };
    let (held, ()) = tokio::join!(client.call("s__hold", json!({})), crowd);
    assert_eq!(held.text(), "held");
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
    let lines = upstream.stdio() + "in_flight = 1\nqueue = 1\nqueue_timeout = \"5m\"\n";
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
        let began = std::time::Instant::now();
        is_over(&client.call("s__hold", json!({})).await, "in_flight:s");
        let took = began.elapsed();
        assert!((Duration::from_millis(100)..Duration::from_secs(4)).contains(&took), "{took:?}");
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
