//! A required audit log: requests that cannot be recorded are refused, and nothing is lost.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpStream, UnixSocket, UnixStream};
use trunkline::telemetry::metrics::ReloadOutcome;

use super::operations::relay_metadata;
use super::{AUDIT, KEY, auditing, counted};
use crate::support::browser::fields;
use crate::support::gateway::Builder;
use crate::support::relay::{FIXED, QUERY, Relay};
use crate::support::{
    Browser, Gateway, OauthServer, Said, Step, Upstream, client_table, json_lines, until,
    until_async,
};

/// An audit log in a folder that does not exist yet.
const LATER: &str = "[audit]\nfile = \"later/audit.jsonl\"\nrequired = true\n";

fn is_refused(said: &Said) -> bool {
    let error = &said.json()["error"];
    let message = error["message"].as_str().unwrap_or_default();
    error["code"] == 50300 && message.contains("cannot write its audit log")
}

async fn readiness(gateway: &Gateway) -> (u16, Vec<String>) {
    let said = gateway.admin("/readyz").await;
    let reasons = said.json()["reasons"].clone();
    (said.status, serde_json::from_value(reasons).unwrap())
}

/// Creates the missing folder, and waits until the log is open.
async fn open_log(gateway: &Gateway) {
    std::fs::create_dir(gateway.folder().join("later")).unwrap();
    gateway.wait_for(|status| status["audit"]["error"].is_null()).await;
}

#[tokio::test]
async fn requests_are_refused_until_they_can_be_recorded_and_no_server_sees_them() {
    let upstream = Upstream::modern().await;
    let gateway = auditing(&upstream, LATER).start().await;
    gateway.ready("s").await;
    let path = gateway.folder().join("later/audit.jsonl");
    let clients = gateway.both_as(KEY, "/mcp").await;
    for (era, client) in &clients {
        for (method, params) in [
            ("tools/call", json!({ "name": "s__echo", "arguments": {} })),
            ("tools/list", json!({})),
            ("resources/read", json!({ "uri": "x://y" })),
            ("completion/complete", json!({ "ref": { "type": "ref/prompt", "name": "p" } })),
        ] {
            let said = client.request(method, params).await;
            assert!(is_refused(&said), "{era} {method}: {said:?}");
            if client.is_modern() {
                assert_eq!((said.status, said.header("retry-after")), (503, Some("5")), "{method}");
            }
        }
    }
    assert_eq!(upstream.calls().len(), 0, "nothing was sent to the server");
    let (status, reasons) = readiness(&gateway).await;
    assert_eq!(status, 503, "another replica may serve them");
    assert!(reasons[0].contains("requests are refused"), "{reasons:?}");
    let reason = format!("audit: {}: No such file", path.display());
    assert!(reasons.iter().any(|told| told.starts_with(&reason)), "{reasons:?}");
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("trunkline_sink_up{sink=\"audit\"} 0\n"), "{metrics}");
    assert!(metrics.contains("reason=\"audit_unavailable\"}"), "{metrics}");

    open_log(&gateway).await;
    for (era, client) in &clients {
        assert!(!client.call("s__echo", json!({})).await.is_error(), "{era}");
    }
    until(|| json_lines(&path).len() == 2).await;
    assert_eq!(readiness(&gateway).await, (200, Vec::new()));
    assert_eq!(counted(&gateway.metrics().await, "dropped"), 0);
}

#[tokio::test]
async fn a_subscription_is_refused_as_a_whole_if_it_cannot_be_recorded() {
    let upstream = Upstream::modern().await;
    let gateway = auditing(&upstream, LATER).start().await;
    let client = gateway.modern().key(KEY);
    let filter = |notifications: Value| json!({ "notifications": notifications });
    let subscribed = filter(json!({ "resourceSubscriptions": ["x://y"] }));
    let said = client.ask("subscriptions/listen", subscribed).send().await.said().await;
    assert!(is_refused(&said), "{said:?}");
}

#[tokio::test]
async fn a_full_disk_refuses_calls_and_loses_no_record() {
    let upstream = Upstream::modern().await;
    let full = "[audit]\nfile = \"/dev/full\"\nrequired = true\n";
    let gateway = auditing(&upstream, full).start().await;
    let client = gateway.modern().key(KEY);
    assert!(!client.call("s__echo", json!({})).await.is_error(), "the device can be opened");
    gateway.wait_for(|status| status["audit"]["error"].is_string()).await;
    assert!(is_refused(&client.call("s__echo", json!({})).await));
    assert_eq!(upstream.calls().len(), 1);
    // An operator repairs it, with a reload.
    let repaired = auditing(&upstream, &format!("{AUDIT}required = true\n"));
    assert_eq!(gateway.reload(repaired).await, ReloadOutcome::Applied);
    assert!(!client.call("s__echo", json!({})).await.is_error());
    let path = gateway.folder().join("audit.jsonl");
    let calls = || json_lines(&path).iter().filter(|record| record["event"] == "call").count();
    until(|| calls() == 2).await;
    assert_eq!(counted(&gateway.metrics().await, "dropped"), 0);
}

