//! Clients with keys: their admission, identity and sessions.

use std::time::Duration;

use futures_util::FutureExt as _;
use jiff::Timestamp;
use serde_json::json;

use crate::support::client::{Ask, Client};
use crate::support::gateway::{Builder, key_digest};
use crate::support::upstream::MOMENT;
use crate::support::{Gateway, Said, Step, Upstream, client_table, every_kind, within};

const CI: &str = "key-of-ci";
const DESK: &str = "key-of-desk";

fn two_clients(builder: Builder) -> Builder {
    builder.toml(&client_table("ci", CI, "")).toml(&client_table("desk", DESK, ""))
}

#[track_caller]
fn is_refused(said: &Said, label: &str) {
    assert_eq!((said.status, said.code()), (401, 40_100), "{said:?}");
    let challenge = said.header("www-authenticate").expect("a challenge");
    assert!(challenge.starts_with("Bearer "), "{challenge}");
    assert_eq!(challenge.contains("invalid_token"), label != "key_missing", "{challenge}");
    let sentence = said.error()["message"].as_str().unwrap();
    assert!(challenge.ends_with(&format!(", error_description=\"{sentence}\"")), "{challenge}");
    assert!(!sentence.contains(['"', '\\']), "it needs no escapes");
    assert!(said.answer()["id"].is_null(), "nothing of the body was looked at");
}

#[tokio::test]
async fn a_client_without_a_valid_key_is_refused_at_every_endpoint() {
    let upstream = Upstream::modern().await;
    let gateway = two_clients(Gateway::with("s", upstream.http())).start().await;
    for (key, label) in [(None, "key_missing"), (Some("wrong"), "key_unknown")] {
        let as_client = |client: Client| match key {
            Some(key) => client.key(key),
            None => client,
        };
        let modern = as_client(gateway.modern());
        is_refused(&modern.call("s__echo", json!({})).await, label);
        is_refused(&modern.request("server/discover", json!({})).await, label);
        is_refused(&modern.ask("tools/list", json!({})).body("{").send().await.said().await, label);
        let plain = as_client(gateway.plain());
        is_refused(&plain.initialize("2025-11-25").await.said().await, label);
        is_refused(
            &plain.ask("notifications/x", json!({})).notification().send().await.said().await,
            label,
        );
        for method in ["GET", "DELETE", "PUT"] {
            let ask = plain.http(method, "/mcp").header("mcp-session-id", "x");
            is_refused(&ask.send().await.said().await, label);
        }
    }
    assert_eq!(upstream.calls().len(), 0);
    let metrics = gateway.metrics().await;
    for reason in ["key_missing", "key_unknown"] {
        let counted = metrics.lines().find(|line| line.contains(&format!("reason=\"{reason}\"")));
        assert!(counted.is_some_and(|line| line.ends_with(" 8")), "{reason}: {counted:?}");
    }
}

#[tokio::test]
async fn a_key_is_refused_from_its_end_on_and_its_streams_end() {
    let upstream = Upstream::modern().await;
    let end = Timestamp::now() + Duration::from_secs(2);
    let keys = format!("{{ hash = \"{}\", expires = {end} }}", key_digest(CI));
    let clients = format!("[clients.ci]\nkey = \"{}\"\nkeys = [{keys}]\n", key_digest(DESK));
    let gateway = Gateway::with("s", upstream.http()).toml(&clients).start().await;
    let [(_, modern), (_, legacy)] = gateway.both_as(CI, "/mcp").await;
    let mut streams = vec![modern.listen().await, legacy.listen().await];
    let mut lasting = gateway.modern().key(DESK).listen().await;
    for stream in &mut streams {
        within(async { while stream.message().await.is_some() {} }).await;
    }
    assert!(Timestamp::now() >= end);
    is_refused(&modern.call("s__echo", json!({})).await, "key_expired");
    is_refused(&legacy.call("s__echo", json!({})).await, "key_expired");
    let with_other_key = legacy.key(DESK);
    assert_eq!(with_other_key.call("s__echo", json!({})).await.text(), "{}", "the same session");
    assert_eq!(lasting.message().now_or_never(), None, "the other key's stream is open");
    let status = gateway.status().await;
    let keys = status["clients"][0]["keys"].as_array().unwrap();
    assert_eq!((&keys[0]["expires_at"], keys.len()), (&json!(null), 2));
    assert_eq!(keys[1]["expires_at"], json!(end));
    assert!(keys.iter().all(|key| key["last_used_at"].is_string()), "{keys:?}");
}

