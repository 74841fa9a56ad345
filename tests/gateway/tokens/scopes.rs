//! Permissions of a token: scopes of profiles, servers and tools, and the way to get more.

use serde_json::{Value, json};

use super::House;
use crate::support::gateway::Builder;
use crate::support::{Gateway, Issuer, Said, Step, Upstream, client_table};

/// Starts a gateway with a server that requires `mcp:read`, and a tool `write` that requires
/// `mcp:write` too.
async fn house(change: impl FnOnce(Builder) -> Builder) -> House {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    upstream.does("write", |_| vec![Step::text("{}")]);
    let lines = upstream.http() + "scopes = [\"mcp:read\"]\ntools.write.scopes = [\"mcp:write\"]";
    let gateway = Gateway::with("s", lines).toml(&issuer.table("idp", ""));
    let gateway = change(gateway).start().await;
    House { upstream, issuer, gateway }
}

#[track_caller]
fn needs(said: &Said, scopes: &[&str]) {
    assert_eq!((said.status, said.code()), (403, 40_300), "{said:?}");
    assert_eq!(said.error()["data"]["requiredScopes"], json!(scopes), "{said:?}");
    let challenge = said.header("www-authenticate").expect("a challenge");
    assert!(challenge.contains("error=\"insufficient_scope\""), "{challenge}");
    assert!(challenge.contains(&format!("scope=\"{}\"", scopes.join(" "))), "{challenge}");
}

#[tokio::test]
async fn a_client_learns_all_scopes_of_a_call_and_gets_them() {
    let house = house(|builder| builder).await;
    let few = house.token(json!({ "scope": "mcp:read openid" }));
    let more = house.token(json!({ "scope": "mcp:read mcp:write" }));
    for (era, client) in house.gateway.both_as(&few, "/mcp").await {
        let names = client.tool_names().await;
        assert!(names.contains(&"s__write".to_owned()), "{era}: it is listed all the same");
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}");
        let calls = house.upstream.calls().len();
        let said = client.call("s__write", json!({})).await;
        needs(&said, &["mcp:read", "mcp:write"]);
        let challenge = said.header("www-authenticate").unwrap();
        let place = house.resource("/.well-known/oauth-protected-resource/mcp");
        assert!(challenge.contains(&format!("resource_metadata=\"{place}\"")), "{challenge}");
        assert_eq!(house.upstream.calls().len(), calls, "{era}: the server sees nothing of it");
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}: it goes on");
        let stepped_up = client.key(&more);
        assert_eq!(
            stepped_up.call("s__write", json!({})).await.text(),
            "{}",
            "{era}: same session"
        );
    }
    let none = house.token(json!({}));
    needs(&house.call(&none).await, &["mcp:read"]);
}

#[tokio::test]
async fn a_broader_scope_implies_the_narrower_ones() {
    let ranks = "scopes = { \"mcp:admin\" = [\"mcp:write\"], \"mcp:write\" = [\"mcp:read\"] }";
    let house = house(|builder| builder.gateway(ranks)).await;
    for (scope, tool, may) in [
        ("mcp:admin", "s__write", true),
        ("mcp:admin", "s__echo", true),
        ("mcp:write", "s__echo", true),
        ("mcp:read", "s__echo", true),
        ("mcp:read", "s__write", false),
    ] {
        let token = house.token(json!({ "scope": scope, "jti": tool }));
        let said = house.client(&token).call(tool, json!({})).await;
        assert_eq!(said.status == 200, may, "{scope} {tool}: {said:?}");
    }
}

#[tokio::test]
async fn scopes_are_read_from_the_claims_that_providers_use() {
    let lines = "scope_claims = [\"scp\", \"realm_access.roles\", \"https://acme.test/scopes\"]\n\
                 scope_map = { \"Tools.Read\" = [\"mcp:read\"], reader = [\"mcp:read\", \"x\"] }\n";
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    let server = upstream.http() + "scopes = [\"mcp:read\"]\n";
    let gateway = Gateway::with("s", server).toml(&issuer.table("idp", lines)).start().await;
    let house = House { upstream, issuer, gateway };
    for (claims, may) in [
        (json!({ "scp": "Tools.Read User.Read" }), true),
        (json!({ "scp": ["Tools.Read"] }), true),
        (json!({ "realm_access": { "roles": ["reader"] } }), true),
        (json!({ "https://acme.test/scopes": "mcp:read" }), true),
        (json!({ "scope": "mcp:read" }), false),
        (json!({ "scp": "Tools.Write" }), false),
        (json!({ "scp": 7 }), false),
    ] {
        let said = house.call(&house.token(claims.clone())).await;
        assert_eq!(said.status == 200, may, "{claims}: {said:?}");
    }
}

#[tokio::test]
async fn a_profile_may_need_scopes_of_everyone() {
    let profile = "[profiles.other]\nscopes = [\"mcp:other\"]\n";
    let house = house(|builder| builder.toml(profile)).await;
    let token = |scope: Value| {
        let claims = json!({ "scope": scope });
        house.issuer.token(&house.resource("/mcp/other"), claims)
    };
    let client = |scope: &str| house.client(&token(json!(scope))).at("/mcp/other");
    needs(&client("mcp:read").request("tools/list", json!({})).await, &["mcp:other"]);
    assert!(client("mcp:other").tool_names().await.contains(&"s__echo".to_owned()));
    let said = client("mcp:other").call("s__write", json!({})).await;
    needs(&said, &["mcp:other", "mcp:read", "mcp:write"]);
    let all = client("mcp:other mcp:read mcp:write");
    assert_eq!(all.call("s__write", json!({})).await.text(), "{}");
}

