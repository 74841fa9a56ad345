//! The transport of 2024-11-05 in front of a scripted server: a stream, an address for posts, and
//! the faults of both.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use super::{Upstream, until};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// A server on the old transport.
pub struct Old {
    pub address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Drop for Old {
    fn drop(&mut self) {
        self.task.abort();
        self.break_off();
    }
}

struct Shared {
    stdio: SocketAddr,
    /// Address in the stream, with `{}` for the session.
    endpoint: Mutex<String>,
    /// Text of the stream before the address.
    beginning: Mutex<String>,
    /// Status that refuses a POST to the stream's own address.
    refusal: AtomicU16,
    /// Status for received messages, if not 202.
    posted: Mutex<HashMap<String, u16>>,
    /// True to delay the answer to a POST until its request is answered.
    late: Mutex<bool>,
    answered: Notify,
    sessions: Mutex<HashMap<String, Arc<tokio::sync::Mutex<OwnedWriteHalf>>>>,
    streams: AtomicUsize,
    attempts: AtomicUsize,
    cut: watch::Sender<u64>,
}

impl Old {
    /// Starts in front of a server.
    pub async fn before(upstream: &Upstream) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let shared = Arc::new(Shared {
            stdio: upstream.stdio_address(),
            endpoint: Mutex::new("/messages?session_id={}".into()),
            beginning: Mutex::default(),
            refusal: AtomicU16::new(405),
            posted: Mutex::default(),
            late: Mutex::new(false),
            answered: Notify::new(),
            sessions: Mutex::default(),
            streams: AtomicUsize::new(0),
            attempts: AtomicUsize::new(0),
            cut: watch::Sender::new(0),
        });
        let address = listener.local_addr().unwrap();
        let task = tokio::spawn(accept(Arc::clone(&shared), listener));
        Self { address, shared, task }
    }

    pub fn lines(&self) -> String {
        // One stream for all clients, so that it can be counted.
        format!("url = \"http://{}/sse\"\nisolation = \"shared\"\n", self.address)
    }

    pub fn names(&self, endpoint: &str) -> &Self {
        *self.shared.endpoint.lock().unwrap() = endpoint.into();
        self
    }

    /// Begins its streams with this text.
    pub fn begins_with(&self, text: &str) -> &Self {
        *self.shared.beginning.lock().unwrap() = text.into();
        self
    }

    pub fn refuses_with(&self, status: u16) -> &Self {
        self.shared.refusal.store(status, Ordering::SeqCst);
        self
    }

    /// Answers posts of one method with a status, without processing them.
    pub fn answers(&self, method: &str, status: Option<u16>) -> &Self {
        let mut posted = self.shared.posted.lock().unwrap();
        match status {
            Some(status) => posted.insert(method.into(), status),
            None => posted.remove(method),
        };
        drop(posted);
        self
    }

    /// Answers the post of a request after the request has been answered.
    pub fn answers_late(&self) -> &Self {
        *self.shared.late.lock().unwrap() = true;
        self
    }

    /// Ends all streams.
    pub fn break_off(&self) {
        self.shared.cut.send_modify(|count| *count += 1);
        self.shared.sessions.lock().unwrap().clear();
    }

    /// Returns the number of opened streams, and the number of posts to their address.
    pub fn seen(&self) -> (usize, usize) {
        let count = |of: &AtomicUsize| of.load(Ordering::SeqCst);
        (count(&self.shared.streams), count(&self.shared.attempts))
    }

    pub async fn is_open(&self) {
        until(|| !self.shared.sessions.lock().unwrap().is_empty()).await;
    }

    pub async fn is_closed(&self) {
        until(|| self.shared.sessions.lock().unwrap().is_empty()).await;
    }
}

async fn accept(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let mut cut = shared.cut.subscribe();
            let service = {
                let shared = Arc::clone(&shared);
                service_fn(move |request| answer(Arc::clone(&shared), request))
            };
            let builder = auto::Builder::new(TokioExecutor::new());
            tokio::select! {
                _ = cut.changed() => {}
                _ = builder.serve_connection(TokioIo::new(socket), service) => {}
            }
        });
    }
}

async fn answer(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    Ok(match (request.method(), request.uri().path()) {
        (&Method::GET, "/sse") => open(&shared).await,
        (_, "/sse") => {
            shared.attempts.fetch_add(1, Ordering::SeqCst);
            plain(shared.refusal.load(Ordering::SeqCst))
        }
        (&Method::POST, _) => post(&shared, request).await,
        _ => plain(404),
    })
}

/// A session that ends with its stream.
struct Session(Arc<Shared>, String);

impl Drop for Session {
    fn drop(&mut self) {
        self.0.sessions.lock().unwrap().remove(&self.1);
    }
}

async fn open(shared: &Arc<Shared>) -> Response<Body> {
    let number = shared.streams.fetch_add(1, Ordering::SeqCst) + 1;
    let id = format!("session-{number}");
    let socket = TcpStream::connect(shared.stdio).await.unwrap();
    let (output, input) = socket.into_split();
    let input = Arc::new(tokio::sync::Mutex::new(input));
    shared.sessions.lock().unwrap().insert(id.clone(), input);
    let endpoint = shared.endpoint.lock().unwrap().replace("{}", &id);
    let lines = BufReader::new(output).lines();
    let session = Session(Arc::clone(shared), id);
    let beginning = shared.beginning.lock().unwrap().clone();
    let first = Some(format!("{beginning}event: endpoint\r\ndata: {endpoint}\r\n\r\n"));
    let events = stream::unfold((first, lines, session), |(first, mut lines, session)| async {
        let event = match first {
            Some(first) => first,
            None => {
                let line = lines.next_line().await.ok()??;
                session.0.answered.notify_waiters();
                format!("event: message\r\ndata: {line}\r\n\r\n")
            }
        };
        Some((Ok(Frame::data(Bytes::from(event))), (None, lines, session)))
    });
    let mut response = Response::new(StreamBody::new(events).boxed_unsync());
    let media = "text/event-stream; charset=utf-8".parse().unwrap();
    response.headers_mut().insert("content-type", media);
    response
}

async fn post(shared: &Arc<Shared>, request: Request<Incoming>) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let message: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let method = message["method"].as_str().unwrap_or_default();
    if let Some(status) = shared.posted.lock().unwrap().get(method) {
        return plain(*status);
    }
    let id = query.strip_prefix("session_id=").unwrap_or_default();
    let Some(input) = shared.sessions.lock().unwrap().get(id).cloned() else { return plain(404) };
    let late = *shared.late.lock().unwrap() && !message["id"].is_null() && !method.is_empty();
    let answered = shared.answered.notified();
    input.lock().await.write_all(&[&body[..], b"\n"].concat()).await.unwrap();
    if late {
        answered.await;
    }
    plain(202)
}

fn plain(status: u16) -> Response<Body> {
    let mut response = Response::new(Full::from("said in words").boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    response
}
