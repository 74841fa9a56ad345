//! A scripted server: of either era, over HTTP and stdio at once, with a record of all received
//! messages.

pub mod encoding;
mod http;
pub mod marked;
pub mod news;
pub mod offers;
mod script;
pub mod skills;
mod stdio;
pub mod tasks;

pub use script::{Received, Step};

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, broadcast, watch};
use tokio::task::JoinHandle;

use super::{poll_for, within};
use news::{Audience, Tell};
use script::Behaviour;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    Modern,
    Legacy,
}

/// A status, headers and a body.
pub type Canned = (u16, Vec<(String, String)>, String);

/// Check of a request over HTTP; `None` admits it.
pub type RequestGuard = Arc<dyn Fn(&Received) -> Option<Canned> + Send + Sync>;

/// A server of one era with both transports.
pub struct Upstream {
    pub inner: Arc<Inner>,
    http: SocketAddr,
    stdio: SocketAddr,
    tasks: [JoinHandle<()>; 2],
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.inner.close();
    }
}

pub struct Inner {
    pub era: Era,
    pub tools: Mutex<Vec<String>>,
    pub page: Mutex<Option<usize>>,
    behaviours: Mutex<HashMap<String, Behaviour>>,
    /// Behaviour for methods other than `tools/call`.
    methods: Mutex<HashMap<String, Behaviour>>,
    received: Mutex<Vec<Received>>,
    /// True to keep received messages for the test.
    keeps: AtomicBool,
    /// True for a child that continues cancelled calls.
    pub deaf: AtomicBool,
    /// Answers that it received, by the ids of its requests.
    pub answers: Mutex<BTreeMap<String, Value>>,
    /// Counts received messages.
    news: watch::Sender<usize>,
    /// Messages outside of its answers.
    pub tells: broadcast::Sender<Tell>,
    /// Streams for these messages.
    pub watchers: watch::Sender<usize>,
    pub audience: Mutex<HashMap<u64, Audience>>,
    /// Resources that Legacy sessions, or children, are subscribed to.
    pub subscribed: Mutex<HashMap<String, HashSet<String>>>,
    /// Resources without subscriptions.
    pub unknown: Mutex<HashSet<String>>,
    pub capabilities: Mutex<Value>,
    /// Lists other than the tools, by the member of their results.
    pub lists: Mutex<HashMap<String, Vec<Value>>>,
    pub gate: Semaphore,
    /// Calls with closed connections, to be resumed.
    pub closed: Mutex<Vec<Option<http::Rest>>>,
    pub sessions: Mutex<HashSet<String>>,
    pub session_numbers: AtomicU64,
    /// Refusal of an unknown session.
    pub lost: Mutex<(u16, Value)>,
    /// Response for every request.
    pub refuse: Mutex<Option<Canned>>,
    /// Check that refuses some requests over HTTP.
    pub guard: Mutex<Option<RequestGuard>>,
    /// Content coding of all responses over HTTP.
    pub coding: Mutex<Option<&'static str>>,
    pub version: Mutex<String>,
    /// Its name in its `serverInfo`.
    pub name: Mutex<String>,
    pub instructions: Mutex<Option<String>>,
    pub list_ttl: Mutex<Option<u64>>,
    /// Ends all connections.
    cut: watch::Sender<u64>,
    pub starts: AtomicUsize,
    /// Its behaviour for Legacy clients, if it speaks both eras.
    legacy_side: Mutex<Option<Arc<Inner>>>,
}

impl Upstream {
    pub async fn modern() -> Self {
        Self::start(Era::Modern).await
    }

    pub async fn legacy() -> Self {
        Self::start(Era::Legacy).await
    }

    /// Starts one server of each era.
    pub async fn both() -> [Self; 2] {
        [Self::modern().await, Self::legacy().await]
    }

