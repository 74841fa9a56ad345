//! Servers that require OAuth: the gateway logs in, or sends its users to log in.

mod aws;
mod connect;
mod documents;
mod dpop;
mod exchange;
mod logins;
mod owners;
mod refusals;
mod renewals;
pub mod vaults;
mod workloads;

use serde_json::json;

use crate::support::{Browser, Client, Gateway, OauthServer, Said, Upstream};

/// Starts a Modern server behind OAuth.
pub async fn protected() -> OauthServer {
    OauthServer::before(Upstream::modern().await).await
}

/// Starts a gateway in front of it.
pub async fn gateway(server: &OauthServer, settings: &str) -> Gateway {
    Gateway::with("s", server.lines("s", settings)).start().await
}

/// Returns the link in an answer to a client.
pub fn link_in(said: &Said) -> String {
    let text = if said.is_error() { said.text() } else { panic!("no error: {said:?}") };
    let link = text.split("open ").nth(1).and_then(|rest| rest.split(" in a browser").next());
    link.unwrap_or_else(|| panic!("no link: {text}")).to_owned()
}

/// Calls the tool that every server has.
pub async fn call(client: &Client) -> Said {
    client.call("s__echo", json!({ "a": 1 })).await
}

/// Returns to the gateway with a browser that has never been there.
pub async fn come_back(gateway: &Gateway, path: &str) -> Said {
    gateway.plain().http("GET", path).send().await.said().await
}

/// Consents on the gateway's page and at the authorization server, and returns.
pub async fn agree(gateway: &Gateway, server: &OauthServer, link: &str) -> Said {
    let browser = Browser::of(gateway);
    let asked = browser.agrees(link).await;
    browser.opens(&server.agrees(&asked)).await
}

/// Logs in by the link in a call's answer.
pub async fn log_in(gateway: &Gateway, server: &OauthServer, client: &Client) {
    let link = link_in(&call(client).await);
    let page = agree(gateway, server, &link).await;
    assert_eq!(page.status, 200, "{page:?}");
}
