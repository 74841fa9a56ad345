//! HTTP/1.1 on the wire: bodies, persistent connections, and refusals.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trunkline::listener::{ConnectionLimits, Settings};

use crate::door::{Door, Event, read_to_close, settled, within};

#[tokio::test]
async fn a_body_is_read_however_it_comes() {
    let door = Door::open(Settings::default()).await;
    let long = "y".repeat(300_000);
    let moderate = "z".repeat(57_000);
    for (framing, body, wanted) in [
        ("Content-Length: 5", "hello".to_owned(), "hello"),
        ("Content-Length: 0", String::new(), ""),
        ("X-None: 1", String::new(), ""),
        (
            "Transfer-Encoding: chunked",
            "3\r\nhel\r\n2;x=y\r\nlo\r\n0\r\nx: y\r\n\r\n".into(),
            "hello",
        ),
        ("transfer-encoding:Chunked", "0\r\n\r\n".into(), ""),
        ("Content-Length: 57000", moderate.clone(), &moderate),
        ("Content-Length: 300000", long.clone(), &long),
        ("Transfer-Encoding: chunked", format!("493e0\r\n{long}\r\n0\r\n\r\n"), &long),
    ] {
        let text = format!("POST /echo HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n{body}");
        // All at once, the body after its head, and in minimal pieces.
        let head = text.len() - body.len();
        for steps in [vec![text.len()], vec![head, text.len()], drops(text.len())] {
            let mut socket = door.connect().await;
            socket.set_nodelay(true).unwrap();
            let mut from = 0;
            for to in steps {
                socket.write_all(&text.as_bytes()[from..to]).await.unwrap();
                tokio::time::sleep(Duration::from_millis(1)).await;
                from = to;
            }
            let (head, answer) = answer(&mut socket).await;
            assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
            assert!(answer == wanted, "{framing}: {} bytes, not {}", answer.len(), wanted.len());
            socket.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").await.unwrap();
            assert_eq!(self::answer(&mut socket).await.1, "HTTP/1.1 tls=false", "{framing}");
        }
    }
}

/// Returns the positions that cut a text so that it arrives byte by byte at both ends.
fn drops(length: usize) -> Vec<usize> {
    let start = length.min(120);
    (1..start).chain(length.saturating_sub(9).max(start)..=length).collect()
}

#[tokio::test]
async fn requests_that_come_together_are_answered_one_after_the_other() {
    let door = Door::open(Settings::default()).await;
    let one = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\none";
    let two = "GET /lines HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let three = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let all = door.exchange(format!("{one}\r\n\r\n{two}{three}\r\n")).await;
    let places: Vec<_> = ["one", "three\n", "tls=false"].map(|text| all.find(text)).into();
    assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{all}");
    assert_eq!(all.matches("HTTP/1.1 200 OK").count(), 3, "{all}");
}

