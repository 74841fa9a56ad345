//! Endpoints for operators: `/healthz`, `/readyz`, `/status` and `/metrics`.

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::{Gateway, Step, Upstream, every_kind, within};

#[tokio::test]
async fn the_status_tells_all_of_every_server() {
    let kinds = every_kind().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let status = gateway.status().await;
    assert_eq!((&status["state"], &status["catalog"]["tools"]), (&json!("ready"), &json!(16)));
    let configuration = &status["configuration"];
    assert_eq!(configuration["generation"], 1);
    assert!(configuration["path"].as_str().unwrap().ends_with("gateway.toml"));
    assert_eq!(configuration["digest"].as_str().unwrap().len(), 64);
    for (server, kind) in status["servers"].as_array().unwrap().iter().zip(&kinds) {
        let (era, way) = kind.name.split_once('-').unwrap();
        let version = if era == "modern" { "2026-07-28" } else { "2025-11-25" };
        assert_eq!(server["name"], kind.name);
        assert_eq!((&server["era"], &server["transport"]), (&json!(era), &json!(way)));
        assert_eq!(
            (&server["protocol_version"], &server["state"]),
            (&json!(version), &json!("ready"))
        );
        assert_eq!(server["server_info"], json!({ "name": "scripted", "version": "1.2.3" }));
        assert_eq!(
            (&server["tools"], &server["restarts"], &server["in_flight"]),
            (&json!(4), &json!(0), &json!(0))
        );
        assert_eq!(server["pid"].is_u64(), way == "stdio");
        assert_eq!(server["last_error"], json!(null));
    }
}

#[tokio::test]
async fn calls_in_flight_sessions_and_streams_are_counted() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    let (modern, legacy) = (gateway.modern(), gateway.legacy().await);
    let stream = modern.listen().await;
    let call = legacy.call("s__hold", json!({}));
    let look = async {
        upstream.heard("tools/call", 1).await;
        let status = gateway.status().await;
        assert_eq!((&status["sessions"], &status["streams"]), (&json!(1), &json!(1)));
        assert_eq!(status["servers"][0]["in_flight"], 1);
        upstream.release(1);
    };
    tokio::join!(call, look);
    drop(stream);
    gateway
        .wait_for(|status| status["servers"][0]["in_flight"] == 0 && status["streams"] == 0)
        .await;
}

#[tokio::test]
async fn the_gateway_is_ready_when_some_server_is() {
    let upstream = Upstream::modern().await;
    let down = "command = \"no-such-program-anywhere\"";
    for (builder, status) in [
        (Gateway::alone(), 200),
        (Gateway::with("s", upstream.http()), 200),
        (Gateway::with("s", upstream.http()).server("d", down), 200),
        (Gateway::with("d", down), 503),
        (Gateway::with("s", upstream.stdio() + "start = \"lazy\""), 200),
    ] {
        let text = builder.text();
        let gateway = builder.start().await;
        let said = gateway.admin("/readyz").await;
        assert_eq!(said.status, status, "{text} {said:?}");
        assert_eq!(said.json()["ready"], status == 200);
        assert_eq!(gateway.admin("/healthz").await.status, 200);
    }
}

#[tokio::test]
async fn a_rejected_reload_is_a_reason_and_the_gateway_stays_ready() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let text = Gateway::with("s", upstream.http()).text();
    assert_eq!(
        gateway.reload_text(&format!("{text}x = 1\ny = 2\n")).await,
        ReloadOutcome::Rejected
    );
    let ready = gateway.admin("/readyz").await;
    let reasons = ready.json()["reasons"].clone();
    assert_eq!((ready.status, reasons.as_array().map(Vec::len)), (200, Some(1)), "{reasons}");
    let reason = reasons[0].as_str().unwrap();
    assert!(reason.starts_with("configuration: the reload at "), "{reason}");
    assert!(reason.ends_with(" was rejected, it has 2 faults: see /status"), "{reason}");
    assert_eq!(gateway.reload_text(&text).await, ReloadOutcome::Unchanged);
    assert_eq!(gateway.admin("/readyz").await.json()["reasons"], json!([]));
}

/// Sends requests over one connection, and returns everything that comes back.
async fn exchange(gateway: &Gateway, requests: &[(&str, &str)]) -> String {
    let text = |(start, headers): &(&str, &str)| format!("{start} HTTP/1.1\r\n{headers}\r\n");
    exchange_raw(gateway, &requests.iter().map(text).collect::<String>()).await
}

/// Sends this text to the admin listener, and returns everything that it answers.
async fn exchange_raw(gateway: &Gateway, requests: &str) -> String {
    let mut socket = TcpStream::connect(gateway.running.admin.unwrap()).await.unwrap();
    socket.write_all(requests.as_bytes()).await.unwrap();
    let mut answers = String::new();
    within(socket.read_to_string(&mut answers)).await.unwrap();
    answers
}

