//! A client that sends exactly the messages of a test, in either era.

mod ask;
mod reply;
mod wire;

pub use ask::Ask;
pub use reply::{Piece, Reply, Said};
pub use wire::{Protocol, ShownCertificate, Trust, dial};

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};
use tokio::sync::Mutex;

use wire::Wire;

/// A client of the gateway.
pub struct Client {
    address: SocketAddr,
    /// The Unix socket that it connects to instead.
    socket: Option<PathBuf>,
    protocol: Protocol,
    trust: Option<Trust>,
    kind: Kind,
    /// Capabilities that it offers to servers.
    pub capabilities: Value,
    /// Its `clientInfo`.
    pub info: Value,
    next_id: AtomicU64,
    /// Path for its messages.
    endpoint: String,
    /// Credential of every request.
    credential: Option<(&'static str, String)>,
    /// The persistent connection, if all requests share one.
    kept: Option<Mutex<Option<Wire>>>,
}

/// Protocol kind of a client.
#[derive(Clone)]
pub enum Kind {
    Plain,
    Modern,
    Legacy { session: Option<String>, version: String },
}

impl Client {
    fn new(address: SocketAddr, kind: Kind) -> Self {
        Self {
            address,
            socket: None,
            protocol: Protocol::Http1,
            trust: None,
            kind,
            capabilities: json!({}),
            info: json!({ "name": "a-test", "version": "1" }),
            next_id: AtomicU64::new(1),
            endpoint: "/mcp".into(),
            credential: None,
            kept: None,
        }
    }

    pub fn modern(address: SocketAddr) -> Self {
        Self::new(address, Kind::Modern)
    }

    pub fn plain(address: SocketAddr) -> Self {
        Self::new(address, Kind::Plain)
    }

    /// Returns the client with these capabilities. A Legacy one opens a session of its own for
    /// them.
    pub async fn offering(mut self, capabilities: Value) -> Self {
        self.capabilities = capabilities;
        self.initialized().await
    }

    /// Opens a session.
    pub async fn legacy(address: SocketAddr, version: &str) -> Self {
        Self::sessionless(address, version).initialized().await
    }

    /// Returns a Legacy client that has no session yet.
    pub fn sessionless(address: SocketAddr, version: &str) -> Self {
        Self::new(address, Kind::Legacy { session: None, version: version.into() })
    }

    /// Returns the client with this name. A Legacy one sends it when it opens its session.
    pub fn named(mut self, name: &str, version: &str) -> Self {
        self.info = json!({ "name": name, "version": version });
        self
    }

    /// Returns the client with a key.
    pub fn key(mut self, key: &str) -> Self {
        self.credential = Some(("authorization", format!("Bearer {key}")));
        self
    }

    /// Returns the client at another endpoint.
    pub fn at(mut self, endpoint: &str) -> Self {
        self.endpoint = endpoint.into();
        self
    }

    /// Returns the client with a session of its own. Fails if it gets none.
    pub async fn initialized(mut self) -> Self {
        let Kind::Legacy { version, .. } = &self.kind else { return self };
        let version = version.clone();
        let reply = self.initialize(&version).await;
        let session = reply.header("mcp-session-id").expect("a session");
        let version = reply.said().await.result()["protocolVersion"].as_str().unwrap().to_owned();
        self.kind = Kind::Legacy { session: Some(session), version };
        let noted = self.ask("notifications/initialized", Value::Null).notification().send().await;
        assert_eq!(noted.status(), 202);
        self
    }

    /// Returns the client with a session of its own, if it gets one. A Modern one needs none.
    pub async fn try_initialized(mut self) -> Option<Self> {
        let Kind::Legacy { version, .. } = &self.kind else { return Some(self) };
        let reply = self.ask_initialize(version).try_send().await.ok()?;
        let session = Some(reply.header("mcp-session-id")?);
        let said = reply.try_said().await.ok()?;
        let version = said.messages.last()?["result"]["protocolVersion"].as_str()?.to_owned();
        self.kind = Kind::Legacy { session, version };
        let noted = self.ask("notifications/initialized", Value::Null).notification();
        noted.try_send().await.is_ok_and(|reply| reply.status() == 202).then_some(self)
    }

    /// Sends `initialize` without using the answer.
    pub async fn initialize(&self, version: &str) -> Reply {
        self.ask_initialize(version).send().await
    }

    fn ask_initialize(&self, version: &str) -> Ask<'_> {
        let params = json!({
            "protocolVersion": version,
            "capabilities": self.capabilities,
            "clientInfo": self.info,
        });
        self.ask("initialize", params).without("mcp-protocol-version").without("mcp-session-id")
    }

    /// Returns the client over cleartext HTTP/2, on one connection.
    pub fn h2(mut self) -> Self {
        self.protocol = Protocol::Http2;
        self.keep()
    }

    /// Returns the client over TLS.
    pub fn tls(mut self, trust: Trust) -> Self {
        self.trust = Some(trust);
        self
    }

