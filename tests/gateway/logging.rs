//! Routing of log lines to clients.

use serde_json::{Value, json};

use crate::support::{Client, Gateway, Said, Step, Upstream};

const LEVEL: &str = "io.modelcontextprotocol/logLevel";

fn line(level: &str, text: &str) -> Step {
    Step::Send(json!({
        "jsonrpc": "2.0",
        "method": "notifications/message",
        "params": { "level": level, "logger": "scripted", "data": { "text": text } },
    }))
}

/// Defines a tool that writes log lines of several levels.
fn chatty(upstream: &Upstream) {
    upstream.logs();
    upstream.does("chatty", |_| {
        let lines = ["debug", "info", "warning", "emergency"];
        let lines = lines.into_iter().map(|level| line(level, "hello"));
        lines.chain([line("loud", "no level"), Step::text("done")]).collect()
    });
}

/// Returns the levels of the lines that came with an answer.
fn levels(said: &Said) -> Vec<&str> {
    assert_eq!(said.text(), "done");
    let lines = said.notices().iter();
    lines
        .map(|line| {
            assert_eq!(line["method"], "notifications/message", "{line}");
            assert_eq!(line["params"]["data"], json!({ "text": "hello" }));
            line["params"]["level"].as_str().unwrap()
        })
        .collect()
}

async fn set_level(client: &Client, level: &str) {
    let said = client.request("logging/setLevel", json!({ "level": level })).await;
    assert_eq!(said.result(), &json!({}));
}

async fn call_at(client: &Client, level: &str) -> Said {
    client.ask_call("s__chatty", json!({})).meta(LEVEL, json!(level)).send().await.said().await
}

#[tokio::test]
async fn a_client_gets_the_lines_that_are_severe_enough() {
    for upstream in Upstream::both().await {
        chatty(&upstream);
        for (way, lines) in upstream.ways() {
            let gateway = Gateway::with("s", lines).start().await;
            let (modern, legacy) = (gateway.modern(), gateway.legacy().await);
            let era = upstream.inner.era;
            let unasked = modern.call("s__chatty", json!({})).await;
            assert_eq!(levels(&unasked), [""; 0], "{way} {era:?}");
            for (level, lines) in [
                ("debug", vec!["debug", "info", "warning", "emergency"]),
                ("notice", vec!["warning", "emergency"]),
                ("emergency", vec!["emergency"]),
            ] {
                let said = call_at(&modern, level).await;
                assert_eq!(levels(&said), lines, "{way} {era:?} {level}");
                set_level(&legacy, level).await;
                let said = legacy.call("s__chatty", json!({})).await;
                assert_eq!(levels(&said), lines, "{way} {era:?} {level}");
            }
        }
    }
}

#[tokio::test]
async fn a_legacy_client_that_asks_for_nothing_leaves_it_to_a_legacy_server() {
    let upstream = Upstream::legacy().await;
    chatty(&upstream);
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        let said = gateway.legacy().await.call("s__chatty", json!({})).await;
        assert_eq!(levels(&said), ["info", "warning", "emergency"], "{way}");
    }
    assert!(upstream.all("logging/setLevel").is_empty());
}

#[tokio::test]
async fn a_modern_server_gets_the_level_of_each_call() {
    let upstream = Upstream::modern().await;
    chatty(&upstream);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let legacy = gateway.legacy().await;
    let asked = async |at: usize| upstream.heard("tools/call", at).await.meta(LEVEL).clone();
    legacy.call("s__chatty", json!({})).await;
    assert_eq!(asked(1).await, Value::Null);
    set_level(&legacy, "error").await;
    legacy.call("s__chatty", json!({})).await;
    assert_eq!(asked(2).await, "error");
    call_at(&gateway.modern(), "alert").await;
    assert_eq!(asked(3).await, "alert");
    let other = gateway.legacy().await;
    other.call("s__chatty", json!({})).await;
    assert_eq!(asked(4).await, Value::Null, "another session");
}

