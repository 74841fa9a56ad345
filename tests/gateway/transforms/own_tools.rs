//! Tools of the gateway itself: fixed answers, and batches of calls.

use serde_json::{Value, json};

use crate::support::gateway::Builder;
use crate::support::upstream::tool;
use crate::support::{Client, Gateway, Said, Step, Upstream, client_table, within};

const OWN: &str = r#"
    [tools.hours]
    description = "When the office is open"
    text = "Monday to Friday, {arguments.city}"
    input_schema = { type = "object", properties = { city = { type = "string" } }, required = ["city"] }

    [tools.contact]
    json = { phone = "+41 44 000 00 00", desks = [1, 2] }

    [tools.brief]
    text = "{person.name} has {orders.count} orders"

    [tools.brief.calls.orders]
    tool = "l__orders"
    arguments = { customer = "{person.id}", note = "for {arguments.who}", limit = 5, none = "{person.none}" }

    [tools.brief.calls.person]
    tool = "m__person"
    arguments = { name = "{arguments.who}" }
"#;

fn answers(upstream: &Upstream, name: &str, structured: &Value) {
    let result = json!({ "content": [], "structuredContent": structured });
    upstream.tool(&tool(name), move |_| vec![Step::Result(result.clone())]);
}

async fn upstreams() -> [Upstream; 2] {
    let [modern, legacy] = Upstream::both().await;
    answers(&modern, "person", &json!({ "id": 7, "name": "Ann" }));
    answers(&legacy, "orders", &json!({ "count": 3 }));
    [modern, legacy]
}

fn builder([modern, legacy]: &[Upstream; 2]) -> Builder {
    Gateway::with("m", modern.http()).server("l", legacy.stdio())
}

#[tokio::test]
async fn the_gateways_own_tools_are_listed_and_answer_in_both_eras() {
    let upstreams = upstreams().await;
    let gateway = builder(&upstreams).toml(OWN).start().await;
    for (era, client) in gateway.both().await {
        let tools = client.tools().await;
        let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(names[..3], ["hours", "contact", "brief"], "{era}");
        assert_eq!(tools[0]["description"], "When the office is open", "{era}");
        assert_eq!(tools[0]["inputSchema"]["required"], json!(["city"]), "{era}");
        let said = client.call("hours", json!({ "city": "Bern" })).await;
        assert_eq!(said.text(), "Monday to Friday, Bern", "{era}");
        let said = client.call("hours", json!({})).await;
        assert!(said.is_error() && said.text().contains("city"), "{era} {said:?}");
        let said = client.call("contact", json!({})).await;
        assert_eq!(said.result()["structuredContent"]["desks"], json!([1, 2]), "{era}");
        assert!(said.text().contains("+41"), "{era} {said:?}");
    }
}

#[tokio::test]
async fn a_batch_maps_arguments_and_combines_results() {
    let upstreams = upstreams().await;
    let gateway = builder(&upstreams).toml(OWN).start().await;
    for (era, client) in gateway.both().await {
        let said = client.call("brief", json!({ "who": "ann" })).await;
        assert_eq!(said.text(), "Ann has 3 orders", "{era}");
        let whole = json!({ "orders": { "count": 3 }, "person": { "id": 7, "name": "Ann" } });
        assert_eq!(said.result()["structuredContent"], whole, "{era}");
        let [person, orders] = [0, 1]
            .map(|at: usize| upstreams[at].calls().pop().unwrap().params["arguments"].clone());
        assert_eq!(person, json!({ "name": "ann" }), "{era}");
        let expected = json!({ "customer": 7, "note": "for ann", "limit": 5 });
        assert_eq!(orders, expected, "{era}");
    }
}

const SIDE_BY_SIDE: &str = r#"
    [tools.both.calls.a]
    tool = "m__hold"
    [tools.both.calls.b]
    tool = "l__hold"
"#;

#[tokio::test]
async fn calls_that_do_not_depend_on_one_another_are_made_side_by_side() {
    let upstreams = upstreams().await;
    let gateway = builder(&upstreams).toml(SIDE_BY_SIDE).start().await;
    for (era, client) in gateway.both().await {
        let [modern, legacy] = [0, 1].map(|at| upstreams[at].calls().len() + 1);
        let both_are_called = async {
            upstreams[0].heard("tools/call", modern).await;
            upstreams[1].heard("tools/call", legacy).await;
            upstreams.iter().for_each(|upstream| upstream.release(1));
        };
        let (said, ()) = tokio::join!(client.call("both", json!({})), within(both_are_called));
        assert!(!said.is_error(), "{era} {said:?}");
    }
}

async fn failing(optional: &str) -> Vec<(&'static str, Said)> {
    let upstreams = upstreams().await;
    let own = format!(
        "[tools.t.calls.bad]\ntool = \"m__fail\"\n{optional}\n\
         [tools.t.calls.good]\ntool = \"m__person\"\n"
    );
    let gateway = builder(&upstreams).toml(&own).start().await;
    let mut said = Vec::new();
    for (era, client) in gateway.both().await {
        said.push((era, client.call("t", json!({})).await));
    }
    said
}

#[tokio::test]
async fn a_call_that_fails_fails_the_batch_unless_it_is_optional() {
    for (era, said) in failing("").await {
        assert!(said.is_error() && said.text().starts_with("bad failed: "), "{era} {said:?}");
    }
    for (era, said) in failing("optional = true").await {
        let structured = &said.result()["structuredContent"];
        assert_eq!(
            (&structured["bad"], &structured["good"]["id"]),
            (&Value::Null, &json!(7)),
            "{era}"
        );
    }
}

