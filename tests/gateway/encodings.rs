//! Answers that are compressed, which the gateway never asks for: small ones that would become large.

use serde_json::json;

use crate::support::api::{Page, PlainApi};
use crate::support::{Gateway, OauthServer, Upstream};

/// A gzip member of zeros that is about 160 times as large when it is decoded.
fn bomb(size: usize) -> Vec<u8> {
    // RFC 1952, 2.3, and one block with fixed codes (RFC 1951, 3.2.6).
    let mut bytes = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
    let (mut pending, mut count) = (0_u32, 0);
    let mut put = |bytes: &mut Vec<u8>, code: &str| {
        for bit in code.bytes() {
            pending |= u32::from(bit == b'1') << count;
            count += 1;
            if count == 8 {
                bytes.push(u8::try_from(pending).unwrap());
                (pending, count) = (0, 0);
            }
        }
    };
    // Not the last block, of kind 1; a zero; then 258 bytes from one before, again and again.
    put(&mut bytes, "010");
    put(&mut bytes, "00110000");
    while bytes.len() < size {
        put(&mut bytes, "1100010100000");
    }
    bytes
}

fn page() -> Page {
    Page::new(200, "application/json", bomb(200 << 10)).header("content-encoding", "gzip")
}

/// Waits until the status says that something is encoded with gzip.
async fn says_so(gateway: &Gateway) {
    let wanted = "encoded with \\\"gzip\\\", which it was not asked for";
    let status = gateway.wait_for(|status| status.to_string().contains("not asked for")).await;
    assert!(status.to_string().contains(wanted), "{status}");
}

#[tokio::test]
async fn a_compressed_answer_of_a_server_is_an_error_that_names_the_encoding() {
    let api = PlainApi::start().await;
    api.sets("/mcp", page());
    let lines = format!("url = \"{}\"\n", api.url("/mcp"));
    says_so(&Gateway::with("s", lines).start().await).await;
    // Of a call as well, which its client is told.
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    gateway.ready("s").await;
    upstream.guards(|received| {
        let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let headers =
            vec![header("content-type", "application/json"), header("content-encoding", "br")];
        (received.method == "tools/call").then(|| (200, headers, "{}".to_owned()))
    });
    let said = gateway.modern().call("s__echo", json!({})).await;
    assert!(
        said.is_error() && said.body.contains("br") && said.body.contains("not asked for"),
        "{said:?}"
    );
    let asked = &upstream.calls()[0];
    assert_eq!(asked.header("accept-encoding"), Some("identity"));
}

#[tokio::test]
async fn a_compressed_answer_of_an_api_or_its_document_is_an_error_that_names_the_encoding() {
    let api = PlainApi::start().await;
    api.sets("/openapi.json", page());
    says_so(&Gateway::with("s", api.openapi()).start().await).await;
    let document = json!({
        "openapi": "3.1.0", "info": { "title": "Things", "version": "1" },
        "servers": [{ "url": "/" }],
        "paths": { "/things": { "get": { "operationId": "things", "responses": { "200": { "description": "ok" } } } } },
    });
    let api = PlainApi::with(&document).await;
    api.sets("/things", page());
    let gateway = Gateway::with("s", api.openapi()).start().await;
    gateway.ready("s").await;
    let said = gateway.modern().call("s__things", json!({})).await;
    assert!(said.is_error() && said.body.contains("gzip"), "{said:?}");
}

#[tokio::test]
async fn a_compressed_document_token_or_key_set_is_an_error_that_names_the_encoding() {
    let settings = "grant = \"client_credentials\"\nclient_id = \"me\"\nclient_secret = \"mine\"";
    for path in ["/prm", "/.well-known/oauth-authorization-server", "/token"] {
        let server = OauthServer::before(Upstream::modern().await).await;
        server.api.sets(path, page());
        let gateway = Gateway::with("s", server.lines("s", settings)).start().await;
        says_so(&gateway).await;
    }
    let api = PlainApi::start().await;
    api.sets("/keys", page());
    let issuer = format!(
        "[issuers.corp]\nissuer = \"{}\"\njwks_url = \"{}\"\n",
        api.url(""),
        api.url("/keys")
    );
    says_so(&Gateway::alone().toml(&issuer).start().await).await;
}
