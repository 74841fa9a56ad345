//! Unfinished bodies: each occupies memory as long as the gateway waits for it.

use std::net::SocketAddr;

use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Gateway, Upstream, until, within};
use crate::{ATTACKER, BYSTANDER, two_clients};

const KIB: usize = 1024;

/// A request with half of its body sent.
struct HalfSent(TcpStream);

impl HalfSent {
    /// Announces twice as many bytes as it sends.
    async fn post(address: SocketAddr, key: &str, bytes: usize) -> Self {
        let mut socket = TcpStream::connect(address).await.unwrap();
        let head = format!(
            "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            bytes * 2
        );
        socket.write_all(head.as_bytes()).await.unwrap();
        within(socket.write_all(&vec![b' '; bytes])).await.unwrap();
        Self(socket)
    }

    /// Sends the rest, and reads the answer.
    async fn finish(mut self, rest: usize) -> (u16, Value) {
        // It may be refused before it is complete.
        let _ = within(self.0.write_all(&vec![b' '; rest])).await;
        self.answer().await
    }

    /// Returns true if the gateway waits for the rest; it answers a refused request.
    fn is_held(&self) -> bool {
        self.0.peek(&mut [0]).now_or_never().is_none()
    }

    async fn answer(mut self) -> (u16, Value) {
        let mut text = Vec::new();
        let (head, body) = loop {
            assert_ne!(within(self.0.read_buf(&mut text)).await.unwrap(), 0, "no answer");
            let read = String::from_utf8_lossy(&text).into_owned();
            if let Some((head, body)) = read.split_once("\r\n\r\n")
                && let Ok(body) = serde_json::from_str(body)
            {
                break (head.to_owned(), body);
            }
        };
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
    }
}

async fn gateway(limits: &str) -> (Gateway, Upstream) {
    let upstream = Upstream::modern().await;
    let lines = format!("limits = {{ body = \"256KiB\", {limits} }}");
    let gateway = two_clients(Gateway::with("s", upstream.http()).gateway(&lines)).start().await;
    (gateway, upstream)
}

/// Begins bodies until the gateway accepts no further one. Returns those begun, and the refusal.
async fn fill(gateway: &Gateway, key: &str) -> (Vec<HalfSent>, Value) {
    let mut begun = Vec::new();
    for _ in 0..32 {
        begun.push(HalfSent::post(gateway.running.address, key, 100 * KIB).await);
        // The memory of the preceding body may be released after its answer. Only a second refusal
        // is due to the unfinished bodies.
        if refusal(gateway, key).await.is_some()
            && let Some(refusal) = refusal(gateway, key).await
        {
            return (begun, refusal);
        }
    }
    panic!("{} unfinished bodies are in memory", begun.len());
}

/// Sends a whole body in two pieces; returns the refusal, if it is refused.
async fn refusal(gateway: &Gateway, key: &str) -> Option<Value> {
    let probe = HalfSent::post(gateway.running.address, key, 100 * KIB).await;
    let (status, body) = probe.finish(100 * KIB).await;
    if status == 429 {
        return Some(body);
    }
    assert_eq!(body["error"]["code"], -32_700, "whitespace is no message: {body}");
    None
}

/// Waits until no more than `most` bodies are held; the others are refused.
async fn held_at_most(most: usize, begun: &[HalfSent]) {
    until(|| begun.iter().filter(|half| half.is_held()).count() <= most).await;
}

#[tokio::test]
async fn unfinished_bodies_of_one_client_take_its_own_share_of_memory_and_no_more() {
    let (gateway, _upstream) = gateway("bodies_each = \"512KiB\", bodies = \"4MiB\"").await;
    let (held, refusal) = fill(&gateway, ATTACKER).await;
    assert_eq!(refusal["error"]["data"]["limit"], "bodies_each", "{refusal}");
    held_at_most(5, &held).await;
    let large = json!({ "text": "x".repeat(200 * KIB) });
    let bystander = gateway.modern().key(BYSTANDER);
    assert!(bystander.call("s__echo", large.clone()).await.text().len() > 200 * KIB);
    drop(held);
    let attacker = gateway.modern().key(ATTACKER);
    within(async { while attacker.call("s__echo", large.clone()).await.status == 429 {} }).await;
}

#[tokio::test]
async fn unfinished_bodies_of_all_clients_take_so_much_memory_and_no_more() {
    let (gateway, _upstream) = gateway("bodies_each = \"512KiB\", bodies = \"768KiB\"").await;
    let (mut held, _) = fill(&gateway, ATTACKER).await;
    let (others, refusal) = fill(&gateway, BYSTANDER).await;
    assert_eq!(refusal["error"]["data"]["limit"], "bodies", "{refusal}");
    held.extend(others);
    held_at_most(7, &held).await;
    // A body that arrives in one piece is served.
    let small = gateway.modern().key(BYSTANDER).call("s__echo", json!({})).await;
    assert_eq!(small.text(), "{}");
}

#[tokio::test]
async fn an_unfinished_body_counts_towards_its_clients_rate() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).gateway("client_rate = \"3/h\"");
    let gateway = two_clients(gateway).start().await;
    let mut begun = Vec::new();
    for _ in 0..3 {
        begun.push(HalfSent::post(gateway.running.address, ATTACKER, 600 * KIB).await);
    }
    let refused = async {
        loop {
            // Sent after the others, once they have been counted.
            let one_more = HalfSent::post(gateway.running.address, ATTACKER, 600 * KIB).await;
            let (status, body) = one_more.finish(600 * KIB).await;
            if status == 429 {
                return body;
            }
        }
    };
    let refused = within(refused).await;
    assert_eq!(refused["error"]["data"]["limit"], "client:attacker", "{refused}");
    for half in begun {
        let (status, body) = half.finish(600 * KIB).await;
        assert!(status == 400 || status == 429, "counted once, and only once: {body}");
    }
}

#[tokio::test]
async fn an_unfinished_body_over_the_rate_takes_no_memory() {
    let upstream = Upstream::modern().await;
    let limits = "limits = { body = \"256KiB\", bodies_each = \"512KiB\", bodies = \"512KiB\" }";
    let gateway = Gateway::with("s", upstream.http()).gateway("client_rate = \"1/h\"");
    let gateway = two_clients(gateway.gateway(limits)).start().await;
    let attacker = gateway.modern().key(ATTACKER);
    assert_eq!(attacker.call("s__echo", json!({})).await.text(), "{}");
    let mut begun = Vec::new();
    for _ in 0..8 {
        begun.push(HalfSent::post(gateway.running.address, ATTACKER, 100 * KIB).await);
    }
    let counted = async {
        let all_refused = |line: &str| {
            line.starts_with("trunkline_errors_total")
                && line.ends_with(" 8")
                && line.contains("over_limit")
        };
        while !gateway.metrics().await.lines().any(all_refused) {}
    };
    within(counted).await;
    let large = json!({ "text": "x".repeat(200 * KIB) });
    let bystander = gateway.modern().key(BYSTANDER).call("s__echo", large).await;
    assert!(bystander.text().len() > 200 * KIB);
}
