use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Body as _;
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{ConnectionPool, HostResolver, RequestTarget, ResponseBody, TransportError};

/// A server that a test controls by hand.
struct Server {
    socket: TcpListener,
    target: RequestTarget,
    pool: ConnectionPool,
}

impl Server {
    async fn start() -> Self {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let uri = format!("http://{}/mcp?a=b", socket.local_addr().unwrap());
        let target = RequestTarget::new(uri.parse().unwrap()).unwrap();
        let roots = rustls::RootCertStore::empty();
        let provider = std::sync::Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_all_versions()
            .wrap_connector({
                let mut tcp = HttpConnector::new_with_resolver(HostResolver::new(None));
                tcp.enforce_http(false);
                tcp
            });
        Self { socket, target, pool: ConnectionPool::new(connector, PATIENCE) }
    }

    async fn ask(&self, body: impl Into<Bytes>) -> Result<Response<ResponseBody>, TransportError> {
        let mut request = Request::new(Full::new(body.into()));
        *request.method_mut() = Method::POST;
        let sent = self.pool.send(&self.target, request);
        timeout(PATIENCE, sent).await.expect("an answer in time")
    }

    async fn accept(&self) -> TcpStream {
        timeout(PATIENCE, self.socket.accept()).await.expect("a connection").unwrap().0
    }
}

/// Reads a request with the body `body`.
async fn request(socket: &mut TcpStream, body: &[u8]) -> String {
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 65536]);
    loop {
        let read = timeout(PATIENCE, socket.read(&mut buffer)).await.expect("a request").unwrap();
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&buffer[..read]);
        let Some(end) = memchr::memmem::find(&seen, b"\r\n\r\n") else { continue };
        if seen.len() == end + 4 + body.len() {
            assert_eq!(&seen[end + 4..], body);
            return String::from_utf8_lossy(&seen[..end + 2]).into_owned();
        }
    }
}

async fn collect(mut body: ResponseBody) -> Result<Bytes, TransportError> {
    let mut whole = Vec::new();
    while let Some(frame) = body.frame().await {
        whole.extend_from_slice(&frame?.into_data().unwrap());
    }
    Ok(whole.into())
}

async fn whole(response: Response<ResponseBody>) -> Bytes {
    timeout(PATIENCE, collect(response.into_body())).await.expect("a body").unwrap()
}

async fn said(socket: &mut TcpStream, text: &str) {
    socket.write_all(text.as_bytes()).await.unwrap();
}

/// Waits until a client's socket holds unread bytes or the end of its connection, and the runtime
/// has polled for it.
async fn arrived_at(client: SocketAddr) {
    let port = format!(":{:04X}", client.port());
    let has_news = |line: &str| {
        let columns: Vec<_> = line.split_whitespace().collect();
        let [_, local, _, state, queues, ..] = columns[..] else { return false };
        let is_unread = !queues.ends_with(":00000000");
        local.ends_with(&port) && (state == CLOSE_WAIT || is_unread)
    };
    let wait = async {
        while !std::fs::read_to_string("/proc/net/tcp").unwrap().lines().any(has_news) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, wait).await.expect("it arrives");
    tokio::task::yield_now().await;
}

