//! Answers over HTTP/2 that are asked for and never read. How long one may be left unread is
//! tested in `tests/listener/slow_reads.rs`.

use std::net::SocketAddr;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::TcpStream;

use crate::support::{Gateway, Upstream, within};

/// Answers of so many bytes.
const LARGE: usize = 100 * 1024;

/// A connection that lets so many bytes of each answer come and no more.
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
        // What was asked for first is complete, however late it is read; the rest is reset.
        let mut complete = 0;
        for answer in unread {
            assert_eq!(answer.status(), 200);
            complete += usize::from(within(answer.into_body().collect()).await.is_ok());
        }
        assert!((1..=5).contains(&complete), "{line}: {complete} were in memory");
        // The connection goes on.
        let answer = ask(&gateway, &sender).await;
        let body = within(answer.into_body().collect()).await.unwrap().to_bytes();
        assert!(body.len() > LARGE, "{line}");
    }
}