#[tokio::test]
async fn keys_have_the_scopes_of_their_client() {
    let house = house(|builder| {
        builder
            .toml(&client_table("ci", "key-of-ci", "scopes = [\"mcp:read\"]"))
            .toml(&client_table("bare", "key-of-bare", ""))
    })
    .await;
    let client = |key: &str| house.gateway.modern().key(key);
    assert_eq!(client("key-of-ci").call("s__echo", json!({})).await.text(), "{}");
    needs(&client("key-of-ci").call("s__write", json!({})).await, &["mcp:read", "mcp:write"]);
    needs(&client("key-of-bare").call("s__echo", json!({})).await, &["mcp:read"]);
}

#[tokio::test]
async fn a_tool_of_the_gateway_needs_the_scopes_of_all_tools_that_it_calls() {
    let own = r#"
        [tools.both.calls.first]
        tool = "s__echo"
        [tools.both.calls.second]
        tool = "s__write"
        arguments = { n = "{first.n}" }
        [tools.both.calls.perhaps]
        tool = "s__extra"
        optional = true

        [tools.fixed]
        text = "here"
    "#;
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    for name in ["write", "extra"] {
        upstream.does(name, |_| vec![Step::text("{}")]);
    }
    let lines = upstream.http()
        + "scopes = [\"mcp:read\"]\ntools.write.scopes = [\"mcp:write\"]\n\
           tools.extra.scopes = [\"mcp:extra\"]\n";
    let gateway = Gateway::with("s", lines).toml(&issuer.table("idp", "")).toml(own).start().await;
    let house = House { upstream, issuer, gateway };
    let all = house.token(json!({ "scope": "mcp:read mcp:write" }));
    for scope in ["", "mcp:read", "mcp:write"] {
        let token = house.token(json!({ "scope": scope, "jti": scope }));
        for (era, client) in house.gateway.both_as(&token, "/mcp").await {
            assert!(client.tool_names().await.contains(&"both".to_owned()), "{era}");
            needs(&client.call("both", json!({})).await, &["mcp:read", "mcp:write"]);
            assert_eq!(house.upstream.calls().len(), 0, "{era}: no call of it was made");
            assert_eq!(client.call("fixed", json!({})).await.text(), "here", "{era}");
        }
    }
    let said = house.client(&all).call("both", json!({})).await;
    assert!(!said.is_error(), "{said:?}");
    assert_eq!(house.upstream.calls().len(), 2, "the optional one is left out");
}

#[tokio::test]
async fn resources_and_subscriptions_need_the_scopes_of_their_server() {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    upstream.offers_everything();
    upstream.resources(&["file:///a"]);
    let lines = upstream.http() + "scopes = [\"mcp:read\"]\n";
    let gateway = Gateway::with("s", lines)
        .gateway("uris = \"original\"")
        .toml(&issuer.table("idp", ""))
        .start()
        .await;
    let house = House { upstream, issuer, gateway };
    let token = house.token(json!({}));
    let uri = json!({ "uri": "file:///a" });
    for (era, client) in house.gateway.both_as(&token, "/mcp").await {
        needs(&client.request("resources/read", uri.clone()).await, &["mcp:read"]);
        if era == "Legacy" {
            needs(&client.request("resources/subscribe", uri.clone()).await, &["mcp:read"]);
        }
    }
}

#[tokio::test]
async fn a_call_that_waits_for_input_is_resumed_with_its_scopes_only() {
    let (upstream, issuer) = (Upstream::legacy().await, Issuer::start().await);
    let form = json!({
        "mode": "form", "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {} },
    });
    upstream.does("ask", move |_| {
        let ask = Step::Ask("who", "elicitation/create", form.clone());
        vec![ask, Step::Await("who"), Step::Answers]
    });
    let lines = upstream.http() + "tools.ask.scopes = [\"mcp:ask\"]\n";
    let gateway = Gateway::with("s", lines).toml(&issuer.table("idp", "")).start().await;
    let house = House { upstream, issuer, gateway };
    let able = json!({ "elicitation": { "form": {} } });
    let capabilities = "io.modelcontextprotocol/clientCapabilities";
    let client = house.client(&house.token(json!({ "scope": "mcp:ask" })));
    let ask = client.ask_call("s__ask", json!({})).meta(capabilities, able.clone());
    let said = ask.send().await.said().await;
    let result = said.result().clone();
    assert_eq!(result["resultType"], "input_required", "{said:?}");
    let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
    let answers = json!({ key: { "action": "accept", "content": {} } });
    let retry = async |token: String| {
        let client = house.client(&token);
        let ask = client.ask_call("s__ask", json!({})).meta(capabilities, able.clone());
        let ask = ask.param("inputResponses", answers.clone());
        ask.param("requestState", result["requestState"].clone()).send().await.said().await
    };
    needs(&retry(house.token(json!({ "jti": "fewer" }))).await, &["mcp:ask"]);
    let said = retry(house.token(json!({ "scope": "mcp:ask", "jti": "more" }))).await;
    assert!(said.text().contains("accept"), "{said:?}");
}
