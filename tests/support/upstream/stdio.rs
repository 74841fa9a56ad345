//! The standard streams of a child process, carried here by a small one.

use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpListener;
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::task::{AbortHandle, JoinSet};

use super::script::{Received, Step};
use super::{Era, Inner, Watching};

/// A script that connects its standard streams with a port, and ends when
/// either side does.
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
        inner.starts.fetch_add(1, Ordering::SeqCst);
        let inner = Arc::clone(&inner);
        children.spawn(async move {
            tokio::select! {
                () = inner.cut() => {}
                () = child(&inner, socket) => {}
            }
        });
    }
}

type Output = Arc<tokio::sync::Mutex<OwnedWriteHalf>>;

async fn child(inner: &Arc<Inner>, socket: TcpStream) {
    socket.set_nodelay(true).unwrap();
    let (input, output) = socket.into_split();
    let output: Output = Arc::new(tokio::sync::Mutex::new(output));
    let mut lines = BufReader::new(input).lines();
    let mut tasks = JoinSet::new();
    let running: Mutex<HashMap<String, AbortHandle>> = Mutex::default();
    if inner.era == Era::Legacy {
        tasks.spawn(announce(Arc::clone(inner), Arc::clone(&output), None));
    }
    while let Ok(Some(line)) = lines.next_line().await {
        let received = Received::read(&line, ::http::HeaderMap::new());
        inner.note(received.clone());
        if received.method == "notifications/cancelled" {
            let id = received.params["requestId"].to_string();
            if let Some(task) = running.lock().unwrap().remove(&id) {
                task.abort();
            }
            continue;
        }
        let Some(id) = received.id.clone().filter(|_| !received.method.is_empty()) else {
            continue;
        };
        if inner.era == Era::Modern && received.method == "subscriptions/listen" {
            tasks.spawn(announce(Arc::clone(inner), Arc::clone(&output), Some(id)));
            continue;
        }
        let task = tasks.spawn(answer(Arc::clone(inner), received, Arc::clone(&output)));
        running.lock().unwrap().insert(id.to_string(), task);
    }
}

async fn answer(inner: Arc<Inner>, asked: Received, output: Output) {
    if asked.method != "tools/call" {
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

/// Says each change, tagged with the subscription where there is one.
async fn announce(inner: Arc<Inner>, output: Output, subscription: Option<Value>) {
    let mut changes = inner.changes.subscribe();
    let _watching = Watching::begin(&inner);
    let tag = subscription.map(|id| json!({ "io.modelcontextprotocol/subscriptionId": id }));
    let message = |method: &str, mut params: Value| {
        if let Some(tag) = &tag {
            params["_meta"] = tag.clone();
        }
        json!({ "jsonrpc": "2.0", "method": method, "params": params }).to_string()
    };
    if tag.is_some() {
        let agreed = json!({ "notifications": { "toolsListChanged": true } });
        write(&output, &message("notifications/subscriptions/acknowledged", agreed)).await;
    }
    while changes.changed().await.is_ok() {
        write(&output, &message("notifications/tools/list_changed", json!({}))).await;
    }
}

async fn write(output: &Output, message: &str) {
    let line = format!("{message}\n");
    let _ = output.lock().await.write_all(line.as_bytes()).await;
}
