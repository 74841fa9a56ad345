//! Every message by which the words of a server can reach a client: none bypasses an interceptor
//! that fails closed. The names of the rows match the table in `docs/security.md`.

use serde_json::{Value, json};

use crate::input::{asking, everything, required};
use crate::support::api::{Page, PlainApi};
use crate::support::upstream::news::{TASK, UPDATED};
use crate::support::upstream::offers;
use crate::support::upstream::tasks::{EXTENSION, State, Tasks};
use crate::support::{Client, Gateway, Reply, Said, Step, Upstream, until};

/// Words that only the server uses.
const WORDS: &str = "words of the server";

/// The rows, and the ways in which a server sends such a message.
const ROWS: [(&str, &[&str]); 9] = [
    ("result", &["tool", "prompt", "resource", "completion", "other", "large", "own tool"]),
    ("error", &["tool error", "prompt error", "completion error", "own tool error"]),
    ("failure", &["media type"]),
    ("question", &["modern question", "legacy question", "url question"]),
    ("task", &["modern task", "legacy task", "failed task", "awaited task"]),
    ("task notification", &["task notification"]),
    ("progress", &["progress"]),
    ("log line", &["log line", "log line outside"]),
    ("other notification", &["unknown outside", "resource update", "task status outside"]),
];

/// The rows that are not messages during a call, with their tests in `docs/security.md`.
const DEFINITIONS: [&str; 4] = ["instructions", "server info", "list entry", "list change"];

fn page(result: &Value) -> Page {
    Page::json(&json!({ "jsonrpc": "2.0", "id": 1, "result": result }))
}

/// Starts a gateway in front of `s`, with an interceptor or without one.
async fn start(upstream: &Upstream, api: &PlainApi, interceptor: Option<&str>) -> Gateway {
    let lines = upstream.http() + "isolation = \"client\"\n";
    let tool = "[tools.both]\n[tools.both.calls.say]\ntool = \"s__say\"";
    let Some(more) = interceptor else {
        return Gateway::with("s", lines).toml(tool).start().await;
    };
    let url = api.url("/check");
    let table = format!("{tool}\n[interceptors.check]\nurl = \"{url}\"\n{more}");
    Gateway::with("s", lines + "interceptors = [\"check\"]").toml(&table).start().await
}

fn notification(method: &str, params: Value) -> Step {
    Step::Send(json!({ "jsonrpc": "2.0", "method": method, "params": params }))
}

fn error() -> Step {
    Step::Error(json!({ "code": -7, "message": WORDS, "data": { "more": WORDS } }))
}

fn elicitation() -> Value {
    json!({ "message": WORDS, "requestedSchema": { "type": "object", "properties": {} } })
}

/// Starts a server that sends such a message, with its tasks.
async fn server(way: &'static str) -> (Upstream, Option<Tasks>) {
    let is_legacy = way.starts_with("legacy")
        || matches!(
            way,
            "log line outside"
                | "unknown outside"
                | "task status outside"
                | "awaited task"
                | "url question"
        );
    let upstream = if is_legacy { Upstream::legacy().await } else { Upstream::modern().await };
    if way.contains("task") && way != "task status outside" {
        let tasks = upstream.has_tasks();
        if way == "task notification" {
            upstream.lists("resources", [json!({ "uri": "a:1", "name": "a" })]);
            let resources = json!({ "listChanged": true, "subscribe": true });
            let extensions = json!({ EXTENSION: {} });
            upstream.can(json!({ "tools": {}, "resources": resources, "extensions": extensions }));
        }
        return (upstream, Some(tasks));
    }
    upstream.offers_everything();
    upstream.lists("resources", [json!({ "uri": "a:1", "name": "a" })]);
    let mut all = offers::everything();
    all["logging"] = json!({});
    upstream.can(all);
    let result = |result: Value| Step::Result(result);
    let step = match way {
        "tool" | "own tool" => Step::text(WORDS),
        "large" => Step::text(WORDS.to_owned() + &"x".repeat(400_000)),
        "tool error" | "own tool error" => error(),
        "media type" => Step::Status(200, vec![("content-type", WORDS.into())], "x".into()),
        "modern question" => required(&[("q", "elicitation/create", elicitation())], Some("s")),
        "url question" => {
            let asked = json!({ "mode": "url", "message": WORDS, "url": "https://a.test/",
                "elicitationId": "1" });
            Step::Error(json!({ "code": -32042, "message": WORDS,
                "data": { "elicitations": [asked] } }))
        }
        _ => Step::text("x"),
    };
    upstream.does("say", move |call| match way {
        "legacy question" => asking(vec![("q", "elicitation/create", elicitation())]),
        "progress" => {
            let token = call.token().cloned().unwrap_or_default();
            let params = json!({ "progressToken": token, "progress": 1, "message": WORDS });
            vec![notification("notifications/progress", params), step.clone()]
        }
        "log line" => {
            let line = json!({ "level": "alert", "data": WORDS });
            vec![notification("notifications/message", line), step.clone()]
        }
        _ => vec![step.clone()],
    });
    let message = json!({ "role": "user", "content": { "type": "text", "text": WORDS } });
    let contents = json!({ "uri": "a:1", "text": WORDS });
    for (of, method, answer) in [
        ("prompt", "prompts/get", result(json!({ "messages": [message] }))),
        ("prompt error", "prompts/get", error()),
        ("resource", "resources/read", result(json!({ "contents": [contents] }))),
        (
            "completion",
            "completion/complete",
            result(json!({ "completion": { "values": [WORDS] } })),
        ),
        ("completion error", "completion/complete", error()),
        ("other", "acme/say", result(json!({ "x": WORDS }))),
    ] {
        if of == way {
            upstream.when_asked(method, move |_| vec![answer.clone()]);
        }
    }
    (upstream, None)
}

