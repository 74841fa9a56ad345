#![allow(clippy::disallowed_methods, reason = "bodies that the tests themselves send")]
use std::convert::Infallible;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures_util::stream;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame as Piece, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use super::*;
use crate::call::Event;
use crate::captured_log::CapturedLog;
use crate::codec::body::collect;
use crate::http_client::HttpClient;
use crate::upstream::SubscriptionHub;
use crate::upstream::notifications::changes::ChangedLists;

type Answered = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// A request that the server received.
#[derive(Debug, Clone)]
struct Asked {
    http: http::Method,
    body: Value,
}

impl Asked {
    fn method(&self) -> &str {
        self.body["method"].as_str().unwrap_or_default()
    }
}

/// A server that follows a test's script.
struct Scripted {
    url: url::Url,
    connections: Arc<AtomicUsize>,
    asked: Arc<Mutex<mpsc::Receiver<Asked>>>,
}

impl Scripted {
    /// `answer` returns `None` if the server is to stay silent.
    async fn start(answer: impl Fn(&Asked) -> Option<Answered> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp", listener.local_addr().unwrap()).parse().unwrap();
        let (tell, asked) = mpsc::channel(256);
        let connections = Arc::new(AtomicUsize::new(0));
        let (counted, answer) = (Arc::clone(&connections), Arc::new(answer));
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                let (tell, answer) = (tell.clone(), Arc::clone(&answer));
                let service = service_fn(move |request: Request<Incoming>| {
                    let (tell, answer) = (tell.clone(), Arc::clone(&answer));
                    async move {
                        let http = request.method().clone();
                        let body = collect(request.into_body(), 1 << 20).await.unwrap();
                        let body = serde_json::from_slice(&body).unwrap_or_default();
                        let asked = Asked { http, body };
                        let answered = answer(&asked);
                        let _ = tell.try_send(asked);
                        match answered {
                            Some(answered) => Ok::<_, Infallible>(answered),
                            None => std::future::pending().await,
                        }
                    }
                });
                let serve = hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(socket), service);
                tokio::spawn(serve);
            }
        });
        Self { url, connections, asked: Arc::new(Mutex::new(asked)) }
    }

    async fn open(&self, changed: &Arc<ChangedLists>) -> HttpServer {
        self.open_in(EraChoice::Legacy, changed).await
    }

    async fn open_in(&self, era: EraChoice, changed: &Arc<ChangedLists>) -> HttpServer {
        let config = crate::config::HttpConfig {
            url: self.url.clone(),
            headers: Vec::new(),
            ca: None,
            transport: crate::config::HttpTransport::Auto,
            oauth: None,
            aws: None,
        };
        let client =
            ServerClient::new(HttpClient::new(&config, Duration::from_secs(5)).unwrap(), None);
        let server = ServerName::new("s").unwrap();
        let opening = HttpOpening {
            owner: Arc::new(InstanceKey::main()),
            client: Arc::new(client),
            era,
            patience: Duration::from_secs(5),
            limit: 1 << 20,
            caller_headers: CallerHeaders::default(),
            memory: Arc::default(),
            inbox: Inbox::new(Arc::clone(changed), SubscriptionHub::default().at(&server)),
            server,
        };
        HttpServer::open(opening).await.unwrap()
    }

    /// Waits until the server has received a request for `method`.
    async fn asked_for(&self, method: &str) -> Asked {
        let wait = std::future::poll_fn(|cx| {
            let mut asked = self.asked.lock();
            loop {
                match asked.poll_recv(cx) {
                    std::task::Poll::Ready(Some(one)) if one.method() == method => {
                        return std::task::Poll::Ready(one);
                    }
                    std::task::Poll::Ready(Some(_)) => {}
                    std::task::Poll::Ready(None) => panic!("the server is gone"),
                    std::task::Poll::Pending => return std::task::Poll::Pending,
                }
            }
        });
        tokio::time::timeout(Duration::from_secs(20), wait).await.expect("it is asked")
    }
}

fn json(status: u16, body: String) -> Answered {
    let body = Full::from(body).map_err(|never| match never {}).boxed_unsync();
    Response::builder()
        .status(status)
        .header("content-type", "application/json")
        .header("mcp-session-id", "abc")
        .body(body)
        .unwrap()
}

fn result(asked: &Asked, result: &str) -> Answered {
    json(200, format!(r#"{{"jsonrpc":"2.0","id":{},"result":{result}}}"#, asked.body["id"]))
}

/// Returns the usual first responses of a Legacy server; `other` gives the rest.
fn legacy(
    other: impl Fn(&Asked) -> Option<Answered> + Send + Sync + 'static,
) -> impl Fn(&Asked) -> Option<Answered> + Send + Sync + 'static {
    move |asked| match asked.method() {
        "initialize" => Some(result(
            asked,
            r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}"#,
        )),
        method if method.starts_with("notifications/") => Some(json(202, String::new())),
        _ => other(asked),
    }
}

fn call() -> Call {
    crate::upstream::tests::call("t")
}

fn target() -> CallTarget {
    crate::upstream::tests::target(&ServerName::new("s").unwrap(), "t")
}

fn minute() -> Deadline {
    Deadline::new(Duration::from_mins(1), Duration::from_mins(1))
}

