//! A scripted server over Streamable HTTP.

use std::convert::Infallible;
use std::iter::Peekable;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::vec::IntoIter;

use ::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use futures_util::stream;
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::encoding::encoded;
use super::news::Listener;
use super::script::{Received, Step};
use super::{Era, Inner};

pub(super) type Body = UnsyncBoxBody<Bytes, Infallible>;

pub async fn serve(inner: Arc<Inner>, listener: TcpListener) {
    let mut connections = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        socket.set_nodelay(true).unwrap();
        let inner = Arc::clone(&inner);
        connections.spawn(async move {
            let service = {
                let inner = Arc::clone(&inner);
                service_fn(move |request| answer_encoded(Arc::clone(&inner), request))
            };
            let builder = auto::Builder::new(TokioExecutor::new());
            let connection = builder.serve_connection(TokioIo::new(socket), service);
            tokio::select! {
                () = inner.cut() => {}
                _ = connection => {}
            }
        });
    }
}

async fn answer_encoded(
    inner: Arc<Inner>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let coding = *inner.coding.lock().unwrap();
    let response = answer(inner, request).await?;
    Ok(match coding {
        Some(coding) => encoded(coding, response),
        None => response,
    })
}

async fn answer(
    inner: Arc<Inner>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (head, body) = request.into_parts();
    let version = head.headers.get("mcp-protocol-version");
    let inner = inner.side(version.is_none_or(|version| version != "2026-07-28"));
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    let received = match head.method.as_str() {
        "POST" => Received::read(&text, head.headers),
        other => Received::event(other, json!({ "path": head.uri.path() }), head.headers),
    };
    inner.note(received.clone());
    let refuse = inner.refuse.lock().unwrap().clone();
    if let Some((status, headers, body)) = refuse {
        return Ok(with(status, &headers, body));
    }
    let guard = inner.guard.lock().unwrap().clone();
    if let Some((status, headers, body)) = guard.and_then(|guard| guard(&received)) {
        return Ok(with(status, &headers, body));
    }
    if let Some(refusal) = inner.refusal(&received) {
        return Ok(refusal);
    }
    Ok(match received.method.as_str() {
        _ if inner.is_scripted(&received) => call(inner, received).await,
        "DELETE" => {
            let session = received.header("mcp-session-id").unwrap_or_default();
            inner.subscribed.lock().unwrap().remove(session);
            plain(200, String::new())
        }
        "GET" if inner.era == Era::Modern => plain(405, String::new()),
        "GET" if received.header("last-event-id").is_some() => {
            resume(&inner, received.header("last-event-id").unwrap())
        }
        "GET" => {
            let session = received.header("mcp-session-id").unwrap_or_default();
            announcements(Listener::legacy(&inner, session))
        }
        "subscriptions/listen" if inner.era == Era::Modern => {
            announcements(Listener::modern(&inner, &received))
        }
        _ if received.id.is_none() || received.method.is_empty() => plain(202, String::new()),
        _ => whole(&inner, &received),
    })
}

impl Inner {
    /// Refuses a Legacy request with an unknown session.
    fn refusal(&self, received: &Received) -> Option<Response<Body>> {
        if self.era == Era::Modern || received.method == "initialize" {
            return None;
        }
        let session = received.header("mcp-session-id");
        let known = session.is_some_and(|id| self.sessions.lock().unwrap().contains(id));
        if known {
            return None;
        }
        let (status, body) = self.lost.lock().unwrap().clone();
        Some(plain(status, body.to_string()))
    }
}

fn whole(inner: &Inner, asked: &Received) -> Response<Body> {
    let (status, step) = match inner.answer(asked) {
        Ok(result) => (200, Step::Raw(result)),
        Err(error) if inner.era == Era::Modern => (404, Step::Error(error)),
        Err(error) => (200, Step::Error(error)),
    };
    let mut response = plain(status, step.message(asked, inner).unwrap());
    if inner.era == Era::Legacy && asked.method == "initialize" {
        let number = inner.session_numbers.fetch_add(1, Ordering::SeqCst) + 1;
        let session = format!("session-{number}");
        response.headers_mut().insert("mcp-session-id", session.parse().unwrap());
        inner.sessions.lock().unwrap().insert(session);
    }
    response
}

/// Records that the gateway cancelled a call, unless it was answered.
struct Unanswered {
    inner: Arc<Inner>,
    call: Option<Received>,
}

impl Unanswered {
    fn settle(&mut self) {
        self.call = None;
    }
}

