//! Connections that are idle, excessive, or arrive when there is no room.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use http::StatusCode;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use trunkline::listener::{ConnectionLimits, Settings};

use crate::door::{Door, Event, get, get_h2, text, within};
use crate::frames::{self, HEADERS, RST_STREAM, WINDOW_UPDATE, connect, frame_heads};
use crate::waiting::until;

#[tokio::test]
async fn a_connection_that_never_gets_to_a_request_is_closed() {
    for start in
        ["", "P", "PR", "G", "GET / HTTP/1.1\r\nHost: loc", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]
    {
        let door = Door::with(hasty()).await;
        let mut socket = door.connect().await;
        socket.write_all(start.as_bytes()).await.unwrap();
        let answer = within(read_bytes_to_close(&mut socket)).await;
        assert!(!answer.starts_with(b"HTTP/1.1 2"), "{start:?}: {answer:?}");
        until(|| door.counts.open.value() == 0).await;
        assert_eq!(door.counts.unused.load(Relaxed), 1, "{start:?}");
    }
}

#[tokio::test]
async fn a_kept_connection_is_closed_when_it_is_idle_or_stops_in_half_a_head() {
    let whole = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for then in ["", "GET / HTT"] {
        let door = Door::with(restless()).await;
        let answer = door.exchange(format!("{whole}{then}")).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(answer.matches("HTTP/1.1 200").count(), 1, "{answer}");
    }
}

#[tokio::test]
async fn an_idle_http_2_connection_is_closed_and_a_busy_one_is_not() {
    let door = Door::with(restless()).await;
    let mut idle = door.h2().await;
    let mut busy = door.h2().await;
    let held = tokio::spawn(busy.send_request(get_h2("/hold")));
    assert_eq!(door.event().await, Event::Entered);
    idle.send_request(get_h2("/")).await.unwrap();

    until(|| idle.is_closed()).await;

    door.release.notify_one();
    assert_eq!(text(held.await.unwrap().unwrap()).await, "held");
}

#[tokio::test]
async fn headers_over_the_bound_are_answered_with_431_on_both_protocols() {
    let limits = ConnectionLimits { header: 4096, ..ConnectionLimits::default() };
    let door = Door::with(limits).await;
    let (mut h1, mut h2) = (door.h1().await, door.h2().await);
    for (bytes, wanted) in [(3000, 200), (5000, 431), (100_000, 431)] {
        let value = "x".repeat(bytes);
        let mut request = get("/");
        request.headers_mut().insert("x-long", value.parse().unwrap());
        let answer = within(h1.send_request(request)).await.unwrap();
        assert_eq!(answer.status(), wanted, "{bytes} bytes, HTTP/1");
        if bytes == 5000 {
            let body = text(answer).await;
            assert!(body.contains("`limits.header` allows 4096"), "{body}");
        }
        if bytes <= 5000 {
            let mut request = get_h2("/");
            request.headers_mut().insert("x-long", value.parse().unwrap());
            let answer = within(h2.send_request(request)).await.unwrap();
            assert_eq!(answer.status(), wanted, "{bytes} bytes, HTTP/2");
        }
    }
}