#[tokio::test]
async fn calls_of_a_batch_pass_policy_like_those_of_the_client() {
    let [modern, legacy] = Upstream::both().await;
    answers(&legacy, "orders", &json!({ "count": 3 }));
    let own = "[tools.t.calls.a]\ntool = \"m__person\"\narguments = { name = 7 }\n\
               [tools.u.calls.a]\ntool = \"l__orders\"\n";
    let profiles =
        "[profiles.few]\ntools = [\"t\", \"u\", \"m__*\"]\n[profiles.one]\nservers = [\"m\"]\n";
    modern.tool(
        &json!({ "name": "person", "inputSchema": {
            "type": "object", "properties": { "name": { "type": "string" } } } }),
        |_| vec![Step::text("Ann")],
    );
    let gateway = Gateway::with("m", modern.http())
        .server("l", legacy.http() + "rate = \"1/h\"")
        .toml(own)
        .toml(profiles)
        .start()
        .await;
    for (era, client) in gateway.both().await {
        let said = client.call("t", json!({})).await;
        assert!(said.text().contains("/name: type"), "{era} {said:?}");
    }
    assert_eq!(modern.calls().len(), 0);
    let [(_, first), (_, second)] = gateway.both().await;
    assert!(!first.call("u", json!({})).await.is_error());
    let said = second.call("u", json!({})).await;
    assert!(said.is_error() && said.text().contains("over the limit"), "{said:?}");
    for (era, client) in gateway.both_at("/mcp/few").await {
        let names = client.tools().await;
        assert!(names.iter().any(|tool| tool["name"] == "u"), "{era}");
        let said = client.call("u", json!({})).await;
        assert!(
            said.is_error() && said.text().contains("unknown tool: l__orders"),
            "{era} {said:?}"
        );
    }
    for (era, client) in gateway.both_at("/mcp/one").await {
        assert!(client.tools().await.iter().all(|tool| tool["name"] != "t"), "{era}");
        assert_eq!(client.call("t", json!({})).await.code(), -32602, "{era}");
    }
}

#[tokio::test]
async fn a_servers_tool_makes_room_for_the_name_of_an_own_tool() {
    let upstreams = upstreams().await;
    let own = "[tools.person]\ntext = \"own\"\n[tools.late]\ntext = \"late\"\n";
    let gateway = builder(&upstreams).gateway("naming = \"conflict\"").toml(own).start().await;
    for (era, client) in gateway.both().await {
        assert_eq!(client.call("person", json!({})).await.text(), "own", "{era}");
        assert!(!client.call("m__person", json!({})).await.is_error(), "{era}");
    }
    let before = gateway.modern().tools().await.len();
    let without = builder(&upstreams).gateway("naming = \"conflict\"");
    gateway.reload(without).await;
    assert_eq!(gateway.modern().tools().await.len(), before - 2);
    assert!(!gateway.modern().call("person", json!({})).await.is_error());
}

async fn slow_gateway(timeout: &str) -> ([Upstream; 2], Gateway) {
    let upstreams = upstreams().await;
    upstreams[1].does("never", |_| vec![Step::Never]);
    let own =
        format!("[tools.t]\ntimeout = \"{timeout}\"\n[tools.t.calls.a]\ntool = \"l__never\"\n");
    upstreams[1].tool(&tool("never"), |_| vec![Step::Never]);
    let gateway = builder(&upstreams).toml(&own).start().await;
    (upstreams, gateway)
}

#[tokio::test]
async fn a_batch_that_takes_too_long_ends_and_its_calls_are_cancelled() {
    let (upstreams, gateway) = slow_gateway("300ms").await;
    for (times, (era, client)) in (1..).zip(gateway.both().await) {
        let said = client.call("t", json!({})).await;
        assert!(said.is_error() && said.text().contains("more than 0.3 s"), "{era} {said:?}");
        upstreams[1].heard("notifications/cancelled", times).await;
    }
}

#[tokio::test]
async fn cancelling_a_batch_cancels_its_calls() {
    let (upstreams, gateway) = slow_gateway("1m").await;
    let client: Client = gateway.legacy().await;
    let ask = client.ask_call("t", json!({})).id(json!("gives up"));
    let gives_up = async {
        upstreams[1].heard("tools/call", 1).await;
        let params = json!({ "requestId": "gives up" });
        client.ask("notifications/cancelled", params).notification().send().await;
        upstreams[1].heard("notifications/cancelled", 1).await;
    };
    tokio::join!(ask.send(), within(gives_up));
}

#[tokio::test]
async fn each_client_makes_the_calls_of_a_batch_as_itself() {
    let upstreams = upstreams().await;
    let own = "[tools.t.calls.a]\ntool = \"m__person\"\n";
    let gateway = Gateway::with("m", upstreams[0].http())
        .toml(own)
        .toml(&client_table("ann", "key of ann", "rate = \"2/h\""))
        .toml(&client_table("bob", "key of bob", ""))
        .start()
        .await;
    let ann = gateway.modern().key("key of ann");
    // The call of the tool, and the inner call.
    assert!(!ann.call("t", json!({})).await.is_error());
    assert_eq!(ann.call("t", json!({})).await.status, 429);
    assert!(!gateway.modern().key("key of bob").call("t", json!({})).await.is_error());
}