#[tokio::test]
async fn a_key_opens_every_door_and_goes_on_to_no_server() {
    let upstream = Upstream::modern().await;
    let lines = upstream.http() + "forward_headers = [\"Authorization\"]";
    let gateway = two_clients(Gateway::with("s", lines)).start().await;
    for (era, client) in gateway.both_as(CI, "/mcp").await {
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}");
        assert!(client.tool_names().await.contains(&"s__echo".to_owned()), "{era}");
        client.listen().await;
        assert_eq!(upstream.calls().pop().unwrap().header("authorization"), None, "{era}");
        // The other header is then available for the server's own credentials.
        let ask = client.ask_call("s__echo", json!({}));
        let ask = ask.header("authorization", "Bearer for-the-server").header("x-api-key", CI);
        assert_eq!(ask.send().await.said().await.text(), "{}", "{era}");
        let sent = upstream.calls().pop().unwrap();
        assert_eq!(sent.header("authorization"), Some("Bearer for-the-server"), "{era}");
        assert_eq!(sent.header("x-api-key"), None, "{era}");
    }
    let received = format!("{:?}", upstream.received());
    assert!(!received.contains(CI), "{received}");
}

#[tokio::test]
async fn a_session_is_not_there_for_anybody_else() {
    let upstream = Upstream::legacy().await;
    let gateway = two_clients(Gateway::with("s", upstream.http())).start().await;
    let [_, (_, ours)] = gateway.both_as(CI, "/mcp").await;
    let theirs = gateway.plain().key(DESK).becomes(ours.kind());
    let lost = |said: &Said| assert_eq!((said.status, said.code()), (404, -32600), "{said:?}");
    lost(&theirs.call("s__echo", json!({})).await);
    lost(&theirs.get_stream().send().await.said().await);
    lost(&theirs.http("DELETE", "/mcp").of_session().send().await.said().await);
    assert_eq!(ours.call("s__echo", json!({})).await.text(), "{}", "it is still there");
}

#[tokio::test]
async fn each_client_has_a_rate_of_its_own_and_wrong_keys_count_by_address() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http())
        .gateway("client_rate = \"2/h\"")
        .toml(&client_table("ci", CI, "rate = \"3/h\""))
        .toml(&client_table("desk", DESK, ""))
        .start()
        .await;
    for (key, name, count) in [(CI, "client:ci", 3), (DESK, "client:desk", 2)] {
        let client = gateway.modern().key(key);
        for _ in 0..count {
            client.call("s__echo", json!({})).await.text();
        }
        let over = client.call("s__echo", json!({})).await;
        assert_eq!((over.status, &over.error()["data"]["limit"]), (429, &json!(name)), "{over:?}");
    }
    let stranger = gateway.modern().key("wrong");
    for status in [401, 401, 429] {
        assert_eq!(stranger.call("s__echo", json!({})).await.status, status);
    }
}

