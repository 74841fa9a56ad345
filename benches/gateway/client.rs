//! A client that costs little: one request, written once, whose number changes.

use std::net::SocketAddr;

use memchr::memmem;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// How the client talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Modern,
    Legacy,
}

/// Whom a client calls, and what.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    pub address: SocketAddr,
    pub era: Era,
    pub tool: &'static str,
}

/// A connection, and the call that is made on it again and again.
pub struct Conversation {
    wire: Wire,
    request: Numbered,
    /// What the next answer has to be, but for its number.
    answer: Option<Numbered>,
    number: u64,
    session: Option<String>,
    address: SocketAddr,
}

impl Conversation {
    /// Connects; in the Legacy era opens a session, too.
    pub async fn open(target: &Target) -> Self {
        let mut wire = Wire::open(target.address).await;
        let session = match target.era {
            Era::Modern => None,
            Era::Legacy => Some(wire.initialize(target.address).await),
        };
        let request = request(target, session.as_deref());
        let request = Numbered::new(request, FIRST);
        Self { wire, request, answer: None, number: FIRST, session, address: target.address }
    }

    /// One call. A wrong answer ends the bench.
    pub async fn call(&mut self) {
        self.number += 1;
        self.wire.stream.write_all(self.request.numbered(self.number)).await.unwrap();
        let (head, whole) = self.wire.receive().await;
        let body = &self.wire.received[head..whole];
        match &mut self.answer {
            Some(answer) => {
                let right = answer.numbered(self.number);
                assert!(body == right, "another answer: {}", String::from_utf8_lossy(body));
            }
            None => self.answer = Some(Numbered::new(checked(body, self.number), self.number)),
        }
        self.wire.consume(whole);
    }

    /// Ends the session, if there is one.
    pub async fn close(mut self) {
        if let Some(session) = &self.session {
            let head = format!("mcp-session-id: {session}\r\n");
            self.wire.exchange("DELETE", self.address, &head, "").await;
        }
    }
}

/// How many tools there are.
pub async fn list_tools(address: SocketAddr) -> usize {
    let mut wire = Wire::open(address).await;
    let head = "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\n";
    let body =
        json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta() } });
    let (_, body) = wire.exchange("POST", address, head, &body.to_string()).await;
    let body: Value = serde_json::from_str(&body).unwrap();
    body["result"]["tools"].as_array().expect("a list").len()
}

/// The whole of the first answer is read and judged; the others must be the same.
fn checked(body: &[u8], number: u64) -> Vec<u8> {
    let answer: Value = serde_json::from_slice(body).expect("JSON");
    let result = &answer["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_default();
    assert!(
        answer["id"] == number
            && result["isError"] == false
            && text.starts_with(&format!("number {number} "))
            && (900..1200).contains(&body.len()),
        "a wrong answer: {answer}"
    );
    body.to_vec()
}

fn meta() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "bench", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    })
}

/// A call of 0.6 KB, with its head.
fn request(target: &Target, session: Option<&str>) -> Vec<u8> {
    let mut call = json!({
        "jsonrpc": "2.0",
        "id": FIRST,
        "method": "tools/call",
        "params": {
            "name": target.tool,
            "arguments": {
                "number": FIRST,
                "path": "src/listen",
                "query": "",
                "limit": 20,
                "mode": "deep",
                "tags": ["rust", "http", "proxy"],
                "options": { "case": false, "context": 3 },
            },
        },
    });
    let head = if let Some(session) = session {
        format!("mcp-protocol-version: 2025-11-25\r\nmcp-session-id: {session}\r\n")
    } else {
        call["params"]["_meta"] = meta();
        let name = target.tool;
        format!(
            "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {name}\r\n"
        )
    };
    let short = CALL - call.to_string().len();
    call["params"]["arguments"]["query"] = "who closes a connection? ".repeat(30)[..short].into();
    message("POST", target.address, &head, &call.to_string())
}

fn message(method: &str, address: SocketAddr, head: &str, body: &str) -> Vec<u8> {
    format!(
        "{method} /mcp HTTP/1.1\r\nhost: {address}\r\nuser-agent: bench\r\n\
         accept: application/json, text/event-stream\r\ncontent-type: application/json\r\n\
         {head}content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// Bytes with a number of ten digits in some places.
struct Numbered {
    bytes: Vec<u8>,
    places: Vec<usize>,
}

impl Numbered {
    fn new(bytes: Vec<u8>, number: u64) -> Self {
        let places: Vec<usize> = memmem::find_iter(&bytes, number.to_string().as_bytes()).collect();
        assert_eq!(places.len(), 2, "the id and the argument");
        Self { bytes, places }
    }

    fn numbered(&mut self, number: u64) -> &[u8] {
        let digits = number.to_string();
        for place in &self.places {
            self.bytes[*place..place + digits.len()].copy_from_slice(digits.as_bytes());
        }
        &self.bytes
    }
}

/// A connection that reads as much HTTP/1.1 as there is here.
struct Wire {
    stream: TcpStream,
    received: Vec<u8>,
}

impl Wire {
    async fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        stream.set_nodelay(true).unwrap();
        Self { stream, received: Vec::with_capacity(8192) }
    }

    async fn initialize(&mut self, address: SocketAddr) -> String {
        let body = json!({
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-11-25",
                "capabilities": {},
                "clientInfo": { "name": "bench", "version": "1" },
            },
        });
        let (head, _) = self.exchange("POST", address, "", &body.to_string()).await;
        let session = value(&head, "mcp-session-id").expect("a session").to_owned();
        let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let head = format!("mcp-session-id: {session}\r\n");
        self.exchange("POST", address, &head, body).await;
        session
    }

    async fn exchange(
        &mut self,
        method: &str,
        address: SocketAddr,
        head: &str,
        body: &str,
    ) -> (String, String) {
        self.stream.write_all(&message(method, address, head, body)).await.unwrap();
        let (head, whole) = self.receive().await;
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let both = (text(&self.received[..head]), text(&self.received[head..whole]));
        self.consume(whole);
        both
    }

    /// Waits for a whole response; gives where its body begins and ends.
    async fn receive(&mut self) -> (usize, usize) {
        loop {
            if let Some(end) = memmem::find(&self.received, b"\r\n\r\n") {
                let head = std::str::from_utf8(&self.received[..end]).unwrap();
                let length = value(head, "content-length").map_or(0, |len| len.parse().unwrap());
                let whole = end + 4 + length;
                if self.received.len() >= whole {
                    return (end + 4, whole);
                }
            }
            let read = self.stream.read_buf(&mut self.received).await.unwrap();
            assert!(read > 0, "the connection was closed");
        }
    }

    fn consume(&mut self, whole: usize) {
        self.received.drain(..whole);
    }
}

fn value<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let line = head.split("\r\n").find_map(|line| {
        let (key, value) = line.split_once(':')?;
        key.eq_ignore_ascii_case(name).then_some(value)
    });
    line.map(str::trim)
}

const FIRST: u64 = 1_000_000_000;
/// The bytes of a call's body.
const CALL: usize = 600;
