//! Quotas of users with tokens.

use serde_json::json;
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::gateway::Builder;
use crate::support::{Gateway, Issuer, Upstream, client_table};

fn builder(upstream: &Upstream, issuer: &Issuer) -> Builder {
    Gateway::with("s", upstream.http())
        .gateway("state_dir = \"state\"")
        .toml(&issuer.table("idp", "quota_each = \"2/day\""))
        .toml(&client_table("ann", "ann", ""))
}

#[tokio::test]
async fn each_user_of_an_issuer_has_a_quota_of_all_its_calls() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let gateway = builder(&upstream, &issuer).start().await;
    let resource = format!("http://{}/mcp", gateway.running.address);
    let call = async |key: &str, tool: &str| {
        let said = gateway.modern().key(key).call(tool, json!({})).await;
        said.answer()["error"]["data"]["limit"].as_str().unwrap_or_default().to_owned()
    };
    let token =
        |user: &str, number: u32| issuer.token(&resource, json!({ "sub": user, "jti": number }));
    assert_eq!(call(&token("ann", 1), "s__echo").await, "");
    assert_eq!(call(&token("ann", 2), "s__count").await, "");
    for number in 1..4 {
        assert_eq!(call(&token("ann", number), "s__echo").await, "quota:issuer:idp");
    }
    assert_eq!(call(&token("bob", 1), "s__echo").await, "", "another user");
    assert_eq!(call("ann", "s__echo").await, "", "a client with a key of the same name");
    gateway.reload(builder(&upstream, &issuer).server("t", upstream.http())).await;
    assert_eq!(call(&token("ann", 1), "s__echo").await, "quota:issuer:idp", "after a reload");
    assert_eq!(upstream.calls().len(), 4);

    let folder = gateway.stop().await;
    let gateway = builder(&upstream, &issuer).in_folder(folder).start().await;
    let resource = format!("http://{}/mcp", gateway.running.address);
    for (user, refused) in [("ann", true), ("bob", false)] {
        let token = issuer.token(&resource, json!({ "sub": user }));
        let said = gateway.modern().key(&token).call("s__echo", json!({})).await;
        assert_eq!(said.status == 429, refused, "{user} after a restart: {said:?}");
    }
}

#[tokio::test]
async fn a_cost_that_a_users_quota_never_allows_is_a_fault() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let gateway = builder(&upstream, &issuer).start().await;
    let costly = builder(&upstream, &issuer).server("t", upstream.http() + "tools.x.cost = 3");
    assert_eq!(gateway.reload(costly).await, ReloadOutcome::Rejected);
    let faults = gateway.status().await["configuration"]["last_reload"]["faults"].to_string();
    assert!(faults.contains("issuers.idp.quota_each"), "{faults}");
}
