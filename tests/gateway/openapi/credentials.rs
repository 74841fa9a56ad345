//! OAuth towards plain HTTP APIs.

use serde_json::{Value, json};

use crate::oauth::link_in;
use crate::support::api::{Page, PlainApi};
use crate::support::{Browser, Client, Gateway, Said};

use super::shop;

/// Starts an authorization server that is not part of the API.
async fn issuer() -> PlainApi {
    let issuer = PlainApi::start().await;
    let metadata = json!({
        "issuer": issuer.url(""),
        "authorization_endpoint": issuer.url("/authorize"),
        "token_endpoint": issuer.url("/token"),
        "code_challenge_methods_supported": ["S256"],
    });
    issuer.sets("/.well-known/oauth-authorization-server", Page::json(&metadata));
    let tokens = json!({ "access_token": "t", "token_type": "Bearer" });
    issuer.sets("/token", Page::json(&tokens));
    issuer
}

/// An API with operations that require a token, and a document that requires none.
struct ClosedApi {
    api: PlainApi,
    /// Serves the document.
    _open: PlainApi,
    lines: String,
}

async fn closed() -> ClosedApi {
    let open = PlainApi::with(&shop()).await;
    let api = PlainApi::start().await;
    api.demands("t");
    let lines =
        format!("openapi = \"{}\"\nbase_url = \"{}\"\n", open.url("/openapi.json"), api.url("/"));
    ClosedApi { api, _open: open, lines }
}

fn settings(issuer: &PlainApi, more: &str) -> String {
    format!(
        "[servers.shop.oauth]\nclient_id = \"c\"\nclient_secret = \"s3cret\"\nissuer = \"{}\"\n{more}",
        issuer.url("")
    )
}

async fn read(client: &Client) -> Said {
    client.call("shop__read_item", json!({ "item_id": "7" })).await
}

#[tokio::test]
async fn the_gateway_logs_in_to_an_api_by_itself() {
    let (closed, issuer) = (closed().await, issuer().await);
    let ClosedApi { api, lines, .. } = &closed;
    let more = "grant = \"client_credentials\"\nscopes = [\"items\"]\n";
    let lines = format!("{lines}{}", settings(&issuer, more));
    let gateway = Gateway::with("shop", lines).start().await;
    let said = read(&gateway.modern()).await;
    assert!(!said.is_error(), "{said:?}");
    let last = api.last();
    assert_eq!((last.header("authorization"), &*last.target), (Some("Bearer t"), "/items/7"));
    assert_eq!(issuer.calls("/token").len(), 1);
    let form = String::from_utf8(issuer.calls("/token")[0].body.to_vec()).unwrap();
    assert!(
        form.contains("grant_type=client_credentials") && form.contains("scope=items"),
        "{form}"
    );
    read(&gateway.modern()).await;
    assert_eq!(issuer.calls("/token").len(), 1, "the token is kept");
}

#[tokio::test]
async fn a_person_logs_in_to_an_api() {
    let (closed, issuer) = (closed().await, issuer().await);
    let ClosedApi { api, lines, .. } = &closed;
    let gateway = Gateway::with("shop", format!("{lines}{}", settings(&issuer, ""))).start().await;
    let client = gateway.modern();
    let link = link_in(&read(&client).await);
    let browser = Browser::of(&gateway);
    let link = browser.agrees(&link).await;
    assert!(link.starts_with(&issuer.url("/authorize")), "{link}");
    let asked = crate::support::oauth::parameters(&link);
    let back = format!("/oauth/callback?code=c1&state={}", asked["state"]);
    assert_eq!(browser.opens(&back).await.status, 200);
    assert!(!read(&client).await.is_error());
    assert_eq!(api.last().header("authorization"), Some("Bearer t"));
    let status: Value = gateway.server("shop").await;
    assert_eq!(status["state"], "ready", "{status}");
}
