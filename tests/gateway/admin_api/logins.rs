//! Logins at servers: listed without tokens, and revoked with everything that uses them.

use serde_json::{Value, json};

use super::resources::get;
use super::{code, send};
use crate::oauth::{agree, call, link_in, protected};
use crate::support::api::Page;
use crate::support::{Gateway, OauthServer, client_table};

/// Starts a gateway with logins of its own and of `ann`.
pub(super) async fn with_logins(server: &OauthServer) -> Gateway {
    let gateway = Gateway::with("s", server.lines("s", ""))
        .toml(&client_table("ann", "key-of-ann", ""))
        .toml(&client_table("looks", "looks-key", "role = \"viewer\""))
        .toml("[audit]\nfile = \"audit.jsonl\"\n")
        .start()
        .await;
    let link = gateway.server("s").await["login"].as_str().unwrap().to_owned();
    server.gives("of-operator", json!({}));
    server.takes("of-operator", &["list", "call"]);
    assert_eq!(agree(&gateway, server, &link).await.status, 200);
    gateway.ready("s").await;
    let ann = gateway.modern().key("key-of-ann");
    let link = link_in(&call(&ann).await);
    server.gives("of-ann", json!({ "refresh_token": "refresh-of-ann", "expires_in": 3600 }));
    server.takes("of-ann", &["list", "call"]);
    assert_eq!(agree(&gateway, server, &link).await.status, 200);
    assert_eq!(call(&ann).await.text(), r#"{"a":1}"#);
    gateway
}

pub(super) fn find<'a>(page: &'a Value, kind: &str) -> &'a Value {
    let found = page["logins"].as_array().unwrap().iter().find(|one| one["kind"] == kind);
    found.unwrap_or_else(|| panic!("{kind}: {page:#}"))
}

#[tokio::test]
async fn logins_are_listed_without_tokens_and_revoked_at_the_provider() {
    let server = protected().await;
    server.publishes(json!({ "revocation_endpoint": server.api.url("/revoke") }));
    server.api.sets("/revoke", Page::new(200, "text/plain", ""));
    let gateway = with_logins(&server).await;
    let page = get(&gateway, "/logins").await;
    assert!(!page.to_string().contains("of-ann") && !page.to_string().contains("of-operator"));
    let login = find(&page, "client");
    for (member, value) in [
        ("server", json!("s")),
        ("owner", json!("ann")),
        ("issuer", json!(server.issuer())),
        ("refreshable", json!(true)),
        ("revocable", json!(true)),
        ("active", json!(true)),
        ("ends_at", json!(null)),
    ] {
        assert_eq!(login[member], value, "{member}: {login}");
    }
    assert!(login["since"].is_string() && login["renewed_at"].is_string(), "{login}");
    assert!(!login["scopes"].as_array().unwrap().is_empty(), "{login}");
    assert_eq!(find(&page, "gateway")["owner"], json!(null));
    let path = format!("/api/v1/logins/{}", login["login"].as_str().unwrap());
    let viewer = gateway.remote_operator().key("looks-key");
    assert_eq!(code(&send(&viewer, "DELETE", &path).await, 403), "role_needed");
    assert_eq!(
        code(&send(&gateway.operator(), "DELETE", "/api/v1/logins/00").await, 404),
        "unknown_login"
    );
    let revoked = send(&gateway.operator(), "DELETE", &path).await.json();
    assert_eq!((&revoked["provider"], &revoked["reason"]), (&json!("revoked"), &json!(null)));
    let calls = server.api.calls("/revoke");
    assert_eq!(calls.len(), 2, "the refresh token and the access token");
    let after = get(&gateway, "/logins").await;
    assert_eq!(after["logins"].as_array().unwrap().len(), 1, "{after:#}");
    link_in(&call(&gateway.modern().key("key-of-ann")).await);
    assert_eq!(code(&send(&gateway.operator(), "DELETE", &path).await, 404), "unknown_login");
    // Both records have the operator.
    let folder = gateway.stop().await;
    let log = std::fs::read_to_string(folder.path().join("audit.jsonl")).unwrap();
    let records: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for operation in ["revocation", "change"] {
        let record =
            records.iter().find(|it| it["operation"] == operation && it["outcome"] == "ok");
        let record = record.unwrap_or_else(|| panic!("{operation}: {log}"));
        assert_eq!(record["actor"]["kind"], "operator", "{record}");
        assert!(record["actor"]["name"].as_str().unwrap().starts_with("uid "), "{record}");
    }
}

#[tokio::test]
async fn the_login_of_the_gateway_ends_with_the_session_that_it_opened() {
    let server = protected().await;
    let gateway = with_logins(&server).await;
    let page = get(&gateway, "/logins").await;
    let path = format!("/api/v1/logins/{}", find(&page, "gateway")["login"].as_str().unwrap());
    let revoked = send(&gateway.operator(), "DELETE", &path).await.json();
    assert_eq!(revoked["provider"], "no_endpoint", "{revoked}");
    gateway.in_state("s", "login").await;
    let ann = gateway.modern().key("key-of-ann");
    assert_eq!(call(&ann).await.text(), r#"{"a":1}"#, "another login is still there");
}
