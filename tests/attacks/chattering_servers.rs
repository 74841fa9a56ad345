//! Servers that endlessly send data without effect: interim responses, comments, and events without
//! a message.

use std::path::Path;
use std::sync::Arc;

use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, rustls};
use trunkline::cli::cert;

use crate::support::{Gateway, Upstream, within};

/// Bytes that the kernel may hold for both ends of a connection, and the gateway may read.
const BOUND: usize = 16 << 20;

/// Answers the first request with this beginning, and then with these bytes as long as they are
/// accepted. Returns the number of sent bytes.
async fn chatter(listener: &TcpListener, start: &str, line: &str) -> usize {
    let (mut socket, _) = within(listener.accept()).await.unwrap();
    read_head(&mut socket).await;
    within(socket.write_all(start.as_bytes())).await.unwrap();
    let lines = line.repeat((64 << 10) / line.len());
    let mut sent = 0;
    while sent <= 2 * BOUND && within(socket.write_all(lines.as_bytes())).await.is_ok() {
        sent += lines.len();
    }
    sent
}

async fn read_head(socket: &mut TcpStream) {
    let mut head = Vec::new();
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        assert_ne!(within(socket.read_buf(&mut head)).await.unwrap(), 0, "no request");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_chatters_is_cut_off() {
    const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
    for (start, line) in [
        ("", "HTTP/1.1 100 Continue\r\n\r\n"),
        ("", "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"),
        (STREAM, ":\n"),
        (STREAM, "\n"),
        (STREAM, "event: nothing\n\n"),
        (STREAM, "id: 1\n\n"),
        (STREAM, "retry: 1\n\n"),
        (STREAM, "data:\n\n"),
        (STREAM, "event: x\ndata: y\n\n"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("url = \"http://{}/mcp\"\n", listener.local_addr().unwrap());
        let lines =
            url + "start_timeout = \"15s\"\ntimeout = \"15s\"\ntransport = \"streamable\"\n";
        let _gateway = Gateway::with("s", lines).start_at_once().await;
        let sent = chatter(&listener, start, line).await;
        assert!(sent <= BOUND, "{sent} bytes of {line:?} were taken");
    }
}

/// Returns a certificate for servers on this machine, with its CA in `ca.pem`.
fn acceptor(folder: &Path) -> TlsAcceptor {
    let args = cert::CertArgs { dir: folder.to_owned(), force: true, ..cert::CertArgs::default() };
    cert::write_certificates(&args, &mut std::io::sink()).unwrap();
    let chain = CertificateDer::pem_file_iter(folder.join("server.pem")).unwrap();
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_file(folder.join("server.key")).unwrap();
    let config = rustls::ServerConfig::builder().with_no_client_auth();
    let mut config = config.with_single_cert(chain, key).unwrap();
    config.alpn_protocols = vec![b"h2".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

/// Builds a frame of HTTP/2 (RFC 9113, 4.1).
fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags, 0, 0, 0, stream], payload].concat()
}

/// Waits for a frame of this kind, and returns its stream; `None` if the connection is closed.
async fn next_of_kind(socket: &mut (impl AsyncRead + Unpin), kind: u8) -> Option<u8> {
    loop {
        let mut head = [0; 9];
        socket.read_exact(&mut head).await.ok()?;
        let length = usize::from(head[1]) << 8 | usize::from(head[2]);
        socket.read_exact(&mut vec![0; length]).await.ok()?;
        if head[3] == kind {
            return Some(head[8]);
        }
    }
}

/// Sends interim responses to the first request until it is reset. Returns the number of bytes.
async fn chatter_http2(socket: impl AsyncRead + AsyncWrite, interim: &[u8]) -> usize {
    const HEADERS: u8 = 1;
    const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const END_HEADERS: u8 = 4;
    let (mut reading, mut writing) = tokio::io::split(socket);
    reading.read_exact(&mut [0; 24]).await.expect("a preface");
    writing.write_all(&frame(SETTINGS, 0, 0, &[])).await.unwrap();
    let stream = next_of_kind(&mut reading, HEADERS).await.expect("a request");
    let interim = frame(HEADERS, END_HEADERS, stream, interim);
    let pieces = interim.repeat(((64 << 10) / interim.len()).max(1));
    let mut sent = 0;
    let flood = async {
        while writing.write_all(&pieces).await.is_ok() {
            sent += pieces.len();
        }
    };
    tokio::select! {
        () = flood => {}
        _ = next_of_kind(&mut reading, RST_STREAM) => {}
    }
    sent
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_chatters_over_http_2_is_left_at_the_deadline() {
    // `:status: 103`, and a header of 4,000 bytes that is not indexed.
    let status = b"\x08\x03103";
    let long = [&status[..], b"\x00\x01a\x7f\xa1\x1e", &[b'x'; 4_000]].concat();
    let folder = tempfile::tempdir().unwrap();
    let tls = acceptor(folder.path());
    for interim in [&status[..], &long] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let chatty = format!(
            "url = 'https://localhost:{port}/mcp'\nca = '{}/ca.pem'\ntransport = 'streamable'\n\
             era = 'modern'\nstart_timeout = '1s'\n",
            folder.path().display()
        );
        let upstream = Upstream::modern().await;
        let gateway = Gateway::with("s", upstream.http()).server("chatty", chatty);
        let gateway = gateway.start_at_once().await;
        gateway.ready("s").await;
        let (socket, _) = within(listener.accept()).await.unwrap();
        let socket = within(tls.accept(socket)).await.unwrap();
        let flood = tokio::spawn({
            let interim = interim.to_vec();
            async move { within(chatter_http2(socket, &interim)).await }
        });
        let client = gateway.modern().keep();
        let mut calls = 0;
        while !flood.is_finished() {
            assert_eq!(client.call("s__echo", json!({})).await.text(), "{}");
            calls += 1;
        }
        let sent = flood.await.unwrap();
        assert!(sent > 64 << 10, "{sent} bytes");
        assert!(calls >= 5, "{calls} calls of others");
    }
}
