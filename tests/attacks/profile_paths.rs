//! Paths that the permission check and the routing would resolve to different profiles.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::support::{Gateway, Issuer, Upstream, client_table, within};

const KEY: &str = "key-of-ci";

const PROFILES: &str = r#"
[profiles.p]
tools = ["s__echo"]

[profiles.q]
tools = ["s__count"]

[profiles.support]
tools = ["s__link"]
"#;

/// Paths that lead to no profile. `p` is the profile that the client may use.
const PATHS: [&str; 40] = [
    "/mcp",
    "/mcp/q",
    "/mcp/support",
    "/mcp/%71",
    "/mcp/%73upport",
    "/mcp/%2571",
    "/%6dcp/q",
    "/MCP/q",
    "/mcp/Q",
    "/mcp/P",
    "//mcp",
    "//mcp/q",
    "/mcp//q",
    "/mcp//support",
    "/mcp//p",
    "/mcp/p/",
    "/mcp/q/",
    "/mcp/p/q",
    "/mcp/p/../q",
    "/mcp/q/../p",
    "/mcp/p/..",
    "/mcp/./q",
    "/mcp/../mcp/q",
    "/x/../mcp/q",
    "/mcp/p/%2e%2e/q",
    "/mcp/p%2fq",
    "/mcp/p%2f..%2fq",
    "/mcp/p%5cq",
    "/mcp/p\\..\\q",
    "\\mcp\\q",
    "/mcp\\q",
    "/mcp/p;x",
    "/mcp/q;x",
    "/mcp;p",
    "/mcp/p%00",
    "/mcp/q%00p",
    "/mcp/p%20",
    "/mcp/p%23q",
    "/mcp/p%3f",
    "/mcp/p,q",
];

async fn gateway(upstream: &Upstream, issuer: &Issuer) -> Gateway {
    Gateway::with("s", upstream.http())
        .toml(&client_table("ci", KEY, "profiles = [\"p\"]"))
        .toml(&issuer.table("idp", ""))
        .toml(PROFILES)
        .start()
        .await
}

fn message() -> Value {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "1" },
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": { "_meta": meta } })
}

/// Posts a request with exactly this target, over HTTP/1.1.
async fn post(gateway: &Gateway, target: &str, host: &str, key: &str) -> String {
    let body = message().to_string();
    let head = format!(
        "POST {target} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/list\r\n\
         connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let mut socket = TcpStream::connect(gateway.running.address).await.unwrap();
    let answer = async {
        socket.write_all((head + &body).as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        // A refusal may close the connection before the body was read.
        let _ = socket.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    };
    within(answer).await
}

/// Checks that the answer is a refusal that reveals no element.
#[track_caller]
fn is_refused(answer: &str, path: &str) {
    let status = answer.split(' ').nth(1).unwrap_or_default();
    assert!(["400", "401", "403", "404"].contains(&status), "{path}: {answer}");
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    assert!(!body.contains("s__") && !body.contains("tools"), "{path}: {answer}");
}

#[track_caller]
fn is_profile_p(answer: &str, path: &str) {
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("s__echo"), "{path}: {answer}");
    assert!(!answer.contains("s__count") && !answer.contains("s__link"), "{path}: {answer}");
}

#[tokio::test]
async fn no_spelling_of_a_path_leads_to_a_profile_of_others() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    upstream.does("link", |_| Vec::new());
    let gateway = gateway(&upstream, &issuer).await;
    let address = gateway.running.address;
    let host = address.to_string();
    let token = issuer.token(&format!("http://{host}/mcp/p"), json!({}));
    for credential in [KEY, &token] {
        for target in ["/mcp/p".to_owned(), format!("http://{host}/mcp/p")] {
            is_profile_p(&post(&gateway, &target, &host, credential).await, &target);
        }
        for path in PATHS {
            is_refused(&post(&gateway, path, &host, credential).await, path);
        }
        // The host of an absolute target counts, independent of the header (RFC 9112, 3.2.2).
        for target in [
            format!("http://{host}/mcp/q"),
            format!("http://{host}//mcp/q"),
            format!("http://{host}/mcp/p/../q"),
            format!("http://{host}/mcp/%71"),
            "http://elsewhere.example.com/mcp/p".to_owned(),
            format!("http://{host}@elsewhere.example.com/mcp/p"),
            format!("http://{host}"),
            "*".to_owned(),
            "mcp/p".to_owned(),
            "".to_owned(),
        ] {
            is_refused(&post(&gateway, &target, &host, credential).await, &target);
        }
        let elsewhere = "elsewhere.example.com";
        let target = format!("http://{elsewhere}/mcp/p");
        is_refused(&post(&gateway, &target, elsewhere, credential).await, &target);
        is_refused(&post(&gateway, "/mcp/p", elsewhere, credential).await, elsewhere);
    }
    assert_eq!(upstream.calls().len(), 0);
}

