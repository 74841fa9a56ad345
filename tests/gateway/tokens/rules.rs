//! Rules about users: groups, claims and scopes decide about the elements that a user sees.

use serde_json::{Value, json};

use super::House;
use crate::authorization::{audited, names};
use crate::support::{Gateway, Issuer, Upstream};

const RULES: &str = r#"
[audit]
file = "audit.jsonl"

[policy.rules.everyone]
tools = ["s__echo"]

[policy.rules.web_team]
when = "principal.kind == 'user' && claims.team == 'web'"
tools = ["s__count"]
prompts = ["s__*"]

[policy.rules.admins]
groups = ["admins"]
tools = ["s__link"]
resources = ["*"]

[policy.rules.operators]
scopes = ["mcp:operate"]
tools = ["s__fail"]

[policy.rules.not_bob]
effect = "deny"
principals = ["idp:bob"]
tools = ["s__link"]
"#;

async fn house() -> House {
    let (upstream, issuer) = (Upstream::modern().await, Issuer::start().await);
    upstream.offers_everything();
    let table = issuer.table("idp", "groups_claim = \"groups\"");
    let gateway = Gateway::with("s", upstream.http()).toml(&table).toml(RULES).start().await;
    House { upstream, issuer, gateway }
}

/// Tools that the rules name.
const TOOLS: [&str; 4] = ["s__echo", "s__count", "s__fail", "s__link"];

#[tokio::test]
async fn groups_claims_and_scopes_decide_the_view_and_rights_of_a_user() {
    let house = house().await;
    let ann = json!({ "groups": ["admins"], "team": "db" });
    let bob = json!({ "sub": "bob", "groups": ["admins"], "team": "web", "scope": "mcp:operate" });
    let eve =
        json!({ "sub": "eve", "groups": ["admin", "Admins"], "team": ["web"], "scope": "mcp" });
    for (claims, rules) in [
        (ann, [Some("everyone"), None, None, Some("admins")]),
        (bob, [Some("everyone"), Some("web_team"), Some("operators"), None]),
        (eve, [Some("everyone"), None, None, None]),
    ] {
        let principal = format!("idp:{}", claims["sub"].as_str().unwrap_or("ann"));
        let has_prompts = claims["team"] == "web";
        let has_resources = claims["groups"][0] == "admins";
        let token = house.token(claims);
        for (era, client) in house.gateway.both_as(&token, "/mcp").await {
            let seen = audited(house.gateway.folder(), 0).await.len();
            let shown = client.tool_names().await;
            let expected = TOOLS.iter().zip(rules).filter(|(_, rule)| rule.is_some());
            let expected: Vec<_> = expected.map(|(tool, _)| tool.to_string()).collect();
            assert_eq!(shown, expected, "{principal} {era}");
            let prompts = names(&client, "prompts/list", "prompts", "name").await;
            assert_eq!(!prompts.is_empty(), has_prompts, "{principal} {era}");
            let resources = names(&client, "resources/list", "resources", "uri").await;
            assert_eq!(!resources.is_empty(), has_resources, "{principal} {era}");
            for (tool, rule) in TOOLS.iter().zip(rules) {
                let calls = house.upstream.calls().len();
                let said = client.call(tool, json!({})).await;
                let is_unknown = said.body.contains("-32602");
                assert_eq!(is_unknown, rule.is_none(), "{principal} {era} {tool}: {said:?}");
                assert_eq!(house.upstream.calls().len(), calls + usize::from(!is_unknown));
            }
            let records = audited(house.gateway.folder(), seen + 7).await.split_off(seen);
            assert!(records.iter().all(|it| it["principal"] == principal), "{records:#?}");
            let calls: Vec<_> = records.iter().filter(|it| it["event"] == "call").collect();
            for ((record, tool), rule) in calls.iter().zip(TOOLS).zip(rules) {
                let denied_by = (principal == "idp:bob" && tool == "s__link").then_some("not_bob");
                let decision = if rule.is_some() { "allow" } else { "deny" };
                assert_eq!(
                    (&record["tool"], &record["decision"], &record["check"], &record["rule"]),
                    (&json!(tool), &json!(decision), &json!("rule"), &json!(rule.or(denied_by))),
                    "{era}: {record}"
                );
            }
            assert_eq!(calls.len(), 4);
        }
    }
}

#[tokio::test]
async fn a_new_token_with_fewer_groups_loses_its_tools_in_the_same_session() {
    let house = house().await;
    let token = |groups: Value| house.token(json!({ "groups": groups }));
    let [_, (_, client)] = house.gateway.both_as(&token(json!(["admins", "x"])), "/mcp").await;
    assert_eq!(client.tool_names().await, ["s__echo", "s__link"]);
    assert!(!client.call("s__link", json!({})).await.body.contains("-32602"));
    let session = client.session().to_owned();
    let client = client.key(&token(json!(["x"])));
    assert_eq!(client.session(), session);
    assert_eq!(client.tool_names().await, ["s__echo"]);
    let calls = house.upstream.calls().len();
    let said = client.call("s__link", json!({})).await;
    assert_eq!(said.code(), -32602, "{said:?}");
    assert_eq!(house.upstream.calls().len(), calls);
    assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "the session goes on");
    // The tool is back with the groups.
    let client = client.key(&token(json!(["admins"])));
    assert_eq!(client.tool_names().await, ["s__echo", "s__link"]);
}
