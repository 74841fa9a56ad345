//! Users with tokens of an authorization server: their admission, identity and permissions.

mod actors;
mod attacks;
mod issuers;
mod metadata;
mod providers;
mod relayed_logins;
mod rules;
mod scopes;
mod sessions;
mod several_issuers;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::Builder;
use crate::support::{Gateway, Issuer, Said, Upstream};

/// A gateway with one server and one issuer.
struct House {
    upstream: Upstream,
    issuer: Issuer,
    gateway: Gateway,
}

impl House {
    async fn new() -> Self {
        Self::with("", |builder| builder).await
    }

    /// Starts a gateway with lines of `[issuers.idp]`, and further changes of the configuration.
    async fn with(lines: &str, change: impl FnOnce(Builder) -> Builder) -> Self {
        let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
        let gateway = Gateway::with("s", upstream.http()).toml(&issuer.table("idp", lines));
        let gateway = change(gateway).start().await;
        Self { upstream, issuer, gateway }
    }

    /// Returns the URL of an endpoint: the resource that tokens are for.
    fn resource(&self, path: &str) -> String {
        format!("http://{}{path}", self.gateway.running.address)
    }

    /// Returns a token for `/mcp`, with more claims.
    fn token(&self, more: Value) -> String {
        self.issuer.token(&self.resource("/mcp"), more)
    }

    fn client(&self, token: &str) -> Client {
        self.gateway.modern().key(token)
    }

    /// Returns the answer to a Modern client's call with this token.
    async fn call(&self, token: &str) -> Said {
        self.client(token).call("s__echo", json!({})).await
    }
}

/// Checks for a refusal with a challenge that names the source of tokens.
#[track_caller]
fn is_refused(said: &Said, reason: &str) {
    assert_eq!((said.status, said.code()), (401, 40_100), "{said:?}");
    let challenge = said.header("www-authenticate").expect("a challenge");
    assert!(challenge.contains("error=\"invalid_token\""), "{challenge}");
    assert!(challenge.contains("resource_metadata=\"http"), "{challenge}");
    let sentence = said.error()["message"].as_str().unwrap();
    assert!(sentence.contains(reason), "{sentence}");
    assert!(said.answer()["id"].is_null(), "nothing of the body was looked at");
}

#[tokio::test]
async fn a_token_lets_its_user_in_and_goes_no_further() {
    let house = House::with("", |builder| builder.toml("[profiles.other]\n")).await;
    let token = house.token(json!({}));
    for (era, client) in house.gateway.both_as(&token, "/mcp").await {
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}");
        assert!(client.tool_names().await.contains(&"s__echo".to_owned()), "{era}");
        client.listen().await;
    }
    let received = format!("{:?}", house.upstream.received());
    assert!(!received.contains(&token[..40]), "{received}");
    assert_eq!(house.issuer.fetches(), 1);
    let status = house.gateway.status().await;
    assert_eq!(status["issuers"][0]["keys"], 1, "{status}");
    assert!(!status.to_string().contains(&token[..40]));
}
