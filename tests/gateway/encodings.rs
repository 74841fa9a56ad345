//! Compressed responses, which the gateway never requests, and small ones that decode to large
//! ones.

use bytes::Bytes;
use data_encoding::HEXLOWER;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::api::{Page, PlainApi};
use crate::support::upstream::encoding::encode;
use crate::support::{Gateway, OauthServer, Step, Upstream};

const CODINGS: [&str; 2] = ["gzip", "br"];

/// Returns a gzip member of zeros that decodes to about 160 times its size.
fn gzip_bomb(size: usize) -> Vec<u8> {
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
    // Not the last block, of kind 1; a zero; then 258 bytes from one before, repeatedly.
    put(&mut bytes, "010");
    put(&mut bytes, "00110000");
    while bytes.len() < size {
        put(&mut bytes, "1100010100000");
    }
    bytes
}

/// Returns a small body of each coding with more than 40 MiB of zeros.
fn bombs() -> [(&'static str, Bytes); 2] {
    let brotli = HEXLOWER.decode(BROTLI_BOMB.as_bytes()).unwrap();
    [("gzip", gzip_bomb(300 << 10).into()), ("br", brotli.into())]
}

fn page(coding: &str, body: Bytes) -> Page {
    Page::new(200, "application/json", body).header("content-encoding", coding)
}

/// Waits until the status contains these words.
async fn says(gateway: &Gateway, words: &str) {
    gateway.wait_for(|status| status.to_string().contains(words)).await;
}

#[tokio::test]
async fn compressed_responses_of_servers_are_decoded_as_they_come() {
    for upstream in Upstream::both().await {
        upstream.does("slow", |_| vec![Step::Progress(1), Step::Hold, Step::text("done")]);
        upstream.does("large", |_| vec![Step::text("large ".repeat(100_000))]);
        for coding in CODINGS {
            upstream.encodes_with(coding);
            let gateway = Gateway::with("s", upstream.http()).start().await;
            for (era, client) in gateway.both().await {
                assert_eq!(client.tool_names().await.len(), 6, "{coding} {era}");
                let said = client.call("s__echo", json!({ "a": 1 })).await;
                assert_eq!(said.text(), r#"{"a":1}"#, "{coding} {era}");
                let said = client.call("s__large", json!({})).await;
                assert_eq!(said.text().len(), 600_000, "{coding} {era}");
                // An event is passed on before the next one is written.
                let slow = client.ask_call("s__slow", json!({})).token(json!("t"));
                let mut stream = slow.send().await;
                let first = stream.message().await.unwrap();
                assert_eq!(first["params"]["progress"], 1, "{coding} {era}: {first}");
                upstream.release(1);
                assert_eq!(stream.said().await.text(), "done", "{coding} {era}");
            }
            // The text of a refusal is decoded as well.
            upstream.guards(|received| {
                let is_refused = received.arguments()["refused"] == true;
                is_refused.then(|| (400, Vec::new(), "no such repository".to_owned()))
            });
            let said = gateway.modern().call("s__echo", json!({ "refused": true })).await;
            assert!(said.body.contains("no such repository"), "{coding}: {said:?}");
        }
        for call in upstream.calls() {
            assert_eq!(call.header("accept-encoding"), Some("identity"));
        }
    }
}

/// Starts an API with one operation, and the gateway in front of it.
async fn things(lines: &str) -> (PlainApi, Gateway) {
    let document = json!({
        "openapi": "3.1.0", "info": { "title": "Things", "version": "1" },
        "servers": [{ "url": "/" }],
        "paths": { "/things": { "get": { "operationId": "things", "responses": { "200": { "description": "ok" } } } } },
    });
    let api = PlainApi::start().await;
    let document = encode("gzip", document.to_string().as_bytes()).await;
    api.sets("/openapi.json", page("gzip", document));
    let gateway = Gateway::with("s", api.openapi() + lines).start().await;
    gateway.ready("s").await;
    (api, gateway)
}

#[tokio::test]
async fn compressed_documents_and_responses_of_apis_are_decoded_before_credentials_are_masked() {
    let (api, gateway) = things("headers = { X-API-Key = \"hunter2/hunter2\" }\n").await;
    for coding in CODINGS {
        let body = encode(coding, br#"{"name":"thing","key":"hunter2/hunter2"}"#).await;
        api.sets("/things", page(coding, body));
        let said = gateway.modern().call("s__things", json!({})).await;
        assert!(said.body.contains("thing") && said.body.contains("***"), "{coding}: {said:?}");
        assert!(!said.body.contains("hunter2"), "{coding}: {said:?}");
    }
}

#[tokio::test]
async fn a_compressed_response_is_bounded_by_its_decoded_size() {
    for (coding, bomb) in bombs() {
        // A server's list, in JSON and in an event.
        for media_type in ["application/json", "text/event-stream"] {
            let api = PlainApi::start().await;
            let page = Page::new(200, media_type, bomb.clone()).header("content-encoding", coding);
            api.sets("/mcp", page);
            let lines = format!("url = \"{}\"\nmax_response = \"1MiB\"\n", api.url("/mcp"));
            let gateway = Gateway::with("s", lines).start().await;
            says(&gateway, "its response is larger than 1048576 bytes").await;
        }
        // A response of an API, and its document.
        let (api, gateway) = things("max_response = \"1MiB\"\n").await;
        api.sets("/things", page(coding, bomb.clone()));
        let said = gateway.modern().call("s__things", json!({})).await;
        assert!(said.is_error() && said.body.contains("larger than 1048576 bytes"), "{said:?}");
        let api = PlainApi::start().await;
        api.sets("/openapi.json", page(coding, bomb));
        let gateway = Gateway::with("s", api.openapi()).start().await;
        says(&gateway, "its response is larger than 33554432 bytes").await;
    }
}

#[tokio::test]
async fn a_compressed_document_token_or_key_set_is_bounded_by_its_decoded_size() {
    let settings = "grant = \"client_credentials\"\nclient_id = \"me\"\nclient_secret = \"mine\"";
    for (coding, bomb) in bombs() {
        for path in ["/prm", "/.well-known/oauth-authorization-server", "/token"] {
            let server = OauthServer::before(Upstream::modern().await).await;
            server.api.sets(path, page(coding, bomb.clone()));
            let gateway = Gateway::with("s", server.lines("s", settings)).start().await;
            says(&gateway, "larger than 262144 bytes").await;
        }
        let api = PlainApi::start().await;
        api.sets("/keys", page(coding, bomb));
        let issuer = format!(
            "[issuers.corp]\nissuer = \"{}\"\njwks_url = \"{}\"\n",
            api.url(""),
            api.url("/keys")
        );
        says(&Gateway::alone().toml(&issuer).start().await, "larger than 262144 bytes").await;
    }
}

#[tokio::test]
async fn a_response_in_another_coding_is_an_error_that_names_it() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    gateway.ready("s").await;
    let (api, apis_gateway) = things("").await;
    for coding in ["zstd", "deflate", "compress", "gzip, br", "x-unknown"] {
        upstream.guards(move |received| {
            let header = |name: &str, value: &str| (name.to_owned(), value.to_owned());
            let headers = [("content-type", "application/json"), ("content-encoding", coding)];
            let headers = headers.map(|(name, value)| header(name, value)).to_vec();
            (received.method == "tools/call").then(|| (200, headers, "{}".to_owned()))
        });
        let words =
            format!("encoded with \\\"{coding}\\\", expected no content coding, gzip or br");
        let said = gateway.modern().call("s__echo", json!({})).await;
        assert!(said.is_error() && said.body.contains(&words), "{said:?}");
        // The status of a refusal is more informative than the coding of its page.
        upstream.guards(move |received| {
            let headers = vec![("content-encoding".to_owned(), coding.to_owned())];
            (received.method == "tools/call").then(|| (418, headers, "no".to_owned()))
        });
        let refused = gateway.modern().call("s__echo", json!({})).await;
        assert!(refused.is_error() && refused.body.contains("418"), "{refused:?}");
        api.sets("/things", page(coding, "{}".into()));
        let said = apis_gateway.modern().call("s__things", json!({})).await;
        assert!(said.is_error() && said.body.contains(&words), "{said:?}");
    }
}

#[tokio::test]
async fn a_response_that_its_coding_does_not_fit_is_an_error_that_names_it() {
    let (api, gateway) = things("").await;
    let text = br#"{"name":"thing"}"#;
    let (gzip, brotli) = (encode("gzip", text).await, encode("br", text).await);
    let mut altered = gzip.to_vec();
    // The checksum is eight bytes from the end.
    let checksum = altered.len() - 8;
    altered[checksum] ^= 1;
    for (coding, body) in [
        ("gzip", Bytes::from_static(text)),
        ("gzip", gzip.slice(..gzip.len() - 1)),
        ("gzip", altered.into()),
        ("gzip", [&gzip[..], b"rest"].concat().into()),
        ("br", brotli.slice(..brotli.len() - 1)),
        ("br", gzip),
        // A window of 1 GiB, which requires an extension of the format.
        ("br", Bytes::from_static(LARGE_WINDOW)),
    ] {
        api.sets("/things", page(coding, body.clone()));
        let said = gateway.modern().call("s__things", json!({})).await;
        let words = format!("its response is not valid {coding}");
        assert!(said.is_error() && said.body.contains(&words), "{coding} {body:?}: {said:?}");
    }
    // A response without contents has nothing to decode.
    api.sets("/things", page("gzip", Bytes::new()));
    let said = gateway.modern().call("s__things", json!({})).await;
    assert!(!said.is_error(), "{said:?}");
}

#[tokio::test]
async fn a_connection_that_is_lost_in_a_compressed_response_is_no_fault_of_the_coding() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let whole = encode("gzip", &[b'x'; 1000]).await;
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let _ = client.read(&mut [0; 1 << 16]).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\
                        content-encoding: gzip\r\ncontent-length: 1000\r\n\r\n";
            client.write_all(&[head.as_bytes(), &whole[..12]].concat()).await.unwrap();
        }
    });
    let gateway = Gateway::with("s", format!("url = \"http://{address}/mcp\"\n")).start().await;
    let error = gateway.server("s").await["last_error"]["message"].to_string();
    assert!(error.contains("connection") && !error.contains("gzip"), "{error}");
}

/// 100 MiB of zeros.
const BROTLI_BOMB: &str = "\
    cbffff3ff82700e2b14020f7fe8fffff7ff04f00c4611180eefd1fffffffe09f0088c30200ddfb3ffeffffc13f011087\
    0500baf77ffcffff837f02200e0b0074effff8ffff07ff04401c1600e8defff1ffff0ffe0980382c00d0bdffe3ffff1f\
    fc1300715800a07bffc7ffff3ff82700e2b00040f7fe8fffff7ff04f00c4610180eefd1fffffffe09f0088c30200ddfb\
    3ffeffffc13f0110870500baf77ff9ffff837f02200e0b0074ef7f00";
/// The text `{}`, encoded with a window of 30 bits.
const LARGE_WINDOW: &[u8] = &[0x11, 0x1e, 0x02, 0x00, 0x02, 0x7b, 0x7d, 0x03];
