//! A host that talks to the gateway in lines.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, DuplexStream, Lines};
use tokio::task::JoinHandle;
use trunkline::config::{HttpConfig, HttpTransport, Secret};
use trunkline::downstream::stdio::{
    BridgeBounds, BridgeEnd, ClientStreams, Here, McpPeer, There, serve,
};
use trunkline::http_client::HttpClient;

use super::{Gateway, within};

/// Destination of a host's lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// The gateway in the same process.
    Here,
    /// The same gateway by its URL.
    There,
}

pub const WAYS: [Way; 2] = [Way::Here, Way::There];

pub struct Host {
    lines: Lines<BufReader<DuplexStream>>,
    input: Option<DuplexStream>,
    ended: JoinHandle<BridgeEnd>,
    next_id: u64,
    /// Messages that arrived while the test waited for another.
    passed: Vec<Value>,
}

impl Host {
    pub fn of(gateway: &Gateway, way: Way) -> Self {
        match way {
            Way::Here => {
                let front = Arc::clone(&gateway.running.mcp);
                Self::start(Here::new(front, "/mcp".parse().unwrap()), bounds())
            }
            Way::There => Self::at(&format!("http://{}/mcp", gateway.running.address)),
        }
    }

    /// Starts a bridge to a URL.
    pub fn at(url: &str) -> Self {
        Self::start(there(url), bounds())
    }

    pub fn start(endpoint: impl McpPeer, bounds: BridgeBounds) -> Self {
        let (input, theirs) = tokio::io::duplex(1 << 16);
        let (output, ours) = tokio::io::duplex(1 << 16);
        let patience = Duration::from_secs(5);
        let streams = ClientStreams { input: theirs, output };
        let ended = tokio::spawn(async move { serve(endpoint, streams, bounds, patience).await });
        let lines = BufReader::new(ours).lines();
        Self { lines, input: Some(input), ended, next_id: 1, passed: Vec::new() }
    }

    pub async fn line(&mut self, text: &str) {
        let line = format!("{text}\n");
        within(self.input.as_mut().unwrap().write_all(line.as_bytes())).await.unwrap();
    }

    pub async fn send(&mut self, message: Value) {
        self.line(&message.to_string()).await;
    }

    /// Returns the next message of any kind; `None` at the end.
    pub async fn next(&mut self) -> Option<Value> {
        if !self.passed.is_empty() {
            return Some(self.passed.remove(0));
        }
        self.read().await
    }

    async fn read(&mut self) -> Option<Value> {
        let line = within(self.lines.next_line()).await.unwrap()?;
        Some(serde_json::from_str(&line).unwrap_or_else(|_| panic!("no message: {line:?}")))
    }

    /// Waits for a matching message; others are kept for later.
    pub async fn wait_for(&mut self, so: impl Fn(&Value) -> bool) -> Value {
        if let Some(at) = self.passed.iter().position(&so) {
            return self.passed.remove(at);
        }
        loop {
            let message = self.read().await.expect("the bridge is there");
            if so(&message) {
                return message;
            }
            self.passed.push(message);
        }
    }

    pub async fn answer(&mut self, id: &Value) -> Value {
        self.wait_for(|message| message["id"] == *id && message["method"].is_null()).await
    }

    /// Sends a Legacy request; returns its id.
    pub async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = json!(self.next_id);
        self.next_id += 1;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(request).await;
        id
    }

    pub async fn ask_modern(&mut self, method: &str, params: Value) -> Value {
        self.ask(method, modern(params)).await
    }

    pub async fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params).await;
        self.answer(&id).await
    }

    pub async fn modern(&mut self, method: &str, params: Value) -> Value {
        self.request(method, modern(params)).await
    }

    /// Opens a Legacy session.
    pub async fn initialize(&mut self) -> Value {
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "host", "version": "1" },
        });
        let answer = self.request("initialize", params).await;
        self.notify("notifications/initialized", json!({})).await;
        answer
    }

    pub async fn notify(&mut self, method: &str, params: Value) {
        self.send(json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    pub async fn cancel(&mut self, id: &Value) {
        self.notify("notifications/cancelled", json!({ "requestId": id })).await;
    }

    /// Closes the input, like a host that is finished.
    pub fn close(&mut self) {
        self.input = None;
    }

    /// Returns all remaining messages, and the reason of the end.
    pub async fn rest(mut self) -> (Vec<Value>, BridgeEnd) {
        self.close();
        let mut rest = std::mem::take(&mut self.passed);
        while let Some(message) = self.read().await {
            rest.push(message);
        }
        (rest, within(self.ended).await.unwrap())
    }

    /// Stops reading, like a host that has vanished.
    pub async fn vanish(self) -> BridgeEnd {
        drop(self.lines);
        let mut input = self.input.unwrap();
        let _ = input.write_all(b"{\"jsonrpc\":\"2.0\",\"id\":0,\"method\":\"ping\"}\n").await;
        within(self.ended).await.unwrap()
    }
}

pub fn there(url: &str) -> There {
    let transport = HttpTransport::Streamable;
    let headers = Vec::<(_, Secret)>::new();
    let http = HttpConfig {
        url: url.parse().unwrap(),
        headers,
        ca: None,
        transport,
        oauth: None,
        aws: None,
    };
    There::new(HttpClient::new(&http, Duration::from_secs(5)).unwrap())
}

pub fn bounds() -> BridgeBounds {
    BridgeBounds { line: 1 << 16, ..BridgeBounds::default() }
}

fn modern(mut params: Value) -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "host", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let own = params["_meta"].take();
    params["_meta"] = meta;
    for (key, value) in own.as_object().into_iter().flatten() {
        params["_meta"][key] = value.clone();
    }
    params
}
