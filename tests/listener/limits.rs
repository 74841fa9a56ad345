//! Connections that do nothing, too much, or come when there is no room.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use http::StatusCode;
use tokio::io::AsyncWriteExt as _;
use trunkline::listener::{ConnectionLimits, Settings};

use crate::door::{Door, Event, get, get_h2, text, within};

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
        until(|| door.counts.open.load(Relaxed) == 0).await;
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
    let lines = "a: b\r\n".repeat(101);
    let answer = door.exchange(format!("GET / HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")).await;
    assert!(answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test]
async fn one_connection_too_many_is_told_503_and_room_that_is_made_is_used() {
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
    until(|| door.counts.open.load(Relaxed) == 0).await;
    let response = door.h1().await.send_request(get("/")).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
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

/// Polls a state that has no event of its own.
async fn until(reached: impl Fn() -> bool) {
    within(async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

async fn read_bytes_to_close(socket: &mut tokio::net::TcpStream) -> Vec<u8> {
    use tokio::io::AsyncReadExt as _;
    let mut bytes = Vec::new();
    let _ = socket.read_to_end(&mut bytes).await;
    bytes
}

const BRIEF: Duration = Duration::from_millis(200);
