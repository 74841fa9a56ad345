//! Servers with faults that only an operator can mend.

use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::api::PlainApi;
use crate::support::{Gateway, OauthServer, Upstream};

/// Returns the time until the next attempt at a server.
fn wait_of(server: &Value, now: &Value) -> Duration {
    let time = |value: &Value| value.as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    time(&server["next_retry_at"]).duration_since(time(now)).try_into().unwrap()
}

/// Waits until a server is failed. Returns its status and the time until the next attempt.
async fn failed(gateway: &Gateway, name: &str) -> (Value, Duration) {
    let status = gateway.wait_for(|status| status["servers"][0]["state"] == "failed").await;
    let server = gateway.server(name).await;
    let wait = wait_of(&server, &status["now"]);
    (server, wait)
}

async fn refresh(gateway: &Gateway, server: &str) -> u16 {
    gateway
        .operator()
        .http("POST", &format!("/servers/{server}/refresh"))
        .send()
        .await
        .said()
        .await
        .status
}

#[tokio::test]
async fn refused_credentials_wait_minutes_and_a_refresh_ends_the_wait() {
    for status in [401, 403] {
        let upstream = Upstream::modern().await;
        upstream.answers(Some((status, "")));
        let gateway = Gateway::with("s", upstream.http()).start().await;
        let (server, wait) = failed(&gateway, "s").await;
        assert!(wait > Duration::from_mins(1), "{server}");
        let cure = server["cure"].as_str().unwrap();
        assert!(cure.contains("credentials and reload"), "{cure}");
        assert!(cure.contains("trunkline restart s"), "{cure}");
        // Lists do not make it start.
        let requests = upstream.received().len();
        assert!(gateway.modern().tool_names().await.is_empty());
        assert_eq!(upstream.received().len(), requests, "{status}");
        // The refusal stays, so the wait begins anew.
        assert_eq!(refresh(&gateway, "s").await, 503);
        assert!(upstream.received().len() > requests, "it was tried at once");
        upstream.answers(None);
        assert_eq!(refresh(&gateway, "s").await, 200);
        let server = gateway.server("s").await;
        assert_eq!((&server["state"], &server["cure"]), (&json!("ready"), &Value::Null));
    }
}

#[tokio::test]
async fn a_document_that_no_place_gives_without_credentials_waits_minutes() {
    let api = PlainApi::start().await;
    api.demands("t");
    let lines = format!("url = \"{}\"\nkind = \"openapi\"\n", api.url(""));
    let gateway = Gateway::with("shop", lines).start().await;
    let (server, wait) = failed(&gateway, "shop").await;
    assert!(wait > Duration::from_mins(1), "{server}");
    assert!(server["cure"].as_str().unwrap().contains("credentials and reload"), "{server}");
    assert!(server["last_error"]["message"].as_str().unwrap().contains("401"), "{server}");
}

#[tokio::test]
async fn a_wrong_secret_of_the_gateway_itself_is_not_sent_again_for_minutes() {
    let server = OauthServer::before(Upstream::modern().await).await;
    let settings = "grant = \"client_credentials\"\nclient_id = \"me\"\nclient_secret = \"no\"";
    server.gives_none("invalid_client");
    let gateway = Gateway::with("s", server.lines("s", settings)).start().await;
    let (status, wait) = failed(&gateway, "s").await;
    assert!(wait > Duration::from_mins(1), "{status}");
    assert!(status["cure"].as_str().unwrap().contains("credentials and reload"), "{status}");
    assert_eq!(server.token_requests().len(), 1);
}

#[tokio::test]
async fn a_missing_program_waits_minutes_in_a_sandbox_too() {
    let lines = "command = \"no-such-program-anywhere\"\nsandbox = true\n";
    let gateway = Gateway::with("s", lines).start().await;
    let (server, wait) = failed(&gateway, "s").await;
    assert!(wait > Duration::from_mins(1), "{server}");
    assert!(server["cure"].as_str().unwrap().starts_with("install the program"), "{server}");
    // A missing working directory is another fault.
    let lines = format!("{lines}cwd = \"/no/such/folder\"\nmax_restarts = 0\n");
    let gateway = Gateway::with("s", lines).start_at_once().await;
    let (server, _) = failed(&gateway, "s").await;
    let error = server["last_error"]["message"].as_str().unwrap();
    assert!(error.contains("/no/such/folder"), "{error}");
}

#[tokio::test]
async fn a_reload_that_changes_the_credentials_ends_the_wait() {
    let upstream = Upstream::modern().await;
    upstream.guards(|received| {
        let is_known = received.header("x-api-key") == Some("right");
        (!is_known).then(|| (401, Vec::new(), String::new()))
    });
    let with_key = |key: &str| {
        let headers = format!("headers = {{ X-Api-Key = \"{key}\" }}\n");
        Gateway::with("s", upstream.http() + &headers)
    };
    let gateway = with_key("wrong").start().await;
    failed(&gateway, "s").await;
    gateway.reload(with_key("right")).await;
    gateway.ready("s").await;
}

#[tokio::test]
async fn a_program_is_started_as_soon_as_it_exists_and_calls_get_the_reason_until_then() {
    let upstream = Upstream::legacy().await;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("server");
    let lines = format!("command = {:?}\n", program.to_str().unwrap());
    let gateway = Gateway::with("s", lines).start().await;
    let (server, wait) = failed(&gateway, "s").await;
    assert!(wait > Duration::from_mins(1), "{server}");
    assert!(server["cure"].as_str().unwrap().starts_with("install the program"), "{server}");
    let draft = folder.path().join("draft");
    std::fs::write(&draft, format!("#!/bin/bash\n{}\n", upstream.program())).unwrap();
    std::fs::set_permissions(&draft, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&draft, &program).unwrap();
    gateway.ready("s").await;
    std::fs::rename(&program, &draft).unwrap();
    upstream.crash();
    let (server, _) = failed(&gateway, "s").await;
    assert_eq!(server["restarts"], 3, "a server that was ready has a second attempt: {server}");
    let began = Instant::now();
    for (era, client) in gateway.both().await {
        let said = client.call("s__echo", json!({})).await;
        assert!(said.is_error() && said.body.contains("could not be started"), "{era}: {said:?}");
    }
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    std::fs::rename(&draft, &program).unwrap();
    gateway.ready("s").await;
}