/// Returns the text that a client gets when the server sends its message in this way.
async fn heard(way: &str, server: &(Upstream, Option<Tasks>), gateway: &Gateway) -> String {
    let (upstream, tasks) = server;
    let capabilities = || {
        let mut all = everything();
        all["extensions"] = json!({ EXTENSION: {} });
        all
    };
    let client = gateway.modern().offering(capabilities()).await;
    let complete = json!({
        "ref": { "type": "ref/prompt", "name": "s__greet" },
        "argument": { "name": "who", "value": "A" },
    });
    match way {
        "prompt" | "prompt error" => {
            shown(&client.request("prompts/get", json!({ "name": "s__greet" })).await)
        }
        "resource" => shown(&client.read_resource("mcp://s/a:1").await),
        "completion" | "completion error" => {
            shown(&client.request("completion/complete", complete).await)
        }
        "other" => shown(&client.request("acme/say", json!({})).await),
        "own tool" | "own tool error" => shown(&client.call("both", json!({})).await),
        "modern task" | "legacy task" => {
            let result = json!({ "content": [], "x": WORDS });
            polled(&client, tasks.as_ref().unwrap(), State::Result(result)).await
        }
        "failed task" => {
            let error = json!({ "code": -7, "message": WORDS });
            polled(&client, tasks.as_ref().unwrap(), State::Error(error)).await
        }
        "awaited task" => {
            let plain = gateway.legacy().await;
            let ends = json!({ "ends": "error" });
            shown(&plain.call("s__must", ends).await).replace("no luck", WORDS)
        }
        "task notification" => of_stream(&client, upstream).await,
        "log line outside" | "unknown outside" | "resource update" | "task status outside" => {
            outside(way, upstream, gateway).await
        }
        _ => {
            let ask = client.ask_call("s__say", json!({})).token(json!(7));
            let ask = ask.meta("io.modelcontextprotocol/logLevel", json!("debug"));
            shown(&ask.send().await.said().await)
        }
    }
}

/// Returns all received messages, including the answer.
fn shown(said: &Said) -> String {
    format!("{said:?}")
}

/// Returns a completed task in the form of `tasks/get`.
async fn polled(client: &Client, tasks: &Tasks, state: State) -> String {
    let created = client.call("s__must", json!({})).await;
    let id = created.answer()["result"]["taskId"].clone();
    let native = format!("task-{}", tasks.count());
    tasks.end(&native, state);
    let id = if id.is_null() { json!(format!("s.{native}")) } else { id };
    shown(&client.request("tasks/get", json!({ "taskId": id })).await)
}

/// Returns the state of a task from a subscription, up to an update that always follows.
async fn of_stream(client: &Client, upstream: &Upstream) -> String {
    let filter = json!({ "taskIds": ["s.t"], "resourceSubscriptions": ["mcp://s/a:1"] });
    let ask = client.ask("subscriptions/listen", json!({ "notifications": filter }));
    let mut stream = ask.send().await;
    stream.message().await.expect("an acknowledgement");
    // The gateway closes an earlier stream a moment after it has opened a wider one. Without the
    // task, it could bring the update before the wider one brings the task.
    let names = |filter: &Value, key: &str| filter[key].as_array().is_some_and(|it| !it.is_empty());
    let is_wide =
        |filter: &Value| names(filter, "taskIds") || !names(filter, "resourceSubscriptions");
    until(|| upstream.filters().iter().all(is_wide)).await;
    let state = json!({ "taskId": "t", "status": "completed", "result": { "x": WORDS } });
    upstream.tell(TASK, state).await;
    upstream.update("a:1").await;
    up_to(&mut stream, UPDATED).await
}