    /// Starts a server with the tools `echo`, `count`, `hold` and `fail`.
    pub async fn start(era: Era) -> Self {
        let listeners = [listener(0).await, listener(0).await];
        Self::on(era, listeners)
    }

    /// Starts the same at an address of its own over HTTP, as soon as that is free.
    pub async fn at(era: Era, address: SocketAddr) -> Self {
        let http = poll_for(async || TcpListener::bind(address).await.ok());
        Self::on(era, [http.await, listener(0).await])
    }

    fn on(era: Era, [http_listener, stdio_listener]: [TcpListener; 2]) -> Self {
        let inner = Arc::new(Inner::new(era));
        let http = http_listener.local_addr().unwrap();
        let stdio = stdio_listener.local_addr().unwrap();
        let tasks = [
            tokio::spawn(http::serve(Arc::clone(&inner), http_listener)),
            tokio::spawn(stdio::serve(Arc::clone(&inner), stdio_listener)),
        ];
        Self { inner, http, stdio, tasks }
    }

    /// Returns the configuration lines for it over HTTP.
    pub fn http(&self) -> String {
        format!("url = \"http://{}/mcp\"\n", self.http)
    }

    /// Returns the address of its lines without a child.
    pub fn stdio_address(&self) -> SocketAddr {
        self.stdio
    }

    pub fn http_address(&self) -> SocketAddr {
        self.http
    }

    /// Returns the configuration lines for it as a child process that only connects its standard
    /// streams to this server.
    pub fn stdio(&self) -> String {
        let script = self.program();
        format!("command = \"bash\"\nargs = [\"-c\", {script:?}]\nstop_timeout = \"500ms\"\n")
    }

    /// Returns the lines of a Bash script for such a process.
    pub fn program(&self) -> String {
        stdio::carrier(self.stdio.port())
    }

