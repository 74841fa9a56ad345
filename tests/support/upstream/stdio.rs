//! The standard streams of a child process, connected to this server by a small script.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::task::{AbortHandle, JoinSet};

use super::news::Listener;
use super::script::{Received, Step};
use super::{Era, Inner};

/// Returns a script that connects its standard streams with a port, and exits when either side
/// does.
pub fn carrier(port: u16) -> String {
    format!(
        "exec 3<>/dev/tcp/127.0.0.1/{port} 4<&0; \
         {{ cat <&4 >&3; kill $$; }} & cat <&3; kill $! 2>/dev/null; exit 7"
    )
}

pub async fn serve(inner: Arc<Inner>, listener: TcpListener) {
    let mut children = JoinSet::new();
    loop {
        let (socket, _) = listener.accept().await.unwrap();
        let number = inner.starts.fetch_add(1, Ordering::SeqCst) + 1;
        let inner = Arc::clone(&inner);
        children.spawn(async move {
            tokio::select! {
                () = inner.cut() => {}
                () = child(&inner, socket, number) => {}
            }
        });
    }
}

type Output = Arc<tokio::sync::Mutex<OwnedWriteHalf>>;

async fn child(inner: &Arc<Inner>, socket: TcpStream, number: usize) {
    socket.set_nodelay(true).unwrap();
    let (input, output) = socket.into_split();
    let output: Output = Arc::new(tokio::sync::Mutex::new(output));
    let mut lines = BufReader::new(input).lines();
    let Ok(Some(first)) = lines.next_line().await else { return };
    let inner = &inner.side(first.contains("\"initialize\""));
    let mut first = Some(first);
    let mut tasks = JoinSet::new();
    let running: Mutex<HashMap<String, AbortHandle>> = Mutex::default();
    // The counterpart of an HTTP server's header: the sender of a request.
    let mut headers = ::http::HeaderMap::new();
    let session = format!("child-{number}");
    headers.insert("mcp-session-id", session.parse().unwrap());
    if inner.era == Era::Legacy {
        tasks.spawn(announce(Listener::legacy(inner, &session), Arc::clone(&output)));
    }
    loop {
        let line = match first.take() {
            None => lines.next_line().await.ok().flatten(),
            first => first,
        };
        let Some(line) = line else { return };
        let received = Received::read(&line, headers.clone());
        inner.note(received.clone());
        if received.method == "notifications/cancelled" {
            let id = received.params["requestId"].to_string();
            let task = running.lock().unwrap().remove(&id);
            if let Some(task) = task.filter(|_| !inner.deaf.load(Ordering::Relaxed)) {
                task.abort();
            }
            continue;
        }
        let Some(id) = received.id.clone().filter(|_| !received.method.is_empty()) else {
            continue;
        };
        if inner.era == Era::Modern && received.method == "subscriptions/listen" {
            let listener = Listener::modern(inner, &received);
            let task = tasks.spawn(announce(listener, Arc::clone(&output)));
            running.lock().unwrap().insert(id.to_string(), task);
            continue;
        }
        let task = tasks.spawn(answer(Arc::clone(inner), received, Arc::clone(&output)));
        running.lock().unwrap().insert(id.to_string(), task);
    }
}

async fn answer(inner: Arc<Inner>, asked: Received, output: Output) {
    if !inner.is_scripted(&asked) {
        let step = match inner.answer(&asked) {
            Ok(result) => Step::Raw(result),
            Err(error) => Step::Error(error),
        };
        write(&output, &step.message(&asked, &inner).unwrap()).await;
        return;
    }
    for step in inner.steps(&asked) {
        inner.wait(&step, &asked).await;
        if let Some(message) = step.message(&asked, &inner) {
            write(&output, &message).await;
        }
        if matches!(step, Step::Break) {
            let _ = output.lock().await.shutdown().await;
        }
    }
}

async fn announce(mut listener: Listener, output: Output) {
    if let Some(first) = listener.first() {
        write(&output, &first.to_string()).await;
    }
    while let Some(next) = listener.next().await {
        write(&output, &next.to_string()).await;
    }
}

async fn write(output: &Output, message: &str) {
    let line = format!("{message}\n");
    let _ = output.lock().await.write_all(line.as_bytes()).await;
}
