//! Servers that send without end what nobody sees: interim responses and comments.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Gateway, within};

/// As much as the kernel may hold for both ends of a connection, and the gateway may read.
const BOUND: usize = 16 << 20;

/// Answers the first request with this beginning, and then with these bytes for as long as they
/// are taken; how many were.
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