#[tokio::test]
async fn a_head_that_may_mean_two_things_is_refused() {
    let door = Door::open(Settings::default()).await;
    let host = "Host: localhost\r\n";
    for (text, status) in [
        (
            format!("POST /echo HTTP/1.1\r\n{host}Content-Length: 3\r\nContent-Length: 4\r\n\r\n"),
            400,
        ),
        (format!("POST /echo HTTP/1.1\r\n{host}Content-Length: 3, 3\r\n\r\nabc"), 400),
        (format!("POST /echo HTTP/1.1\r\n{host}Content-Length: +3\r\n\r\nabc"), 400),
        (format!("POST /echo HTTP/1.1\r\n{host}Content-Length: 99999999999999999999\r\n\r\n"), 400),
        (
            format!(
                "POST /echo HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"
            ),
            400,
        ),
        (format!("POST /echo HTTP/1.0\r\n{host}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400),
        (format!("POST /echo HTTP/1.1\r\n{host}Transfer-Encoding: gzip, chunked\r\n\r\n"), 501),
        (format!("POST /echo HTTP/1.1\r\n{host}Transfer-Encoding: chunked, gzip\r\n\r\n"), 400),
        (format!("POST /echo HTTP/1.1\r\n{host}Content-Length : 3\r\n\r\nabc"), 400),
        (format!("GET / HTTP/1.1\r\n{host}X: y\r\n folded\r\n\r\n"), 400),
        (format!("GET / HTTP/1.1\r\n{host}X: \0\r\n\r\n"), 400),
        (format!("GET / HTTP/3.7\r\n{host}\r\n"), 400),
        (format!("GET /\u{7f} HTTP/1.1\r\n{host}\r\n"), 400),
        ("\u{16}\u{3}\u{1}".into(), 400),
    ] {
        let answer = door.exchange(&text).await;
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{text:?}: {answer}");
        assert!(answer.contains("connection: close"), "{answer}");
    }
}

/// RFC 9112, 6.3: the transfer coding wins, and bytes after such a request are not trusted.
#[tokio::test]
async fn a_body_with_two_framings_is_the_last_of_its_connection() {
    let door = Door::open(Settings::default()).await;
    let framings = [
        "Content-Length: 4\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nContent-Length: 4",
        "Content-Length: 4\nTransfer-Encoding: chunked",
    ];
    for framing in framings {
        let smuggled = "GET /lines HTTP/1.1\r\nHost: localhost\r\n\r\n";
        let text = format!(
            "POST /echo HTTP/1.1\r\nHost: localhost\r\n{framing}\r\n\r\n2\r\nab\r\n0\r\n\r\n{smuggled}"
        );
        let answer = door.exchange(&text).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{framing:?}: {answer}");
        assert!(answer.contains("connection: close") && answer.ends_with("\r\nab"), "{answer}");
    }
}

#[tokio::test]
async fn a_connection_is_kept_as_its_client_asks() {
    let door = Door::open(Settings::default()).await;
    for (head, kept) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n", true),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nConnection: x, close\r\n", false),
        ("GET / HTTP/1.0\r\nHost: localhost\r\n", false),
        ("GET / HTTP/1.0\r\nHost: localhost\r\nConnection: Keep-Alive\r\n", true),
        ("GET /none HTTP/1.1\r\nHost: localhost\r\n", true),
        ("HEAD / HTTP/1.1\r\nHost: localhost\r\n", true),
        ("GET /lines HTTP/1.0\r\nHost: localhost\r\nConnection: keep-alive\r\n", false),
    ] {
        let last = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let all = door.exchange(format!("{head}\r\n{last}")).await;
        let answers = all.matches("HTTP/1.1 20").count() + all.matches("HTTP/1.0 20").count();
        assert_eq!(answers, if kept { 2 } else { 1 }, "{head:?}: {all}");
    }
}

#[tokio::test]
async fn responses_declare_the_length_of_their_body_or_its_absence() {
    let door = Door::open(Settings::default()).await;
    for (request, wanted, body) in [
        ("HEAD / HTTP/1.1", "content-length: 18\r\n", ""),
        ("GET / HTTP/1.1", "content-length: 18\r\n", "HTTP/1.1 tls=false"),
        ("GET /none HTTP/1.1", "HTTP/1.1 204 No Content\r\n", ""),
        ("GET /lines HTTP/1.1", "transfer-encoding: chunked\r\n", "4\r\none\n\r\n2328\r\nxxx"),
    ] {
        let all = door
            .exchange(format!("{request}\r\nHost: localhost\r\nConnection: close\r\n\r\n"))
            .await;
        let (head, rest) = all.split_once("\r\n\r\n").unwrap();
        let head = format!("{head}\r\n");
        assert!(head.contains(wanted), "{head}");
        assert!(head.contains("\r\ndate: "), "{head}");
        assert_eq!(head.contains("204"), !head.contains("content-length: ") && body.is_empty());
        assert!(rest.starts_with(body) && rest.is_empty() == body.is_empty(), "{rest}");
    }
    let all = door.exchange("GET /lines HTTP/1.0\r\nHost: localhost\r\n\r\n").await;
    assert!(!all.contains("transfer-encoding") && all.ends_with("xxthree\n"), "{all}");
}

