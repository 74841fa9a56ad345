//! Servers on the transport of 2024-11-05 that answer on their stream and leave the POSTs open.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;

use crate::support::upstream::tool;
use crate::support::{Gateway, until};

const ACCEPTED: &str = "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";

/// A server that answers every POST with this head, and sends its message on the stream. It does
/// not answer calls of `silent`.
#[derive(Clone)]
struct Server {
    head: &'static str,
    said: broadcast::Sender<Value>,
    open: Arc<AtomicUsize>,
    most: Arc<AtomicUsize>,
}

impl Server {
    async fn start(head: &'static str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/sse", listener.local_addr().unwrap());
        let said = broadcast::Sender::new(1024);
        let server = Self { head, said, open: Arc::default(), most: Arc::default() };
        let accepting = server.clone();
        tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let server = accepting.clone();
                tokio::spawn(async move {
                    let open = server.open.fetch_add(1, Ordering::SeqCst) + 1;
                    server.most.fetch_max(open, Ordering::SeqCst);
                    let _ = server.serve(socket).await;
                    server.open.fetch_sub(1, Ordering::SeqCst);
                });
            }
        });
        (server, url)
    }

    /// Serves one request, until the gateway closes the connection.
    async fn serve(&self, mut socket: TcpStream) -> std::io::Result<()> {
        let (mut seen, mut message) = (Vec::new(), None);
        while message.is_none() && !seen.starts_with(b"GET ") {
            if socket.read_buf(&mut seen).await? == 0 {
                return Ok(());
            }
            let body = seen.windows(4).position(|end| end == b"\r\n\r\n").map(|at| &seen[at + 4..]);
            message = body.and_then(|body| serde_json::from_slice::<Value>(body).ok());
        }
        let Some(message) = message else { return self.stream(socket).await };
        if message["id"].is_null() {
            socket.write_all(ACCEPTED.as_bytes()).await?;
        } else if message["params"]["name"] != "silent" {
            socket.write_all(self.head.as_bytes()).await?;
            let result = match message["method"].as_str().unwrap() {
                "initialize" => json!({
                    "protocolVersion": "2024-11-05",
                    "capabilities": { "tools": {} },
                    "serverInfo": { "name": "x", "version": "1" },
                }),
                "tools/list" => json!({ "tools": [tool("t"), tool("silent")] }),
                _ => json!({ "content": [] }),
            };
            let id = &message["id"];
            let _ = self.said.send(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
        }
        while socket.read_buf(&mut seen).await? > 0 {}
        Ok(())
    }

    async fn stream(&self, mut socket: TcpStream) -> std::io::Result<()> {
        let mut messages = self.said.subscribe();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        socket.write_all(format!("{head}event: endpoint\ndata: /post\n\n").as_bytes()).await?;
        let mut nothing = [0; 1024];
        loop {
            tokio::select! {
                message = messages.recv() => {
                    let event = format!("data: {}\n\n", message.unwrap());
                    socket.write_all(event.as_bytes()).await?;
                }
                read = socket.read(&mut nothing) => if read? == 0 {
                    return Ok(());
                },
            }
        }
    }

    fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }
}

#[tokio::test]
async fn posts_that_are_never_answered_do_not_add_up() {
    const UNFINISHED: &str = "HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n";
    for head in [UNFINISHED, ""] {
        let (server, url) = Server::start(head).await;
        let lines = format!(
            "url = \"{url}\"\ntransport = \"sse\"\nisolation = \"shared\"\nin_flight = 1\n"
        );
        let gateway = Gateway::with("s", lines).start().await;
        let client = gateway.modern();
        let mut answered = 0;
        for _ in 0..200 {
            let said = client.call("s__t", json!({})).await;
            answered += usize::from(!said.is_error());
        }
        assert!(answered > 100, "{head:?}: {answered} calls were answered");
        let most = server.most.load(Ordering::SeqCst);
        assert!(most < 80, "{head:?}: {most} connections at once");
        if head == UNFINISHED {
            until(|| server.open() < 10).await;
        }
    }
}

#[tokio::test]
async fn the_post_of_a_cancelled_call_is_closed() {
    let (server, url) = Server::start(ACCEPTED).await;
    let lines = format!(
        "url = \"{url}\"\ntransport = \"sse\"\ntimeout = \"500ms\"\nisolation = \"shared\"\n"
    );
    let gateway = Gateway::with("s", lines).start().await;
    let said = gateway.modern().call("s__silent", json!({})).await;
    assert!(said.is_error(), "{said:?}");
    // Its stream stays open.
    until(|| server.open() == 1).await;
    assert_eq!(gateway.server("s").await["restarts"], 0);
}
