//! Revoked logins: their instances, those that wait in the vault, and those of disabled servers.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::super::logins::{find, with_logins};
use super::super::resources::{get, post};
use super::super::{code, send};
use crate::oauth::{call, link_in, log_in, protected};
use crate::support::api::Page;
use crate::support::{
    Client, Gateway, OauthServer, Said, Upstream, client_table, json_lines, until, until_async,
};

async fn path_of(gateway: &Gateway, kind: &str) -> String {
    let page = get(gateway, "/logins").await;
    format!("/api/v1/logins/{}", find(&page, kind)["login"].as_str().unwrap())
}

async fn revoke(operator: &Client, path: &str) -> Said {
    send(operator, "DELETE", path).await
}

#[tokio::test]
async fn the_instances_that_used_a_revoked_login_are_closed() {
    let server = OauthServer::before(Upstream::legacy().await).await;
    let gateway = with_logins(&server).await;
    let of_ann = async || {
        let server = gateway.server("s").await;
        let instances = server["instances"].as_array().unwrap().iter();
        instances.filter(|one| one["client"] == "ann").count()
    };
    assert_eq!(of_ann().await, 1, "{:#}", gateway.server("s").await);
    let path = path_of(&gateway, "client").await;
    assert_eq!(revoke(&gateway.operator(), &path).await.status, 200);
    until_async(|| async { of_ann().await == 0 }).await;
    assert_eq!(gateway.server("s").await["state"], "ready", "the main one stays");
}

#[tokio::test]
async fn a_login_is_gone_even_if_its_provider_refuses_to_revoke_it() {
    let server = protected().await;
    server.publishes(json!({ "revocation_endpoint": server.api.url("/revoke") }));
    let fault = json!({ "error": "server_error", "error_description": "try\u{1b}[2J later" });
    server.api.sets("/revoke", Page::new(503, "application/json", fault.to_string()));
    let gateway = with_logins(&server).await;
    let path = path_of(&gateway, "client").await;
    let revoked = revoke(&gateway.operator(), &path).await.json();
    assert_eq!(revoked["provider"], "refused", "{revoked}");
    let reason = revoked["reason"].as_str().unwrap();
    assert!(!reason.is_empty() && !reason.contains('\u{1b}'), "{reason}");
    link_in(&call(&gateway.modern().key("key-of-ann")).await);
}

#[tokio::test]
async fn a_login_of_a_disabled_server_waits_until_the_server_is_enabled() {
    let server = protected().await;
    let gateway = with_logins(&server).await;
    let path = path_of(&gateway, "client").await;
    assert_eq!(post(&gateway, "/servers/s/disable", &json!({})).await.status, 200);
    let refused = revoke(&gateway.operator(), &path).await;
    assert_eq!(code(&refused, 503), "server_unavailable");
    assert!(refused.body.contains("enable it"), "{refused:?}");
    assert_eq!(post(&gateway, "/servers/s/enable", &json!({})).await.status, 200);
    assert_eq!(revoke(&gateway.operator(), &path).await.status, 200);
}

#[tokio::test]
async fn tokens_that_the_gateway_obtains_by_itself_are_no_logins() {
    let server = protected().await;
    server.gives("own", json!({ "expires_in": 3600 }));
    server.takes("own", &["list", "call"]);
    let settings = "grant = \"client_credentials\"\nclient_id = \"me\"\nclient_secret = \"mine\"";
    let gateway = Gateway::with("s", server.lines("s", settings)).start().await;
    assert_eq!(call(&gateway.modern()).await.text(), r#"{"a":1}"#);
    assert_eq!(get(&gateway, "/logins").await, json!({ "logins": [] }));
}

const VAULT: &str = "[vault]\nkeys = [\"a vault key with more than 32 bytes\"]\n\
                     [audit]\nfile = \"audit.jsonl\"\n";

/// Starts a gateway with a vault in a folder, with the server or without it.
async fn with_vault(server: Option<&OauthServer>, folder: TempDir) -> Gateway {
    let builder = match server {
        Some(server) => Gateway::with("s", server.lines("s", "")),
        None => Gateway::alone(),
    };
    let operator = client_table("acts", "acts-key", "role = \"operator\"");
    builder.toml(&operator).toml(VAULT).in_folder(folder).start().await
}

#[tokio::test]
async fn a_login_that_waits_in_the_vault_for_a_removed_server_is_deleted() {
    let server = protected().await;
    let gateway = with_vault(Some(&server), tempfile::tempdir().unwrap()).await;
    server.gives("token-1", json!({ "expires_in": 3600, "refresh_token": "refresh-1" }));
    server.takes("token-1", &["list", "call"]);
    log_in(&gateway, &server, &gateway.modern().key("acts-key")).await;
    let folder = gateway.stop().await;
    let gateway = with_vault(None, folder).await;
    let page = get(&gateway, "/logins").await;
    let [login] = &page["logins"].as_array().unwrap()[..] else { panic!("{page:#}") };
    assert_eq!((&login["server"], &login["active"]), (&json!("s"), &json!(false)), "{login}");
    assert_eq!((&login["owner"], &login["refreshable"]), (&json!("acts"), &json!(true)), "{login}");
    assert_eq!(login["issuer"], server.issuer());
    assert!(!page.to_string().contains("token-1") && !page.to_string().contains("refresh-1"));
    let path = format!("/api/v1/logins/{}", login["login"].as_str().unwrap());
    let operator = gateway.remote_operator().key("acts-key");
    let revoked = revoke(&operator, &path).await;
    assert_eq!((revoked.status, &revoked.json()["provider"]), (200, &json!("not_asked")));
    assert_eq!(get(&gateway, "/logins").await, json!({ "logins": [] }));
    assert_eq!(code(&revoke(&operator, &path).await, 404), "unknown_login");
    let log = gateway.folder().join("audit.jsonl");
    let is_revocation = |record: &Value| record["operation"] == "revocation";
    until(|| json_lines(&log).iter().any(is_revocation)).await;
    let record = json_lines(&log).into_iter().find(is_revocation).unwrap();
    for (member, value) in [
        ("actor", json!({ "kind": "operator", "name": "client acts" })),
        ("address", json!("127.0.0.1")),
        ("server", json!("s")),
        ("principal", json!("acts")),
        ("outcome", json!("ok")),
    ] {
        assert_eq!(record[member], value, "{member}: {record}");
    }
    // It is gone from the vault, too.
    let folder = gateway.stop().await;
    let gateway = with_vault(Some(&server), folder).await;
    link_in(&call(&gateway.modern().key("acts-key")).await);
}
