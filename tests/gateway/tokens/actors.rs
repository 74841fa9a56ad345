//! Programs that act for a user: recorded, and available to rules.

use serde_json::json;

use super::House;
use crate::authorization::audited;

const RULES: &str = r#"
[audit]
file = "audit.jsonl"

[policy.rules.all]

[policy.rules.not_by_the_agent]
effect = "deny"
tools = ["s__fail"]
when = "principal.actors.exists(name, name == 'agent')"
"#;

#[tokio::test]
async fn the_chain_of_actors_is_recorded_and_rules_read_it() {
    let house = House::with("", |builder| builder.toml(RULES).toml("[profiles.p]\n")).await;
    let chain = json!({ "act": { "sub": "agent", "act": { "client_id": "desk" } } });
    let (by_agent, by_ann) = (house.token(chain), house.token(json!({})));
    for (token, actors) in [(by_agent, json!(["agent", "desk"])), (by_ann, json!([]))] {
        let seen = audited(house.gateway.folder(), 0).await.len();
        let has_actors = actors != json!([]);
        for (era, client) in house.gateway.both_as(&token, "/mcp").await {
            let names = client.tool_names().await;
            assert_eq!(names.contains(&"s__fail".to_owned()), !has_actors, "{era}: {names:?}");
            let said = client.call("s__fail", json!({})).await;
            assert_eq!(said.body.contains("-32602"), has_actors, "{era}: {said:?}");
            assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}");
        }
        // Refused before it becomes a call: at a profile that does not exist.
        let lost = house.client(&token).at("/mcp/none").call("s__echo", json!({})).await;
        assert_eq!(lost.status, 401, "{lost:?}");
        let cut = house.client(&token).ask("tools/list", json!({})).body("{").send().await;
        assert_eq!(cut.said().await.status, 400);
        let records = audited(house.gateway.folder(), seen + 8).await.split_off(seen);
        assert_eq!(records.len(), 8, "{records:#?}");
        for record in records {
            let is_known = record["principal"] == "idp:ann";
            assert_eq!(record["actors"], if is_known { actors.clone() } else { json!([]) });
            assert_eq!(is_known, record["check"] != "token", "{record}");
        }
    }
}