    /// Returns a client of a private socket.
    pub fn on_socket(path: &Path) -> Self {
        let nowhere = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { socket: Some(path.to_owned()), ..Self::plain(nowhere) }
    }

    /// Returns the client with one connection for all requests.
    pub fn keep(mut self) -> Self {
        self.kept = Some(Mutex::new(None));
        self
    }

    /// Returns the client with another kind, on the same connection.
    pub fn becomes(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    pub fn kind(&self) -> Kind {
        self.kind.clone()
    }

    pub fn is_modern(&self) -> bool {
        matches!(self.kind, Kind::Modern)
    }

    /// Returns the session's id.
    pub fn session(&self) -> &str {
        match &self.kind {
            Kind::Legacy { session: Some(session), .. } => session,
            _ => panic!("a client without a session"),
        }
    }

    /// Closes its one connection.
    pub async fn disconnect(&self) {
        if let Some(kept) = &self.kept {
            kept.lock().await.take();
        }
    }

    /// Returns a request, to be changed before it is sent.
    pub fn ask(&self, method: &str, params: Value) -> Ask<'_> {
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Ask::new(self, method, params, id)
    }

    /// Returns a `tools/call`, to be changed before it is sent.
    pub fn ask_call(&self, tool: &str, arguments: Value) -> Ask<'_> {
        self.ask("tools/call", json!({ "name": tool, "arguments": arguments }))
    }

    /// Answers a server's request by its id.
    pub async fn respond(&self, id: &Value, result: Value) {
        let answer = json!({ "jsonrpc": "2.0", "id": id, "result": result });
        self.answer(answer).await;
    }

    /// Refuses a server's request by its id.
    pub async fn refuse(&self, id: &Value, error: Value) {
        self.answer(json!({ "jsonrpc": "2.0", "id": id, "error": error })).await;
    }

    async fn answer(&self, answer: Value) {
        let ask = self.http("POST", "/mcp").of_session().body(answer.to_string());
        let taken = ask.header("content-type", "application/json").send().await;
        assert_eq!(taken.status(), 202);
    }

    /// Returns a plain HTTP request.
    pub fn http(&self, method: &str, path: &str) -> Ask<'_> {
        Ask::bare(self, method, path)
    }

    /// Calls a tool; returns the whole response.
    pub async fn call(&self, tool: &str, arguments: Value) -> Said {
        self.ask_call(tool, arguments).send().await.said().await
    }

    /// Sends a request; returns the whole response.
    pub async fn request(&self, method: &str, params: Value) -> Said {
        self.ask(method, params).send().await.said().await
    }

    /// Reads a resource with any characters in its URI.
    pub async fn read_resource(&self, uri: &str) -> Said {
        use base64::Engine as _;
        let mut ask = self.ask("resources/read", json!({ "uri": uri }));
        if self.is_modern() {
            let encoded = base64::engine::general_purpose::STANDARD.encode(uri);
            ask = ask.header("mcp-name", &format!("=?base64?{encoded}?="));
        }
        ask.send().await.said().await
    }

    /// Returns true if it can subscribe to a resource.
    pub async fn subscribes(&self, uri: &str) -> bool {
        if !self.is_modern() {
            let said = self.request("resources/subscribe", json!({ "uri": uri })).await;
            return said.answer().get("result").is_some();
        }
        let filter = json!({ "notifications": { "resourceSubscriptions": [uri] } });
        let mut stream = self.ask("subscriptions/listen", filter).send().await;
        let first = stream.message().await.unwrap();
        first["params"]["notifications"]["resourceSubscriptions"][0] == uri
    }

    /// Returns the tools that it sees.
    pub async fn tools(&self) -> Vec<Value> {
        let said = self.request("tools/list", json!({})).await;
        said.result()["tools"].as_array().unwrap_or_else(|| panic!("{said:?}")).clone()
    }

    /// Returns the names of the tools that it sees.
    pub async fn tool_names(&self) -> Vec<String> {
        let tools = self.tools().await;
        tools.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()).collect()
    }

    /// Opens the stream of change notifications: GET or `subscriptions/listen`, read up to its
    /// first event.
    pub async fn listen(&self) -> Reply {
        let mut reply = match &self.kind {
            Kind::Modern => {
                let filter = json!({ "notifications": { "toolsListChanged": true } });
                self.ask("subscriptions/listen", filter).send().await
            }
            _ => self.get_stream().send().await,
        };
        assert_eq!(reply.status(), 200);
        reply.piece().await.expect("a first event");
        reply
    }

    /// Resumes a stream after an event.
    pub async fn resume(&self, behind: &str) -> Reply {
        self.get_stream().header("last-event-id", behind).send().await
    }

    /// Returns the GET of a Legacy session's stream.
    pub fn get_stream(&self) -> Ask<'_> {
        self.http("GET", &self.endpoint).of_session().header("accept", "text/event-stream")
    }
}