/// Returns messages outside of calls, up to an update that always follows.
async fn outside(way: &str, upstream: &Upstream, gateway: &Gateway) -> String {
    let client = gateway.legacy().await.offering(everything()).await;
    let said = client.request("resources/subscribe", json!({ "uri": "mcp://s/a:1" })).await;
    assert_eq!(said.result(), &json!({}));
    let mut stream = client.listen().await;
    let tell = |method: &str, params: Value| {
        if way == "resource update" {
            return upstream.tell_anyway(method, params);
        }
        for session in upstream.sessions_subscribed_to("a:1") {
            upstream.tell_in(&session, method, params.clone());
        }
    };
    match way {
        "log line outside" => {
            tell("notifications/message", json!({ "level": "alert", "data": WORDS }))
        }
        "unknown outside" => tell("notifications/of/tomorrow", json!({ "x": WORDS })),
        "task status outside" => tell(
            "notifications/tasks/status",
            json!({ "taskId": "t", "status": "working", "statusMessage": WORDS }),
        ),
        _ => {}
    }
    let mut update = json!({ "uri": "a:1" });
    if way == "resource update" {
        upstream.tell(UPDATED, update.clone()).await;
        up_to(&mut stream, UPDATED).await;
        update["title"] = json!(WORDS);
    }
    tell(UPDATED, update);
    up_to(&mut stream, UPDATED).await
}

async fn up_to(stream: &mut Reply, last: &str) -> String {
    let mut all = String::new();
    loop {
        let message = stream.message().await.expect("a message");
        all += &message.to_string();
        if message["method"] == last {
            return all;
        }
    }
}

/// Returns the part of a message that a client gets, with an interceptor of these settings.
async fn said(way: &'static str, api: &PlainApi, interceptor: Option<&str>) -> String {
    let upstream = server(way).await;
    let gateway = start(&upstream.0, api, interceptor).await;
    let said = heard(way, &upstream, &gateway).await;
    gateway.stop().await;
    said
}

#[tokio::test]
async fn no_words_of_a_server_pass_an_interceptor_that_refuses_them() {
    let api = PlainApi::start().await;
    let mut passed = Vec::new();
    for (row, ways) in ROWS {
        for way in ways {
            let open = said(way, &api, None).await;
            assert!(open.contains(WORDS), "{row}, {way}: the message does not come at all: {open}");
            let refused = json!({ "type": "validation", "valid": false, "severity": "error" });
            let answers = [page(&refused), Page::new(500, "text/plain", "x")];
            for (answer, page) in ["refused", "no answer"].into_iter().zip(answers) {
                api.sets("/check", page);
                let lines = "on = [\"result\"]\nbreaker = { failures = 100 }";
                if said(way, &api, Some(lines)).await.contains(WORDS) {
                    passed.push((row, way, answer));
                }
            }
        }
    }
    assert!(passed.is_empty(), "{passed:#?}");
}

#[tokio::test]
async fn an_interceptor_of_the_results_of_tools_sees_those_of_tasks() {
    let api = PlainApi::start().await;
    api.sets("/check", page(&json!({ "valid": false })));
    let lines = "on = [\"result\"]\nmethods = [\"tools/call\"]";
    for way in ["tool", "modern task", "legacy task", "failed task", "task notification"] {
        let said = said(way, &api, Some(lines)).await;
        assert!(!said.contains(WORDS), "{way}: {said}");
    }
}

#[tokio::test]
async fn notifications_are_shown_to_interceptors_that_see_them_and_pass_with_their_consent() {
    let api = PlainApi::start().await;
    for (row, ways) in ROWS {
        for way in ways.iter().filter(|_| row != "failure") {
            api.sets("/check", page(&json!({ "type": "validation", "valid": true })));
            let upstream = server(way).await;
            let seeing =
                start(&upstream.0, &api, Some("on = [\"result\", \"notification\"]")).await;
            let before = api.calls("/check").len();
            let said = heard(way, &upstream, &seeing).await;
            assert!(said.contains(WORDS), "{row}, {way}: {said}");
            let calls = api.calls("/check").split_off(before);
            let has_words = |body: &[u8]| {
                let body = String::from_utf8_lossy(body);
                body.contains(WORDS) || (*way == "awaited task" && body.contains("no luck"))
            };
            let is_shown = calls.iter().any(|call| has_words(&call.body));
            assert!(is_shown, "{row}, {way}: nothing is shown");
            seeing.stop().await;
        }
    }
}

