//! A minimal bridge from HTTP to a child process: it writes the line, and takes the next line as
//! the answer. This program runs itself in another role, so that the bridge's CPU time is measured
//! separately.
//!
//! The mock server answers in the order of the requests; the order alone matches an answer to its
//! request.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::path::Path;
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use bytes::{Bytes, BytesMut};
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use trunkline::codec::body::collect;

/// Runs this program as the bridge to the program that follows.
pub const OPTION: &str = "--bridge";

/// The child, and the requests that wait for its answers.
struct Lines {
    input: tokio::sync::Mutex<ChildStdin>,
    waiting: Mutex<VecDeque<oneshot::Sender<Bytes>>>,
}

/// Serves until the process is killed.
pub fn serve(program: &Path) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let mut child = Command::new(program)
            .args(["example", "load"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = Arc::new(Lines {
            input: child.stdin.take().unwrap().into(),
            waiting: Mutex::default(),
        });
        tokio::spawn(read(child.stdout.take().unwrap(), Arc::clone(&lines)));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        eprintln!("clients connect to http://{}/mcp", listener.local_addr().unwrap());
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            socket.set_nodelay(true).unwrap();
            let lines = Arc::clone(&lines);
            tokio::spawn(async move {
                let pass = service_fn(|request| pass(&lines, request));
                let _ = http1::Builder::new().serve_connection(TokioIo::new(socket), pass).await;
            });
        }
    });
}

async fn pass(
    lines: &Lines,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = collect(request.into_body(), 1 << 20).await.map_err(|_| "it broke").expect("a body");
    let mut line = BytesMut::with_capacity(body.len() + 1);
    line.extend_from_slice(&body);
    line.extend_from_slice(b"\n");
    let (sender, answer) = oneshot::channel();
    {
        let mut input = lines.input.lock().await;
        lines.waiting.lock().unwrap().push_back(sender);
        input.write_all(&line).await.unwrap();
    }
    let mut response = Response::new(Full::new(answer.await.expect("an answer")));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

async fn read(mut output: ChildStdout, lines: Arc<Lines>) {
    let mut buffer = BytesMut::with_capacity(1 << 16);
    while output.read_buf(&mut buffer).await.unwrap() > 0 {
        while let Some(end) = memchr::memchr(b'\n', &buffer) {
            let line = buffer.split_to(end + 1).freeze().slice(..end);
            let sender = lines.waiting.lock().unwrap().pop_front();
            let _ = sender.expect("somebody waits").send(line);
        }
        buffer.reserve(1 << 14);
    }
}