#[tokio::test]
async fn a_client_that_a_reload_takes_away_loses_all_it_has_and_the_others_nothing() {
    let upstream = Upstream::modern().await;
    upstream.does("begin", |_| vec![Step::Progress(1), Step::Never]);
    let gateway = two_clients(Gateway::with("s", upstream.http())).start().await;
    let [(_, modern), (_, legacy)] = gateway.both_as(CI, "/mcp").await;
    let [(_, other), (_, other_legacy)] = gateway.both_as(DESK, "/mcp").await;
    let mut others = [other.listen().await, other_legacy.listen().await];
    let mut streams = vec![modern.listen().await, legacy.listen().await];
    for client in [&modern, &legacy] {
        let mut call = client.ask_call("s__begin", json!({})).token(json!(1)).send().await;
        call.message().await.expect("progress");
        streams.push(call);
    }
    let new = Gateway::with("s", upstream.http())
        .toml(&client_table("desk", DESK, ""))
        .toml(&client_table("new", "key-of-new", ""));
    gateway.reload(new).await;
    for mut stream in streams {
        within(async { while stream.message().await.is_some() {} }).await;
    }
    is_refused(&modern.call("s__echo", json!({})).await, "key_unknown");
    is_refused(&legacy.call("s__echo", json!({})).await, "key_unknown");
    within(async {
        while gateway.status().await["sessions"] != 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for client in [other, other_legacy, gateway.modern().key("key-of-new")] {
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
    }
    // Its streams continue: they receive the next change.
    gateway.reload(two_clients(Gateway::with("t", upstream.http()))).await;
    for stream in &mut others {
        assert!(stream.message().await.is_some());
    }
}

#[tokio::test]
async fn one_key_takes_the_place_of_another_without_a_gap() {
    let upstream = Upstream::modern().await;
    upstream.does("begin", |_| vec![Step::Progress(1), Step::Hold, Step::text("done")]);
    let with = |keys: &[&str]| {
        let keys: Vec<_> = keys.iter().map(|key| key_digest(key)).collect();
        Gateway::with("s", upstream.http()).toml(&format!("[clients.ci]\nkeys = {keys:?}\n"))
    };
    let gateway = with(&["old"]).start().await;
    let [(_, modern), (_, legacy)] = gateway.both_as("old", "/mcp").await;
    let mut streams = vec![modern.listen().await, legacy.listen().await];
    gateway.reload(with(&["old", "new"])).await;
    assert_eq!(legacy.call("s__echo", json!({})).await.text(), "{}");
    let mut call = legacy.ask_call("s__begin", json!({})).token(json!(1)).send().await;
    call.message().await.expect("progress");
    streams.push(call);
    gateway.reload(with(&["new"])).await;
    for stream in &mut streams {
        within(async { while stream.message().await.is_some() {} }).await;
    }
    is_refused(&legacy.call("s__echo", json!({})).await, "key_unknown");
    let renewed = gateway.plain().key("new").becomes(legacy.kind());
    assert_eq!(
        renewed.call("s__echo", json!({})).await.text(),
        "{}",
        "the session is the client's"
    );
}

#[tokio::test]
async fn the_first_client_ends_sessions_of_anonymous_callers() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let [(_, modern), (_, legacy)] = gateway.both().await;
    let mut streams = [modern.listen().await, legacy.listen().await];
    gateway.reload(two_clients(Gateway::with("s", upstream.http()))).await;
    for stream in &mut streams {
        assert!(stream.message().await.is_none());
    }
    is_refused(&legacy.call("s__echo", json!({})).await, "key_missing");
    // And no other client inherits their sessions.
    let heir = gateway.plain().key(CI).becomes(legacy.kind());
    assert_eq!(heir.call("s__echo", json!({})).await.status, 404);
}

/// Defines a tool of a Legacy server that asks for a name and waits for it.
fn asks(upstream: &Upstream) {
    let form = json!({
        "mode": "form",
        "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {} },
    });
    upstream.does("ask", move |_| {
        vec![
            Step::Ask("who", "elicitation/create", form.clone()),
            Step::Await("who"),
            Step::Answers,
        ]
    });
}

fn ask(client: &Client) -> Ask<'_> {
    let able = json!({ "elicitation": { "form": {} } });
    let ask = client.ask_call("s__ask", json!({}));
    ask.meta("io.modelcontextprotocol/clientCapabilities", able)
}

/// Makes a call that waits for its client. Returns the retry that would end it.
async fn parked(client: &Client) -> impl Fn(&Client) -> Ask<'_> + use<> {
    let said = ask(client).send().await.said().await;
    let result = said.result().clone();
    assert_eq!(result["resultType"], "input_required", "{said:?}");
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let answers = json!({ key: { "action": "accept", "content": {} } });
    let state = result["requestState"].clone();
    move |client: &Client| {
        ask(client).param("inputResponses", answers.clone()).param("requestState", state.clone())
    }
}

#[tokio::test]
async fn no_client_answers_for_another_or_at_another_url() {
    let upstream = Upstream::legacy().await;
    asks(&upstream);
    let gateway =
        two_clients(Gateway::with("s", upstream.stdio())).toml("[profiles.other]\n").start().await;
    let client = gateway.modern().key(CI);
    let retry = parked(&client).await;
    for other in [gateway.modern().key(DESK), gateway.modern().key(CI).at("/mcp/other")] {
        let said = retry(&other).send().await.said().await;
        assert_eq!(said.code(), -32602, "{said:?}");
    }
    let said = retry(&client).send().await.said().await;
    assert!(said.text().contains("accept"), "{said:?}");
}