#[tokio::test]
async fn a_server_that_answers_with_plain_json_hears_of_a_cancellation_and_of_a_timeout() {
    let server = Scripted::start(legacy(|_| None)).await;
    let http = server.open(&Arc::new(ChangedLists::default())).await;
    let (target, one) = (target(), call());
    tokio::select! {
        _ = http.call(&one, &target, Vec::new(), minute()) => panic!("there is no answer"),
        _ = server.asked_for("tools/call") => {}
    }
    let cancelled = server.asked_for("notifications/cancelled").await;
    let first = cancelled.body["params"]["requestId"].clone();
    let short = Deadline::new(Duration::from_millis(50), Duration::from_millis(50));
    let fault = http.call(&one, &target, Vec::new(), short).await.unwrap_err();
    assert!(matches!(fault, UpstreamError::Timeout { .. }), "{fault}");
    let cancelled = server.asked_for("notifications/cancelled").await;
    assert_ne!(cancelled.body["params"]["requestId"], first);
}

#[tokio::test]
async fn a_server_that_loses_every_session_is_not_listed_for_it_over_and_over() {
    let server = Scripted::start(legacy(|_| Some(json(404, String::new())))).await;
    let changed = Arc::new(ChangedLists::default());
    let http = server.open(&changed).await;
    let (target, one) = (target(), call());
    let fault = http.call(&one, &target, Vec::new(), minute()).await.unwrap_err();
    assert!(matches!(fault, UpstreamError::Status { status, .. } if status == 404), "{fault}");
    let relisted = std::pin::pin!(changed.notified());
    assert!(futures_util::poll!(relisted).is_pending(), "the list is not asked for");
}

#[tokio::test]
async fn a_refused_probe_is_reported_with_the_setting_that_avoids_it() {
    let log = CapturedLog::start();
    let usual = legacy(|_| None);
    let server = Scripted::start(move |asked| match asked.method() {
        "server/discover" => Some(json(403, String::new())),
        _ => usual(asked),
    })
    .await;
    server.open_in(EraChoice::Auto, &Arc::new(ChangedLists::default())).await;
    let logged = log.text();
    assert!(logged.contains("set `era = \"legacy\"`") && logged.contains("403"), "{logged}");
}

#[tokio::test]
async fn a_session_that_several_calls_lose_together_is_reported_lost_once() {
    let log = CapturedLog::start();
    let calls = AtomicUsize::new(0);
    let server = Scripted::start(legacy(move |asked| {
        let is_lost = calls.fetch_add(1, Ordering::Relaxed) < 3;
        Some(if is_lost { json(404, String::new()) } else { result(asked, "{}") })
    }))
    .await;
    let http = server.open(&Arc::new(ChangedLists::default())).await;
    let (target, one) = (target(), call());
    let call = || http.call(&one, &target, Vec::new(), minute());
    let (first, second, third) = tokio::join!(call(), call(), call());
    assert!(first.is_ok() && second.is_ok() && third.is_ok());
    let logged = log.text();
    assert_eq!(logged.matches("has lost the session").count(), 1, "{logged}");
}

#[tokio::test]
async fn a_session_that_is_not_opened_again_in_time_loses_the_connection() {
    let (usual, opened) = (legacy(|_| Some(json(404, String::new()))), AtomicUsize::new(0));
    let server = Scripted::start(move |asked| {
        let again = asked.method() == "initialize" && opened.fetch_add(1, Ordering::Relaxed) > 0;
        if again { None } else { usual(asked) }
    })
    .await;
    let http = server.open(&Arc::new(ChangedLists::default())).await;
    let (target, one) = (target(), call());
    let hanging = async {
        server.asked_for("initialize").await;
        server.asked_for("initialize").await;
        tokio::time::pause();
    };
    let (called, ()) = tokio::join!(http.call(&one, &target, Vec::new(), minute()), hanging);
    let fault = called.unwrap_err();
    assert!(
        matches!(fault, UpstreamError::Timeout { after } if after < Duration::from_mins(1)),
        "{fault}"
    );
    let closed = std::pin::pin!(http.closed());
    assert!(futures_util::poll!(closed).is_ready(), "the connection is opened anew");
}

#[tokio::test]
async fn a_server_that_hangs_at_its_end_holds_nothing_up() {
    let server = Scripted::start(legacy(|asked| {
        assert_eq!(asked.http, http::Method::DELETE);
        None
    }))
    .await;
    let http = server.open(&Arc::new(ChangedLists::default())).await;
    tokio::time::pause();
    http.close().await;
}

const CALLS: usize = 10;

#[tokio::test]
async fn a_connection_is_used_again_after_an_answer_by_events() {
    let server = Scripted::start(legacy(|asked| {
        let id = &asked.body["id"];
        let event = format!("data: {{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{}}}}\n\n");
        // The end of the stream comes a moment after its answer.
        let events = stream::unfold(Some(event), |event| async move {
            if let Some(event) = event {
                return Some((Ok(Piece::data(Bytes::from(event))), None));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
            None
        });
        let body = StreamBody::new(events).boxed_unsync();
        Some(Response::builder().header("content-type", "text/event-stream").body(body).unwrap())
    }))
    .await;
    let http = server.open(&Arc::new(ChangedLists::default())).await;
    let (target, one) = (target(), call());
    for _ in 0..CALLS {
        let mut reply = http.call(&one, &target, Vec::new(), minute()).await.unwrap();
        assert!(matches!(reply.next().await, Some(Event::Answer(Ok(_)))));
        // Paused time passes only while no task has anything to do.
        tokio::time::pause();
        tokio::time::sleep(Duration::from_millis(30)).await;
        tokio::time::resume();
    }
    // Occasionally a connection is opened while another is being returned. If each were closed
    // after its response, there would be one per call.
    let connections = server.connections.load(Ordering::Relaxed);
    assert!(connections < CALLS, "{connections} connections");
}
