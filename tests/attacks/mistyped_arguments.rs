//! Arguments of other types than a rule compares them with: a server may accept `"42"` or `[42]`
//! for a number that a rule denies.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::{Gateway, Said, Step, Upstream, json_lines, until};

const RULES: &str = r#"
[audit]
file = "audit.jsonl"
[profiles.search]
discovery = "search"
[profiles.code]
discovery = "code"
[tools.fixed]
text = "fixed"
[policy.rules.some]
tools = ["s__drop", "s__push", "fixed"]
[policy.rules.number]
effect = "deny"
tools = ["s__drop"]
when = "arguments.id == 42"
[policy.rules.protected]
effect = "deny"
tools = ["s__push"]
when = "arguments.branch in ['main', 'release']"
[policy.rules.seven]
effect = "deny"
tools = ["fixed"]
when = "has(arguments.n) && arguments.n == 7"
[policy.rules.others]
tools = ["s__merge"]
when = "arguments.branch != 'main'"
"#;

async fn start() -> (Upstream, Gateway) {
    let upstream = Upstream::modern().await;
    upstream.set_tools([""; 0]);
    for name in ["drop", "push", "merge"] {
        let tool = json!({ "name": name, "inputSchema": { "type": "object" } });
        upstream.tool(&tool, |_| vec![Step::text("done")]);
    }
    let gateway = Gateway::with("s", upstream.http()).toml(RULES).start().await;
    gateway.wait_for(|status| status["catalog"]["tools"].as_u64() >= Some(3)).await;
    (upstream, gateway)
}

/// Returns calls that a rule refuses, and the argument at fault.
fn refused_calls() -> Vec<(&'static str, Value, &'static str)> {
    let ids = [json!("42"), json!([42]), json!(true), json!(null), json!({ "id": 42 }), json!("7")];
    let branches = [json!(["main"]), json!(null), json!({ "name": "main" }), json!(0)];
    let ids =
        ids.map(|id| ("s__drop", json!({ "id": id }), "number: unexpected type of arguments.id"));
    let denied = branches.clone().map(|branch| {
        ("s__push", json!({ "branch": branch }), "protected: unexpected type of arguments.branch")
    });
    let allowed = branches.map(|branch| {
        ("s__merge", json!({ "branch": branch }), "others: unexpected type of arguments.branch")
    });
    let own = [("fixed", json!({ "n": "7" }), "seven: unexpected type of arguments.n")];
    ids.into_iter().chain(denied).chain(allowed).chain(own).collect()
}

/// Makes a call in one of the client's ways.
async fn call(client: &Client, way: &str, (tool, arguments): (&str, &Value)) -> Said {
    match way {
        "search" => client.call("call_tool", json!({ "name": tool, "arguments": arguments })).await,
        "code" => {
            let code = format!("return await tools[{}]({arguments});", json!(tool));
            client.call("run_code", json!({ "code": code })).await
        }
        _ => client.call(tool, arguments.clone()).await,
    }
}

#[tokio::test]
async fn arguments_of_other_types_escape_no_rule() {
    let (upstream, gateway) = start().await;
    let calls = refused_calls();
    let refusal = "this call is not allowed with these arguments; other arguments may be allowed";
    for (way, path) in [("direct", "/mcp"), ("search", "/mcp/search"), ("code", "/mcp/code")] {
        for (_, client) in gateway.both_at(path).await {
            for (tool, arguments, fault) in &calls {
                let said = call(&client, way, (tool, arguments)).await;
                let text = said.answer().to_string();
                assert!(text.contains(refusal), "{way} {tool} {arguments}: {text}");
                for hidden in ["unexpected type", fault.split(':').next().unwrap()] {
                    assert!(!text.contains(hidden), "{way} {tool} {arguments}: {text}");
                }
            }
        }
    }
    assert!(upstream.calls().is_empty(), "{:?}", upstream.calls());
    let faults = || {
        let records = json_lines(&gateway.folder().join("audit.jsonl"));
        let faults = records
            .into_iter()
            .filter_map(|record| record["condition_fault"].as_str().map(str::to_owned));
        faults.collect::<Vec<_>>()
    };
    until(|| faults().len() == 6 * calls.len()).await;
    let found = faults();
    for (_, arguments, fault) in &calls {
        assert!(found.iter().any(|found| found == fault), "{fault} {arguments}: {found:?}");
    }
}

#[tokio::test]
async fn arguments_of_the_right_type_are_judged_by_their_values() {
    let (_upstream, gateway) = start().await;
    for (era, client) in gateway.both().await {
        for (tool, arguments, is_allowed) in [
            ("s__drop", json!({ "id": 42 }), false),
            ("s__drop", json!({ "id": 42.0 }), false),
            ("s__drop", json!({ "id": 7 }), true),
            ("s__push", json!({ "branch": "main" }), false),
            ("s__push", json!({ "branch": "dev" }), true),
            ("s__merge", json!({ "branch": "main" }), false),
            ("s__merge", json!({ "branch": "dev" }), true),
            ("fixed", json!({ "n": 7 }), false),
            ("fixed", json!({ "n": 8 }), true),
        ] {
            let said = client.call(tool, arguments.clone()).await;
            assert_eq!(!said.is_error(), is_allowed, "{era} {tool} {arguments}: {said:?}");
        }
    }
}