impl Drop for Unanswered {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            self.inner.note(Received::event("closed", call.params, call.headers));
        }
    }
}

async fn call(inner: Arc<Inner>, call: Received) -> Response<Body> {
    let mut unanswered = Unanswered { inner: Arc::clone(&inner), call: Some(call.clone()) };
    let mut steps = inner.steps(&call).into_iter().peekable();
    while let Some(step) = steps.next_if(Step::is_wait) {
        inner.wait(&step, &call).await;
    }
    match steps.peek() {
        Some(Step::Status(status, headers, body)) => {
            unanswered.settle();
            let headers: Vec<_> =
                headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
            return with(*status, &headers, body.clone());
        }
        Some(Step::Usual) => {
            unanswered.settle();
            return whole(&inner, &call);
        }
        Some(step) if step.is_answer() => {
            unanswered.settle();
            return plain(200, step.message(&call, &inner).unwrap());
        }
        _ => {}
    }
    on(inner, Rest { call, steps, unanswered })
}

/// The remaining steps of a call after its connection was closed.
pub struct Rest {
    call: Received,
    steps: Peekable<IntoIter<Step>>,
    unanswered: Unanswered,
}

/// Continues a call on this connection.
fn on(inner: Arc<Inner>, rest: Rest) -> Response<Body> {
    let events = stream::unfold(Some(rest), move |rest| {
        let inner = Arc::clone(&inner);
        async move {
            let mut rest = rest?;
            loop {
                let step = rest.steps.next()?;
                inner.wait(&step, &rest.call).await;
                if matches!(step, Step::Break) {
                    rest.unanswered.settle();
                    return None;
                }
                if step.is_answer() {
                    rest.unanswered.settle();
                }
                let message = match step {
                    Step::Open => Some("id: 1\ndata:\n\n".to_owned()),
                    Step::Close(retry) => {
                        let closed = &mut *inner.closed.lock().unwrap();
                        let id = format!("closed-{}", closed.len());
                        closed.push(Some(rest));
                        let event = format!("id: {id}\nretry: {retry}\ndata:\n\n");
                        return Some((Ok(Frame::data(Bytes::from(event))), None));
                    }
                    _ => step
                        .message(&rest.call, &inner)
                        .map(|it| format!("event: message\ndata: {it}\n\n")),
                };
                if let Some(message) = message {
                    return Some((Ok(Frame::data(Bytes::from(message))), Some(rest)));
                }
            }
        }
    });
    streamed(StreamBody::new(events).boxed_unsync())
}

/// Continues the call that was closed with that event.
fn resume(inner: &Arc<Inner>, last: &str) -> Response<Body> {
    let number = last.strip_prefix("closed-").and_then(|number| number.parse::<usize>().ok());
    let rest = number.and_then(|number| inner.closed.lock().unwrap()[number].take());
    match rest {
        Some(rest) => on(Arc::clone(inner), rest),
        None => plain(400, String::new()),
    }
}

fn announcements(listener: Listener) -> Response<Body> {
    let (send, said) = mpsc::channel::<String>(64);
    tokio::spawn(announce(send, listener));
    let events = stream::unfold(said, |mut said| async move {
        let message = said.recv().await?;
        Some((Ok(Frame::data(Bytes::from(message))), said))
    });
    streamed(StreamBody::new(events).boxed_unsync())
}

async fn announce(send: mpsc::Sender<String>, mut listener: Listener) {
    let event = |message: Value| format!("data: {message}\n\n");
    let first = listener.first().map_or_else(|| ": open\n\n".to_owned(), event);
    let _ = send.send(first).await;
    loop {
        tokio::select! {
            () = send.closed() => return,
            next = listener.next() => {
                let Some(next) = next else { return };
                let _ = send.send(event(next)).await;
            }
        }
    }
}

fn plain(status: u16, body: String) -> Response<Body> {
    let json = ("content-type".to_owned(), "application/json".to_owned());
    with(status, &[json], body)
}

fn with(status: u16, headers: &[(String, String)], body: String) -> Response<Body> {
    let mut response = Response::new(Full::from(body).boxed_unsync());
    *response.status_mut() = StatusCode::from_u16(status).unwrap();
    add(response.headers_mut(), headers);
    response
}

fn add(to: &mut HeaderMap, headers: &[(String, String)]) {
    for (name, value) in headers {
        to.insert(name.parse::<::http::HeaderName>().unwrap(), value.parse().unwrap());
    }
}

fn streamed(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert("content-type", "text/event-stream".parse().unwrap());
    response
}
