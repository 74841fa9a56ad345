//! Tests of servers: their turns, their time and size limits, and the facts that they show.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

use super::super::limits::pass_time;
use super::super::resources::{get, post};
use crate::support::{Gateway, Step, Upstream, every_kind, within};

async fn test(gateway: &Gateway, path: &str) -> Value {
    let said = post(gateway, path, &json!({})).await;
    assert_eq!(said.status, 200, "{said:?}");
    said.json()
}

/// Returns the text of the last step, which has failed.
fn failure(report: &Value) -> String {
    let last = report["steps"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["has_passed"], &report["has_passed"]), (&json!(false), &json!(false)));
    last["text"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn tests_of_servers_take_turns() {
    let (slow, other) = (Upstream::modern().await, Upstream::modern().await);
    let gateway = Gateway::with("slow", slow.http()).server("other", other.http()).start().await;
    slow.when_asked("server/discover", |_| vec![Step::Hold, Step::Usual]);
    let (begun, seen) = (slow.all("server/discover").len(), other.all("server/discover").len());
    let first = test(&gateway, "/servers/slow/test");
    let second = async {
        slow.heard("server/discover", begun + 1).await;
        let mut second = Box::pin(test(&gateway, "/servers/other/test"));
        for _ in 0..20 {
            tokio::select! {
                report = &mut second => panic!("beside the first one: {report}"),
                _ = gateway.admin("/healthz") => {}
            }
        }
        assert_eq!(other.all("server/discover").len(), seen, "it is not started yet");
        slow.release(1);
        second.await
    };
    let (first, second) = within(async { tokio::join!(first, second) }).await;
    assert_eq!((&first["has_passed"], &second["has_passed"]), (&json!(true), &json!(true)));
}

#[tokio::test]
async fn a_test_shows_the_last_twenty_lines_of_output() {
    let script = "i=1; while [ $i -le 50 ]; do echo line $i >&2; i=$((i + 1)); done; exit 3";
    let lines = format!("command = \"sh\"\nargs = [\"-c\", '''{script}''']\nmax_restarts = 1\n");
    let gateway = Gateway::with("s", lines).start_at_once().await;
    let report = test(&gateway, "/servers/s/test").await;
    let output = report["output"].as_array().unwrap();
    assert_eq!((output.len(), &output[0], &output[19]), (20, &json!("line 31"), &json!("line 50")));
}

#[tokio::test]
async fn a_tested_tool_that_fails_fails_its_test() {
    for kind in every_kind().await {
        kind.upstream.does("broken", |_| {
            let content = json!([{ "type": "text", "text": "out of order" }]);
            vec![Step::Result(json!({ "content": content, "isError": true }))]
        });
        kind.upstream
            .does("refuses", |_| vec![Step::Error(json!({ "code": -1, "message": "no" }))]);
        let gateway = Gateway::with("s", format!("{}\ntimeout = \"1s\"\n", kind.lines));
        let gateway = gateway.start().await;
        for (tool, expected) in [
            ("broken", "the tool has failed (isError): see the result"),
            ("refuses", "the server refused the call: see the result"),
        ] {
            let report = test(&gateway, &format!("/servers/s/test?tool={tool}")).await;
            assert_eq!(failure(&report), expected, "{}: {report}", kind.name);
        }
        gateway.stop().await;
    }
}

#[tokio::test]
async fn a_tested_tool_has_a_minute() {
    let upstream = Upstream::modern().await;
    upstream.does("silent", |_| vec![Step::Never]);
    let gateway = Gateway::with("s", format!("{}\ntimeout = \"10m\"\n", upstream.http()));
    let gateway = gateway.start().await;
    let mut operator = UnixStream::connect(gateway.folder().join("admin.sock")).await.unwrap();
    let head = "POST /api/v1/servers/s/test?tool=silent HTTP/1.1\r\nhost: localhost\r\n\
                connection: close\r\n\r\n";
    operator.write_all(head.as_bytes()).await.unwrap();
    upstream.heard("tools/call", 1).await;
    pass_time(Duration::from_secs(61)).await;
    let mut answer = String::new();
    within(operator.read_to_string(&mut answer)).await.unwrap();
    let (_, report) = answer.split_once("\r\n\r\n").unwrap();
    let report = serde_json::from_str(report).unwrap();
    assert_eq!(failure(&report), "the tool did not answer within 60s");
}

#[tokio::test]
async fn a_server_that_never_answers_is_tested_for_45_seconds() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("url = \"http://{}/mcp\"", listener.local_addr().unwrap());
    let lines = format!("{url}\nstart = \"lazy\"\nstart_timeout = \"10m\"\n");
    let gateway = Gateway::with("s", lines).start_at_once().await;
    let wait = async {
        let _silent = within(listener.accept()).await.unwrap();
        pass_time(Duration::from_secs(46)).await;
        std::future::pending::<()>().await;
    };
    let report = within(async {
        tokio::select! {
            report = test(&gateway, "/servers/s/test") => report,
            () = wait => unreachable!(),
        }
    });
    assert_eq!(failure(&report.await), "it did not start in time (connecting)");
}

#[tokio::test]
async fn capabilities_are_shown_without_secrets_and_up_to_sixteen_kibibytes() {
    for (bytes, is_shown) in [(1_000, true), (16 << 10, false)] {
        let upstream = Upstream::modern().await;
        let note = format!("{} hunter2-is-secret", "x".repeat(bytes));
        upstream.can(json!({ "tools": {}, "experimental": { "note": { "text": note } } }));
        let secret = "headers = { X-Api-Key = \"hunter2-is-secret\" }\n";
        let gateway = Gateway::with("s", format!("{}\n{secret}", upstream.http())).start().await;
        let server = get(&gateway, "/servers/s").await;
        let capabilities = &server["capabilities"];
        assert_eq!(capabilities.is_object(), is_shown, "{bytes}: {server}");
        assert!(!server.to_string().contains("hunter2"), "{server}");
        if is_shown {
            let text = capabilities["experimental"]["note"]["text"].as_str().unwrap();
            assert!(text.ends_with(" ***"), "{server}");
        }
    }
}
