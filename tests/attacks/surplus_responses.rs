//! A server with responses on one connection that run one request behind.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};

use serde_json::{Value, json};

use crate::support::Gateway;

/// Reads requests from one connection and answers each. After a call of `lag` every answer belongs
/// to the preceding request, so that the connection always has one response too many.
fn serve(socket: TcpStream) -> Option<()> {
    let mut requests = BufReader::new(socket.try_clone().ok()?);
    let mut socket = socket;
    let mut before: Option<Value> = None;
    loop {
        let request = next_request(&mut requests)?;
        let answer = answer_to(&request);
        let sent = before.take().unwrap_or_else(|| answer.clone());
        if request["params"]["name"] == "lag" || sent != answer {
            before = Some(answer);
        }
        write_response(&mut socket, &sent)?;
    }
}

fn next_request(requests: &mut BufReader<TcpStream>) -> Option<Value> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if requests.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().ok()?;
        }
        if line == "\r\n" {
            let mut body = vec![0; length];
            requests.read_exact(&mut body).ok()?;
            return Some(serde_json::from_slice(&body).unwrap_or_default());
        }
    }
}

fn answer_to(request: &Value) -> Value {
    let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
    let result = match request["method"].as_str() {
        Some("server/discover") => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": { "tools": {} }, "serverInfo": { "name": "lagging", "version": "1" },
            "ttlMs": 0, "cacheScope": "public",
        }),
        Some("tools/list") => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "public",
            "tools": [tool("echo"), tool("lag")],
        }),
        _ => json!({
            "resultType": "complete",
            "content": [{ "type": "text", "text": request["params"]["arguments"]["n"].to_string() }],
        }),
    };
    json!({ "jsonrpc": "2.0", "id": request["id"], "result": result })
}

fn write_response(socket: &mut TcpStream, answer: &Value) -> Option<()> {
    let body = answer.to_string();
    let head = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    socket.write_all((head + &body).as_bytes()).ok()
}

#[tokio::test]
async fn a_surplus_response_closes_its_connection_and_fails_one_call_at_most() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("url = \"http://{}/mcp\"\n", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for socket in listener.incoming().take(64).flatten() {
            std::thread::spawn(move || serve(socket));
        }
    });
    let gateway = Gateway::with("s", url + "era = \"modern\"\n").start().await;
    let client = gateway.modern();
    for round in 0..3 {
        assert_eq!(client.call("s__lag", json!({ "n": round })).await.text(), round.to_string());
        let mut failed = Vec::new();
        for n in 100..106 {
            let said = client.call("s__echo", json!({ "n": n })).await;
            let answer = said.answer().to_string();
            if !answer.contains(&format!("\"text\":\"{n}\"")) {
                assert!(answer.contains("the id of another request"), "{answer}");
                failed.push(answer);
            }
        }
        assert!(failed.len() <= 1, "{failed:#?}");
    }
}