#[tokio::test]
async fn calls_in_progress_keep_room_for_their_records() {
    let upstream = Upstream::modern().await;
    upstream.does("slow", |_| vec![Step::Never]);
    // Room for two records.
    let small = format!("{AUDIT}required = true\nqueue_size = \"9KiB\"\n");
    let gateway = auditing(&upstream, &small).start().await;
    let client = gateway.modern().key(KEY);
    let slow = || client.ask_call("s__slow", json!({})).send();
    let (one, two) = (slow(), slow());
    let third = async {
        upstream.heard("tools/call", 2).await;
        client.call("s__echo", json!({})).await
    };
    tokio::select! {
        _ = one => panic!("it never ends"),
        _ = two => panic!("it never ends"),
        said = third => assert!(is_refused(&said), "{said:?}"),
    }
    client.disconnect().await;
    let path = gateway.folder().join("audit.jsonl");
    until(|| json_lines(&path).len() == 2).await;
    let client = gateway.modern().key(KEY);
    assert!(!client.call("s__echo", json!({})).await.is_error(), "the room is free again");
    assert_eq!(counted(&gateway.metrics().await, "dropped"), 0);
}

#[tokio::test]
async fn calls_of_a_tool_of_the_gateway_itself_are_refused_one_by_one() {
    let upstream = Upstream::modern().await;
    let own = "[tools.both]\n[tools.both.calls.echo]\ntool = \"s__echo\"\n";
    let small = format!("{AUDIT}required = true\nqueue_size = \"4KiB\"\n");
    let gateway = auditing(&upstream, &small).toml(own).start().await;
    gateway.ready("s").await;
    // The outer call has the only room.
    let said = gateway.modern().key(KEY).call("both", json!({})).await;
    assert!(said.is_error() || is_refused(&said), "{said:?}");
    assert_eq!(upstream.calls().len(), 0);
}

#[tokio::test]
async fn logins_are_refused_but_access_can_be_ended_and_the_gateway_reloaded() {
    let gateway = Gateway::alone().toml(LATER).start().await;
    let browser = Browser::of(&gateway);
    for path in ["/connect", "/connect/link?ticket=t", "/oauth/callback?code=c&state=s"] {
        assert_eq!(browser.opens(path).await.status, 503, "{path}");
    }
    for path in ["/connect/revoke", "/connect/leave"] {
        assert_eq!(browser.sends(path, &[("form_key", "k")]).await.status, 403, "{path}");
    }
    let relay = Relay::start(FIXED, relay_metadata, |builder| builder.toml(LATER)).await;
    let relayed = Browser::of(&relay.gateway);
    assert_eq!(relayed.opens(&format!("/login/idp/authorize?{QUERY}")).await.status, 503);
    assert!(relay.issuer.api.calls("/token").is_empty());
    let optional: Builder = Gateway::alone().toml("[audit]\nfile = \"audit.jsonl\"\n");
    assert_eq!(gateway.reload(optional).await, ReloadOutcome::Applied);
    assert_eq!(browser.opens("/connect").await.status, 200);
}

#[tokio::test]
async fn a_reload_to_a_required_log_that_cannot_be_opened_is_rejected() {
    let upstream = Upstream::modern().await;
    let gateway = auditing(&upstream, AUDIT).start().await;
    assert_eq!(gateway.reload(auditing(&upstream, LATER)).await, ReloadOutcome::Rejected);
    let fault = gateway.status().await["configuration"]["last_reload"]["faults"][0].clone();
    let fault = fault.as_str().unwrap();
    assert!(fault.contains("audit.file: ") && fault.contains("later/audit.jsonl"), "{fault}");
    assert!(!gateway.modern().key(KEY).call("s__echo", json!({})).await.is_error());
}

#[tokio::test]
async fn a_reload_to_a_required_log_whose_receiver_does_not_answer_is_rejected() {
    let upstream = Upstream::modern().await;
    let gateway = auditing(&upstream, AUDIT).start().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let remote = format!("[audit]\nsyslog = \"tcp://{closed}\"\nrequired = true\n");
    assert_eq!(gateway.reload(auditing(&upstream, &remote)).await, ReloadOutcome::Rejected);
    let status = gateway.status().await;
    let fault = status["configuration"]["last_reload"]["faults"][0].as_str().unwrap();
    assert!(fault.contains("audit.syslog: ") && fault.contains("cannot be written"), "{fault}");
    // The running log goes on.
    let path = gateway.folder().join("audit.jsonl");
    assert!(!gateway.modern().key(KEY).call("s__echo", json!({})).await.is_error());
    until(|| json_lines(&path).iter().any(|record| record["event"] == "call")).await;
    let is_rejected =
        |record: &Value| record["operation"] == "reload" && record["outcome"] == "failed";
    until(|| json_lines(&path).iter().any(is_rejected)).await;
    assert_eq!(counted(&gateway.metrics().await, "dropped"), 0);
    // An optional log is taken: it may be mended later.
    let optional = remote.replace("required = true", "");
    assert_eq!(gateway.reload(auditing(&upstream, &optional)).await, ReloadOutcome::Applied);
}