#[tokio::test]
async fn probes_answer_any_host_with_a_code_alone() {
    let down = "command = \"no-such-program-anywhere\"";
    let upstream = Upstream::modern().await;
    for (builder, code) in [
        (Gateway::with("s", upstream.http()).server("d", down), "200 OK"),
        (Gateway::with("d", down), "503 Service Unavailable"),
    ] {
        let gateway = builder.start().await;
        for host in ["10.1.2.3:8081", "gateway.example.com", "localhost"] {
            let headers = format!("Host: {host}\r\nConnection: close\r\n");
            let ready = exchange(&gateway, &[("GET /readyz", headers.as_str())]).await;
            assert!(ready.starts_with(&format!("HTTP/1.1 {code}\r\n")), "{host}: {ready}");
            assert_eq!(ready.contains("reasons"), host == "localhost", "{host}: {ready}");
            assert_eq!(ready.contains("d: "), host == "localhost", "{host}: {ready}");
            for probe in ["HEAD /readyz", "GET /healthz", "HEAD /healthz"] {
                let answer = exchange(&gateway, &[(probe, headers.as_str())]).await;
                let code = if probe.ends_with("healthz") { "200 OK" } else { code };
                assert!(answer.starts_with(&format!("HTTP/1.1 {code}\r\n")), "{host}: {answer}");
            }
        }
        // The probe of a load balancer that speaks HTTP/1.0, without a Host header.
        for (path, code) in [("/readyz", code), ("/healthz", "200 OK")] {
            let answer = exchange_raw(&gateway, &format!("GET {path} HTTP/1.0\r\n\r\n")).await;
            assert!(answer.starts_with(&format!("HTTP/1.0 {code}\r\n")), "{path}: {answer}");
            assert!(!answer.contains("reasons"), "{path}: {answer}");
        }
        let answer = exchange_raw(&gateway, "GET /status HTTP/1.0\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.0 400"), "{answer}");
    }
}

#[tokio::test]
async fn nothing_but_a_probe_is_answered_for_a_foreign_host() {
    let gateway = Gateway::alone().start().await;
    let foreign = "Host: 10.1.2.3:8081\r\n";
    let last = "Host: 10.1.2.3:8081\r\nConnection: close\r\n";
    for path in ["/", "/status", "/metrics", "/tools", "/definitions", "/readyz/", "/healthz/x"] {
        let request = format!("GET {path}");
        let answers =
            exchange(&gateway, &[("GET /healthz", foreign), (request.as_str(), last)]).await;
        let codes: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|rest| &rest[..3]).collect();
        assert_eq!(codes, ["200", "403"], "{path}: {answers}");
    }
    let origin = format!("{last}Origin: http://evil.example.com\r\n");
    let own = format!("{last}Origin: http://10.1.2.3:8081\r\n");
    let two = format!("{last}Host: localhost\r\n");
    for (start, headers, code) in [
        ("POST /readyz", last, "403"),
        ("OPTIONS /readyz", last, "403"),
        ("GET /readyz", origin.as_str(), "403"),
        ("GET /readyz", own.as_str(), "403"),
        ("GET /readyz", two.as_str(), "400"),
        ("GET /readyz", "Connection: close\r\n", "400"),
        ("GET /readyz", "Host: a b\r\nConnection: close\r\n", "400"),
    ] {
        let answer = exchange(&gateway, &[(start, headers)]).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {code}")), "{start} {headers}: {answer}");
    }
}

#[tokio::test]
async fn calls_and_servers_stand_in_the_metrics() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http())
        .server("d", "command = \"no-such-program-anywhere\"")
        .start()
        .await;
    for (_, client) in gateway.both().await {
        client.call("s__echo", json!({})).await.text();
        client.call("s__fail", json!({})).await.text();
        client.call("s__nope", json!({})).await.code();
    }
    let metrics = gateway.metrics().await;
    assert!(metrics.ends_with("# EOF\n"));
    let line = |parts: &[&str]| {
        let found = metrics.lines().find(|line| parts.iter().all(|part| line.contains(part)));
        found.unwrap_or_else(|| panic!("{parts:?} in\n{metrics}")).to_owned()
    };
    for (parts, count) in [
        (&["trunkline_tool_calls_total{", "tool=\"echo\"", "outcome=\"ok\""][..], " 2"),
        (&["trunkline_tool_calls_total{", "tool=\"fail\"", "outcome=\"tool_error\""], " 2"),
        (&["trunkline_errors_total{", "reason=\"unknown_tool\""], " 2"),
        (&["mcp_server_operation_duration_seconds_count{", "outcome=\"ok\""], " 2"),
    ] {
        assert!(line(parts).ends_with(count), "{parts:?} in\n{metrics}");
    }
    assert!(!metrics.contains("nope"), "a client cannot make series: {metrics}");
}

#[tokio::test]
async fn secrets_stand_nowhere() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with(
        "s",
        upstream.http() + "headers = { Authorization = \"Bearer ${env:TOKEN}\" }",
    )
    .server("c", upstream.stdio() + "env = { TOKEN = \"${env:TOKEN}\" }")
    .variable("TOKEN", "hush-hush")
    .start()
    .await;
    gateway.modern().call("s__echo", json!({})).await.text();
    assert_eq!(upstream.calls()[0].header("authorization"), Some("Bearer hush-hush"));
    let seen = [gateway.status().await.to_string(), gateway.metrics().await];
    assert!(seen.iter().all(|text| !text.contains("hush")), "{seen:?}");
}

#[tokio::test]
async fn the_status_counts_lines_on_standard_output() {
    let upstream = Upstream::legacy().await;
    upstream.does("print", |_| {
        vec![Step::SendText("hello".into()), Step::SendText("[1] world".into()), Step::text("done")]
    });
    let gateway = Gateway::with("s", upstream.stdio()).start().await;
    assert_eq!(gateway.server("s").await["stdout_lines"], 0);
    assert_eq!(gateway.modern().call("s__print", json!({})).await.text(), "done");
    assert_eq!(gateway.server("s").await["stdout_lines"], 2);
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("trunkline_server_stdout_lines_total{server=\"s\"} 2"), "{metrics}");
}
