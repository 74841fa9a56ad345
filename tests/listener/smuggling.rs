//! Requests with ambiguous ends, sent to the listener directly, and through nginx in front of it.
//! Every request that is not refused is read according to RFC 9112, and nginx and the listener
//! agree on the end of each.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use trunkline::listener::Settings;

use crate::door::{Door, within};
use crate::nginx::{Nginx, ProxySettings};

/// Interpretation of the bytes by RFC 9112.
enum Reading {
    /// Invalid: a reader that continues may read another request than the sender's.
    Refused,
    /// A body for each request, or a refusal of any of them.
    Bodies(&'static [&'static str]),
    /// Refused, or a request with this body, the last of its connection (RFC 9112, 6.3: a transfer
    /// coding wins over a length, and bytes after it are not trusted).
    Last(&'static str),
}

use Reading::{Bodies, Last, Refused};

const HEAD: &str = "POST /echo HTTP/1.1\r\nHost: localhost\r\n";
/// Request after every case; it is parsed as a request only if the case has ended correctly.
const LAST: &str = "GET /none HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

/// Returns header lines of a POST to `/echo`, its body, and the reading. A text that begins with a
/// method is a request of its own.
fn corpus() -> Vec<(String, Reading)> {
    let chunked = "Transfer-Encoding: chunked\r\n";
    let post = |lines: &str, body: &str| format!("{HEAD}{lines}\r\n{body}");
    let hidden = "0\r\n\r\nGET /echo HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let abc = "3\r\nabc\r\n0\r\n\r\n";
    let mut cases = vec![
        // Two framings of one body.
        (post(&format!("Content-Length: 6\r\n{chunked}"), "0\r\n\r\nX"), Last("")),
        (post(&format!("{chunked}Content-Length: 6\r\n"), "0\r\n\r\nX"), Last("")),
        (post(&format!("Content-Length: {}\r\n{chunked}", hidden.len()), hidden), Last("")),
        (post(&format!("Content-Length: 3\r\n{chunked}"), abc), Last("abc")),
        // A second reader may interpret the header under this name.
        (post("Transfer_Encoding: chunked\r\nContent-Length: 3\r\n", "abc"), Bodies(&["abc"])),
        (post("X-Transfer-Encoding: chunked\r\nContent-Length: 3\r\n", "abc"), Bodies(&["abc"])),
        // Chunked with another coding.
        (post(&format!("{chunked}{chunked}"), abc), Refused),
        // With an empty body, hyper would find the end and continue after it.
        (post(&format!("{chunked}{chunked}"), "0\r\n\r\n"), Refused),
        (post("Transfer-Encoding: gzip, chunked\r\n", abc), Refused),
        (post("Transfer-Encoding: chunked, identity\r\n", abc), Refused),
        (post(&format!("{chunked}Transfer-Encoding: identity\r\n"), abc), Refused),
        // Chunks and their extensions.
        (post(chunked, "3;a=b;c=\"d\"\r\nabc\r\n0;x\r\n\r\n"), Bodies(&["abc"])),
        (post(chunked, "0003\r\nabc\r\n0\r\n\r\n"), Bodies(&["abc"])),
        (post(chunked, "3\r\nabc\r\n0\r\nX: y\r\nContent-Length: 9\r\n\r\n"), Bodies(&["abc"])),
        (post(chunked, "3\nabc\n0\n\n"), Bodies(&["abc"])),
        // Expectations, and bodies in unusual places.
        (post("Expect: 100-continue\r\nContent-Length: 3\r\n", "abc"), Bodies(&["abc"])),
        (post("Expect: something\r\nContent-Length: 3\r\n", "abc"), Bodies(&["abc"])),
        (
            "GET /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc".into(),
            Bodies(&["abc"]),
        ),
        ("POST http://localhost/echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc".into(), Bodies(&["abc"])),
        // Pipelined, and a request that is a body.
        (post("Content-Length: 3\r\n", "abc") + &post(chunked, abc), Bodies(&["abc", "abc"])),
        (format!("\r\n\r\n{}", post("Content-Length: 3\r\n", "abc")), Bodies(&["abc"])),
        (post("Content-Length: 18\r\n", "GET / HTTP/1.1\r\n\r\n"), Bodies(&["GET / HTTP/1.1\r\n\r\n"])),
        (post("Content-Length: 3, 3\r\n", "abc"), Bodies(&["abc"])),
        (post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), Bodies(&["abc"])),
        (post("Content-Length: 3\n", "abc"), Bodies(&["abc"])),
        (post("X: y\nTransfer-Encoding: chunked\r\n", abc), Bodies(&["abc"])),
    ];
    // Invalid lengths.
    for lines in [
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3, 4\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: -3\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: 3 3\r\n",
        "Content-Length: 3;\r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length : 3\r\n",
        "Content-Length\t: 3\r\n",
        // Lines that are folded, or end in the middle.
        "X: y\r\n Content-Length: 3\r\n",
        "Content-Length:\r\n 3\r\n",
        "X: a\rContent-Length: 3\r\n",
        "X: a\0\r\nContent-Length: 3\r\n",
        "Content Length: 3\r\n",
        ": 3\r\n",
    ] {
        cases.push((post(lines, "abc"), Refused));
    }
    for lines in [
        "Transfer-Encoding:\r\n chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding: chunked\u{b}\r\n",
        "Transfer-Encoding: identity\r\n",
    ] {
        cases.push((post(lines, abc), Refused));
    }
    // Invalid chunks: bytes after them must not be taken for a request.
    for body in [
        "0x3\r\nabc\r\n0\r\n\r\n",
        "+3\r\nabc\r\n0\r\n\r\n",
        "-1\r\nabc\r\n0\r\n\r\n",
        "3 3\r\nabc\r\n0\r\n\r\n",
        "2\r\nabc\r\n0\r\n\r\n",
        "4\r\nabc\r\n0\r\n\r\n",
        "10000000000000003\r\nabc\r\n0\r\n\r\n",
        "3;a\nb\r\nabc\r\n0\r\n\r\n",
        "\r\nabc\r\n0\r\n\r\n",
        ";a\r\nabc\r\n0\r\n\r\n",
    ] {
        cases.push((post(chunked, body), Refused));
    }
    // Request lines.
    let host = "Host: localhost\r\n";
    for request in [
        "GET /none\r\n\r\n".to_owned(),
        format!("GET  /none HTTP/1.1\r\n{host}\r\n"),
        format!("GET /none  HTTP/1.1\r\n{host}\r\n"),
        format!("GET /no ne HTTP/1.1\r\n{host}\r\n"),
        format!("GET /none http/1.1\r\n{host}\r\n"),
        format!("GET /none HTTP/1.1\r\n X: y\r\n{host}\r\n"),
        format!("POST /echo HTTP/1.0\r\n{host}{chunked}\r\n{abc}"),
    ] {
        cases.push((request, Refused));
    }
    cases
}

