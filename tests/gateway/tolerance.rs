//! Servers that break a rule of JSON-RPC or HTTP in a way that the official SDKs accept.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::api::PlainApi;
use crate::support::upstream::Received;
use crate::support::{Client, Gateway, Old, Said, Step, Upstream, until};

const RESULT: &str = r#"{"resultType":"complete","content":[{"type":"text","text":"fine"}]}"#;

/// Texts of a response, with `ID` for the id of its request and `RESULT` for its result.
const ACCEPTED: [&str; 12] = [
    r#"{"jsonrpc":"2.0","id":"ID","result":RESULT}"#,
    r#"{"jsonrpc":"2.0","result":RESULT,"id":"ID"}"#,
    r#"{"jsonrpc":"2.0","id":ID.0,"result":RESULT}"#,
    r#"{"jsonrpc":"2.0","id":ID.000,"result":RESULT}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":RESULT,"error":null}"#,
    r#"{"jsonrpc":"2.0","id":ID,"error":null,"result":RESULT}"#,
    r#"{"jsonrpc":"2.0","id":ID,"method":null,"result":RESULT}"#,
    r#"{"jsonrpc":"2.0","id":"ID","method":null,"params":null,"result":RESULT,"error":null}"#,
    "\u{feff}{\"jsonrpc\":\"2.0\",\"id\":ID,\"result\":RESULT}",
    "\u{feff} {\"jsonrpc\":\"2.0\",\"id\":ID.0,\"result\":RESULT,\"error\":null}",
    r#"[{"jsonrpc":"2.0","id":ID,"result":RESULT}]"#,
    r#"[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":"ID","result":RESULT,"error":null}]"#,
];

/// Texts that could be another request's response, or are ambiguous.
const REFUSED: [&str; 6] = [
    r#"{"jsonrpc":"2.0","id":"0ID","result":RESULT}"#,
    r#"{"jsonrpc":"2.0","id":ID.5,"result":RESULT}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":RESULT,"error":{"code":1,"message":"m"}}"#,
    r#"{"jsonrpc":"2.0","id":ID,"result":RESULT,"result":RESULT,"error":null}"#,
    r#"[{"jsonrpc":"2.0","id":"0ID","result":RESULT}]"#,
    r#"{"jsonrpc":"1.0","id":ID,"result":RESULT,"error":null}"#,
];

fn filled(template: &str, received: &Received) -> String {
    let id = received.id.as_ref().map(Value::to_string).unwrap_or_default();
    template.replace("RESULT", RESULT).replace("ID", &id)
}

/// Defines a tool `say` that answers with the text of its argument.
async fn talker(upstream: &Upstream) {
    upstream.does("say", |received| {
        let template = received.arguments()["template"].as_str().unwrap();
        vec![Step::SendText(filled(template, received))]
    });
}

async fn say(client: &Client, template: &str) -> Said {
    client.call("s__say", json!({ "template": template })).await
}

#[tokio::test]
async fn responses_with_one_meaning_are_accepted_over_every_transport() {
    for upstream in Upstream::both().await {
        talker(&upstream).await;
        for (way, lines) in upstream.ways() {
            let lines = format!("{lines}timeout = \"5s\"\n");
            let gateway = Gateway::with("s", lines).start().await;
            let client = gateway.modern();
            for template in ACCEPTED {
                let said = say(&client, template).await;
                assert_eq!(said.text(), "fine", "{way}: {template}: {said:?}");
            }
        }
    }
}

#[tokio::test]
async fn responses_in_plain_json_are_accepted_alike() {
    for upstream in Upstream::both().await {
        talker(&upstream).await;
        let gateway = Gateway::with("s", upstream.http()).start().await;
        gateway.ready("s").await;
        upstream.guards(|received| {
            let template = received.arguments()["template"].as_str()?;
            let headers = vec![("content-type".to_owned(), "application/json".to_owned())];
            Some((200, headers, filled(template, received)))
        });
        let client = gateway.modern();
        for template in ACCEPTED {
            let said = say(&client, template).await;
            assert_eq!(said.text(), "fine", "{template}: {said:?}");
        }
        for template in REFUSED {
            let said = say(&client, template).await;
            assert!(said.is_error() && !said.body.contains("fine"), "{template}: {said:?}");
        }
    }
}

