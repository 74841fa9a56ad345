//! Secrets of the configuration that would reach logs, status pages and web pages.

use std::sync::Arc;

use serde_json::json;
use tempfile::NamedTempFile;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::support::{Gateway, Step, Upstream, client_table};

const SECRETS: [&str; 4] = ["hunter2-env", "hunter2-arg", "hunter2-literal", "hunter2-part"];

#[tokio::test]
async fn secrets_that_a_child_repeats_are_on_no_page() {
    let script = "for value in \\\"$KEY\\\" \\\"$LITERAL\\\" \\\"$PART\\\" \\\"$0\\\"; do echo \\\"key $value\\\"; \
                  echo \\\"key $value\\\" >&2; done; \
                  echo \\\"all $KEY $LITERAL ${PART#*:} $0\\\" >&2; exit 3";
    let script = script.replace("${", "$${");
    let lines = format!(
        "command = \"sh\"\nargs = [\"-c\", \"{script}\", \"${{env:ARG}}\"]\nmax_restarts = 0\n\
         env = {{ KEY = \"${{env:KEY}}\", LITERAL = \"hunter2-literal\", PART = \"user:${{env:PART}}\" }}"
    );
    let gateway = Gateway::with("s", lines)
        .variable("KEY", "hunter2-env")
        .variable("ARG", "hunter2-arg")
        .variable("PART", "hunter2-part")
        .start()
        .await;
    let status = gateway.wait_for(|status| !status["servers"][0]["last_error"].is_null()).await;
    let error = status["servers"][0]["last_error"]["message"].as_str().unwrap().to_owned();
    assert!(error.contains("its last line was: all *** *** *** ***"), "{error}");
    let ready = gateway.admin("/readyz").await;
    assert!(!ready.body.contains("line"), "not even the line itself: {}", ready.body);
    for page in [status.to_string(), ready.body, gateway.metrics().await] {
        assert!(SECRETS.iter().all(|secret| !page.contains(secret)), "{page}");
    }
}

#[tokio::test]
async fn secrets_that_an_http_server_repeats_are_on_no_page() {
    let upstream = Upstream::legacy().await;
    upstream.when_asked("initialize", |_| {
        vec![Step::Error(json!({ "code": -32000, "message": "no token hunter2-header" }))]
    });
    let lines = upstream.http() + "headers = { Authorization = \"Bearer hunter2-header\" }\n";
    let gateway = Gateway::with("s", lines).start().await;
    let status = gateway.wait_for(|status| !status["servers"][0]["last_error"].is_null()).await;
    let error = status["servers"][0]["last_error"]["message"].as_str().unwrap().to_owned();
    assert!(error.contains("no token ***"), "{error}");
    assert!(!status.to_string().contains("hunter2"), "{status}");
}

/// Captures the log about servers of all gateways in this process, from now on.
fn log_of_servers() -> NamedTempFile {
    let log = NamedTempFile::new().unwrap();
    let writer = Arc::new(log.reopen().unwrap());
    let layer = tracing_subscriber::fmt::layer().with_ansi(false).with_writer(writer);
    let only = Targets::new().with_target("trunkline::upstream", LevelFilter::DEBUG);
    tracing_subscriber::registry().with(layer.with_filter(only)).init();
    log
}

#[tokio::test]
async fn secrets_that_an_http_server_repeats_are_in_no_line_of_the_log() {
    const ENCODED: &str = "dXNlcjpodW50ZXIyLWJhc2lj";
    let log = log_of_servers();
    for era in Upstream::both().await {
        let upstream = era.offers_everything();
        upstream.when_asked("prompts/list", |_| {
            let message = format!("no prompts for {ENCODED}");
            vec![Step::Error(json!({ "code": -32000, "message": message }))]
        });
        upstream.does("typed", |_| {
            vec![Step::Status(200, vec![("content-type", "text/hunter2-basic".into())], "".into())]
        });
        upstream.does("moved", |_| {
            let to = "https://elsewhere.example/?key=user%3Ahunter2-basic".to_owned();
            vec![Step::Status(307, vec![("location", to)], "".into())]
        });
        let lines =
            upstream.http() + &format!("headers = {{ Authorization = \"Basic {ENCODED}\" }}");
        let gateway = Gateway::with("s", lines).start().await;
        for tool in ["s__typed", "s__moved"] {
            gateway.modern().call(tool, json!({})).await;
        }
        let status = gateway.status().await.to_string();
        assert!(status.contains("no prompts for ***"), "{status}");
        assert!(!status.contains("hunter2") && !status.contains(ENCODED), "{status}");
    }
    let log = std::fs::read_to_string(log.path()).unwrap();
    for line in ["no prompts for ***", "text/***", "elsewhere.example/?key=***"] {
        assert!(log.contains(line), "{line} is not in {log}");
    }
    assert!(!log.contains("hunter2-basic") && !log.contains(ENCODED), "{log}");
}

#[tokio::test]
async fn a_web_page_reads_the_admin_pages_only_if_it_is_named() {
    let named = "http://console.example.com";
    let builder = || Gateway::alone().toml(&client_table("ops", "ops-key", "role = \"viewer\""));
    let text = builder().text();
    let text = text.replace("[admin]\n", &format!("[admin]\nallowed_origins = [\"{named}\"]\n"));
    let gateway = builder().start().await;
    let origins = ["http://localhost:3000", "http://127.0.0.1:3000", named, "null"];
    for allowed in [None, Some(named)] {
        if allowed.is_some() {
            gateway.reload_text(&text).await;
        }
        for origin in origins {
            let client = gateway.remote_operator().key("ops-key");
            let reply = client.http("GET", "/status").header("origin", origin).send().await;
            let may = allowed == Some(origin);
            assert_eq!(reply.status(), if may { 200 } else { 403 }, "{origin}");
            let shown = reply.header("access-control-allow-origin");
            assert_eq!(shown.as_deref(), allowed.filter(|_| may), "{origin}");
        }
    }
}