#[tokio::test]
async fn a_request_is_written_as_http_has_it() {
    let server = Server::start().await;
    let request_to_send = Request::post("/ignored")
        .header("authorization", "Bearer ours")
        .header("mcp-method", "ping")
        .body(Full::new(Bytes::from_static(b"{}")))
        .unwrap();
    let play = async {
        let mut socket = server.accept().await;
        let head = request(&mut socket, b"{}").await;
        said(&mut socket, "HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n").await;
        (head, socket)
    };
    let (response, (head, _socket)) =
        tokio::join!(server.pool.send(&server.target, request_to_send), play);
    assert_eq!(response.unwrap().status(), StatusCode::ACCEPTED);
    let authority = server.target.uri.authority().unwrap();
    let expected = format!(
        "POST /mcp?a=b HTTP/1.1\r\nauthorization: Bearer ours\r\nmcp-method: ping\r\n\
         host: {authority}\r\ncontent-length: 2\r\n"
    );
    assert_eq!(head, expected);
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    let server = Server::start().await;
    let play = async {
        let mut socket = server.accept().await;
        for answer in [
            "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early\r\nlink: x\r\n\r\n\
             HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
        ] {
            request(&mut socket, b"{}").await;
            // Sent in small pieces: the split of a response must not matter.
            for piece in answer.as_bytes().chunks(7) {
                socket.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        }
        socket
    };
    let asked = async {
        let mut bodies = Vec::new();
        for _ in 0..4 {
            bodies.push(whole(server.ask("{}").await.unwrap()).await);
        }
        bodies
    };
    let (bodies, _socket) = tokio::join!(asked, play);
    assert_eq!(bodies, ["abc", "abc", "", ""]);
}

#[tokio::test]
async fn a_body_in_one_piece_is_known_to_be_whole() {
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    ] {
        let server = Server::start().await;
        let play = async {
            let mut socket = server.accept().await;
            request(&mut socket, b"{}").await;
            said(&mut socket, answer).await;
            socket
        };
        let (response, _socket) = tokio::join!(server.ask("{}"), play);
        let mut body = response.unwrap().into_body();
        assert_eq!(body.size_hint().exact(), Some(3));
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "abc");
        assert!(body.is_end_stream(), "{answer}");
    }
}

