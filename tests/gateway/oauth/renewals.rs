//! Expiring tokens: renewed without the user where possible.

use futures_util::future::join_all;
use serde_json::{Value, json};

use crate::support::api::Page;
use crate::support::{Browser, Client, Gateway, OauthServer};

use super::vaults::{KEY, keep_login};
use super::{call, gateway, link_in, log_in, protected};

/// The first token of [`logged_in`].
const FIRST_TOKEN: &str = "first";

/// Starts a server and a gateway that has logged in, with a token that can be renewed with `r1`.
async fn logged_in() -> (OauthServer, Gateway, Client) {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let client = gateway.modern();
    server.gives(FIRST_TOKEN, json!({ "expires_in": 3600, "refresh_token": "r1" }));
    server.takes(FIRST_TOKEN, &["list", "call"]);
    log_in(&gateway, &server, &client).await;
    gateway.ready("s").await;
    (server, gateway, client)
}

#[tokio::test]
async fn fifty_calls_renew_a_token_that_ends_once() {
    let (server, _gateway, client) = logged_in().await;
    server.refuses(FIRST_TOKEN);
    server.gives("second", json!({ "expires_in": 3600 }));
    server.takes("second", &["list", "call"]);
    let said = join_all((0..50).map(|_| call(&client))).await;
    assert!(said.iter().all(|said| said.text() == r#"{"a":1}"#), "{:?}", said[0]);
    let requests = server.token_requests();
    let renewals: Vec<_> =
        requests.iter().filter(|form| form["grant_type"] == "refresh_token").collect();
    assert_eq!(renewals.len(), 1, "one at a time, and the others use what it brought");
    assert_eq!(renewals[0]["refresh_token"], "r1");
    assert_eq!(renewals[0]["resource"], server.resource());
}

#[tokio::test]
async fn a_token_is_renewed_before_it_ends() {
    let server = protected().await;
    let gateway = gateway(&server, "").await;
    let client = gateway.modern();
    server.gives("short", json!({ "expires_in": 0, "refresh_token": "r1" }));
    server.takes("long", &["list", "call"]);
    let link = link_in(&call(&client).await);
    assert_eq!(super::agree(&gateway, &server, &link).await.status, 200);
    server.gives("long", json!({ "expires_in": 3600 }));
    // Its list and its call use the next token; the server sees no other.
    assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
    let sent: Vec<_> = server.upstream.received();
    let tokens: std::collections::BTreeSet<_> =
        sent.iter().filter_map(|it| it.header("authorization")).collect();
    assert!(tokens.contains("Bearer long"), "{tokens:?}");
}

#[tokio::test]
async fn a_revoked_grant_asks_for_a_login_and_keeps_the_lists() {
    let (server, gateway, client) = logged_in().await;
    server.refuses(FIRST_TOKEN);
    server.gives_none("invalid_grant");
    let link = link_in(&call(&client).await);
    assert!(client.tool_names().await.contains(&"s__echo".to_owned()));
    assert_eq!(gateway.server("s").await["login"], json!(link));
    server.gives("u", json!({}));
    server.takes("u", &["list", "call"]);
    log_in(&gateway, &server, &client).await;
    assert_eq!(call(&client).await.text(), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_server_that_moves_gets_a_new_client_and_not_the_old_ones_tokens() {
    let (server, gateway, client) = logged_in().await;
    let other = protected().await;
    let before = server.token_requests().len();
    let moved = json!({ "resource": server.resource(), "authorization_servers": [other.issuer()] });
    server.api.sets("/prm", Page::json(&moved));
    server.refuses(FIRST_TOKEN);
    let registered = json!({ "client_id": "at-the-other" }).to_string();
    other.api.sets("/register", Page::new(201, "application/json", registered));
    let link = link_in(&call(&client).await);
    let place = Browser::of(&gateway).agrees(&link).await;
    assert!(place.starts_with(&other.api.url("/authorize")) && place.contains("at-the-other"));
    assert_eq!(server.token_requests().len(), before, "the refresh token is not shown to anybody");
    assert!(other.token_requests().is_empty());
}

#[tokio::test]
async fn a_configured_client_is_shown_to_its_first_issuer_only() {
    let (server, other) = (protected().await, protected().await);
    let settings = "client_id = \"configured\"\nclient_secret = \"secret-of-client\"";
    let gateway = gateway(&server, settings).await;
    let client = gateway.modern();
    server.gives("t", json!({}));
    server.takes("t", &["list", "call"]);
    log_in(&gateway, &server, &client).await;
    gateway.ready("s").await;
    let moved = json!({ "resource": server.resource(), "authorization_servers": [other.issuer()] });
    server.api.sets("/prm", Page::json(&moved));
    server.refuses("t");
    let said = call(&client).await;
    assert!(said.is_error() && !said.body.contains("/connect"), "{said:?}");
    assert!(other.token_requests().is_empty() && other.api.calls("/register").is_empty());
}

#[tokio::test]
async fn a_kept_login_is_in_the_calendar_before_its_server_is_used() {
    let server = protected().await;
    let lifetime = 3 * 86_400 + 3600;
    let ends = json!({ "refresh_token": "r", "refresh_token_expires_in": lifetime });
    let folder = keep_login(&server, ends).await;
    let grants = |status: &Value| {
        let expiries = status["expiries"].as_array().unwrap().iter();
        let grants = expiries.filter(|expiry| expiry["kind"] == "grant");
        grants.map(|it| json!([it["name"], it["state"]])).collect::<Vec<_>>()
    };
    let vault = format!("[vault]\nkeys = [\"{KEY}\"]\n");
    let lines = server.lines("s", "").replacen('\n', "\nstart = \"lazy\"\n", 1);
    let gateway = Gateway::with("s", lines).toml(&vault).in_folder(folder).start_at_once().await;
    assert_eq!(grants(&gateway.status().await), [json!(["servers.s.oauth[gateway]", "soon"])]);
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("trunkline_expiry_timestamp_seconds{kind=\"grant\""), "{metrics}");
    // The login of a server that is no longer configured is of no interest.
    let folder = gateway.stop().await;
    let other = server.lines("t", "").replacen('\n', "\nstart = \"lazy\"\n", 1);
    let gateway = Gateway::with("t", other).toml(&vault).in_folder(folder).start_at_once().await;
    assert!(grants(&gateway.status().await).is_empty());
}
