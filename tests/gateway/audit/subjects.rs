//! Subjects of records: tools, prompts, resources, subscriptions and traces by all their names.

use serde_json::{Value, json};

use super::{AUDIT, KEY, fields, next_records};
use crate::support::gateway::key_digest;
use crate::support::{Gateway, Upstream, client_table};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

#[tokio::test]
async fn a_record_has_both_names_of_its_subject_and_the_trace_that_the_server_was_sent() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything();
    let gateway = Gateway::with("s", upstream.http())
        .toml(&client_table("ann", KEY, ""))
        .toml(AUDIT)
        .toml("[telemetry]\nendpoint = \"http://127.0.0.1:9\"\nsample = 1.0\n")
        .start()
        .await;
    let names = ["tool", "native_tool", "prompt", "native_prompt", "resource", "native_resource"];
    let mut seen = 0;
    for (era, client) in gateway.both_as(KEY, "/mcp").await {
        for (method, params, expected) in [
            (
                "tools/call",
                json!({ "name": "s__echo", "arguments": {} }),
                ["s__echo", "echo", "-", "-", "-", "-"],
            ),
            (
                "prompts/get",
                json!({ "name": "s__greet" }),
                ["-", "-", "s__greet", "greet", "-", "-"],
            ),
            (
                "resources/read",
                json!({ "uri": "mcp://s/db://ann:hunter2@users/7?key=1" }),
                ["-", "-", "-", "-", "mcp://s/db://users/7", "db://users/7"],
            ),
        ] {
            let ask = client.ask(method, params).meta("traceparent", json!(PARENT));
            let said = ask.send().await.said().await;
            let record = next_records(&gateway, seen, 1).await.remove(0);
            seen += 1;
            assert_eq!(fields(&record, &names), expected, "{era} {method}: {said:?}");
            assert_eq!(record["method"], method, "{era}");
            assert_eq!(record["trace_id"], PARENT[3..35], "{era} {method}");
            if said.answer().get("result").is_some() {
                let sent = upstream.all(method).pop().unwrap();
                let traceparent = sent.meta("traceparent").as_str().unwrap().to_owned();
                assert_eq!(record["trace_id"], traceparent[3..35], "{era} {method}");
            }
        }
    }
    let text = std::fs::read_to_string(gateway.folder().join("audit.jsonl")).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("key=1"), "{text}");
}

#[tokio::test]
async fn granted_subscriptions_and_omitted_ones_are_recorded() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything();
    let rules = "[policy.rules.some]\nresources = [\"mcp://s/file:///*\"]\n\
                 [policy.rules.never]\neffect = \"deny\"\nresources = [\"mcp://s/b://*\"]\n";
    let gateway = Gateway::with("s", upstream.http())
        .toml(&client_table("ann", KEY, ""))
        .toml(AUDIT)
        .toml(rules)
        .start()
        .await;
    let [(_, modern), (_, legacy)] = gateway.both_as(KEY, "/mcp").await;
    let uris = ["mcp://s/file:///a.txt", "mcp://s/b://2"];
    let filter = json!({ "notifications": { "resourceSubscriptions": uris } });
    let mut stream = modern.ask("subscriptions/listen", filter).send().await;
    let granted = stream.message().await.unwrap();
    let granted = &granted["params"]["notifications"]["resourceSubscriptions"];
    assert_eq!(*granted, json!([uris[0]]));
    let mut of_modern = next_records(&gateway, 0, 2).await;
    of_modern.sort_by_key(|record| record["resource"].to_string());
    of_modern.reverse();
    for uri in uris {
        legacy.request("resources/subscribe", json!({ "uri": uri })).await;
    }
    let of_legacy = next_records(&gateway, 2, 2).await;
    let names = [
        "event",
        "method",
        "decision",
        "check",
        "rule",
        "outcome",
        "resource",
        "native_resource",
        "server",
    ];
    let told = |records: &[Value]| -> Vec<Vec<String>> {
        let owned = |record| fields(record, &names).into_iter().map(str::to_owned).collect();
        records.iter().map(owned).collect()
    };
    let listen = "subscriptions/listen";
    let expected = [
        ["subscribe", listen, "allow", "rule", "some", "ok", uris[0], "file:///a.txt", "s"],
        ["subscribe", listen, "deny", "rule", "never", "refused", uris[1], "-", "-"],
    ];
    assert_eq!(told(&of_modern), expected);
    let subscribe = "resources/subscribe";
    let expected = [
        ["subscribe", subscribe, "allow", "rule", "some", "ok", uris[0], "file:///a.txt", "s"],
        ["request", subscribe, "deny", "catalog", "-", "refused", uris[1], "-", "-"],
    ];
    assert_eq!(told(&of_legacy), expected);
    for record in of_modern.iter().chain(&of_legacy) {
        let id = &key_digest(KEY)[..8];
        assert_eq!(record["credential"], json!({ "kind": "key", "id": id }), "{record}");
        assert_eq!(record["principal"], "ann");
        assert_eq!(record["session"].is_string(), record["method"] == subscribe, "{record}");
    }
}
