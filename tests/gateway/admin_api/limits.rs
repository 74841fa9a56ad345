//! Limits of the admin API and of the private socket: connections, heads and bodies.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::{STATUS, code, send, with_roles};
use crate::support::{Client, Gateway, Said, within};

/// An endpoint that reads a body.
const WHY: &str = "/api/v1/why";

/// Limit of the connections of the private socket.
const CONNECTIONS: usize = 32;

async fn connect(gateway: &Gateway) -> UnixStream {
    UnixStream::connect(gateway.folder().join("admin.sock")).await.unwrap()
}

async fn write(stream: &mut (impl AsyncWrite + Unpin), text: &str) {
    within(stream.write_all(text.as_bytes())).await.unwrap();
}

/// Reads up to the end of the next head; returns everything up to there, or the rest.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\n") {
        match within(stream.read_u8()).await {
            Ok(byte) => read.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(read).unwrap()
}

/// Sends a request for a page without a body in the answer; returns the head.
async fn probe(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> String {
    write(stream, "HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    read_head(stream).await
}

/// Moves the clock of the gateway, which runs in this thread.
pub(super) async fn pass_time(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

fn is_quiet(stream: &UnixStream) -> bool {
    let read = stream.try_read(&mut [0; 1]);
    read.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock)
}

#[tokio::test]
async fn further_connections_to_the_private_socket_wait_for_a_place() {
    let gateway = Gateway::alone().start().await;
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = connect(&gateway).await;
        assert!(probe(&mut stream).await.starts_with("HTTP/1.1 200"));
        open.push(stream);
    }
    // It is connected, by the system, but not accepted.
    let mut waiting = connect(&gateway).await;
    write(&mut waiting, "HEAD /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    for stream in &mut open {
        assert!(probe(stream).await.starts_with("HTTP/1.1 200"), "the others are served");
        assert!(is_quiet(&waiting), "more connections than the limit are served");
    }
    drop(open.pop());
    assert!(read_head(&mut waiting).await.starts_with("HTTP/1.1 200"), "once there is a place");
}

#[tokio::test]
async fn connections_of_the_private_socket_that_send_no_request_give_their_place_back() {
    let gateway = Gateway::alone().start().await;
    let (mut silent, mut halting) = (connect(&gateway).await, connect(&gateway).await);
    write(&mut halting, "GET /healthz HTTP/1.1\r\nhost: local").await;
    let mut idle = connect(&gateway).await;
    // The connections are accepted one after the other: the others are open, too.
    assert!(probe(&mut idle).await.starts_with("HTTP/1.1 200"));
    pass_time(Duration::from_secs(9)).await;
    let mut other = connect(&gateway).await;
    assert!(probe(&mut other).await.starts_with("HTTP/1.1 200"));
    assert!(is_quiet(&silent) && is_quiet(&halting));
    pass_time(Duration::from_secs(2)).await;
    assert!(!read_head(&mut halting).await.starts_with("HTTP/1.1 200"), "10 s for a head");
    assert_eq!(read_head(&mut silent).await, "", "closed");
    assert!(probe(&mut idle).await.starts_with("HTTP/1.1 200"), "an idle one has a minute");
    pass_time(Duration::from_mins(2)).await;
    assert_eq!(read_head(&mut idle).await, "", "closed");
}

/// Sends a part of a body, and lets the time for it pass.
async fn send_slowly(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let head = format!(
        "POST {WHY} HTTP/1.1\r\nhost: localhost\r\nx-api-key: rules-key\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: 100\r\nexpect: 100-continue\r\n\r\n"
    );
    write(&mut stream, &head).await;
    assert!(read_head(&mut stream).await.starts_with("HTTP/1.1 100"), "the body is awaited");
    // Bytes that arrive do not prolong the time.
    for piece in ["{\"client\":", " ", " "] {
        write(&mut stream, piece).await;
        pass_time(Duration::from_secs(3)).await;
    }
    pass_time(Duration::from_secs(2)).await;
    let mut answer = String::new();
    within(stream.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert!(answer.contains("the body did not arrive in time"), "{answer}");
}

#[tokio::test]
async fn a_body_has_ten_seconds_to_arrive() {
    let gateway = with_roles(Gateway::alone()).start().await;
    send_slowly(connect(&gateway).await).await;
    send_slowly(TcpStream::connect(gateway.running.admin.unwrap()).await.unwrap()).await;
}

async fn post(client: &Client, path: &str, media: Option<&str>, body: String) -> Said {
    let mut ask = client.http("POST", path).body(body);
    if let Some(media) = media {
        ask = ask.header("content-type", media);
    }
    ask.send().await.said().await
}

#[tokio::test]
async fn a_body_has_at_most_a_mebibyte() {
    let gateway = with_roles(Gateway::alone()).start().await;
    let question = "{\"client\":\"plain\",\"tool\":\"none\"}";
    for client in [gateway.operator(), gateway.remote_operator().key("rules-key")] {
        for (size, status) in [(1 << 20, 200), ((1 << 20) + 1, 413)] {
            let body = question.to_owned() + &" ".repeat(size - question.len());
            let said = post(&client, WHY, Some("application/json"), body).await;
            assert_eq!(said.status, status, "{size}: {said:?}");
            if status == 413 {
                assert_eq!(code(&said, 413), "body_too_large");
            }
        }
    }
    // A body without a length is counted as it arrives.
    let head = format!(
        "POST {WHY} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    let piece = format!("10000\r\n{}\r\n", " ".repeat(1 << 16));
    for (pieces, status) in [(16, 400), (17, 413)] {
        let mut stream = connect(&gateway).await;
        let body = piece.repeat(pieces) + "0\r\n\r\n";
        // The gateway closes the connection once there are too many bytes.
        let _ = within(stream.write_all((head.clone() + &body).as_bytes())).await;
        let answer = read_head(&mut stream).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status}")), "{pieces}: {answer}");
    }
}

#[tokio::test]
async fn a_body_of_another_media_type_is_refused_before_it_has_an_effect() {
    let gateway = with_roles(Gateway::alone()).start().await;
    let question = || "{\"client\":\"plain\",\"tool\":\"none\"}".to_owned();
    for client in [gateway.operator(), gateway.remote_operator().key("rules-key")] {
        for media in [
            None,
            Some("text/plain"),
            Some("application/x-www-form-urlencoded"),
            Some("multipart/form-data; boundary=application/json"),
            Some("text/plain; application/json"),
            Some("application/jsonp"),
            Some("application/merge-patch+json"),
            Some(""),
        ] {
            let said = post(&client, WHY, media, question()).await;
            assert_eq!(code(&said, 415), "unsupported_media_type", "{media:?}");
        }
        for media in ["application/json", "application/json;charset=utf-8", "Application/JSON"] {
            let said = post(&client, WHY, Some(media), question()).await;
            assert_eq!(said.status, 200, "{media}: {said:?}");
        }
        let said = post(&client, WHY, Some("application/json"), "{\"client\":".to_owned()).await;
        assert_eq!(code(&said, 400), "invalid_request");
        let said = post(&client, WHY, Some("application/json"), String::new()).await;
        assert_eq!(code(&said, 400), "invalid_request");
    }
    // The page beside the API reads no body, and refuses the type of one.
    let operator = gateway.operator();
    for media in ["text/plain", "multipart/form-data"] {
        let said = post(&operator, "/servers/s/refresh", Some(media), String::new()).await;
        assert_eq!(code(&said, 415), "unsupported_media_type", "{media}");
    }
    assert_eq!(send(&operator, "POST", "/servers/s/refresh").await.status, 404);
    assert_eq!(send(&operator, "GET", STATUS).await.status, 200);
}