#[tokio::test]
async fn so_many_header_lines_are_read_and_no_more() {
    for header_lines in [20, 100, 150] {
        let limits = ConnectionLimits { header_lines, ..ConnectionLimits::default() };
        let door = Door::with(limits).await;
        for (lines, wanted) in [(header_lines, 200), (header_lines + 1, 431)] {
            // The host and the end of the connection are lines, too.
            let more = "a: b\r\n".repeat(lines - 2);
            let head = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
            let answer = door.exchange(format!("{head}{more}\r\n")).await;
            assert!(answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{lines}: {answer}");
            let mut request = get_h2("/");
            for _ in 0..lines {
                request.headers_mut().append("a", http::HeaderValue::from_static("b"));
            }
            let answer = within(door.h2().await.send_request(request)).await.unwrap();
            assert_eq!(answer.status(), wanted, "{lines}, HTTP/2");
        }
    }
}

#[tokio::test]
async fn one_connection_too_many_gets_503_and_freed_room_is_used() {
    let limits = ConnectionLimits { connections: 1, ..ConnectionLimits::default() };
    let door = Door::with(limits).await;
    let mut first = door.h1().await;
    let response = first.send_request(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);

    let answer = door.exchange("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("\"jsonrpc\""), "{answer}");
    assert_eq!(door.counts.refused.load(Relaxed), 1);

    drop(text(response).await);
    drop(first);
    until(|| door.counts.open.value() == 0).await;
    let response = door.h1().await.send_request(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn one_address_has_so_many_connections_and_no_more() {
    let limits = ConnectionLimits { connections_each: 1, ..ConnectionLimits::default() };
    let door = Door::with(limits).await;
    let first = door.h1().await;
    let answer = door.exchange("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(door.counts.refused.load(Relaxed), 1);
    drop(first);
    until(|| door.counts.open.value() == 0).await;
    let response = door.h1().await.send_request(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

#[tokio::test]
async fn one_http_2_stream_too_many_is_reset_and_the_others_are_served() {
    let limits = ConnectionLimits { h2_streams: 2, ..ConnectionLimits::default() };
    let door = Door::with(limits).await;
    let mut socket = connect(&door).await;
    for stream in [1, 3, 5] {
        let head = frames::get(stream, "/hold");
        socket.write_all(&head).await.unwrap();
    }
    let mut seen = Vec::new();
    let reset = |seen: &[u8]| frame_heads(seen).into_iter().find(|(kind, _)| *kind == RST_STREAM);
    while reset(&seen).is_none() {
        assert_ne!(within(socket.read_buf(&mut seen)).await.unwrap(), 0, "not closed");
    }
    assert_eq!(reset(&seen), Some((RST_STREAM, 5)));
    assert_eq!((door.event().await, door.event().await), (Event::Entered, Event::Entered));
    door.release.notify_waiters();
    let answered = |seen: &[u8]| {
        let heads = frame_heads(seen);
        [1, 3].iter().all(|stream| heads.contains(&(HEADERS, *stream)))
    };
    while !answered(&seen) {
        assert_ne!(within(socket.read_buf(&mut seen)).await.unwrap(), 0, "not closed");
    }
}

#[tokio::test]
async fn an_http_2_client_may_send_little_of_an_unread_body() {
    const WINDOW: u32 = 256 * 1024;
    let door = Door::open(Settings::default()).await;
    let mut socket = connect(&door).await;
    let mut seen = Vec::new();
    while !frame_heads(&seen).contains(&(WINDOW_UPDATE, 0)) {
        assert_ne!(within(socket.read_buf(&mut seen)).await.unwrap(), 0, "not closed");
    }
    let found = |bytes: &[u8]| seen.windows(bytes.len()).any(|window| window == bytes);
    assert!(found(&frames::initial_window(WINDOW)), "of one body: {seen:?}");
    // For all bodies together, in addition to the window that RFC 9113, 6.9.2, grants every
    // connection.
    assert!(found(&frames::grant(0, WINDOW - 65_535)), "{seen:?}");
}

#[tokio::test]
async fn an_http_2_client_that_answers_no_ping_is_closed() {
    let door = Door::with(ConnectionLimits { ping: BRIEF, ..ConnectionLimits::default() }).await;
    let mut socket = connect(&door).await;
    let head = frames::get(1, "/hold");
    socket.write_all(&head).await.unwrap();
    assert_eq!(door.event().await, Event::Entered);
    within(read_bytes_to_close(&mut socket)).await;
    assert_eq!(door.event().await, Event::Dropped);
}

#[tokio::test]
async fn limits_can_be_changed_while_serving() {
    let limits = ConnectionLimits { connections: 0, ..ConnectionLimits::default() };
    let door = Door::with(limits).await;
    let answer = door.exchange("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");

    door.live.publish(Settings::default());

    let response = door.h1().await.send_request(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

fn hasty() -> ConnectionLimits {
    ConnectionLimits { handshake: BRIEF, ..ConnectionLimits::default() }
}

fn restless() -> ConnectionLimits {
    ConnectionLimits { idle: BRIEF, ..ConnectionLimits::default() }
}

async fn read_bytes_to_close(socket: &mut tokio::net::TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes).await;
    bytes
}

const BRIEF: Duration = Duration::from_millis(200);