#[tokio::test]
async fn a_legacy_server_gets_the_most_verbose_level_of_all_clients() {
    let upstream = Upstream::legacy().await;
    chatty(&upstream);
    for (way, lines) in upstream.ways() {
        let before = upstream.all("logging/setLevel").len();
        let gateway = Gateway::with("s", lines).start().await;
        for (level, sent) in [
            ("error", vec!["error"]),
            ("info", vec!["error", "info"]),
            ("error", vec!["error", "info"]),
            ("debug", vec!["error", "info", "debug"]),
        ] {
            call_at(&gateway.modern(), level).await;
            let told = upstream.all("logging/setLevel");
            let told: Vec<_> = told[before..].iter().map(|it| it.params["level"].clone()).collect();
            assert_eq!(told, sent, "{way} {level}");
        }
    }
}

#[tokio::test]
async fn a_level_that_is_none_is_refused() {
    let upstream = Upstream::legacy().await;
    chatty(&upstream);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let legacy = gateway.legacy().await;
    for params in [json!({ "level": "loud" }), json!({ "level": 3 }), json!({})] {
        assert_eq!(legacy.request("logging/setLevel", params.clone()).await.code(), -32602);
    }
    for level in [json!("loud"), json!("INFO"), json!(1)] {
        let ask = gateway.modern();
        let said = ask.ask_call("s__chatty", json!({})).meta(LEVEL, level).send().await;
        assert_eq!(said.said().await.code(), -32602);
    }
    assert!(upstream.calls().is_empty());
}

/// Defines a tool that waits, writes a line, and waits again.
fn held(upstream: &Upstream) {
    upstream.logs();
    upstream
        .does("held", |_| vec![Step::Hold, line("error", "hello"), Step::Hold, Step::text("done")]);
}

#[tokio::test]
async fn a_line_on_shared_pipes_goes_to_the_only_client_that_can_be_meant() {
    for upstream in Upstream::both().await {
        held(&upstream);
        let gateway = Gateway::with("s", upstream.stdio()).start().await;
        let client = gateway.legacy().await;
        set_level(&client, "debug").await;
        let calls = async {
            let call = || client.call("s__held", json!({}));
            tokio::join!(call(), call())
        };
        let release = async {
            upstream.heard("tools/call", 2).await;
            upstream.release(4);
        };
        let ((one, two), ()) = tokio::join!(calls, release);
        let lines = [levels(&one), levels(&two)].concat();
        assert_eq!(lines, ["error"; 2], "each line once");
    }
}

#[tokio::test]
async fn an_ambiguous_line_on_shared_pipes_goes_to_no_client_and_is_counted() {
    let upstream = Upstream::legacy().await;
    held(&upstream);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let (one, two) = (gateway.legacy().await, gateway.legacy().await);
    for client in [&one, &two] {
        set_level(client, "debug").await;
    }
    let quiet = async {
        upstream.heard("tools/call", 2).await;
        upstream.release(4);
    };
    let (one, two, ()) =
        tokio::join!(one.call("s__held", json!({})), two.call("s__held", json!({})), quiet);
    // The first answer leaves a single call in flight, perhaps before that call's line.
    let heard = levels(&one).len() + levels(&two).len();
    assert!(heard <= 1, "{one:?} {two:?}");
    let metrics = gateway.metrics().await;
    let lost = format!("trunkline_server_lost_log_lines_total{{server=\"s\"}} {}", 2 - heard);
    assert!(metrics.contains(&lost), "{metrics}");
}

#[tokio::test]
async fn a_client_that_wants_no_lines_gets_none_of_its_neighbour() {
    let upstream = Upstream::modern().await;
    held(&upstream);
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let (curious, quiet) = (gateway.legacy().await, gateway.modern());
    set_level(&curious, "debug").await;
    let first = async {
        upstream.heard("tools/call", 1).await;
        let second = quiet.call("s__held", json!({}));
        let release = async {
            upstream.heard("tools/call", 2).await;
            upstream.release(4);
        };
        tokio::join!(second, release).0
    };
    let (curious, quiet) = tokio::join!(curious.call("s__held", json!({})), first);
    assert_eq!(levels(&quiet), [""; 0]);
    assert!(levels(&curious).len() <= 1, "not the line of the other's call");
}
