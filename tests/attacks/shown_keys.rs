//! Keys of the gateway that would reach a server.

use serde_json::json;
use trunkline::crypto::sha256;

use crate::support::{Gateway, Upstream};

/// Returns `[clients.NAME]` with the name as its key.
fn client(name: &str) -> String {
    let hash: String = sha256(name.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("[clients.{name}]\nkey = \"{hash}\"\n")
}

#[tokio::test]
async fn a_key_that_is_shown_in_both_headers_reaches_no_server() {
    for upstream in Upstream::both().await {
        let lines = upstream.http() + "forward_headers = [\"Authorization\"]";
        let clients = client("ci") + &client("desk");
        let gateway = Gateway::with("s", lines).toml(&clients).start().await;
        for (era, client) in gateway.both_as("ci", "/mcp").await {
            for (shown, forwarded) in [
                ("Bearer ci", None),
                ("bearer  ci", None),
                ("ci", None),
                ("Token desk", None),
                ("Bearer for-the-server", Some("Bearer for-the-server")),
            ] {
                let ask = client.ask_call("s__echo", json!({})).header("authorization", shown);
                let said = ask.header("x-api-key", "ci").send().await.said().await;
                assert_eq!(said.text(), "{}", "{era} {shown}");
                let sent = upstream.calls().pop().unwrap();
                assert_eq!(sent.header("authorization"), forwarded, "{era} {shown}");
            }
        }
    }
}