#[tokio::test]
async fn a_client_that_expects_100_continue_gets_it() {
    let door = Door::open(Settings::default()).await;
    let mut socket = door.connect().await;
    let head =
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5";
    socket.write_all(format!("{head}\r\n\r\n").as_bytes()).await.unwrap();
    let mut told = [0; 25];
    within(socket.read_exact(&mut told)).await.unwrap();
    assert_eq!(&told, b"HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(b"hello").await.unwrap();
    assert_eq!(answer(&mut socket).await.1, "hello");

    // A connection with an unread body is not kept, and its further bytes are not parsed.
    let unwanted = head.replace("/echo", "/");
    socket.write_all(format!("{unwanted}\r\n\r\n").as_bytes()).await.unwrap();
    let rest = read_to_close(&mut socket).await;
    assert!(rest.starts_with("HTTP/1.1 200 OK\r\n"), "{rest}");
}

#[tokio::test]
async fn an_unread_body_is_never_taken_for_a_request() {
    let door = Door::open(Settings::default()).await;
    let head = "POST / HTTP/1.1\r\nHost: localhost\r\n";
    let hidden = "GET /lines HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
    let length = format!("Content-Length: {}\r\n\r\n{hidden}", hidden.len());
    let chunked =
        format!("Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    for body in [length, chunked] {
        let mut socket = door.connect().await;
        // The rest may meet a closed connection.
        let _ = socket.write_all(format!("{head}{body}").as_bytes()).await;
        let _ = socket.shutdown().await;
        let answers = read_to_close(&mut socket).await;
        assert!(answers.matches("HTTP/1.1 200").count() <= 1, "{answers}");
        assert!(!answers.contains("three"), "{answers}");
    }
}

#[tokio::test]
async fn a_client_that_sends_only_half_of_a_body_it_left_unread_is_closed_in_time() {
    let idle = Duration::from_millis(200);
    let door = Door::with(ConnectionLimits { idle, ..ConnectionLimits::default() }).await;
    let answer =
        door.exchange("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\nhalf").await;
    assert_eq!(answer.matches("HTTP/1.1").count(), 2, "the status and the text: {answer}");
}

#[tokio::test]
async fn a_body_that_breaks_off_is_seen_to() {
    let door = Door::open(Settings::default()).await;
    let text = "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
    let answer = door.exchange(text).await;
    assert!(answer.contains("no body: error reading a body from connection"), "{answer}");
    // Towards a client, too: the end of the body is missing.
    let answer = door.exchange("GET /breaks HTTP/1.1\r\nHost: localhost\r\n\r\n").await;
    assert!(!answer.contains("\r\n0\r\n"), "{answer}");
}

#[tokio::test]
async fn a_client_that_leaves_within_its_body_ends_its_request() {
    let door = Door::open(Settings::default()).await;
    let mut socket = door.connect().await;
    let text = "POST /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nab";
    socket.write_all(text.as_bytes()).await.unwrap();
    assert_eq!(door.event().await, Event::Entered);
    drop(socket);
    assert_eq!(door.event().await, Event::Dropped);
}

#[tokio::test]
async fn pipelined_requests_wait_within_bounds() {
    let door = Door::open(Settings::default()).await;
    let hold = "POST /hold HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc";
    let mut socket = door.connect().await;
    socket.write_all(hold.as_bytes()).await.unwrap();
    assert_eq!(door.event().await, Event::Entered);
    // More than the socket's buffers hold: unread bytes stay with the client.
    let (mut read, mut write) = socket.into_split();
    let written = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&written);
    let ahead = tokio::spawn(async move {
        let next = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(1_000);
        for _ in 0..1_000 {
            if write.write_all(next.as_bytes()).await.is_err() {
                return;
            }
            counted.fetch_add(next.len(), Relaxed);
        }
    });
    settled(&written).await;
    assert!(!ahead.is_finished(), "a client may not fill memory with requests sent ahead");
    door.release.notify_one();
    let mut first = [0; 12];
    within(read.read_exact(&mut first)).await.unwrap();
    assert_eq!(&first, b"HTTP/1.1 200");
    ahead.abort();
}

/// Reads one answer's head and its body, which has a length.
async fn answer(socket: &mut TcpStream) -> (String, String) {
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        seen.push(within(socket.read_u8()).await.unwrap());
    }
    let head = String::from_utf8(seen).unwrap();
    let length = head.split_once("content-length: ").unwrap().1;
    let length = length.split_once("\r\n").unwrap().0.parse().unwrap();
    let mut body = vec![0; length];
    within(socket.read_exact(&mut body)).await.unwrap();
    (head, String::from_utf8(body).unwrap())
}
