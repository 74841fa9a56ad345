//! A plain HTTP API: pages that a test sets, and an echo of every other request.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// A received request.
#[derive(Debug, Clone)]
pub struct ApiCall {
    pub method: String,
    /// Path and query.
    pub target: String,
    pub headers: HeaderMap,
    pub body: Bytes,
}

impl ApiCall {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Response for one path.
#[derive(Debug, Clone)]
pub struct Page {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Bytes,
}

impl Page {
    pub fn new(status: u16, media_type: &str, body: impl Into<Bytes>) -> Self {
        let headers = vec![("content-type", media_type.to_owned())];
        Self { status, headers, body: body.into() }
    }

    pub fn json(body: &Value) -> Self {
        Self::new(200, "application/json", body.to_string())
    }

    pub fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }
}

/// A server that speaks plain HTTP.
pub struct PlainApi {
    pub address: SocketAddr,
    inner: Arc<ApiInner>,
    _serving: JoinSet<()>,
}

#[derive(Default)]
struct ApiInner {
    pages: Mutex<HashMap<String, Page>>,
    /// Pages for one response each, before those above.
    once: Mutex<HashMap<String, VecDeque<Page>>>,
    received: Mutex<Vec<ApiCall>>,
    /// The required token; requests without it are refused.
    token: Mutex<Option<String>>,
}

impl PlainApi {
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let inner = Arc::new(ApiInner::default());
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, Arc::clone(&inner)));
        Self { address, inner, _serving: serving }
    }

    /// Starts a server with this document at `/openapi.json`.
    pub async fn with(document: &Value) -> Self {
        let api = Self::start().await;
        api.sets("/openapi.json", Page::json(document));
        api
    }

    /// Sets the response of a path.
    pub fn sets(&self, path: &str, page: Page) {
        self.inner.pages.lock().unwrap().insert(path.into(), page);
    }

    /// Sets the next response of a path, before its usual one.
    pub fn sets_once(&self, path: &str, page: Page) {
        self.inner.once.lock().unwrap().entry(path.into()).or_default().push_back(page);
    }

    /// Refuses every request without this bearer token.
    pub fn demands(&self, token: &str) {
        *self.inner.token.lock().unwrap() = Some(format!("Bearer {token}"));
    }

    /// Sets members of the JSON object in the response of a path.
    pub fn alters(&self, path: &str, members: &Value) {
        let mut pages = self.inner.pages.lock().unwrap();
        let page = pages.get_mut(path).unwrap();
        let mut body: Value = serde_json::from_slice(&page.body).unwrap();
        for (name, value) in members.as_object().unwrap() {
            body[name] = value.clone();
        }
        page.body = body.to_string().into();
    }

    pub fn removes(&self, path: &str) {
        self.inner.pages.lock().unwrap().remove(path);
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns the configuration line with the document's URL.
    pub fn openapi(&self) -> String {
        format!("openapi = \"{}\"\n", self.url("/openapi.json"))
    }

    /// Returns the requests for this path, without its query.
    pub fn calls(&self, path: &str) -> Vec<ApiCall> {
        let received = self.inner.received.lock().unwrap();
        let is_meant = |call: &&ApiCall| call.target.split('?').next() == Some(path);
        received.iter().filter(is_meant).cloned().collect()
    }

    pub fn last(&self) -> ApiCall {
        self.inner.received.lock().unwrap().last().unwrap().clone()
    }

    pub fn received(&self) -> Vec<ApiCall> {
        self.inner.received.lock().unwrap().clone()
    }
}

async fn serve(listener: TcpListener, inner: Arc<ApiInner>) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let inner = Arc::clone(&inner);
        connections.spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&inner), request));
            let builder = auto::Builder::new(TokioExecutor::new());
            let _ = builder.serve_connection(TokioIo::new(socket), service).await;
        });
    }
}

async fn answer(
    inner: Arc<ApiInner>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let call = ApiCall {
        method: head.method.to_string(),
        target: head.uri.path_and_query().unwrap().to_string(),
        headers: head.headers,
        body,
    };
    inner.received.lock().unwrap().push(call.clone());
    let token = inner.token.lock().unwrap().clone();
    if token.is_some() && call.header("authorization") != token.as_deref() {
        let body = Full::from(r#"{"detail":"Not authenticated"}"#);
        return Ok(Response::builder().status(401).body(body).unwrap());
    }
    let first = inner.once.lock().unwrap().get_mut(head.uri.path()).and_then(VecDeque::pop_front);
    let page = first.or_else(|| inner.pages.lock().unwrap().get(head.uri.path()).cloned());
    let page = page.unwrap_or_else(|| Page::json(&echo(&call)));
    let etag = page.headers.iter().find(|(name, _)| *name == "etag").map(|(_, etag)| etag);
    if etag.is_some() && call.header("if-none-match") == etag.map(String::as_str) {
        return Ok(Response::builder().status(304).body(Full::default()).unwrap());
    }
    let response =
        page.headers.iter().fold(Response::builder().status(page.status), |all, (name, value)| {
            all.header(*name, value)
        });
    Ok(response.body(Full::new(page.body)).unwrap())
}

fn echo(call: &ApiCall) -> Value {
    json!({
        "method": call.method, "target": call.target,
        "body": String::from_utf8_lossy(&call.body),
    })
}
