//! Probes for the Modern era that a Legacy server, or a firewall before it, refuses or drops.

use std::net::SocketAddr;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Gateway, Upstream};

#[tokio::test]
async fn a_probe_that_is_refused_falls_back_to_initialize() {
    for status in [403, 404, 405, 400, 500] {
        let upstream = Upstream::legacy().await;
        upstream.guards(move |received| {
            (received.method == "server/discover").then(|| (status, Vec::new(), "no".to_owned()))
        });
        let gateway = Gateway::with("s", upstream.http()).start().await;
        let said = gateway.modern().call("s__echo", json!({})).await;
        assert_eq!(said.text(), "{}", "{status}: {said:?}");
    }
    // A complete refusal is reported.
    let upstream = Upstream::legacy().await;
    upstream.answers(Some((403, "the firewall says no")));
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let error = gateway.server("s").await["last_error"].to_string();
    assert!(error.contains("403"), "{error}");
}

/// Starts a firewall that closes every connection with a probe as its first request.
async fn dropping_firewall(target: SocketAddr) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(pass_unless_probe(client, target));
        }
    });
    address
}

async fn pass_unless_probe(mut client: TcpStream, target: SocketAddr) {
    let mut beginning = vec![0; 1 << 16];
    let size = client.read(&mut beginning).await.unwrap();
    let beginning = &beginning[..size];
    if beginning.windows(15).any(|window| window == b"server/discover") {
        return;
    }
    let mut server = TcpStream::connect(target).await.unwrap();
    server.write_all(beginning).await.unwrap();
    let _ = copy_bidirectional(&mut client, &mut server).await;
}

#[tokio::test]
async fn a_probe_that_is_dropped_falls_back_to_initialize() {
    let upstream = Upstream::legacy().await;
    let address = dropping_firewall(upstream.http_address()).await;
    let url = format!("url = \"http://{address}/mcp\"\n");
    let gateway = Gateway::with("s", &url).start().await;
    let said = gateway.modern().call("s__echo", json!({ "a": 1 })).await;
    assert_eq!(said.text(), r#"{"a":1}"#, "{said:?}");
    assert!(upstream.all("server/discover").is_empty());
    // If the configuration names the era, there is no fallback.
    let gateway = Gateway::with("s", url + "era = \"modern\"\n").start().await;
    let status = gateway.server("s").await;
    assert_ne!(status["state"], "ready", "{status}");
}