#[tokio::test]
async fn a_server_asks_nothing_outside_of_calls_where_an_interceptor_has_to_agree() {
    let api = PlainApi::start().await;
    for (interceptor, is_asked) in [(None, true), (Some("on = [\"result\"]"), false)] {
        api.sets("/check", page(&json!({ "valid": true })));
        let upstream = Upstream::legacy().await;
        upstream.does("late", |_| {
            vec![Step::text("done"), Step::Ask("q", "elicitation/create", elicitation())]
        });
        let url = api.url("/check");
        let (users, table) = match interceptor {
            Some(lines) => (
                "interceptors = [\"check\"]",
                format!("[interceptors.check]\nurl = \"{url}\"\n{lines}"),
            ),
            None => ("", String::new()),
        };
        let lines = upstream.stdio() + "isolation = \"client\"\n" + users;
        let gateway = Gateway::with("s", lines).toml(&table).start().await;
        let client = gateway.legacy().await.offering(everything()).await;
        let mut stream = client.listen().await;
        assert_eq!(client.call("s__late", json!({})).await.text(), "done");
        if is_asked {
            let asked = stream.message().await.unwrap();
            assert_eq!(asked["params"]["message"], WORDS);
            client.respond(&asked["id"], json!({ "action": "decline" })).await;
            upstream.heard("", 1).await;
        } else {
            let refusal = upstream.heard("", 1).await.text;
            assert!(refusal.contains("-32601"), "{refusal}");
        }
    }
}

#[tokio::test]
async fn a_mutation_of_a_question_changes_its_words_and_nothing_else() {
    let api = PlainApi::start().await;
    let mutation =
        |payload: Value| page(&json!({ "type": "mutation", "modified": true, "payload": payload }));
    for way in ["modern question", "legacy question"] {
        let upstream = server(way).await;
        let gateway = start(&upstream.0, &api, Some("on = [\"result\"]")).await;
        let client = gateway.modern().offering(everything()).await;
        let key = if way == "modern question" { "q" } else { "input-1" };
        let mut question = json!({ "method": "elicitation/create", "params": elicitation() });
        question["params"]["message"] = json!("other words");
        let payload = |key: &str, question: &Value| json!({ "resultType": "input_required", "inputRequests": { key: question } });
        api.sets("/check", mutation(payload(key, &question)));
        let said = client.call("s__say", json!({})).await;
        let asked = &said.result()["inputRequests"][key];
        assert_eq!(asked["params"]["message"], "other words", "{way} {said:?}");
        assert!(said.result()["requestState"].is_string(), "{said:?}");
        let shown = api.calls("/check").pop().unwrap();
        assert!(!String::from_utf8_lossy(&shown.body).contains("requestState"));
        question["method"] = json!("sampling/createMessage");
        for payload in [payload(key, &question), payload("other", &question), json!({})] {
            api.sets("/check", mutation(payload));
            let said = client.call("s__say", json!({})).await;
            assert!(said.text().contains("changes more than the params of questions"), "{said:?}");
        }
    }
}

#[tokio::test]
async fn an_interceptor_gets_the_bytes_of_a_result_or_the_result_does_not_pass() {
    let api = PlainApi::start().await;
    api.sets("/check", page(&json!({ "valid": true })));
    for (raw, passes) in [
        (r#"{"resultType":"complete","content":[],"n":1.50}"#, true),
        (r#"{"resultType":"complete","content":[],"x":{"a":"words of the server","a":1}}"#, false),
        (r#"{"resultType":"complete","content":[],"n":1e400,"x":"words of the server"}"#, false),
    ] {
        let upstream = Upstream::modern().await;
        upstream.does("say", move |_| vec![Step::Raw(raw.into())]);
        let gateway = start(&upstream, &api, Some("on = [\"result\"]")).await;
        let said = gateway.modern().call("s__say", json!({})).await;
        assert_eq!(!said.is_error(), passes, "{raw}: {said:?}");
        if passes {
            let shown = api.calls("/check").pop().unwrap();
            assert!(String::from_utf8_lossy(&shown.body).contains("\"n\":1.50"));
        } else {
            assert!(said.text().contains("not unambiguous JSON"), "{said:?}");
            assert!(!said.body.contains(WORDS), "{said:?}");
        }
    }
}

/// A message that is missing in one of the two would pass without a reviewed check.
#[test]
fn the_table_of_paths_has_the_rows_of_the_tests() {
    let page = std::fs::read_to_string("docs/security.md").unwrap();
    let (_, section) = page.split_once("## What a server can send to a client\n").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let rows: Vec<_> = rows.skip(1).map(|row| row.split(" | ").collect::<Vec<_>>()).collect();
    assert!(rows.iter().all(|row| row.len() == 6 && row.iter().all(|cell| !cell.is_empty())));
    let documented: Vec<_> = rows.iter().map(|row| row[0]).collect();
    let tested = ROWS.iter().map(|(row, _)| *row).chain(DEFINITIONS);
    let tested: Vec<_> = tested.collect();
    assert_eq!(documented, tested);
}
