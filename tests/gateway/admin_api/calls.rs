//! Recent calls, and those who observe them.

use serde_json::{Value, json};
use trunkline::telemetry::metrics::ReloadOutcome;

use super::{code, send};
use crate::support::client::{Piece, Reply};
use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Upstream, client_table, json_lines, until, until_async};

async fn get(gateway: &Gateway, path: &str) -> Value {
    let said = gateway.admin(&format!("/api/v1{path}")).await;
    assert_eq!(said.status, 200, "{path}: {said:?}");
    said.json()
}

pub(super) async fn watch(client: &Client, path: &str) -> Reply {
    let reply = client.http("GET", &format!("/api/v1{path}")).send().await;
    assert_eq!(reply.status(), 200, "{path}");
    assert!(reply.is_stream());
    reply
}

fn ci(builder: Builder) -> Builder {
    builder.toml(&client_table("ci", "ci-key", ""))
}

fn names(page: &Value) -> Vec<&str> {
    page["calls"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect()
}

fn steps(call: &Value) -> Vec<&str> {
    call["steps"].as_array().unwrap().iter().map(|it| it["step"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_recent_call_has_the_facts_of_the_access_log_and_no_content() {
    let upstream = Upstream::modern().await;
    let gateway = ci(Gateway::with("s", upstream.http()).admin("recent = 10")).start().await;
    let client = gateway.modern().key("ci-key").named("agent", "2.1");
    let arguments = json!({ "text": "secret-argument" });
    client.call("s__echo", arguments.clone()).await.text();
    let page = get(&gateway, "/calls").await;
    let call = &page["calls"][0];
    for (member, value) in [
        ("client", json!("ci")),
        ("software", json!("agent 2.1")),
        ("era", json!("modern")),
        ("profile", json!("default")),
        ("method", json!("tools/call")),
        ("name", json!("s__echo")),
        ("server", json!("s")),
        ("native_name", json!("echo")),
        ("outcome", json!("ok")),
        ("reason", Value::Null),
        ("argument_bytes", json!(arguments.to_string().len())),
    ] {
        assert_eq!(call[member], value, "{member}: {call}");
    }
    assert!(call["result_bytes"].as_u64().unwrap() > 10, "{call}");
    let one = get(&gateway, &format!("/calls/{}", call["id"].as_str().unwrap())).await;
    assert_eq!(steps(&one), ["client", "rules", "limits", "arguments", "queue", "server"]);
    let sum: f64 =
        one["steps"].as_array().unwrap().iter().map(|it| it["duration_ms"].as_f64().unwrap()).sum();
    assert!((sum - one["duration_ms"].as_f64().unwrap()).abs() < 0.02, "{one}");
    assert_eq!(one["name"], call["name"]);
    assert!(!format!("{page}{one}").contains("secret-argument"));
    let said = gateway.admin("/api/v1/calls/none").await;
    assert_eq!(code(&said, 404), "unknown_call");
}

#[tokio::test]
async fn a_refused_call_ends_in_the_step_that_refused_it() {
    let upstream = Upstream::modern().await;
    let lines = upstream.http() + "rate = \"1/day\"\n";
    let never = "[policy.rules.all]\n[policy.rules.never]\neffect = \"deny\"\n\
        tools = [\"s__count\"]\nwhen = \"arguments.n == 7\"";
    let builder = ci(Gateway::with("s", lines).admin("recent = 10")).toml(never);
    let gateway = builder.start().await;
    let client = gateway.modern().key("ci-key");
    client.call("s__echo", json!({})).await.text();
    client.call("s__none", json!({})).await.error();
    assert!(client.call("s__count", json!({ "n": 7 })).await.is_error());
    client.call("s__echo", json!({})).await.error();
    let mut ended = Vec::new();
    for call in get(&gateway, "/calls?outcome=refused").await["calls"].as_array().unwrap() {
        let one = get(&gateway, &format!("/calls/{}", call["id"].as_str().unwrap())).await;
        let step = (*steps(&one).last().unwrap()).to_owned();
        ended.push((call["name"].clone(), step, call["limit"].clone()));
    }
    assert_eq!(
        ended,
        [
            (json!("s__echo"), "limits".to_owned(), json!("server:s")),
            (json!("s__count"), "rules".to_owned(), Value::Null),
            (json!("s__none"), "client".to_owned(), Value::Null),
        ]
    );
}

#[tokio::test]
async fn interceptors_are_no_step_of_a_call_that_was_refused_before_them() {
    let upstream = Upstream::modern().await;
    let rules = "[policy.rules.all]\n[policy.rules.never]\neffect = \"deny\"\n\
        tools = [\"s__count\"]\nwhen = \"arguments.n == 7\"\n\
        [interceptors.check]\nurl = \"http://127.0.0.1:9/\"\nfail = \"open\"";
    let lines = upstream.http() + "interceptors = [\"check\"]";
    let gateway = Gateway::with("s", lines).admin("recent = 10").toml(rules).start().await;
    assert!(gateway.modern().call("s__count", json!({ "n": 7 })).await.is_error());
    gateway.modern().call("s__echo", json!({})).await.text();
    let page = get(&gateway, "/calls").await;
    let mut newest_first = Vec::new();
    for call in page["calls"].as_array().unwrap() {
        newest_first.push(get(&gateway, &format!("/calls/{}", call["id"].as_str().unwrap())).await);
    }
    let [made, refused] = &newest_first[..] else { panic!("{page}") };
    assert_eq!(steps(refused).last(), Some(&"rules"), "{refused}");
    let place = |step| steps(made).iter().rposition(|it| *it == step);
    assert!(place("interceptors") > place("server"), "{made}");
}

#[tokio::test]
async fn calls_are_kept_up_to_the_setting_and_otherwise_from_the_first_look_on() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    client.call("s__echo", json!({ "n": 1 })).await.text();
    assert_eq!(names(&get(&gateway, "/calls").await), [""; 0], "no look before");
    client.call("s__echo", json!({ "n": 2 })).await.text();
    assert_eq!(names(&get(&gateway, "/calls").await), ["s__echo"]);
    let kept = Gateway::with("s", upstream.http()).admin("recent = 2").start().await;
    let client = kept.modern();
    for tool in ["a", "b", "c"] {
        client.call(&format!("s__{tool}"), json!({})).await;
    }
    // The look itself keeps more of them from now on.
    assert_eq!(names(&get(&kept, "/calls").await), ["s__c", "s__b"]);
    let later = Gateway::with("s", upstream.http()).start().await;
    let more = Gateway::with("s", upstream.http()).admin("recent = 5");
    assert_eq!(later.reload(more).await, ReloadOutcome::Applied);
    later.modern().call("s__echo", json!({})).await.text();
    assert_eq!(names(&get(&later, "/calls").await), ["s__echo"], "set by a reload");
}

#[tokio::test]
async fn pages_and_filters_select_calls() {
    let upstream = Upstream::modern().await;
    let builder = ci(Gateway::with("s", upstream.http()).server("t", upstream.http()));
    let builder = builder.toml(&client_table("ann", "ann-key", "")).admin("recent = 100");
    let gateway = builder.start().await;
    for (key, tool) in [("ci-key", "s__echo"), ("ann-key", "t__echo"), ("ci-key", "t__none")] {
        gateway.modern().key(key).call(tool, json!({})).await;
    }
    for (query, expected) in [
        ("", &["t__none", "t__echo", "s__echo"][..]),
        ("?limit=2", &["t__none", "t__echo"]),
        ("?server=t", &["t__echo"]),
        ("?client=ci", &["t__none", "s__echo"]),
        ("?outcome=ok&client=ci", &["s__echo"]),
        ("?since=2000-01-01T00:00:00Z", &["t__none", "t__echo", "s__echo"]),
        ("?since=2999-01-01T00:00:00Z", &[]),
    ] {
        assert_eq!(names(&get(&gateway, &format!("/calls{query}")).await), expected, "{query}");
    }
    let first = get(&gateway, "/calls?limit=2").await;
    let next = get(&gateway, &format!("/calls?limit=2&before={}", first["next"])).await;
    assert_eq!((names(&next), &next["next"]), (vec!["s__echo"], &Value::Null));
    for (query, status, problem) in [
        ("?outcome=good", 400, "invalid_request"),
        ("?limit=1001", 400, "invalid_request"),
        ("?before=x", 400, "invalid_request"),
        ("?since=now", 400, "invalid_request"),
        ("?server=u", 404, "unknown_server"),
    ] {
        for path in ["/calls", "/calls/live"] {
            let said = gateway.admin(&format!("/api/v1{path}{query}")).await;
            if path == "/calls/live" && query.starts_with("?before") {
                assert_eq!(code(&said, 400), "invalid_request");
                continue;
            }
            assert_eq!(code(&said, status), problem, "{path}{query}");
        }
    }
}

#[tokio::test]
async fn observers_get_calls_as_they_end_until_the_gateway_stops() {
    let upstream = Upstream::modern().await;
    let gateway = ci(Gateway::with("s", upstream.http())).start().await;
    let client = gateway.modern().key("ci-key");
    let mut live = watch(&gateway.operator(), "/calls/live").await;
    let mut refused = watch(&gateway.operator(), "/calls/live?outcome=refused").await;
    client.call("s__echo", json!({})).await.text();
    client.call("s__none", json!({})).await.error();
    let first = live.message().await.unwrap();
    assert_eq!((&first["name"], &first["outcome"]), (&json!("s__echo"), &json!("ok")));
    assert!(steps(&first).contains(&"server"), "{first}");
    assert_eq!(live.message().await.unwrap()["name"], "s__none");
    assert_eq!(refused.message().await.unwrap()["name"], "s__none");
    let mut late = watch(&gateway.operator(), "/calls/live?limit=1").await;
    assert_eq!(late.message().await.unwrap()["name"], "s__none", "a past one");
    let stopped = tokio::spawn(gateway.stop());
    assert_eq!(live.message().await, None, "the stream ends properly");
    stopped.await.unwrap();
}

#[tokio::test]
async fn observers_get_audit_records_as_they_are_written_until_the_gateway_stops() {
    let upstream = Upstream::modern().await;
    let log = "[audit]\nfile = \"audit.jsonl\"\nrequired = true\n";
    let gateway = ci(Gateway::with("s", upstream.http())).toml(log).start().await;
    let client = gateway.modern().key("ci-key");
    client.call("s__echo", json!({})).await.text();
    let path = gateway.folder().join("audit.jsonl");
    let of_call = |record: &Value| record["event"] == "call";
    until(|| json_lines(&path).iter().any(of_call)).await;
    let mut live = watch(&gateway.operator(), "/audit/live").await;
    let mut denied = watch(&gateway.operator(), "/audit/live?decision=deny&kind=call").await;
    let mut late = watch(&gateway.operator(), "/audit/live?limit=1&tool=s__echo").await;
    let past = late.message().await.unwrap();
    assert_eq!((&past["tool"], &past["principal"]), (&json!("s__echo"), &json!("ci")));
    client.call("s__none", json!({})).await.error();
    client.call("s__echo", json!({})).await.text();
    let records = [live.message().await.unwrap(), live.message().await.unwrap()];
    assert_eq!(records.each_ref().map(|it| &it["decision"]), ["deny", "allow"], "no past one");
    assert_eq!(denied.message().await.unwrap(), records[0]);
    assert_eq!(late.message().await.unwrap(), records[1], "each record once");
    assert_eq!(json_lines(&path).last().unwrap(), &records[1], "as it is in the log");
    // A reload changes the destination.
    let moved = ci(Gateway::with("s", upstream.http())).toml(&log.replace("audit.j", "other.j"));
    assert_eq!(gateway.reload(moved).await, ReloadOutcome::Applied);
    assert_eq!(live.message().await.unwrap()["operation"], "reload");
    let stopped = tokio::spawn(gateway.stop());
    assert_eq!(live.message().await, None, "the stream ends properly");
    stopped.await.unwrap();
    let without = Gateway::alone().start().await;
    for query in ["", "?limit=1"] {
        let said = without.admin(&format!("/api/v1/audit/live{query}")).await;
        assert_eq!(code(&said, 409), "audit_file_needed", "{query}");
    }
}

#[tokio::test]
async fn an_observer_who_loses_the_role_gets_nothing_more() {
    let upstream = Upstream::modern().await;
    let with = |role: &str| {
        let builder = ci(Gateway::with("s", upstream.http()));
        builder.toml(&client_table("looks", "looks-key", role))
    };
    let gateway = with("role = \"viewer\"").start().await;
    let looks = gateway.remote_operator().key("looks-key");
    let mut live = watch(&looks, "/calls/live").await;
    gateway.modern().key("ci-key").call("s__echo", json!({})).await.text();
    assert_eq!(live.message().await.unwrap()["name"], "s__echo");
    assert_eq!(gateway.reload(with("")).await, ReloadOutcome::Applied);
    assert_eq!(live.message().await, None);
    assert_eq!(code(&send(&looks, "GET", "/api/v1/calls").await, 403), "role_needed");
}

#[tokio::test]
async fn the_number_of_observers_is_bounded_and_places_become_free() {
    let gateway = Gateway::alone().start().await;
    let mut open = Vec::new();
    for _ in 0..8 {
        open.push(watch(&gateway.operator(), "/calls/live").await);
        open.push(watch(&gateway.operator(), "/log/live").await);
    }
    let ask = || async { gateway.operator().http("GET", "/api/v1/calls/live").send().await };
    assert_eq!(code(&ask().await.said().await, 503), "too_many_observers");
    // The private socket has places left.
    get(&gateway, "/status").await;
    drop(open);
    until_async(|| async { ask().await.status() == 200 }).await;
}

#[tokio::test]
async fn a_quiet_stream_begins_at_once() {
    let gateway = Gateway::alone().start().await;
    let mut live = watch(&gateway.operator(), "/log/live").await;
    assert_eq!(live.piece().await, Some(Piece::Comment));
    assert_eq!(get(&gateway, "/log").await["lines"], json!([]), "this process has no log");
}
