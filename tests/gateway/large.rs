//! Large results.

use std::sync::Arc;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use crate::support::client::Piece;
use crate::support::{Gateway, Upstream, within};

#[tokio::test]
async fn a_megabyte_arrives_whole_whatever_the_eras_and_the_transport() {
    let [modern, legacy] = Upstream::both().await;
    let text: String = (0..100_000).map(|n| format!("{n} \"}}{{ ")).collect();
    for upstream in [&modern, &legacy] {
        let text = text.clone();
        upstream.does("large", move |_| vec![crate::support::Step::text(text.clone())]);
    }
    let gateway = Gateway::with("mh", modern.http())
        .server("ms", modern.stdio())
        .server("lh", legacy.http())
        .server("ls", legacy.stdio())
        .start()
        .await;
    for (era, client) in gateway.both().await {
        for server in ["mh", "ms", "lh", "ls"] {
            let said = client.call(&format!("{server}__large"), json!({})).await;
            assert_eq!(said.text(), text, "{era} {server}");
            let modern = said.result().get("resultType") == Some(&json!("complete"));
            assert!(modern || era == "Legacy", "{era} {server}");
        }
    }
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("tool=\"large\",outcome=\"ok\""), "{metrics}");
    gateway.stop().await;
}

#[tokio::test]
async fn a_large_json_answer_is_passed_on_before_it_is_whole() {
    let go_on = Arc::new(Notify::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let capabilities = json!({ "tools": {} });
    let server = tokio::spawn(dripping(listener, capabilities, Arc::clone(&go_on)));
    let gateway =
        Gateway::with("slow", format!("url = \"http://127.0.0.1:{port}/mcp\"")).start().await;

    let mut client = TcpStream::connect(gateway.running.address).await.unwrap();
    let meta = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":"mine","method":"tools/call","params":{{"name":"slow__drip",{meta}}}}}"#
    );
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
         accept: application/json\r\nmcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\n\
         mcp-name: slow__drip\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    while said.len() < FIRST {
        let read = within(client.read_buf(&mut said)).await.unwrap();
        assert!(read > 0, "it ended early: {}", String::from_utf8_lossy(&said));
    }
    go_on.notify_one();
    within(client.read_to_end(&mut said)).await.unwrap();
    let said = String::from_utf8(said).unwrap();
    // Pieces arrive in chunks of their own.
    assert!(said.contains(r#"{"jsonrpc":"2.0","id":"mine","result":"#));
    assert!(said.contains("the end"));
    server.abort();
    gateway.stop().await;
}

#[tokio::test]
async fn a_large_answer_that_is_read_whole_first_may_take_its_time() {
    let go_on = Arc::new(Notify::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let capabilities = json!({ "tools": {}, "resources": {} });
    let server = tokio::spawn(dripping(listener, capabilities, Arc::clone(&go_on)));
    let gateway = Gateway::with("slow", format!("url = \"http://127.0.0.1:{port}/mcp\""))
        .gateway("keep_alive = \"1s\"")
        .start()
        .await;
    for (era, client) in gateway.both().await {
        let mut reply = client.ask_call("slow__drip", json!({})).send().await;
        for _ in 0..2 {
            assert_eq!(reply.piece().await, Some(Piece::Comment), "{era}: it is kept alive");
        }
        go_on.notify_one();
        let said = reply.said().await;
        assert!(said.text().ends_with("the end"), "{era}");
        assert_eq!(said.result()["content"][1]["uri"], "mcp://slow/a:b", "{era}");
    }
    server.abort();
    gateway.stop().await;
}

/// Size of the part of the answer that is sent at once.
const FIRST: usize = 20 * 1024;
/// Size of the part that is sent on request.
const REST: usize = 300 * 1024;

/// Runs a Modern server with one tool that answers in two parts, and announces the total length at
/// once.
async fn dripping(listener: TcpListener, capabilities: Value, go_on: Arc<Notify>) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        tokio::spawn(drip(socket, capabilities.clone(), Arc::clone(&go_on)));
    }
}

async fn drip(mut socket: TcpStream, capabilities: Value, go_on: Arc<Notify>) {
    while let Some(asked) = next_request(&mut socket).await {
        let id = &asked["id"];
        let result = match asked["method"].as_str() {
            Some("server/discover") => json!({
                "resultType": "complete", "supportedVersions": ["2026-07-28"],
                "capabilities": capabilities, "ttlMs": 60_000, "cacheScope": "public",
            }),
            Some("tools/list") => json!({
                "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public",
                "tools": [{ "name": "drip", "inputSchema": { "type": "object" } }],
            }),
            Some("tools/call") => {
                let first = format!(
                    r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete","content":[{{"type":"text","text":"{}"#,
                    "x".repeat(FIRST)
                );
                let rest = format!(
                    r#"{}the end"}},{{"type":"resource_link","name":"a","uri":"a:b"}}]}}}}"#,
                    "y".repeat(REST)
                );
                let head = format!(
                    "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
                    first.len() + rest.len()
                );
                socket.write_all(head.as_bytes()).await.unwrap();
                socket.write_all(first.as_bytes()).await.unwrap();
                go_on.notified().await;
                socket.write_all(rest.as_bytes()).await.unwrap();
                continue;
            }
            _ => json!({ "resultType": "complete", "ttlMs": 60_000, "cacheScope": "public" }),
        };
        let body = json!({ "jsonrpc": "2.0", "id": id, "result": result }).to_string();
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        socket.write_all(answer.as_bytes()).await.unwrap();
    }
}

async fn next_request(socket: &mut TcpStream) -> Option<Value> {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let head = head.to_ascii_lowercase();
            let length = head.split("content-length: ").nth(1)?.lines().next()?.parse().ok()?;
            if body.len() >= length {
                return serde_json::from_str(body).ok();
            }
        }
        if socket.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
}
