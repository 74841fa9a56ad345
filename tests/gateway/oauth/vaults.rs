//! Logins that outlive the gateway.

use std::fs;

use serde_json::json;
use tempfile::TempDir;

use crate::support::{Gateway, OauthServer};

use super::{agree, call, link_in, log_in, protected};

const KEY: &str = "a vault key with more than 32 bytes";

async fn with_vault(server: &OauthServer, folder: TempDir, more: &str) -> Gateway {
    let vault = format!("[vault]\nkeys = [\"{KEY}\"]\n{more}");
    Gateway::with("s", server.lines("s", "")).toml(&vault).in_folder(folder).start().await
}

#[tokio::test]
async fn a_login_and_a_client_outlive_the_gateway() {
    let server = protected().await;
    let gateway = with_vault(&server, tempfile::tempdir().unwrap(), "").await;
    server.gives("token-1", json!({ "expires_in": 3600, "refresh_token": "refresh-1" }));
    server.takes("token-1", &["list", "call"]);
    log_in(&gateway, &server, &gateway.modern()).await;
    let folder = gateway.stop().await;
    let file = fs::read(folder.path().join("trunkline.vault")).unwrap();
    for secret in ["token-1", "refresh-1", "client-secret-1", KEY] {
        assert!(!file.windows(secret.len()).any(|it| it == secret.as_bytes()), "{secret}");
    }
    let gateway = with_vault(&server, folder, "").await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    // Its token is renewed with the client that was registered then.
    server.refuses("token-1");
    server.gives("token-2", json!({}));
    server.takes("token-2", &["list", "call"]);
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    assert_eq!(server.token_requests().last().unwrap()["refresh_token"], "refresh-1");
    assert_eq!(server.api.calls("/register").len(), 1);
    // The next start uses the renewed one.
    let folder = gateway.stop().await;
    let gateway = with_vault(&server, folder, "").await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    assert_eq!(server.token_requests().len(), 2);
}

#[tokio::test]
async fn a_used_up_grant_in_the_vault_leads_to_a_login() {
    let server = protected().await;
    let gateway = with_vault(&server, tempfile::tempdir().unwrap(), "").await;
    server.gives("token-1", json!({ "refresh_token": "refresh-1" }));
    server.takes("token-1", &["list", "call"]);
    log_in(&gateway, &server, &gateway.modern()).await;
    let folder = gateway.stop().await;
    // As if the gateway had been killed after the authorization server had renewed the tokens, and
    // before they were written.
    server.refuses("token-1");
    server.gives_none("invalid_grant");
    let gateway = with_vault(&server, folder, "").await;
    let link = link_in(&call(&gateway.modern()).await);
    server.gives("token-2", json!({}));
    server.takes("token-2", &["list", "call"]);
    assert_eq!(agree(&gateway, &server, &link).await.status, 200);
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
}

#[tokio::test]
async fn a_login_of_another_issuer_or_client_is_not_used() {
    let server = protected().await;
    let gateway = with_vault(&server, tempfile::tempdir().unwrap(), "").await;
    server.gives("token-1", json!({ "refresh_token": "refresh-1" }));
    server.takes("token-1", &["list", "call"]);
    log_in(&gateway, &server, &gateway.modern()).await;
    let folder = gateway.stop().await;
    let settings = "client_id = \"another\"\nclient_secret = \"another-secret\"";
    let vault = format!("[vault]\nkeys = [\"{KEY}\"]\n");
    let before = server.upstream.received().len();
    let gateway = Gateway::with("s", server.lines("s", settings)).toml(&vault);
    let gateway = gateway.in_folder(folder).start().await;
    link_in(&call(&gateway.modern()).await);
    let sent = server.upstream.received();
    assert!(sent[before..].iter().all(|sent| sent.header("authorization").is_none()));
}

#[tokio::test]
async fn a_revoked_login_is_gone_from_the_vault() {
    let server = protected().await;
    let gateway = with_vault(&server, tempfile::tempdir().unwrap(), "").await;
    server.gives("token-1", json!({}));
    server.takes("token-1", &["list", "call"]);
    log_in(&gateway, &server, &gateway.modern()).await;
    let browser = crate::support::Browser::of(&gateway);
    let page = browser.opens("/connect").await;
    let form = crate::support::browser::fields(&page.body);
    let form: Vec<_> = form.iter().map(|(name, value)| (&**name, &**value)).collect();
    assert_eq!(browser.sends("/connect/revoke", &form).await.status, 303);
    let folder = gateway.stop().await;
    let gateway = with_vault(&server, folder, "").await;
    link_in(&call(&gateway.modern()).await);
}

#[tokio::test]
async fn a_gateway_without_a_key_keeps_logins_in_memory_only() {
    let server = protected().await;
    let gateway = Gateway::with("s", server.lines("s", "")).start().await;
    server.gives("token-1", json!({}));
    server.takes("token-1", &["list", "call"]);
    log_in(&gateway, &server, &gateway.modern()).await;
    let folder = gateway.stop().await;
    let names = fs::read_dir(folder.path()).unwrap().map(|it| it.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["gateway.toml"]);
}

#[tokio::test]
async fn the_key_may_come_from_a_program() {
    let server = protected().await;
    let vault = format!("[vault]\nkey_command = [\"printf\", \"%s\\\\n\", \"{KEY}\"]\n");
    let lines = server.lines("s", "");
    let gateway = Gateway::with("s", lines).toml(&vault).start().await;
    server.gives("token-1", json!({}));
    server.takes("token-1", &["list", "call"]);
    log_in(&gateway, &server, &gateway.modern()).await;
    let folder = gateway.stop().await;
    // The same key by the configuration.
    let gateway = with_vault(&server, folder, "").await;
    gateway.ready("s").await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
}
