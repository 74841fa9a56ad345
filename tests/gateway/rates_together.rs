//! All rates of a call at once: the one that refuses, and the permits that a refused call uses up.

use serde_json::json;
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Issuer, Said, Upstream, client_table};

/// Rates in the order of their checks: of the caller, of the gateway, of the caller and the tool,
/// of the caller and the server, of the tool, of the server, and of the profile.
type Rates = [String; 7];

/// Returns rates that each allow one call more than the preceding one.
fn stairs() -> Rates {
    std::array::from_fn(|place| format!("{}/h", place + 1))
}

fn limits(caller: &'static str) -> [&'static str; 7] {
    [
        caller,
        "gateway",
        "each:tool:s/echo",
        "each:server:s",
        "tool:s/echo",
        "server:s",
        "profile:default",
    ]
}

/// Configures a gateway with all of these rates; the caller is a client with a key.
fn for_clients(upstream: &Upstream, rates: &Rates) -> Builder {
    let a = client_table("a", "a", &format!("rate = \"{}\"", rates[0]));
    with_rates(upstream, rates).toml(&a)
}

/// Configures the same gateway; the caller is a user with a token.
fn for_users(upstream: &Upstream, issuer: &Issuer, rates: &Rates) -> Builder {
    let each = format!("client_rate = \"{}\"", rates[0]);
    with_rates(upstream, rates).gateway(&each).toml(&issuer.table("idp", ""))
}

fn with_rates(upstream: &Upstream, rates: &Rates) -> Builder {
    let [_, gateway, tool_each, server_each, tool, server, profile] = rates;
    let lines = format!(
        "{}rate = \"{server}\"\nrate_each = \"{server_each}\"\n\
         tools.echo = {{ rate = \"{tool}\", rate_each = \"{tool_each}\" }}",
        upstream.http()
    );
    Gateway::with("s", lines)
        .gateway(&format!("rate = \"{gateway}\""))
        .toml(&format!("[profiles.default]\nrate = \"{profile}\"\n"))
}

/// Returns the limit that refused a call; empty without a refusal.
fn limit(said: &Said) -> String {
    if said.answer()["error"].is_null() {
        said.text();
        return String::new();
    }
    assert_eq!((said.status, said.code()), (429, 42_900), "{said:?}");
    said.error()["data"]["limit"].as_str().unwrap().to_owned()
}

/// Raises the rates one by one. If a refused call had used up a permit of a later rate, that one
/// would refuse a call too early.
async fn climb(
    gateway: &Gateway,
    client: &Client,
    names: [&str; 7],
    build: impl Fn(&Rates) -> Builder,
) {
    let mut rates = stairs();
    for (place, name) in names.into_iter().enumerate() {
        let mut told = Vec::new();
        for _ in 0..4 {
            told.push(limit(&client.call("s__echo", json!({})).await));
        }
        assert_eq!(told, ["", name, name, name], "one more call, and no other");
        // A changed rate has a new bucket, and the others keep theirs.
        rates[place] = "1000/h".into();
        assert_eq!(gateway.reload(build(&rates)).await, ReloadOutcome::Applied);
    }
    assert_eq!(limit(&client.call("s__echo", json!({})).await), "");
}

#[tokio::test]
async fn the_narrowest_rate_refuses_and_uses_up_nothing_of_the_wider_ones() {
    let upstream = Upstream::modern().await;
    let gateway = for_clients(&upstream, &stairs()).start().await;
    let client = gateway.modern().key("a");
    climb(&gateway, &client, limits("client:a"), |rates| for_clients(&upstream, rates)).await;
    assert_eq!(upstream.calls().len(), 8);
}

#[tokio::test]
async fn the_same_holds_for_users_with_tokens() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let gateway = for_users(&upstream, &issuer, &stairs()).start().await;
    let resource = format!("http://{}/mcp", gateway.running.address);
    let client = gateway.modern().key(&issuer.token(&resource, json!({})));
    let build = |rates: &Rates| for_users(&upstream, &issuer, rates);
    climb(&gateway, &client, limits("client"), build).await;
    assert_eq!(upstream.calls().len(), 8);
}

#[tokio::test]
async fn each_user_has_rates_of_its_own_whatever_token_it_shows() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    for (line, name) in [("rate_each = \"2/h\"", "each:server:s"), ("", "client")] {
        let mut builder = Gateway::with("s", upstream.http() + line)
            .toml(&issuer.table("idp", ""))
            // A client with a key is not the user of the same name.
            .toml(&client_table("ann", "ann", ""));
        if line.is_empty() {
            builder = builder.gateway("client_rate = \"2/h\"");
        }
        let gateway = builder.start().await;
        let resource = format!("http://{}/mcp", gateway.running.address);
        let token = |user: &str, number: u32| {
            issuer.token(&resource, json!({ "sub": user, "jti": number }))
        };
        let call =
            async |key: &str| limit(&gateway.modern().key(key).call("s__echo", json!({})).await);
        assert_eq!(call(&token("ann", 1)).await, "", "{name}");
        assert_eq!(call(&token("ann", 2)).await, "", "{name}");
        assert_eq!(call(&token("ann", 1)).await, name);
        assert_eq!(call(&token("ann", 3)).await, name, "another token of the same user");
        assert_eq!(call(&token("bob", 1)).await, "", "{name}");
        assert_eq!(call("ann").await, "", "{name}");
    }
}
