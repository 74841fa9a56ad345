//! Logins at servers, which all replicas use and one of them renews.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::cluster::{RedisServer, free_port, replica_at, start_replicas};
use crate::oauth::{call, come_back, link_in, log_in, protected};
use crate::support::gateway::Builder;
use crate::support::{Gateway, OauthServer, Said};

pub const ECHO: &str = r#"{"a":1}"#;

pub fn with_login(server: &OauthServer) -> Builder {
    Gateway::with("s", server.lines("s", ""))
}

/// Starts a server whose next login gets the token `first`, which `r1` renews.
pub async fn server_with_tokens() -> OauthServer {
    let server = protected().await;
    server.gives("first", json!({ "expires_in": 3600, "refresh_token": "r1" }));
    server.takes("first", &["list", "call"]);
    server
}

/// Makes `second` the only valid token, and that of the next renewal.
pub fn expect_renewal(server: &OauthServer) {
    server.refuses("first");
    server.gives("second", json!({ "expires_in": 3600, "refresh_token": "r2" }));
    server.takes("second", &["list", "call"]);
}

fn renewals(server: &OauthServer) -> Vec<String> {
    let forms = server.token_requests().into_iter();
    forms.filter_map(|form| form.get("refresh_token").cloned()).collect()
}

fn is_unavailable(said: &Said) -> bool {
    let message = said.answer()["error"]["message"].as_str().unwrap_or_default();
    message.contains("the store that the gateway's replicas share")
}

#[tokio::test]
async fn one_login_serves_three_replicas_and_fifty_calls_renew_it_once() {
    let (redis, server) = (RedisServer::start().await, server_with_tokens().await);
    let [a, b, c] = start_replicas(&redis.url(), || with_login(&server)).await;
    log_in(&a, &server, &a.modern()).await;
    let clients = [&a, &b, &c].map(Gateway::modern);
    for (replica, client) in [&a, &b, &c].into_iter().zip(&clients) {
        replica.ready("s").await;
        assert_eq!(call(client).await.text(), ECHO);
    }
    assert_eq!(server.token_requests().len(), 1, "one login");
    expect_renewal(&server);
    let said = join_all((0..50).map(|number| call(&clients[number % 3]))).await;
    assert!(said.iter().all(|said| said.text() == ECHO), "{said:?}");
    assert_eq!(renewals(&server), ["r1"]);
    // The store has no token in clear, the grant stays, and no lock does.
    let names = redis.command("KEYS trunkline:grants:*").await;
    let name = names.lines().find(|line| line.starts_with("trunkline:grants:")).expect("a grant");
    assert_eq!(name.trim().len(), "trunkline:grants:".len() + 64, "{names}");
    assert_eq!(redis.command(&format!("PTTL {}", name.trim())).await.trim(), ":-1");
    let record = redis.command(&format!("GET {}", name.trim())).await;
    assert!(!record.contains("second") && !record.contains("a.test"), "{record}");
    assert_eq!(redis.command("KEYS trunkline:renewals:*").await.trim(), "*0");
    // A replica that starts later needs no login.
    let late = replica_at(with_login(&server), &redis.url(), free_port(), "").start().await;
    late.ready("s").await;
    assert_eq!(call(&late.modern()).await.text(), ECHO);
    assert_eq!(server.token_requests().len(), 2);
}

#[tokio::test]
async fn without_the_store_a_valid_token_is_used_and_none_is_renewed() {
    let (mut redis, server) = (RedisServer::start().await, server_with_tokens().await);
    let [a, b] = start_replicas(&redis.url(), || with_login(&server)).await;
    log_in(&a, &server, &a.modern()).await;
    for replica in [&a, &b] {
        replica.ready("s").await;
    }
    redis.kill();
    for replica in [&a, &b] {
        assert_eq!(call(&replica.modern()).await.text(), ECHO);
    }
    expect_renewal(&server);
    for replica in [&a, &b] {
        let refused = call(&replica.modern()).await;
        assert!(refused.status == 503 && is_unavailable(&refused), "{refused:?}");
    }
    assert_eq!(server.token_requests().len(), 1, "nothing was sent to the authorization server");
}

#[tokio::test]
async fn a_login_that_ended_at_one_replica_is_dropped_by_the_others() {
    let (redis, server) = (RedisServer::start().await, server_with_tokens().await);
    let [a, b] = start_replicas(&redis.url(), || with_login(&server)).await;
    log_in(&a, &server, &a.modern()).await;
    for replica in [&a, &b] {
        replica.ready("s").await;
        assert_eq!(call(&replica.modern()).await.text(), ECHO);
    }
    server.refuses("first");
    server.gives_none("invalid_grant");
    link_in(&call(&a.modern()).await);
    assert_eq!(redis.command("KEYS trunkline:grants:*").await.trim(), "*0");
    // The other replica does not present the refresh token again.
    let before = server.token_requests().len();
    link_in(&call(&b.modern()).await);
    assert_eq!(server.token_requests().len(), before);
    // An answer to no login changes nothing.
    let page = come_back(&b, "/oauth/callback?code=x&state=y").await;
    assert_eq!(page.status, 400, "{page:?}");
}

#[tokio::test]
async fn a_login_in_a_vault_is_moved_to_the_store_once() {
    let (redis, server) = (RedisServer::start().await, protected().await);
    let more = json!({ "expires_in": 3600, "refresh_token": "r1" });
    let folder = crate::oauth::vaults::keep_login(&server, more).await;
    let vault = format!("[vault]\nkeys = [\"{}\"]\n", crate::oauth::vaults::KEY);
    let builder = with_login(&server).toml(&vault).in_folder(folder);
    let a = replica_at(builder, &redis.url(), free_port(), "").start().await;
    let b = replica_at(with_login(&server), &redis.url(), free_port(), "").start().await;
    for replica in [&a, &b] {
        replica.ready("s").await;
        assert_eq!(call(&replica.modern()).await.text(), ECHO);
    }
    assert_eq!(server.token_requests().len(), 1);
    // The file has it no more: a gateway that is alone has to log in.
    let folder = a.stop().await;
    let alone = with_login(&server).toml(&vault).in_folder(folder).start().await;
    assert_eq!(alone.server("s").await["state"], Value::from("login"));
    link_in(&call(&alone.modern()).await);
}