#[tokio::test]
async fn no_request_is_read_out_of_another() {
    for (case, reading) in corpus() {
        let door = Door::open(Settings::default()).await;
        let answers = answers(&exchange(door.addr, &format!("{case}{LAST}")).await);
        match reading {
            Refused => {
                assert!(answers.iter().all(Answer::refuses), "{case:?}: {answers:?}");
                assert_eq!(answers.len(), 1, "refused, then closed; {case:?}: {answers:?}");
                let [Answer { status, closes, .. }] = answers[..] else { unreachable!() };
                // A chunk may break after the answer has begun.
                assert!(status == 200 || closes, "{case:?}: {answers:?}");
            }
            Bodies(bodies) => held_to(&case, &answers, bodies),
            Last(body) => {
                let [answer] = &answers[..] else { panic!("{case:?}: {answers:?}") };
                assert!(answer.refuses() || answer.body == body, "{case:?}: {answers:?}");
            }
        }
    }
}

#[tokio::test]
async fn nginx_in_front_ends_each_request_where_the_listener_does() {
    let door = Door::open(Settings::default()).await;
    let nginx = start_nginx(door.addr).await;
    for (number, (case, reading)) in corpus().into_iter().enumerate() {
        let answers = answers(&exchange(nginx.address, &format!("{case}{LAST}")).await);
        if let Bodies(bodies) = reading {
            held_to(&case, &answers, bodies);
        }
        // The connection between the two is kept: a surplus answer or a waiting request would meet
        // the next client.
        for turn in 0..2 {
            let body = format!("canary-{number}-{turn}");
            let canary =
                format!("{HEAD}Connection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            let answers = self::answers(&exchange(nginx.address, &canary).await);
            let said: Vec<_> =
                answers.iter().map(|answer| (answer.status, &*answer.body)).collect();
            assert_eq!(said, [(200, &*body)], "after {case:?}");
        }
    }
}

/// Checks that the answers belong to these requests and the last one, in this order, or end with a
/// refusal.
#[track_caller]
fn held_to(case: &str, answers: &[Answer], bodies: &[&str]) {
    for (place, answer) in answers.iter().enumerate() {
        if answer.refuses() {
            assert_eq!(place + 1, answers.len(), "{case:?}: {answers:?}");
            return;
        }
        let right = match bodies.get(place) {
            Some(body) => answer.status == 200 && answer.body == *body,
            None => answer.status == 204 && place == bodies.len(),
        };
        assert!(right, "{case:?}: {answers:?}");
    }
    assert_eq!(answers.len(), bodies.len() + 1, "{case:?}: {answers:?}");
}

#[derive(Debug)]
struct Answer {
    status: u16,
    body: String,
    /// True if it announces that no other answer follows on its connection.
    closes: bool,
}

impl Answer {
    /// Returns true for a refusal, by its status, or by its text if the body was broken after the
    /// answer had begun.
    fn refuses(&self) -> bool {
        self.status >= 400 || self.body.starts_with("no body")
    }
}

/// Sends the whole text and reads until the other side closes.
async fn exchange(address: std::net::SocketAddr, text: &str) -> String {
    let mut socket = within(TcpStream::connect(address)).await.unwrap();
    // A server that refuses the beginning may close before the end is written.
    let _ = within(socket.write_all(text.as_bytes())).await;
    let mut read = Vec::new();
    let _ = within(socket.read_to_end(&mut read)).await;
    String::from_utf8(read).unwrap()
}

/// Parses the final answers.
fn answers(mut text: &str) -> Vec<Answer> {
    let mut answers = Vec::new();
    while let Some((head, rest)) = text.split_once("\r\n\r\n") {
        let status: u16 = head.split(' ').nth(1).and_then(|it| it.parse().ok()).expect("a status");
        let lower = head.to_ascii_lowercase();
        let field = |name: &str| lower.lines().find_map(|line| line.strip_prefix(name));
        let (body, behind) = if let Some(length) = field("content-length: ") {
            rest.split_at(length.parse::<usize>().expect("a length").min(rest.len()))
        } else if field("transfer-encoding: ").is_some() {
            let (chunks, behind) = rest.split_once("0\r\n\r\n").unwrap_or((rest, ""));
            let chunk = chunks.split_once("\r\n").map_or(chunks, |(_, data)| data);
            (chunk.trim_end_matches("\r\n"), behind)
        } else {
            ("", rest)
        };
        text = behind;
        if status >= 200 {
            let closes = field("connection: ").is_some_and(|value| value == "close");
            answers.push(Answer { status, body: body.to_owned(), closes });
        }
    }
    answers
}

/// Starts nginx in a usual configuration as a proxy: persistent connections to the listener, streamed
/// bodies.
async fn start_nginx(server: std::net::SocketAddr) -> Nginx {
    Nginx::start(ProxySettings {
        servers: &[server],
        upstream: "keepalive 1;",
        location: "proxy_set_header Connection \"\"; proxy_set_header Host localhost; \
                   proxy_request_buffering off;",
    })
    .await
}
