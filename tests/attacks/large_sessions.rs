//! Sessions that are opened with megabytes of declarations, which last as long as the session.

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