#[tokio::test]
async fn nor_does_one_over_http_2() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let gateway = gateway(&upstream, &issuer).await;
    let token = issuer.token(&format!("http://{}/mcp/p", gateway.running.address), json!({}));
    for credential in [KEY, &token] {
        let client = gateway.modern().key(credential).h2();
        let list = async |path: &str| {
            client.ask("tools/list", json!({})).at(path).send().await.said().await
        };
        let said = list("/mcp/p").await;
        assert_eq!(said.result()["tools"][0]["name"], "s__echo", "{said:?}");
        for path in PATHS.iter().filter(|path| path.starts_with('/')) {
            let said = list(path).await;
            assert!((400..405).contains(&said.status), "{path}: {said:?}");
            assert!(!said.body.contains("s__"), "{path}: {said:?}");
        }
    }
}

#[tokio::test]
async fn a_token_opens_the_old_transport_at_its_own_endpoint_and_goes_no_further() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let gateway = Gateway::with("s", upstream.http())
        .gateway("sse = true")
        .toml(&issuer.table("idp", ""))
        .toml(PROFILES)
        .start()
        .await;
    let resource = |path: &str| format!("http://{}{path}", gateway.running.address);
    let of_p = issuer.token(&resource("/mcp/p"), json!({}));
    let of_all = issuer.token(&resource("/mcp"), json!({}));
    let bob = issuer.token(&resource("/mcp/p"), json!({ "sub": "bob" }));
    let open = async |token: &str, path: &str| {
        let client = gateway.plain().key(token);
        client.http("GET", path).accept("text/event-stream").send().await
    };
    for (token, path) in [
        (&of_p, "/sse"),
        (&of_all, "/sse/p"),
        (&of_p, "/sse/q"),
        (&of_p, "/sse/%71"),
        (&of_p, "/sse/p/../q"),
    ] {
        let said = open(token, path).await.said().await;
        assert!([401, 404].contains(&said.status), "{path}: {said:?}");
    }
    let said = gateway.plain().http("GET", "/sse/p").send().await.said().await;
    assert_eq!(said.status, 401);
    assert!(said.header("www-authenticate").unwrap().contains("resource_metadata"));
    let mut stream = open(&of_p, "/sse/p").await;
    assert_eq!(stream.status(), 200);
    let Some(crate::support::client::Piece::Endpoint(messages)) = stream.piece().await else {
        panic!("no endpoint")
    };
    assert!(!messages.contains(&of_p[..20]), "{messages}");
    let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {
        "protocolVersion": "2024-11-05", "capabilities": {},
        "clientInfo": { "name": "old", "version": "1" } } });
    let post = async |token: Option<&str>, path: &str| {
        let client = match token {
            Some(token) => gateway.plain().key(token),
            None => gateway.plain(),
        };
        let post = client.http("POST", path).header("content-type", "application/json");
        post.body(hello.to_string()).send().await.said().await
    };
    // A client that knows the address of a stream needs the token of its user as well.
    assert_eq!(post(None, &messages).await.status, 401);
    let in_query = format!("{messages}&access_token={of_p}");
    assert!((400..405).contains(&post(None, &in_query).await.status));
    for other in [&bob, &of_all] {
        let said = post(Some(other), &messages).await;
        assert!([401, 404].contains(&said.status), "{said:?}");
    }
    assert_eq!(post(Some(&of_p), &messages).await.status, 202);
    let answer = stream.message().await.unwrap();
    assert_eq!(answer["result"]["protocolVersion"], "2024-11-05", "{answer}");
}