#[tokio::test]
async fn a_connection_that_was_closed_meanwhile_costs_another() {
    let server = Server::start().await;
    for body in ["first", "second"] {
        let play = async {
            let mut socket = server.accept().await;
            request(&mut socket, body.as_bytes()).await;
            said(&mut socket, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            socket
        };
        let (response, socket) = tokio::join!(server.ask(body), play);
        assert_eq!(whole(response.unwrap()).await, "ok");
        let client = socket.peer_addr().unwrap();
        drop(socket);
        arrived_at(client).await;
    }
}

#[tokio::test]
async fn requests_that_may_have_reached_the_server_are_not_sent_twice() {
    let server = Server::start().await;
    let play = async {
        let mut socket = server.accept().await;
        request(&mut socket, b"one").await;
        said(&mut socket, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        // The second request is read but not answered.
        request(&mut socket, b"two").await;
    };
    let asked = async {
        whole(server.ask("one").await.unwrap()).await;
        server.ask("two").await
    };
    let (second, ()) = tokio::join!(asked, play);
    assert!(
        matches!(&second, Err(TransportError::Kept(fault)) if matches!(**fault, TransportError::Closed)),
        "{second:?}"
    );
    let again = timeout(Duration::from_millis(100), server.socket.accept()).await;
    assert!(again.is_err(), "it came a second time");
}

#[tokio::test]
async fn an_answer_before_the_whole_request_is_heard() {
    let server = Server::start().await;
    let large = vec![b'x'; 32 * 1024 * 1024];
    let play = async {
        let mut socket = server.accept().await;
        let mut some = [0; 1024];
        socket.read_exact(&mut some).await.unwrap();
        said(&mut socket, "HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\nno").await;
        socket
    };
    let (response, _socket) = tokio::join!(server.ask(large), play);
    let response = response.unwrap();
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    assert_eq!(whole(response).await, "no");
    assert!(server.pool.idle.take().is_none(), "half a request is still on its way there");
}

#[tokio::test]
async fn large_bodies_arrive_whole_both_ways() {
    let server = Server::start().await;
    let large = vec![b'x'; 5 * 1024 * 1024];
    let play = async {
        let mut socket = server.accept().await;
        request(&mut socket, &large).await;
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", large.len());
        said(&mut socket, &head).await;
        socket.write_all(&large).await.unwrap();
        socket
    };
    let asked = async { whole(server.ask(large.clone()).await.unwrap()).await };
    let (body, _socket) = tokio::join!(asked, play);
    assert!(body == large);
    assert!(server.pool.idle.take().is_some());
}

#[tokio::test]
async fn a_body_that_ends_with_its_connection_is_whole() {
    let (server, has_some) = (Server::start().await, Notify::new());
    let play = async {
        let mut socket = server.accept().await;
        request(&mut socket, b"{}").await;
        said(&mut socket, "HTTP/1.1 200 OK\r\n\r\nsome").await;
        has_some.notified().await;
        said(&mut socket, " more").await;
    };
    let asked = async {
        let mut body = server.ask("{}").await.unwrap().into_body();
        let first = body.frame().await.unwrap().unwrap().into_data().unwrap();
        has_some.notify_one();
        (first, timeout(PATIENCE, collect(body)).await.expect("a body").unwrap())
    };
    let (pieces, ()) = tokio::join!(asked, play);
    assert_eq!(pieces, ("some".into(), " more".into()));
    assert!(server.pool.idle.take().is_none());
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_a_fault() {
    let server = Server::start().await;
    for (answer, in_body) in [
        ("", false),
        ("HTTP/1.1 200 OK\r\ncontent", false),
        ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nabc", true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n", true),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzzz\r\n", false),
        ("220 mail.example.test ESMTP\r\n\r\n", false),
    ] {
        let play = async {
            let mut socket = server.accept().await;
            request(&mut socket, b"{}").await;
            said(&mut socket, answer).await;
        };
        let (response, ()) = tokio::join!(server.ask("{}"), play);
        if !in_body {
            assert!(response.is_err(), "{answer:?}");
            continue;
        }
        let body = timeout(PATIENCE, collect(response.unwrap().into_body())).await.unwrap();
        assert!(matches!(body, Err(TransportError::Closed)), "{answer:?}");
        assert!(server.pool.idle.take().is_none());
    }
}

#[tokio::test]
async fn a_head_has_a_limit_in_bytes_and_in_headers() {
    let server = Server::start().await;
    for (head, is_too_large) in [
        ("x: 0123456789\r\n".repeat(90), false),
        ("x: 0123456789\r\n".repeat(101), true),
        (format!("x: {}\r\n", "y".repeat(60_000)), false),
        (format!("x: {}\r\n", "y".repeat(70_000)), true),
        (format!("x: {}", "y".repeat(200_000)), true),
    ] {
        let answer = format!("HTTP/1.1 200 OK\r\n{head}content-length: 0\r\n\r\n");
        let play = async {
            let mut socket = server.accept().await;
            request(&mut socket, b"{}").await;
            // The response may be rejected before all of it has been written.
            let _ = socket.write_all(answer.as_bytes()).await;
        };
        let (response, ()) = tokio::join!(server.ask("{}"), play);
        let refused = matches!(response, Err(TransportError::HeadTooLarge { .. }));
        assert_eq!(refused, is_too_large, "{} bytes: {response:?}", head.len());
    }
}

#[tokio::test]
async fn unsolicited_data_closes_the_connection() {
    let server = Server::start().await;
    for behind in ["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", "x"] {
        let play = async {
            let mut socket = server.accept().await;
            request(&mut socket, b"{}").await;
            let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok{behind}");
            said(&mut socket, &answer).await;
            socket
        };
        let (response, _socket) = tokio::join!(server.ask("{}"), play);
        assert_eq!(whole(response.unwrap()).await, "ok");
        assert!(server.pool.idle.take().is_none());
    }
}

#[tokio::test]
async fn a_response_between_two_requests_answers_neither() {
    let server = Server::start().await;
    let play = async {
        let mut socket = server.accept().await;
        request(&mut socket, b"one").await;
        said(&mut socket, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        socket
    };
    let (response, mut first) = tokio::join!(server.ask("one"), play);
    assert_eq!(whole(response.unwrap()).await, "ok");
    said(&mut first, "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil").await;
    arrived_at(first.peer_addr().unwrap()).await;
    let play = async {
        let mut socket = server.accept().await;
        request(&mut socket, b"two").await;
        said(&mut socket, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
        socket
    };
    let (response, _second) = tokio::join!(server.ask("two"), play);
    assert_eq!(whole(response.unwrap()).await, "ok");
    let read = timeout(PATIENCE, first.read(&mut [0])).await.expect("the first one is closed");
    // Reset, because its client has not read the surplus response.
    assert!(
        matches!(read, Ok(0) | Err(_)),
        "the request went out on the first connection, too: {read:?}"
    );
}

#[tokio::test]
async fn a_response_that_only_the_kernel_knows_of_answers_no_request() {
    let server = Server::start().await;
    for unasked in ["HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil", "x"] {
        let play = async {
            let mut socket = server.accept().await;
            request(&mut socket, b"one").await;
            said(&mut socket, "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok").await;
            socket.into_std().unwrap()
        };
        let (response, mut first) = tokio::join!(server.ask("one"), play);
        assert_eq!(whole(response.unwrap()).await, "ok");
        // The runtime has no chance to notice it before the next request.
        std::io::Write::write_all(&mut first, unasked.as_bytes()).unwrap();
        let play = async {
            let mut socket = server.accept().await;
            request(&mut socket, b"two").await;
            said(&mut socket, "HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\ntwo").await;
        };
        let (response, ()) = tokio::join!(server.ask("two"), play);
        assert_eq!(whole(response.unwrap()).await, "two");
        server.pool.idle.close_all();
    }
}

#[tokio::test]
async fn a_response_with_two_lengths_closes_its_connection() {
    let server = Server::start().await;
    for lengths in [
        "content-length: 2\r\ntransfer-encoding: chunked",
        "transfer-encoding: chunked\r\ncontent-length: 12",
    ] {
        let play = async {
            let mut socket = server.accept().await;
            request(&mut socket, b"{}").await;
            let answer = format!("HTTP/1.1 200 OK\r\n{lengths}\r\n\r\n2\r\nok\r\n0\r\n\r\n");
            said(&mut socket, &answer).await;
            socket
        };
        let (response, _socket) = tokio::join!(server.ask("{}"), play);
        assert_eq!(whole(response.unwrap()).await, "ok");
        assert!(server.pool.idle.take().is_none(), "{lengths}");
    }
}

#[tokio::test]
async fn a_request_that_is_given_up_takes_its_connection_with_it() {
    let server = Server::start().await;
    let play = async {
        let mut socket = server.accept().await;
        request(&mut socket, b"{}").await;
        socket
    };
    let cancelled_calls = timeout(Duration::from_millis(50), server.ask("{}"));
    let (cancelled_calls, mut socket) = tokio::join!(cancelled_calls, play);
    assert!(cancelled_calls.is_err());
    let read = timeout(PATIENCE, socket.read(&mut [0])).await.expect("the server notices");
    assert_eq!(read.unwrap(), 0);
}

#[tokio::test]
async fn a_refused_connection_differs_from_a_broken_one() {
    let mut server = Server::start().await;
    server.socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let refused = server.ask("{}").await;
    assert!(matches!(refused, Err(TransportError::Connect(_))), "{refused:?}");
}

#[tokio::test(start_paused = true)]
async fn connections_do_not_wait_for_ever() {
    let server = Server::start().await;
    let play = async {
        let mut socket = server.accept().await;
        request(&mut socket, b"{}").await;
        said(&mut socket, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        socket
    };
    let (response, mut socket) = tokio::join!(server.ask("{}"), play);
    whole(response.unwrap()).await;
    let closed = timeout(Duration::from_mins(2), socket.read(&mut [0])).await;
    assert_eq!(closed.expect("closed in time").unwrap(), 0);
}

const PATIENCE: Duration = Duration::from_secs(10);
/// State of a socket whose peer has closed, in `/proc/net/tcp`.
const CLOSE_WAIT: &str = "08";