#[tokio::test]
async fn responses_with_two_meanings_are_refused_over_every_transport() {
    for upstream in Upstream::both().await {
        talker(&upstream).await;
        for (way, lines) in upstream.ways() {
            let lines = format!("{lines}timeout = \"500ms\"\n");
            let gateway = Gateway::with("s", lines).start().await;
            let client = gateway.modern();
            for template in REFUSED {
                let said = say(&client, template).await;
                let is_taken = said.body.contains("fine");
                assert!(said.is_error() && !is_taken, "{way}: {template}: {said:?}");
            }
        }
    }
}

#[tokio::test]
async fn events_without_a_message_are_skipped() {
    for upstream in Upstream::both().await {
        talker(&upstream).await;
        upstream.does("alive", |_| {
            let signs = ["ping", "[DONE]", "null", "{}", r#"{"type":"ping"}"#, "\u{feff}", "[]x"];
            let signs = signs.into_iter().map(|sign| Step::SendText(sign.into()));
            signs.chain([Step::text("alive")]).collect()
        });
        for (way, lines) in upstream.ways() {
            let gateway = Gateway::with("s", lines).start().await;
            let said = gateway.modern().call("s__alive", json!({})).await;
            assert_eq!(said.text(), "alive", "{way}: {said:?}");
        }
    }
}

#[tokio::test]
async fn a_flood_of_events_without_a_message_is_cut() {
    let upstream = Upstream::modern().await;
    upstream.does("flood", |_| {
        let pings = (0..2000).map(|_| Step::SendText("ping".into()));
        pings.chain([Step::text("over")]).collect()
    });
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let said = gateway.modern().call("s__flood", json!({})).await;
    assert!(said.is_error() && said.body.contains("without a message"), "{said:?}");
}

#[tokio::test]
async fn requests_of_servers_have_ids_of_any_size() {
    let upstream = Upstream::legacy().await;
    upstream.does("ask", |_| {
        let ping = r#"{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}"#;
        vec![Step::SendText(ping.into()), Step::text("asked")]
    });
    for (way, lines) in upstream.ways() {
        let before = upstream.received().len();
        let gateway = Gateway::with("s", lines).start().await;
        let said = gateway.modern().call("s__ask", json!({})).await;
        assert_eq!(said.text(), "asked", "{way}");
        let is_answer = |received: &Received| {
            received.method.is_empty() && received.text.contains("\"id\":9007199254740993")
        };
        until(|| upstream.received().iter().skip(before).any(is_answer)).await;
    }
}

#[tokio::test]
async fn an_old_server_may_begin_its_stream_with_something_else() {
    for before in [
        ": welcome\r\n\r\n",
        "retry: 3000\r\n\r\n",
        "event: ping\r\ndata: 1\r\n\r\n",
        "data: hello\r\n\r\n",
        "id: 7\r\nretry: 100\r\n\r\n: x\r\nevent: open\r\ndata:\r\n\r\n",
        "\u{feff}: mark\r\n\r\n",
    ] {
        let upstream = Upstream::legacy().await;
        let old = Old::before(&upstream).await;
        old.begins_with(before);
        let gateway = Gateway::with("s", old.lines()).start().await;
        let said = gateway.modern().call("s__echo", json!({ "a": 1 })).await;
        assert_eq!(said.text(), r#"{"a":1}"#, "{before:?}: {said:?}");
    }
}

#[tokio::test]
async fn an_old_server_names_its_endpoint_within_a_hundred_events() {
    let upstream = Upstream::legacy().await;
    let old = Old::before(&upstream).await;
    old.begins_with(&"event: ping\r\ndata: 1\r\n\r\n".repeat(101));
    let gateway = Gateway::with("s", old.lines()).start().await;
    let status = gateway.server("s").await;
    assert!(status["state"] != "ready" && status["last_error"].is_object(), "{status}");
}

#[tokio::test]
async fn the_fault_of_the_transport_that_the_server_speaks_is_reported() {
    let upstream = Upstream::legacy().await;
    let old = Old::before(&upstream).await;
    // The stream works, and names an address on another host.
    old.names("http://192.0.2.1/messages");
    let gateway = Gateway::with("s", old.lines()).start().await;
    let error = gateway.server("s").await["last_error"].to_string();
    assert!(error.contains("192.0.2.1") && !error.contains("405"), "{error}");
}

#[tokio::test]
async fn every_request_names_the_gateway_and_asks_for_no_encoding() {
    let own = format!("trunkline/{}", env!("CARGO_PKG_VERSION"));
    for upstream in Upstream::both().await {
        let gateway = Gateway::with("s", upstream.http()).start().await;
        gateway.modern().call("s__echo", json!({})).await.text();
        for received in upstream.received() {
            let method = &received.method;
            if method == "closed" {
                continue;
            }
            assert_eq!(received.header("user-agent"), Some(&*own), "{method}");
            assert_eq!(received.header("accept-encoding"), Some("identity"), "{method}");
        }
    }
    let document = json!({
        "openapi": "3.1.0", "info": { "title": "Things", "version": "1" }, "servers": [{ "url": "/" }],
        "paths": { "/things": { "get": { "operationId": "things", "responses": {} } } },
    });
    let api = PlainApi::with(&document).await;
    let gateway = Gateway::with("s", api.openapi()).start().await;
    gateway.modern().call("s__things", json!({})).await.text();
    for call in api.received() {
        assert_eq!(call.header("user-agent"), Some(&*own), "{call:?}");
    }
    let upstream = Upstream::modern().await;
    let lines = format!("{}headers = {{ User-Agent = \"mine/1\" }}\n", upstream.http());
    let gateway = Gateway::with("s", lines).start().await;
    gateway.modern().call("s__echo", json!({})).await.text();
    let agents = upstream.received();
    assert!(
        agents.iter().all(|it| it.method == "closed" || it.header("user-agent") == Some("mine/1"))
    );
}

#[tokio::test]
async fn the_model_learns_the_reason_and_the_wait_of_a_refusal() {
    for upstream in Upstream::both().await {
        let gateway = Gateway::with("s", upstream.http()).start().await;
        gateway.ready("s").await;
        for (status, headers, body, shown) in [
            (
                429,
                vec![("retry-after", "7")],
                "slow down",
                &["429", "slow down", "Retry-After: 7"][..],
            ),
            (
                400,
                vec![],
                r#"{"error":{"message":"no such repository"}}"#,
                &["400", "no such repository"],
            ),
            (503, vec![("retry-after", "120")], "stack trace", &["503", "Retry-After: 120"]),
        ] {
            let headers: Vec<_> = headers
                .into_iter()
                .map(|(name, value): (&str, &str)| (name.to_owned(), value.to_owned()))
                .collect();
            upstream.guards(move |received| {
                (received.method == "tools/call")
                    .then(|| (status, headers.clone(), body.to_owned()))
            });
            let said = gateway.modern().call("s__echo", json!({})).await;
            assert!(said.is_error(), "{said:?}");
            assert!(shown.iter().all(|part| said.body.contains(part)), "{shown:?}: {said:?}");
            assert!(!said.body.contains("stack"), "{said:?}");
        }
        // The texts of 401 and 403 are about the gateway's own credentials.
        for status in [401, 403] {
            upstream.guards(move |received| {
                let text = "the token of tenant 7 has expired".to_owned();
                (received.method == "tools/call").then(|| (status, Vec::new(), text))
            });
            let said = gateway.modern().call("s__echo", json!({})).await;
            let names_status = said.body.contains(&status.to_string());
            assert!(said.is_error() && names_status && !said.body.contains("tenant"), "{said:?}");
        }
    }
}

#[tokio::test]
async fn a_slash_at_the_end_of_the_endpoint_is_no_other_endpoint() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both_at("/mcp/").await {
        let said = client.call("s__echo", json!({ "a": 1 })).await;
        assert_eq!(said.text(), r#"{"a":1}"#, "{era}");
    }
    let said = gateway.modern().at("/mcp//").call("s__echo", json!({})).await;
    assert_eq!(said.status, 404, "{said:?}");
}

#[tokio::test]
async fn a_wrapper_may_leave_its_pipes_to_another_process_and_exit() {
    for upstream in Upstream::both().await {
        // The wrapper exits before its server reads a line.
        let script = format!("( {} ) <&0 & exit 0", upstream.program());
        let lines =
            format!("command = \"bash\"\nargs = [\"-c\", {script:?}]\nstop_timeout = \"500ms\"\n");
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.modern();
        for a in 1..=3 {
            let said = client.call("s__echo", json!({ "a": a })).await;
            assert_eq!(said.text(), format!("{{\"a\":{a}}}"), "{said:?}");
        }
        assert_eq!(upstream.starts(), 1);
        // The exit of the other process is noticed, and the server is started again.
        upstream.crash();
        until(|| upstream.starts() == 2).await;
        let said = client.call("s__echo", json!({ "a": 4 })).await;
        assert_eq!(said.text(), r#"{"a":4}"#, "{said:?}");
    }
}

#[tokio::test]
async fn a_lost_session_is_opened_again_however_the_server_reports_it() {
    let error = |code: i64, message: &str| json!({ "jsonrpc": "2.0", "id": null, "error": { "code": code, "message": message } });
    for (status, body) in [
        (404, error(-32001, "Session not found")),
        (410, error(-32000, "Gone")),
        (410, json!("gone")),
        (400, error(-32001, "Session expired")),
        (403, error(-32001, "Invalid session id")),
    ] {
        let upstream = Upstream::legacy().await;
        upstream.refuses_lost_sessions_with(status, body.clone());
        let gateway = Gateway::with("s", upstream.http()).start().await;
        let client = gateway.modern();
        client.call("s__echo", json!({})).await.text();
        let before = upstream.all("initialize").len();
        upstream.forget_sessions();
        let said = client.call("s__echo", json!({ "a": 1 })).await;
        assert_eq!(said.text(), r#"{"a":1}"#, "{status} {body}: {said:?}");
        assert_eq!(upstream.all("initialize").len(), before + 1, "{status} {body}");
    }
}

/// Starts a Legacy server that answers calls in a lost session with `call`, and pings with `ping`.
async fn losing(call: (u16, &'static str), ping: Option<(u16, &'static str)>) -> Upstream {
    let upstream = Upstream::legacy().await;
    upstream.guards(move |received| {
        let json = vec![("content-type".to_owned(), "application/json".to_owned())];
        let answer = |(status, body): (u16, &str)| {
            let id = received.id.as_ref().map(Value::to_string).unwrap_or_default();
            (status, json.clone(), body.replace("ID", &id))
        };
        let lost = received.arguments()["lost"] == true;
        match received.method.as_str() {
            "tools/call" if lost => Some(answer(call)),
            "ping" => ping.map(answer),
            _ => None,
        }
    });
    upstream
}

const LOST: &str =
    r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"Session not found"}}"#;

#[tokio::test]
async fn a_ping_decides_about_a_session_that_may_be_lost() {
    for (call, ping, is_lost) in [
        ((500, "oops"), Some((404, "no")), true),
        ((500, "oops"), Some((500, "oops")), true),
        ((500, "oops"), None, false),
        ((202, ""), Some((400, "no session")), true),
        ((202, ""), None, false),
        ((401, "no"), Some((401, "no")), true),
        ((401, "no"), None, false),
    ] {
        let upstream = losing(call, ping).await;
        let gateway = Gateway::with("s", upstream.http()).start().await;
        let client = gateway.modern();
        client.call("s__echo", json!({})).await.text();
        let before = upstream.all("initialize").len();
        let lost = client.call("s__echo", json!({ "lost": true })).await;
        assert!(lost.is_error(), "{lost:?}");
        until(|| upstream.all("ping").len() == 1).await;
        if is_lost {
            // The answer to the ping arrives in parallel with the calls.
            let renewed = async || {
                client.call("s__echo", json!({})).await.text();
                upstream.all("initialize").len() == before + 1
            };
            crate::support::within(async { while !renewed().await {} }).await;
        } else {
            client.call("s__echo", json!({})).await.text();
            assert_eq!(upstream.all("initialize").len(), before, "{call:?} {ping:?}");
        }
        // At most one ping in a minute.
        client.call("s__echo", json!({ "lost": true })).await;
        client.call("s__echo", json!({})).await.text();
        assert_eq!(upstream.all("ping").len(), 1, "{call:?} {ping:?}");
    }
}

#[tokio::test]
async fn a_session_error_with_status_200_has_the_next_call_open_a_session() {
    let upstream = losing((200, LOST), None).await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    client.call("s__echo", json!({})).await.text();
    let before = upstream.all("initialize").len();
    let calls = upstream.calls().len();
    let lost = client.call("s__echo", json!({ "lost": true })).await;
    assert!(lost.body.contains("Session not found"), "{lost:?}");
    assert_eq!(upstream.calls().len(), calls + 1, "a call that was answered is not made twice");
    client.call("s__echo", json!({})).await.text();
    assert_eq!(upstream.all("initialize").len(), before + 1);
    // The same as an event.
    upstream.does("events", |_| {
        let error = json!({ "code": -32001, "message": "Session not found" });
        vec![Step::Open, Step::Error(error)]
    });
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    let lost = client.call("s__events", json!({})).await;
    assert!(lost.body.contains("Session not found"), "{lost:?}");
    let before = upstream.all("initialize").len();
    client.call("s__echo", json!({})).await.text();
    assert_eq!(upstream.all("initialize").len(), before + 1);
    // Another error with that code does not count.
    let other =
        r#"{"jsonrpc":"2.0","id":ID,"error":{"code":-32001,"message":"Request timed out"}}"#;
    let upstream = losing((200, other), None).await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    client.call("s__echo", json!({})).await.text();
    let before = upstream.all("initialize").len();
    client.call("s__echo", json!({ "lost": true })).await;
    client.call("s__echo", json!({})).await.text();
    assert_eq!(upstream.all("initialize").len(), before);
}

/// Starts a proxy in front of a server that forwards one response of each connection, and closes
/// the connection in place of the second one.
async fn forgetful_proxy(target: std::net::SocketAddr) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_one_response(client, target));
        }
    });
    address
}

