//! Servers that ask for OAuth: the gateway logs in, or has its users log in.

mod aws;
mod connect;
mod documents;
mod dpop;
mod exchange;
mod logins;
mod owners;
mod refusals;
mod renewals;
mod vaults;
mod workloads;

use serde_json::json;

use crate::support::{Browser, Client, Gateway, OauthServer, Said, Upstream};

/// A Modern server behind OAuth.
pub async fn protected() -> OauthServer {
    OauthServer::before(Upstream::modern().await).await
}

/// A gateway in front of it.
pub async fn gateway(server: &OauthServer, settings: &str) -> Gateway {
    Gateway::with("s", server.lines("s", settings)).start().await
}

/// The link in what a client is told.
pub fn link_in(said: &Said) -> String {
    let text = if said.is_error() { said.text() } else { panic!("no error: {said:?}") };
    let link = text.split("open ").nth(1).and_then(|rest| rest.split(" in a browser").next());
    link.unwrap_or_else(|| panic!("no link: {text}")).to_owned()
}

/// Calls the tool that every server has.
pub async fn call(client: &Client) -> Said {
    client.call("s__echo", json!({ "a": 1 })).await
}

/// Comes back to the gateway, as a browser does that has never been there.
pub async fn come_back(gateway: &Gateway, path: &str) -> Said {
    gateway.plain().http("GET", path).send().await.said().await
}

/// Agrees on the gateway's page and at the authorization server, and comes back.
pub async fn agree(gateway: &Gateway, server: &OauthServer, link: &str) -> Said {
    let browser = Browser::of(gateway);
    let asked = browser.agrees(link).await;
    browser.opens(&server.agrees(&asked)).await
}

/// Logs in by the link that a call is answered with.
pub async fn log_in(gateway: &Gateway, server: &OauthServer, client: &Client) {
    let link = link_in(&call(client).await);
    let page = agree(gateway, server, &link).await;
    assert_eq!(page.status, 200, "{page:?}");
}