    /// Returns both transports, each with its name.
    pub fn ways(&self) -> [(&'static str, String); 2] {
        [("http", self.http()), ("stdio", self.stdio())]
    }

    /// Replaces the list, given as raw JSON texts, without a notification.
    pub fn set_tools<T: Into<String>>(&self, tools: impl IntoIterator<Item = T>) -> &Self {
        *self.inner.tools.lock().unwrap() = tools.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a tool with its behaviour.
    pub fn tool(
        &self,
        tool: &Value,
        does: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> &Self {
        let name = tool["name"].as_str().unwrap().to_owned();
        self.inner.tools.lock().unwrap().push(tool.to_string());
        self.inner.behaviours.lock().unwrap().insert(name, Arc::new(does));
        self
    }

    /// Adds a tool that accepts any arguments.
    pub fn does(
        &self,
        name: &str,
        does: impl Fn(&Received) -> Vec<Step> + Send + Sync + 'static,
    ) -> &Self {
        self.tool(&tool(name), does)
    }

    /// Speaks Legacy as well, in which case it behaves like `other`.
    pub fn speaks_legacy_as(&self, other: &Self) -> &Self {
        *self.inner.legacy_side.lock().unwrap() = Some(Arc::clone(&other.inner));
        self
    }

    /// Sets another name in its `serverInfo`.
    pub fn calls_itself(&self, name: &str) -> &Self {
        *self.inner.name.lock().unwrap() = name.into();
        self
    }

    /// Declares the logging capability.
    pub fn logs(&self) -> &Self {
        self.inner.capabilities.lock().unwrap()["logging"] = json!({});
        self
    }

    /// Keeps no record of received messages, for tests with very many.
    pub fn keeps_nothing(&self) -> &Self {
        self.inner.keeps.store(false, Ordering::Relaxed);
        self
    }

    /// Continues cancelled calls, as a child.
    pub fn heeds_no_cancellation(&self) -> &Self {
        self.inner.deaf.store(true, Ordering::Relaxed);
        self
    }

    /// Serves its list in pages of this many tools.
    pub fn pages_of(&self, tools: usize) -> &Self {
        *self.inner.page.lock().unwrap() = Some(tools);
        self
    }

    /// Releases this many `Hold`s.
    pub fn release(&self, holds: usize) {
        self.inner.gate.add_permits(holds);
    }

    /// Forgets every session, as after a restart.
    pub fn forget_sessions(&self) {
        self.inner.sessions.lock().unwrap().clear();
        self.inner.subscribed.lock().unwrap().clear();
    }

    /// Sets the refusal of unknown sessions.
    pub fn refuses_lost_sessions_with(&self, status: u16, body: Value) -> &Self {
        *self.inner.lost.lock().unwrap() = (status, body);
        self
    }

    /// Sets the response for every HTTP request from now on; `None` restores the usual ones.
    pub fn answers(&self, what: Option<(u16, &str)>) -> &Self {
        *self.inner.refuse.lock().unwrap() =
            what.map(|(status, body)| (status, Vec::new(), body.to_owned()));
        self
    }

    /// Checks each request over HTTP first; the check's response refuses it.
    pub fn guards(
        &self,
        guard: impl Fn(&Received) -> Option<Canned> + Send + Sync + 'static,
    ) -> &Self {
        *self.inner.guard.lock().unwrap() = Some(Arc::new(guard));
        self
    }

    /// Encodes all responses over HTTP, independent of the request.
    pub fn encodes_with(&self, coding: &'static str) -> &Self {
        *self.inner.coding.lock().unwrap() = Some(coding);
        self
    }

    /// Breaks all connections, like a crash.
    pub fn crash(&self) {
        self.inner.close();
    }

    /// Returns the number of starts as a child process.
    pub fn starts(&self) -> usize {
        self.inner.starts.load(Ordering::SeqCst)
    }

    /// Returns all received messages.
    pub fn received(&self) -> Vec<Received> {
        self.inner.received.lock().unwrap().clone()
    }

    /// Returns the received messages of one method. `GET`, `DELETE` and `closed` (the gateway
    /// closed a call's stream) count as methods.
    pub fn all(&self, method: &str) -> Vec<Received> {
        self.received().into_iter().filter(|received| received.method == method).collect()
    }

    /// Returns the received calls.
    pub fn calls(&self) -> Vec<Received> {
        self.all("tools/call")
    }

    /// Waits until this many messages of a method were received; returns the last of them.
    #[track_caller]
    pub fn heard(&self, method: &str, times: usize) -> impl Future<Output = Received> {
        let (inner, method) = (Arc::clone(&self.inner), method.to_owned());
        within(async move {
            let mut news = inner.news.subscribe();
            loop {
                news.mark_unchanged();
                let received = inner.received.lock().unwrap().clone();
                let found: Vec<_> = received.into_iter().filter(|r| r.method == method).collect();
                if found.len() >= times {
                    return found[times.saturating_sub(1)].clone();
                }
                news.changed().await.unwrap();
            }
        })
    }
}

/// Returns the list entry of a tool that accepts any arguments.
pub fn tool(name: &str) -> Value {
    json!({ "name": name, "inputSchema": { "type": "object" } })
}

async fn listener(port: u16) -> TcpListener {
    TcpListener::bind(("127.0.0.1", port)).await.unwrap()
}

impl Inner {
    fn new(era: Era) -> Self {
        let no_session = json!({
            "jsonrpc": "2.0", "id": null,
            "error": { "code": -32000, "message": "Bad Request: No valid session ID provided" },
        });
        let inner = Self {
            era,
            tools: Mutex::default(),
            page: Mutex::default(),
            behaviours: Mutex::default(),
            methods: Mutex::default(),
            received: Mutex::default(),
            keeps: AtomicBool::new(true),
            deaf: AtomicBool::new(false),
            answers: Mutex::default(),
            news: watch::Sender::new(0),
            tells: broadcast::Sender::new(1024),
            watchers: watch::Sender::new(0),
            audience: Mutex::default(),
            subscribed: Mutex::default(),
            unknown: Mutex::default(),
            capabilities: Mutex::new(json!({ "tools": { "listChanged": true } })),
            lists: Mutex::default(),
            gate: Semaphore::new(0),
            closed: Mutex::default(),
            sessions: Mutex::default(),
            session_numbers: AtomicU64::new(0),
            lost: Mutex::new((404, no_session)),
            refuse: Mutex::default(),
            guard: Mutex::default(),
            coding: Mutex::default(),
            version: Mutex::new("2025-11-25".into()),
            name: Mutex::new("scripted".into()),
            instructions: Mutex::default(),
            list_ttl: Mutex::default(),
            cut: watch::Sender::new(0),
            starts: AtomicUsize::new(0),
            legacy_side: Mutex::default(),
        };
        for (name, does) in script::first_tools() {
            inner.tools.lock().unwrap().push(tool(name).to_string());
            inner.behaviours.lock().unwrap().insert(name.to_owned(), does);
        }
        inner
    }

    pub fn note(&self, received: Received) {
        if received.method.is_empty()
            && let Some(Value::String(id)) = &received.id
        {
            let message: Value = serde_json::from_str(&received.text).unwrap();
            let said = message.get("result").or(message.get("error")).cloned();
            self.answers.lock().unwrap().insert(id.clone(), said.unwrap());
        }
        if self.keeps.load(Ordering::Relaxed) {
            self.received.lock().unwrap().push(received);
        }
        self.news.send_modify(|count| *count += 1);
    }

    /// Returns the server for a client that opened in Legacy, or not.
    fn side(self: &Arc<Self>, is_legacy: bool) -> Arc<Self> {
        let legacy = self.legacy_side.lock().unwrap().clone().filter(|_| is_legacy);
        legacy.unwrap_or_else(|| Arc::clone(self))
    }

    fn close(&self) {
        self.cut.send_modify(|count| *count += 1);
    }

    /// Completes when the current connections should be broken.
    pub async fn cut(&self) {
        let _ = self.cut.subscribe().changed().await;
    }

    pub fn steps(&self, call: &Received) -> Vec<Step> {
        let scripted = self.methods.lock().unwrap().get(&call.method).cloned();
        if let Some(scripted) = scripted {
            return scripted(call);
        }
        let name = call.params["name"].as_str().unwrap_or_default();
        let behaviour = self.behaviours.lock().unwrap().get(name).cloned();
        match behaviour {
            Some(behaviour) => behaviour(call),
            None => vec![Step::Error(
                json!({ "code": -32602, "message": format!("Unknown tool: {name}") }),
            )],
        }
    }
}

/// Counts one listener for changes.
pub struct Watching(Arc<Inner>);

impl Watching {
    pub fn begin(inner: &Arc<Inner>) -> Self {
        inner.watchers.send_modify(|count| *count += 1);
        Self(Arc::clone(inner))
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.0.watchers.send_modify(|count| *count -= 1);
    }
}

/// A time that is long for a test and short for a deadline.
pub const MOMENT: Duration = Duration::from_millis(150);

/// A server with its transport.
pub struct Kind {
    /// Name of the kind, which is also the server's name.
    pub name: &'static str,
    pub upstream: Upstream,
    /// Configuration lines for it.
    pub lines: String,
}

/// Returns a server of each era over each transport.
pub async fn every_kind() -> Vec<Kind> {
    let mut kinds = Vec::new();
    for (name, era) in [
        ("modern-http", Era::Modern),
        ("modern-stdio", Era::Modern),
        ("legacy-http", Era::Legacy),
        ("legacy-stdio", Era::Legacy),
    ] {
        let upstream = Upstream::start(era).await;
        let lines = if name.ends_with("http") { upstream.http() } else { upstream.stdio() };
        kinds.push(Kind { name, upstream, lines });
    }
    kinds
}