#[tokio::test]
async fn pending_calls_of_a_client_end_when_a_reload_removes_the_client() {
    let upstream = Upstream::legacy().await;
    asks(&upstream);
    let gateway = two_clients(Gateway::with("s", upstream.stdio())).start().await;
    let retry = parked(&gateway.modern().key(CI)).await;
    let metric = async |count: &str| {
        let metrics = gateway.metrics().await;
        metrics.lines().any(|line| line.starts_with("trunkline_parked") && line.ends_with(count))
    };
    assert!(metric(" 1").await);
    gateway
        .reload(Gateway::with("s", upstream.stdio()).toml(&client_table("desk", DESK, "")))
        .await;
    upstream.heard("notifications/cancelled", 1).await;
    within(async {
        while !metric(" 0").await {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let said = retry(&gateway.modern().key(CI)).send().await.said().await;
    is_refused(&said, "key_unknown");
}

/// Returns the session, or the child, in which a server got its last call.
fn served_in(upstream: &Upstream) -> String {
    let call = upstream.calls().pop().expect("a call");
    call.header("mcp-session-id").expect("a session").to_owned()
}

#[tokio::test]
async fn no_two_principals_share_state_that_a_server_keeps_for_a_client() {
    let [http, stdio] = [Upstream::legacy().await, Upstream::legacy().await];
    let own_child = stdio.stdio() + "isolation = \"client\"\n";
    let gateway = two_clients(Gateway::with("h", http.http()).server("c", own_child)).start().await;
    let [(_, ci), (_, ci_session)] = gateway.both_as(CI, "/mcp").await;
    let [(_, desk), (_, desk_session)] = gateway.both_as(DESK, "/mcp").await;
    let again = gateway.modern().key(CI);
    for (server, upstream) in [("h", &http), ("c", &stdio)] {
        let mut seen = Vec::new();
        for client in [&ci, &ci_session, &desk, &desk_session] {
            let tool = format!("{server}__echo");
            let first = {
                client.call(&tool, json!({})).await.text();
                served_in(upstream)
            };
            client.call(&tool, json!({})).await.text();
            assert_eq!(served_in(upstream), first, "{server}: it stays its own");
            seen.push(first);
        }
        again.call(&format!("{server}__echo"), json!({})).await.text();
        assert_eq!(served_in(upstream), seen[0], "{server}: Modern clients are told by principal");
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 4, "{server}: {seen:?}");
    }
}

#[tokio::test]
async fn two_principals_at_once_hear_only_their_own() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("say", |call| {
            let whose = call.arguments()["whose"].as_str().unwrap().to_owned();
            vec![Step::Progress(1), Step::Pause(MOMENT / 50), Step::Progress(2), Step::text(whose)]
        });
    }
    let gateway = two_clients(Gateway::alone().kinds(&kinds)).start().await;
    let mut crowd = Vec::new();
    for (key, token) in [(CI, 1), (DESK, 2)] {
        for (era, client) in gateway.both_as(key, "/mcp").await {
            for kind in &kinds {
                for round in 0..5 {
                    let (whose, name) = (format!("{key} {era} {round}"), kind.name);
                    // All use the same tokens and ids, so that these distinguish no messages.
                    let ask = client.ask_call(&format!("{name}__say"), json!({ "whose": whose }));
                    let ask = ask.token(json!(token)).id(json!(format!("{name}{round}")));
                    crowd.push((whose, token, ask.message().clone(), ask.send().await));
                }
            }
        }
    }
    for (whose, token, message, reply) in crowd {
        let said = reply.said().await;
        assert_eq!(said.text(), whose, "{message}");
        assert_eq!(said.answer()["id"], message["id"], "{whose}");
        for notice in said.notices() {
            assert_eq!(notice["params"]["progressToken"], token, "{whose} {notice}");
        }
        assert_eq!(said.notices().len(), 2, "{whose}");
    }
}