async fn pass_one_response(mut client: TcpStream, target: std::net::SocketAddr) {
    let mut server = TcpStream::connect(target).await.unwrap();
    let (mut sent, mut said) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let (mut is_answered, mut is_second) = (false, false);
    loop {
        tokio::select! {
            read = client.read(&mut sent) => match read {
                Ok(size) if size > 0 => {
                    is_second = is_answered;
                    server.write_all(&sent[..size]).await.unwrap();
                }
                _ => return,
            },
            read = server.read(&mut said) => match read {
                Ok(size) if size > 0 && !is_second => {
                    is_answered = true;
                    if client.write_all(&said[..size]).await.is_err() {
                        return;
                    }
                }
                _ => return,
            },
        }
    }
}

#[tokio::test]
async fn introductions_and_lists_are_repeated_if_a_kept_connection_dies_and_calls_are_not() {
    for upstream in Upstream::both().await {
        let address = forgetful_proxy(upstream.http_address()).await;
        let gateway = Gateway::with("s", format!("url = \"http://{address}/mcp\"\n")).start().await;
        let status = gateway.server("s").await;
        assert_eq!(status["state"], "ready", "{status}");
        assert_eq!(gateway.modern().tool_names().await.len(), 4);
        // A call may have been executed although its response is lost: it is made once.
        let mut lost = 0;
        for _ in 0..4 {
            lost += usize::from(gateway.modern().call("s__echo", json!({})).await.is_error());
        }
        assert!(lost > 0, "no connection was kept");
        assert_eq!(upstream.calls().len(), 4);
    }
}
