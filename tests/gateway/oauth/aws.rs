//! Requests signed for AWS, checked by a second implementation of Signature Version 4.

use aws_lc_rs::hmac;
use data_encoding::HEXLOWER;
use http::HeaderMap;
use serde_json::json;
use trunkline::crypto::sha256;

use crate::openapi::shop;
use crate::support::api::PlainApi;
use crate::support::{Gateway, Upstream};

/// Settings of a server with the keys of AWS's own example.
pub const SETTINGS: &str = "region = \"eu-central-1\"\nservice = \"bedrock-agentcore\"\n\
    access_key_id = \"AKIDEXAMPLE\"\nsecret_access_key = \"${env:AWS_KEY}\"\n\
    session_token = \"the-session\"\n";
const KEY: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

/// A received request.
struct Arrived<'a> {
    method: &'a str,
    path: &'a str,
    query: &'a str,
    headers: &'a HeaderMap,
    body: &'a [u8],
}

/// Returns the names of the signed headers; panics if the signature does not match the request.
#[track_caller]
fn verify(arrived: &Arrived<'_>) -> Vec<String> {
    let header = |name: &str| arrived.headers[name].to_str().unwrap();
    let authorization = header("authorization");
    let part = |name: &str| {
        let parts = authorization.split([' ', ',']);
        parts.filter_map(|part| part.strip_prefix(name)).next().unwrap()
    };
    let (scope, names) = (part("Credential=AKIDEXAMPLE/"), part("SignedHeaders="));
    let payload = HEXLOWER.encode(&sha256(arrived.body));
    assert_eq!(header("x-amz-content-sha256"), payload);
    assert_eq!(header("x-amz-security-token"), "the-session");
    let lines: String =
        names.split(';').map(|name| format!("{name}:{}\n", header(name).trim())).collect();
    let Arrived { method, path, query, .. } = arrived;
    let canonical = format!("{method}\n{path}\n{query}\n{lines}\n{names}\n{payload}");
    let canonical = HEXLOWER.encode(&sha256(canonical.as_bytes()));
    let (date, scope_text) = (header("x-amz-date"), scope);
    let signed = format!("AWS4-HMAC-SHA256\n{date}\n{scope_text}\n{canonical}");
    let sign = |key: &[u8], text: &str| {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        hmac::sign(&key, text.as_bytes()).as_ref().to_vec()
    };
    let key =
        scope.split('/').fold(format!("AWS4{KEY}").into_bytes(), |key, part| sign(&key, part));
    assert_eq!(part("Signature="), HEXLOWER.encode(&sign(&key, &signed)));
    names.split(';').map(str::to_owned).collect()
}

#[tokio::test]
async fn every_request_to_a_server_is_signed() {
    for upstream in Upstream::both().await {
        let forward = "forward_headers = [\"authorization\"]\n";
        let lines = format!("{}{forward}[servers.s.aws]\n{SETTINGS}", upstream.http());
        let gateway = Gateway::with("s", lines).variable("AWS_KEY", KEY).start().await;
        let client = gateway.modern();
        // A credential of the client does not replace the signature.
        let said =
            client.ask_call("s__echo", json!({ "a": 1 })).header("authorization", "Bearer x");
        assert_eq!(said.send().await.said().await.text(), r#"{"a":1}"#);
        let received = upstream.received();
        let posted: Vec<_> = received
            .iter()
            .filter(|it| !matches!(&*it.method, "GET" | "DELETE" | "closed"))
            .collect();
        assert!(posted.len() >= 3, "{posted:?}");
        for received in posted {
            let arrived = Arrived {
                method: "POST",
                path: "/mcp",
                query: "",
                headers: &received.headers,
                body: received.text.as_bytes(),
            };
            let names = verify(&arrived);
            let sent = ["content-type", "host", "accept", "mcp-protocol-version", "mcp-session-id"];
            for name in sent.iter().filter(|name| received.header(name).is_some()) {
                assert!(names.iter().any(|signed| signed == name), "{name} is not among {names:?}");
            }
        }
        let status = format!("{}", gateway.status().await);
        assert!(!status.contains(KEY) && !status.contains("the-session"), "{status}");
    }
}

#[tokio::test]
async fn every_call_of_a_plain_api_is_signed() {
    let api = PlainApi::with(&shop()).await;
    let lines = format!("{}[servers.shop.aws]\n{SETTINGS}", api.openapi());
    let gateway = Gateway::with("shop", lines).variable("AWS_KEY", KEY).start().await;
    let arguments = json!({ "item_id": 7, "dry_run": true, "name": "é", "price": 1 });
    gateway.modern().call("shop__update_item", arguments).await;
    gateway.modern().call("shop__read_item", json!({ "item_id": "a b" })).await;
    let calls: Vec<_> =
        api.received().into_iter().filter(|call| call.target.starts_with("/items")).collect();
    assert_eq!(calls.len(), 2, "{calls:?}");
    for call in api.received() {
        let (path, query) = call.target.split_once('?').unwrap_or((&call.target, ""));
        // All AWS services but S3 encode the path once more.
        let path = path.replace('%', "%25");
        let arrived = Arrived {
            method: &call.method,
            path: &path,
            query,
            headers: &call.headers,
            body: &call.body,
        };
        verify(&arrived);
    }
}

#[tokio::test]
async fn nothing_is_signed_for_a_host_that_the_configuration_does_not_name() {
    let (open, api) = (PlainApi::with(&shop()).await, PlainApi::start().await);
    let place = format!("{}base_url = \"{}\"\n", open.openapi(), api.url("/"));
    let lines = format!("{place}[servers.shop.aws]\n{SETTINGS}");
    let gateway = Gateway::with("shop", lines).variable("AWS_KEY", KEY).start().await;
    gateway.modern().call("shop__read_item", json!({ "item_id": "7" })).await;
    assert!(api.last().header("authorization").unwrap().starts_with("AWS4-HMAC-SHA256 "));
    let read = open.received();
    assert!(!read.is_empty() && read.iter().all(|call| call.header("authorization").is_none()));
    // A document in a file names a host, which would receive the signatures.
    let mut document = shop();
    document["servers"] = json!([{ "url": api.url("/") }]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("shop.json");
    std::fs::write(&file, document.to_string()).unwrap();
    let lines = format!("openapi = {file:?}\n[servers.shop.aws]\n{SETTINGS}");
    let gateway = Gateway::with("shop", lines).variable("AWS_KEY", KEY).start().await;
    let status = gateway.server("shop").await;
    let fault = status["last_error"]["message"].as_str().unwrap();
    assert!(fault.contains("base_url"), "{fault}");
}
