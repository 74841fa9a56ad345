//! Answers that are requested and never read. `tests/listener/slow_reads.rs` tests the time for
//! which one may be left unread over HTTP/2, and `tests/gateway/sse_clients.rs` the streams of
//! 2024-11-05.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::{Gateway, Said, Step, Upstream, within};

/// Size of large answers.
const LARGE: usize = 100 * 1024;

/// Size of answers that exceed the kernel's socket buffers.
const LARGER_THAN_SOCKETS: usize = 6 << 20;

/// Defines a tool with answers of this many bytes.
fn large_answers(upstream: &Upstream, bytes: usize) {
    upstream.does("large", move |_| vec![Step::text("x".repeat(bytes))]);
}

fn is_dropped(message: &Value, limit: &str) -> bool {
    message["error"]["data"]["limit"] == limit
}

/// Opens a connection that accepts this many bytes of each answer and no more.
pub async fn connect(address: SocketAddr, window: u32) -> SendRequest<Full<Bytes>> {
    let io = TokioIo::new(TcpStream::connect(address).await.unwrap());
    let mut builder = Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(window);
    let (sender, connection) = builder.handshake(io).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(gateway: &Gateway, sender: &SendRequest<Full<Bytes>>) -> Response<Incoming> {
    let modern = gateway.modern();
    let message =
        modern.ask_call("s__echo", json!({ "text": "x".repeat(LARGE) })).message().clone();
    let request = Request::post(format!("http://{}/mcp", gateway.running.address))
        .header("content-type", "application/json")
        .header("accept", "application/json, text/event-stream")
        .header("mcp-protocol-version", "2026-07-28")
        .header("mcp-method", "tools/call")
        .header("mcp-name", "s__echo")
        .body(Full::from(message.to_string()))
        .unwrap();
    within(sender.clone().send_request(request)).await.unwrap()
}

#[tokio::test]
async fn answers_that_are_left_unread_hold_so_many_bytes_and_no_more() {
    let upstream = Upstream::modern().await;
    for line in ["limits.unread = \"512KiB\"", "limits.unread_each = \"512KiB\""] {
        let gateway = Gateway::with("s", upstream.http()).gateway(line).start().await;
        let sender = connect(gateway.running.address, 1024).await;
        let mut unread = Vec::new();
        for _ in 0..16 {
            unread.push(ask(&gateway, &sender).await);
        }
        // The first answers are complete, however late the client reads them; the others are reset.
        let mut complete = 0;
        for answer in unread {
            assert_eq!(answer.status(), 200);
            complete += usize::from(within(answer.into_body().collect()).await.is_ok());
        }
        assert!((1..=5).contains(&complete), "{line}: {complete} were in memory");
        // The connection continues.
        let answer = ask(&gateway, &sender).await;
        let body = within(answer.into_body().collect()).await.unwrap().to_bytes();
        assert!(body.len() > LARGE, "{line}");
    }
}

#[tokio::test]
async fn connections_that_leave_answers_unread_hold_so_many_bytes_and_no_more() {
    let upstream = Upstream::legacy().await;
    large_answers(&upstream, LARGER_THAN_SOCKETS);
    for line in ["limits.unread = \"13MiB\"", "limits.unread_each = \"13MiB\""] {
        let gateway = Gateway::with("s", upstream.stdio()).gateway(line).start().await;
        let client = gateway.modern();
        let mut unread = Vec::new();
        for _ in 0..5 {
            unread.push(client.ask_call("s__large", json!({})).send().await);
        }
        gateway.wait_for(|status| status["connections"] == 2).await;
        // The first answers are complete, however late the client reads them.
        for answer in unread.drain(..2) {
            assert_eq!(answer.said().await.text().len(), LARGER_THAN_SOCKETS, "{line}");
        }
        // A client that reads is served again.
        let said = client.call("s__large", json!({})).await;
        assert_eq!(said.text().len(), LARGER_THAN_SOCKETS, "{line}");
    }
}

#[tokio::test]
async fn the_answers_to_a_batch_have_so_many_bytes_and_no_more() {
    let upstream = Upstream::legacy().await;
    // Streamed from an HTTP server.
    large_answers(&upstream, 300 * 1024);
    for server in [upstream.stdio(), upstream.http()] {
        let line = "limits.unread_each = \"1000KiB\"";
        let gateway = Gateway::with("s", server).gateway(line).start().await;
        let client = gateway.legacy_of("2025-03-26").await;
        let call = |id: u32| json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": { "name": "s__large" } });
        let mut batch: Vec<_> = (0..8).map(call).collect();
        batch.push(json!({ "jsonrpc": "2.0", "id": 8, "method": "ping" }));
        let said = client.ask("x", json!({})).body(json!(batch).to_string()).send().await;
        let answers = said.said().await.json();
        let answers = answers.as_array().unwrap();
        let ids: Vec<_> = answers.iter().map(|answer| answer["id"].as_u64().unwrap()).collect();
        assert_eq!(ids, Vec::from_iter(0..9));
        let dropped = answers.iter().filter(|answer| is_dropped(answer, "unread_each")).count();
        assert!((5..=8).contains(&dropped), "{dropped} have no room");
        assert_eq!(answers[8]["result"], json!({}), "and a small one");
    }
}

#[tokio::test]
async fn answers_to_clients_that_disconnected_have_so_many_bytes_and_no_more() {
    const SESSIONS: usize = 8;
    let upstream = Upstream::legacy().await;
    upstream
        .does("slow", |_| vec![Step::Progress(1), Step::Hold, Step::text("x".repeat(300 * 1024))]);
    let line = "limits.replay_all = \"1MiB\"";
    let gateway = Gateway::with("s", upstream.stdio()).gateway(line).start().await;
    let mut sessions = Vec::new();
    for _ in 0..SESSIONS {
        let client = gateway.legacy().await;
        let ask = client.ask_call("s__slow", json!({})).token(json!("t"));
        let mut stream = ask.send().await;
        stream.message().await.unwrap();
        sessions.push((stream.last_id().to_owned(), client));
    }
    gateway.wait_for(|status| status["connections"] == 0).await;
    upstream.release(SESSIONS);
    gateway.wait_for(|status| status["servers"][0]["in_flight"] == 0).await;
    let mut dropped = 0;
    for (behind, client) in sessions {
        let said: Said = client.resume(&behind).await.said().await;
        let answer = said.messages.last().expect("an answer");
        assert!(answer["result"].is_object() || is_dropped(answer, "replay_all"), "{answer}");
        dropped += usize::from(is_dropped(answer, "replay_all"));
    }
    assert!((4..=5).contains(&dropped), "{dropped} of {SESSIONS}");
}
