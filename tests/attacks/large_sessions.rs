//! Clients that declare megabytes about themselves, which occupy memory as long as a session, a
//! stream or a prepared list.

use serde_json::{Value, json};

use crate::support::{Gateway, Upstream};

async fn open(gateway: &Gateway, capabilities: Value, info: Value) -> (Option<String>, Value) {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info,
    });
    let reply = gateway.plain().ask("initialize", params).send().await;
    let session = reply.header("mcp-session-id");
    (session, reply.said().await.answer().clone())
}

#[tokio::test]
async fn a_session_keeps_no_declarations_of_megabytes() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let large = "x".repeat(2_000_000);
    let info = |more: &str| json!({ "name": "a-test", "version": "1", "title": more });
    for (capabilities, info, member) in [
        (json!({ "experimental": { "x": { "y": large } } }), info(""), "capabilities"),
        (json!({}), info(&large), "clientInfo"),
    ] {
        let (session, answer) = open(&gateway, capabilities, info).await;
        assert_eq!(session, None, "no session is opened");
        assert_eq!(answer["error"]["code"], -32_602, "{answer}");
        let text = answer["error"]["message"].as_str().unwrap();
        assert!(text.contains(member) && text.contains("16384 bytes"), "{text}");
    }
    let icons = "x".repeat(10_000);
    let (session, _) = open(&gateway, json!({ "roots": {} }), info(&icons)).await;
    assert!(session.is_some(), "enough for icons");
}

#[tokio::test]
async fn a_request_declares_no_megabytes_either() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    let large = json!({ "sampling": { "x": "x".repeat(20_000) } });
    let info = json!({ "name": "a-test", "version": "1", "title": "x".repeat(20_000) });
    for (member, value) in [("clientCapabilities", large), ("clientInfo", info)] {
        let key = format!("io.modelcontextprotocol/{member}");
        let said = client.ask("tools/list", json!({})).meta(&key, value).send().await.said().await;
        assert_eq!(said.code(), -32_602, "{said:?}");
        let text = said.error()["message"].as_str().unwrap();
        assert!(text.contains(member) && text.contains("16384 bytes"), "{text}");
    }
}