/// The receiver's queue of connections is full, so that another one waits.
#[tokio::test]
async fn calls_are_served_while_a_reload_waits_for_the_sink_of_a_required_log() {
    let upstream = Upstream::modern().await;
    let gateway = auditing(&upstream, "").start().await;
    let path = gateway.folder().join("stuck");
    let socket = UnixSocket::new_stream().unwrap();
    socket.bind(&path).unwrap();
    let receiver = socket.listen(0).unwrap();
    let waiting = UnixStream::connect(&path).await.unwrap();
    let stuck = format!("[audit]\nsyslog = \"unix:{}\"\nrequired = true\n", path.display());
    let client = gateway.modern().key(KEY);
    let calls = async {
        loop {
            let said = client.call("s__echo", json!({})).await;
            assert!(!said.is_error() && !is_refused(&said), "{said:?}");
        }
    };
    tokio::select! {
        outcome = gateway.reload(auditing(&upstream, &stuck)) => {
            assert_eq!(outcome, ReloadOutcome::Rejected);
        }
        () = calls => {}
    }
    let status = gateway.status().await;
    let fault = status["configuration"]["last_reload"]["faults"][0].as_str().unwrap();
    assert!(fault.contains("does not answer within 2s"), "{fault}");
    drop((receiver, waiting));
}

#[tokio::test]
async fn a_relayed_login_keeps_room_for_its_record() {
    let small = format!("{AUDIT}required = true\nqueue_size = \"4KiB\"\n");
    let relay = Relay::start(FIXED, relay_metadata, |builder| builder.toml(&small)).await;
    let mut socket = TcpStream::connect(relay.gateway.running.address).await.unwrap();
    let begun = "POST /login/idp/token HTTP/1.1\r\nhost: localhost\r\n\
        content-type: application/x-www-form-urlencoded\r\ncontent-length: 9\r\n\r\na=";
    socket.write_all(begun.as_bytes()).await.unwrap();
    let browser = Browser::of(&relay.gateway);
    let path = format!("/login/idp/authorize?{QUERY}");
    // The unfinished request has the only room.
    until_async(async || browser.opens(&path).await.status == 503).await;
    drop(socket);
    until_async(async || browser.opens(&path).await.status != 503).await;
}

#[tokio::test]
async fn the_response_to_a_login_keeps_room_for_its_record() {
    let small = format!("{AUDIT}required = true\nqueue_size = \"4KiB\"\n");
    let gateway = Gateway::alone().toml(&small).start().await;
    let mut socket = TcpStream::connect(gateway.running.address).await.unwrap();
    let begun = "GET /oauth/callback?code=c&state=s HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\na=";
    socket.write_all(begun.as_bytes()).await.unwrap();
    let browser = Browser::of(&gateway);
    until_async(async || browser.opens("/connect").await.status == 503).await;
    drop(socket);
    until_async(async || browser.opens("/connect").await.status == 200).await;
}

#[tokio::test]
async fn a_login_that_begins_on_the_page_of_connections_keeps_room_for_its_record() {
    let server = OauthServer::before(Upstream::modern().await).await;
    let small = format!("{AUDIT}required = true\nqueue_size = \"4KiB\"\n");
    let gateway = Gateway::with("s", server.lines("s", ""))
        .toml(&client_table("ann", KEY, ""))
        .toml(&small)
        .start()
        .await;
    gateway.in_state("s", "login").await;
    let client = gateway.plain().key(KEY);
    let visit = async || client.http("POST", "/connect").send().await.said().await;
    until_async(async || visit().await.status == 200).await;
    let person = Browser::of(&gateway);
    // Each page needs the only room, which earlier records may still use.
    until_async(async || person.opens("/connect").await.status != 503).await;
    let link = visit().await.json()["link"].as_str().unwrap().to_owned();
    until_async(async || person.opens("/connect").await.status != 503).await;
    person.agrees(&link).await;
    let form = fields(&person.opens("/connect").await.body);
    let form: Vec<_> = form.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(person.sends("/connect/start", &form).await.status, 303);
    let path = gateway.folder().join("audit.jsonl");
    let is_link = |record: &Value| {
        let (server, owner) = (&record["server"], &record["principal"]);
        record["operation"] == "login_link" && *server == "s" && *owner == "ann"
    };
    let is_recorded = || json_lines(&path).iter().any(is_link);
    until_async(async || is_recorded() || counted(&gateway.metrics().await, "dropped") > 0).await;
    assert!(is_recorded(), "{:#?}", json_lines(&path));
}
