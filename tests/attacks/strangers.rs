//! Connections of unauthenticated clients, held open by requests that are refused.

use std::net::SocketAddr;
use std::time::Duration;

use http::Request;
use http_body_util::Full;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Gateway, within};
use crate::unread_answers::connect as connect_h2;
use crate::{BYSTANDER, two_clients};

async fn gateway(limits: &str) -> Gateway {
    let limits = format!("limits = {{ {limits} }}");
    two_clients(Gateway::alone().gateway(&limits)).start().await
}

/// A connection over HTTP/1.1.
struct Stranger(TcpStream);

impl Stranger {
    async fn connect(address: SocketAddr) -> Self {
        Self(TcpStream::connect(address).await.unwrap())
    }

    /// Sends a request without a body, and returns the head of the answer.
    async fn ask(&mut self, method: &str, more: &str) -> String {
        let head = format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\n{more}\r\n");
        self.0.write_all(head.as_bytes()).await.unwrap();
        let mut text = Vec::new();
        loop {
            assert_ne!(within(self.0.read_buf(&mut text)).await.unwrap(), 0, "no answer");
            let read = String::from_utf8_lossy(&text).into_owned();
            let Some((head, body)) = read.split_once("\r\n\r\n") else { continue };
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return head.to_owned();
            }
        }
    }

    async fn is_closed(&mut self) {
        let mut rest = Vec::new();
        let read = within(self.0.read_to_end(&mut rest)).await;
        assert!(read.is_err() || rest.is_empty(), "nothing more is said");
    }
}

fn key(key: &str) -> String {
    format!("Authorization: Bearer {key}\r\n")
}

/// Preflight request of a web page.
const PREFLIGHT: &str = "Origin: http://localhost\r\nAccess-Control-Request-Method: POST\r\n";

#[tokio::test]
async fn a_connection_that_carries_nothing_but_refusals_is_closed() {
    let gateway = gateway("handshake = \"1h\", idle = \"1h\"").await;
    for between in [None, Some(PREFLIGHT)] {
        let mut stranger = Stranger::connect(gateway.running.address).await;
        for refusal in 1..=3 {
            if let Some(preflight) = between {
                assert!(stranger.ask("OPTIONS", preflight).await.starts_with("HTTP/1.1 20"));
            }
            let answer = stranger.ask("GET", "").await;
            assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
            assert_eq!(answer.contains("connection: close"), refusal == 3, "{answer}");
        }
        stranger.is_closed().await;
    }
}

#[tokio::test]
async fn foreign_hosts_hold_no_connection_either() {
    let gateway = gateway("handshake = \"1h\", idle = \"1h\"").await;
    let mut stranger = Stranger::connect(gateway.running.address).await;
    for _ in 0..3 {
        let answer = stranger.ask("GET", "Origin: http://evil.example\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    stranger.is_closed().await;
}

#[tokio::test]
async fn a_stranger_is_given_less_time_between_requests_than_a_client() {
    let gateway = gateway("handshake = \"500ms\", idle = \"1h\"").await;
    let mut client = Stranger::connect(gateway.running.address).await;
    let known = client.ask("GET", &key(BYSTANDER)).await;
    assert!(known.starts_with("HTTP/1.1 405"), "{known}");
    let mut stranger = Stranger::connect(gateway.running.address).await;
    assert!(stranger.ask("GET", "").await.starts_with("HTTP/1.1 401"));
    stranger.is_closed().await;
    // A client may have an occasional refusal.
    for _ in 0..4 {
        assert!(client.ask("GET", &key("wrong")).await.starts_with("HTTP/1.1 401"));
        assert!(client.ask("GET", &key(BYSTANDER)).await.starts_with("HTTP/1.1 405"));
    }
}

#[tokio::test]
async fn preflights_that_are_refused_hold_no_connection() {
    let gateway = gateway("handshake = \"1h\", idle = \"1h\"").await;
    let mut stranger = Stranger::connect(gateway.running.address).await;
    for _ in 0..3 {
        assert!(stranger.ask("OPTIONS", "").await.starts_with("HTTP/1.1 401"));
    }
    stranger.is_closed().await;
}

#[tokio::test]
async fn preflights_alone_hold_no_connection() {
    let gateway = gateway("handshake = \"1h\", idle = \"1h\"").await;
    let mut stranger = Stranger::connect(gateway.running.address).await;
    for request in 1..=10 {
        let answer = stranger.ask("OPTIONS", PREFLIGHT).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(answer.contains("connection: close"), request == 10, "{answer}");
    }
    stranger.is_closed().await;
    // A client's page may send any number of them.
    let mut client = Stranger::connect(gateway.running.address).await;
    for _ in 0..12 {
        assert!(client.ask("OPTIONS", PREFLIGHT).await.starts_with("HTTP/1.1 200"));
        assert!(client.ask("GET", &key(BYSTANDER)).await.starts_with("HTTP/1.1 405"));
    }
}

#[tokio::test]
async fn a_stranger_over_http_2_is_closed_after_a_few_refusals_read_or_not() {
    let gateway = gateway("handshake = \"300ms\", idle = \"1h\"").await;
    for (window, leaves_unread) in [(1024, false), (0, true)] {
        let mut stranger = connect_h2(gateway.running.address, window).await;
        let mut unread = Vec::new();
        let closed = async {
            // Never silent as long as the gateway allows.
            while stranger.ready().await.is_ok() {
                let request = Request::get(format!("http://{}/mcp", gateway.running.address));
                let request = request.body(Full::default()).unwrap();
                let Ok(answer) = stranger.send_request(request).await else { return };
                assert_eq!(answer.status(), 401);
                unread.extend(leaves_unread.then_some(answer));
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        within(closed).await;
    }
}

#[tokio::test]
async fn one_address_leaves_connections_to_the_others() {
    let gateway = gateway("connections = 4, share = \"75%\"").await;
    let address = gateway.running.address;
    let mut held = Vec::new();
    for _ in 0..3 {
        held.push(Stranger::connect(address).await);
    }
    // Connections are accepted in their order of arrival.
    let mut one_more = Stranger::connect(address).await;
    let answer = one_more.ask("GET", "").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert_eq!(gateway.status().await["connections"], 3, "the fourth is for another address");
    drop(held.pop());
    gateway.wait_for(|status| status["connections"] == 2).await;
    let mut once_more = Stranger::connect(address).await;
    assert!(once_more.ask("GET", &key(BYSTANDER)).await.starts_with("HTTP/1.1 405"));
}
