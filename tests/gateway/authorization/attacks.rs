//! Attempts of clients and servers to bypass rules, each named for the attack.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Two, bare, names};
use crate::support::gateway::Builder;
use crate::support::upstream::tasks::EXTENSION;
use crate::support::{Gateway, Step, Upstream, client_table, within};

const ANN: &str = "key-of-ann";

fn with_keys(upstream: &Upstream, rules: &str) -> Builder {
    let keys = r#"state_keys = ["0123456789abcdef0123456789abcdef"]"#;
    let builder = Gateway::with("s", upstream.http()).gateway(keys);
    builder.toml(&client_table("ann", ANN, "")).toml(rules)
}

fn knows_tasks() -> Value {
    json!({ "extensions": { EXTENSION: {} } })
}

#[tokio::test]
async fn a_task_of_a_tool_that_is_no_longer_allowed_is_unknown() {
    let upstream = Upstream::modern().await;
    upstream.has_tasks();
    let with = |rules: &str| with_keys(&upstream, rules);
    let gateway = with("[policy.rules.all]\n").start().await;
    let ann = gateway.modern().key(ANN).offering(knows_tasks()).await;
    let task = ann.call("s__must", json!({})).await;
    assert_eq!(task.result()["resultType"], "task", "{task:?}");
    let id = task.result()["taskId"].as_str().unwrap().to_owned();
    let about = async |method: &str, id: &str| ann.request(method, json!({ "taskId": id })).await;
    let got = about("tasks/get", &id).await;
    assert_eq!((&got.result()["status"], &got.result()["taskId"]), (&json!("working"), &json!(id)));
    gateway.reload(with("[policy.rules.few]\ntools = [\"s__echo\"]\n")).await;
    let never = "s.AAAA.task-9";
    let heard = upstream.received().len();
    for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
        let unknown = bare(&about(method, never).await, never);
        assert_eq!(bare(&about(method, &id).await, &id), unknown, "{method}");
    }
    let listen = json!({ "notifications": { "taskIds": [id] } });
    let mut stream = ann.ask("subscriptions/listen", listen).send().await;
    let first = within(stream.message()).await.unwrap();
    assert_eq!(first["params"]["notifications"].get("taskIds"), None, "{first}");
    assert_eq!(upstream.received().len(), heard, "the server hears nothing of it");
}

#[tokio::test]
async fn a_task_from_before_there_were_rules_is_unknown_for_its_id_does_not_name_its_tool() {
    let upstream = Upstream::modern().await;
    upstream.has_tasks();
    let with = |rules: &str| with_keys(&upstream, rules);
    let gateway = with("").start().await;
    let ann = gateway.modern().key(ANN).offering(knows_tasks()).await;
    let task = ann.call("s__must", json!({})).await;
    let id = task.result()["taskId"].clone();
    gateway.reload(with("[policy.rules.all]\n")).await;
    let said = ann.request("tasks/get", json!({ "taskId": id })).await;
    assert_eq!(said.code(), -32_602, "{said:?}");
}

#[tokio::test]
async fn a_call_that_waits_for_input_is_not_resumed_once_it_is_denied() {
    let upstream = Upstream::legacy().await;
    let ask = json!({ "mode": "form", "message": "Who?",
        "requestedSchema": { "type": "object", "properties": {} } });
    upstream.does("asks", move |_| {
        vec![Step::Ask("q", "elicitation/create", ask.clone()), Step::Await("q"), Step::Answers]
    });
    let with = |rules: &str| Gateway::with("s", upstream.http()).toml(rules);
    for rules in [
        "[policy.rules.few]\ntools = [\"s__echo\"]\n",
        "[policy.rules.few]\nwhen = \"arguments.n != 1\"\n",
    ] {
        let gateway = with("[policy.rules.all]\n").start().await;
        let client = gateway.modern().offering(json!({ "elicitation": { "form": {} } })).await;
        let asked = client.call("s__asks", json!({ "n": 1 })).await;
        let result = asked.result();
        let (key, _) = result["inputRequests"].as_object().unwrap().iter().next().unwrap();
        let params = json!({
            "name": "s__asks", "arguments": { "n": 1 }, "requestState": result["requestState"],
            "inputResponses": { key: { "action": "accept", "content": {} } },
        });
        gateway.reload(with(rules)).await;
        let said = client.request("tools/call", params).await;
        let text = said.answer().to_string();
        assert!(text.contains("unknown tool") || text.contains("not allowed"), "{text}");
    }
}

#[tokio::test]
async fn a_definition_that_changes_between_listing_and_calling_is_decided_anew() {
    let upstream = Upstream::modern().await;
    let tool = |hints: Value| json!({ "name": "t", "inputSchema": { "type": "object" }, "annotations": hints });
    upstream.set_tools(Vec::<String>::new());
    upstream.tool(&tool(json!({ "readOnlyHint": true })), |_| vec![Step::text("done")]);
    let rules = "[policy.rules.reads]\nwhen = \"annotations.readOnlyHint\"\n";
    let gateway =
        Gateway::with("s", upstream.http() + "trusted = true\n").toml(rules).start().await;
    let client = gateway.modern();
    assert_eq!(client.tool_names().await, ["s__t"]);
    assert_eq!(client.call("s__t", json!({})).await.text(), "done");
    upstream.set_tools(Vec::<String>::new());
    upstream.tool(&tool(json!({ "readOnlyHint": false })), |_| vec![Step::text("done")]);
    upstream.announce().await;
    within(async { while !client.tool_names().await.is_empty() {} }).await;
    let said = client.call("s__t", json!({})).await;
    assert!(!said.answer().to_string().contains("done"), "{said:?}");
    assert_eq!(upstream.calls().len(), 1);
}

#[tokio::test]
async fn arguments_that_the_gateway_changes_are_judged_as_the_server_gets_them() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "object", "properties": { "limit": { "type": "integer" } } });
    upstream.tool(&json!({ "name": "t", "inputSchema": schema }), |_| vec![Step::text("done")]);
    let rules = "[policy.rules.all]\n[policy.rules.large]\neffect = \"deny\"\n\
                 when = \"has(arguments.limit) && arguments.limit == 500\"\n";
    let lines = upstream.http() + "arguments = \"coerce\"\n";
    let gateway = Gateway::with("s", lines).toml(rules).start().await;
    for (era, client) in gateway.both().await {
        for arguments in [json!({ "limit": 500 }), json!({ "limit": "500" })] {
            let said = client.call("s__t", arguments).await;
            assert!(said.is_error() && said.text().contains("not allowed"), "{era} {said:?}");
        }
        let twice = r#"{"limit":1,"limit":500}"#;
        let ask = client.ask_call("s__t", json!("HERE"));
        let body = ask.message().to_string().replace("\"HERE\"", twice);
        let said = ask.body(body).send().await.said().await;
        assert!(!said.answer().to_string().contains("done"), "{era} {said:?}");
        let heard = upstream.calls().len();
        // A rule that compares a number denies a text, although the gateway would convert it to a
        // number.
        let text = client.call("s__t", json!({ "limit": "7" })).await;
        assert!(text.is_error() && text.text().contains("not allowed"), "{era} {text:?}");
        assert!(!client.call("s__t", json!({ "limit": 7 })).await.is_error(), "{era}");
        assert_eq!(upstream.calls().len(), heard + 1, "{era}");
    }
    for call in upstream.calls() {
        assert_eq!(call.arguments(), &json!({ "limit": 7 }));
    }
}

#[tokio::test]
async fn large_arguments_neither_pass_a_condition_nor_hold_up_others() {
    let upstream = Upstream::modern().await;
    let rules = "[policy.rules.pairs]\n\
                 when = \"arguments.l.all(x, arguments.l.all(y, x != 'z' || y != 'z'))\"\n";
    let gateway = Gateway::with("s", upstream.http()).toml(rules).start().await;
    let client = gateway.modern();
    let list = |count: usize| json!({ "l": vec!["text"; count] });
    assert!(!client.call("s__echo", list(100)).await.is_error());
    let started = Instant::now();
    let said = client.call("s__echo", list(100_000)).await;
    assert!(said.is_error() && said.text().contains("not allowed"), "{:?}", said.status);
    // Unbounded, it would be minutes.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    assert_eq!(upstream.calls().len(), 1);
}

#[tokio::test]
async fn skills_directories_and_user_interfaces_hide_denied_elements() {
    let upstream = Upstream::modern().await;
    upstream.offers_skills(&["skill://acme/refunds", "skill://acme/secret"]);
    let app = Upstream::modern().await;
    app.offers_app("refresh");
    let rules = "[policy.rules.skills]\nresources = [\"mcp://s/skill://acme/*\"]\n\
                 [policy.rules.secret]\neffect = \"deny\"\nresources = [\"*secret*\"]\n\
                 [policy.rules.app]\nservers = [\"app\"]\ntools = [\"app__show\"]\n";
    let gateway =
        Gateway::with("s", upstream.http()).server("app", app.http()).toml(rules).start().await;
    for (era, client) in gateway.both().await {
        let shown = names(&client, "skills/list", "skills", "uri").await;
        assert_eq!(shown, ["mcp://s/skill://acme/refunds/SKILL.md"], "{era}");
        let hidden = "mcp://s/skill://acme/secret/SKILL.md";
        let never = "mcp://s/nothing/SKILL.md";
        for method in ["skills/get", "resources/read"] {
            let ask = async |uri: &str| client.request(method, json!({ "uri": uri })).await;
            assert_eq!(bare(&ask(hidden).await, hidden), bare(&ask(never).await, never), "{era}");
        }
        let read = async |uri: &str| client.request("resources/read", json!({ "uri": uri })).await;
        assert_eq!(client.tool_names().await, ["app__show"], "{era}");
        let page = read("ui://app/main").await;
        assert_eq!(page.result()["contents"][0]["uri"], "ui://app/main", "{era}");
        // The tool that the interface would call does not exist under any name.
        for tool in ["refresh", "app__refresh"] {
            assert_eq!(client.call(tool, json!({})).await.code(), -32_602, "{era} {tool}");
        }
        assert!(read("mcp://app/file:///secret").await.answer().get("error").is_some(), "{era}");
    }
    assert!(app.calls().is_empty());
}

#[tokio::test]
async fn another_spelling_of_a_denied_uri_is_denied_as_well() {
    let two = Two::new().await;
    let rules = "[policy.rules.all]\n[policy.rules.secret]\neffect = \"deny\"\n\
                 resources = [\"mcp://a/b://2\", \"mcp://a/file:///secret*\"]\n";
    for uris in ["prefix", "original"] {
        let gateway = two.with(rules).gateway(&format!("uris = \"{uris}\"")).start().await;
        for (era, ann) in gateway.both_as(ANN, "/mcp").await {
            let read = async |uri: &str| ann.request("resources/read", json!({ "uri": uri })).await;
            let shown = read("mcp://a/file:///a.txt").await;
            assert!(shown.answer().get("result").is_some(), "{era} {shown:?}");
            if uris == "original" {
                continue;
            }
            for uri in [
                "mcp://a/b://2",
                "mcp://A/b://2",
                "mcp://a/b://%32",
                "mcp://a/file:///x/../secret",
                "mcp://a/file:///%73ecret",
                "mcp://a/file:///secret.txt",
            ] {
                let said = read(uri).await;
                assert!(said.answer().get("error").is_some(), "{era} {uri} {said:?}");
            }
        }
    }
}

#[tokio::test]
async fn pages_and_cursors_show_nothing_of_others() {
    let two = Two::new().await;
    let rules = "[policy.rules.admins]\ngroups = [\"admins\"]\n[policy.rules.few]\n\
                 groups = [\"readers\"]\ntools = [\"b__echo\", \"b__count\", \"b__hold\"]\n";
    let gateway = two.with(rules).gateway("page_size = 1").start().await;
    for (era, ann) in gateway.both_as(ANN, "/mcp").await {
        let (mut seen, mut cursor) = (Vec::new(), None);
        loop {
            let params = cursor.map_or(json!({}), |cursor: Value| json!({ "cursor": cursor }));
            let said = ann.request("tools/list", params).await;
            let page = said.result()["tools"].as_array().unwrap();
            seen.extend(page.iter().map(|tool| tool["name"].as_str().unwrap().to_owned()));
            match said.result().get("nextCursor") {
                Some(next) => cursor = Some(next.clone()),
                None => break,
            }
        }
        assert_eq!(seen, ["b__echo", "b__count", "b__hold"], "{era}");
    }
    // The cursor of another client's list is invalid.
    let [(_, root), _] = gateway.both_as("key-of-root", "/mcp").await;
    let [(_, ann), _] = gateway.both_as(ANN, "/mcp").await;
    let cursor = root.request("tools/list", json!({})).await.result()["nextCursor"].clone();
    let said = ann.request("tools/list", json!({ "cursor": cursor })).await;
    assert_eq!(said.code(), -32_602, "{said:?}");
}

#[tokio::test]
async fn instructions_of_a_server_are_for_those_who_may_use_something_of_it() {
    let two = Two::new().await;
    two.a.instructs("Secrets of a.");
    two.b.instructs("Use b.");
    let gateway = two.with("[policy.rules.b]\nservers = [\"b\"]\n").start().await;
    let [(_, ann), _] = gateway.both_as(ANN, "/mcp").await;
    let said = ann.request("server/discover", json!({})).await;
    let told = said.result()["instructions"].as_str().unwrap();
    assert!(told.contains("Use b.") && !told.contains("Secrets"), "{told}");
}

#[tokio::test]
async fn instructions_that_name_a_hidden_tool_are_withheld() {
    let two = Two::new().await;
    two.a.instructs("Prefer `hold`: it waits.");
    two.b.instructs("Hold on, and use echoes.");
    let rules = "[policy.rules.one]\ntools = [\"*__echo\"]\n";
    let gateway = two.with(rules).start().await;
    let [(_, ann), _] = gateway.both_as(ANN, "/mcp").await;
    let said = ann.request("server/discover", json!({})).await;
    let told = said.result()["instructions"].as_str().unwrap();
    assert!(told.contains("use echoes") && !told.contains("waits"), "{told}");
}

#[cfg(feature = "code-mode")]
#[tokio::test]
async fn descriptions_do_not_name_hidden_tools() {
    let upstream = Upstream::modern().await;
    let tool = |name: &str, description: &str| {
        let schema = json!({ "type": "object" });
        json!({ "name": name, "description": description, "inputSchema": schema }).to_string()
    };
    upstream.set_tools([
        tool("read_file", "Reads a file. Prefer `read_secret` for secrets. See get_file."),
        tool("get_file", "Gets a file."),
        tool("read_secret", "Reads a secret."),
    ]);
    let rules = "[policy.rules.all]\ngroups = [\"admins\"]\n\
                 [policy.rules.some]\ntools = [\"*_file\"]\n\
                 [profiles.code]\ndiscovery = \"code\"\n[profiles.search]\ndiscovery = \"search\"\n";
    let gateway = Gateway::with("s", upstream.http())
        .toml(&client_table("ann", ANN, ""))
        .toml(&client_table("root", "key-of-root", "groups = [\"admins\"]"))
        .toml(rules)
        .start()
        .await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 3).await;
    let known = "Reads a file. See get_file.";
    let whole = "Reads a file. Prefer `read_secret` for secrets. See get_file.";
    for (key, expected) in [(ANN, known), ("key-of-root", whole)] {
        let [(_, client), _] = gateway.both_as(key, "/mcp").await;
        let tools = client.tools().await;
        assert_eq!(tools[0]["description"], expected, "{key}");
        let [(_, client), _] = gateway.both_as(key, "/mcp/search").await;
        let described = client.call("describe_tools", json!({ "names": ["s__read_file"] })).await;
        let tool = &described.result()["structuredContent"]["tools"][0];
        assert_eq!(tool["description"], expected, "{key}");
        let found = client.call("find_tools", json!({ "query": "read a file secret" })).await;
        let [(_, client), _] = gateway.both_as(key, "/mcp/code").await;
        let api = client.tools().await[0]["description"].to_string();
        let said = [found.text().to_owned(), api].concat();
        assert_eq!(said.contains("read_secret"), key != ANN, "{said}");
    }
}

#[tokio::test]
async fn two_hundred_clients_with_different_rights_see_and_call_their_own() {
    let upstream = Upstream::modern().await;
    let tool = |n: usize| {
        json!({ "name": format!("t{n}"), "inputSchema": { "type": "object" } }).to_string()
    };
    upstream.set_tools((0..200).map(tool));
    for n in 0..200 {
        upstream.does(&format!("t{n}"), move |_| vec![Step::text(format!("done {n}"))]);
    }
    upstream.set_tools((0..200).map(tool));
    let mut builder = Gateway::with("s", upstream.http());
    for n in 0..200 {
        builder = builder.toml(&client_table(&format!("c{n}"), &format!("key-{n}"), ""));
    }
    let mut rules = String::new();
    for n in 0..200 {
        rules.push_str(&format!(
            "[policy.rules.r{n}]\nprincipals = [\"c{n}\"]\ntools = [\"s__t{n}\"]\n"
        ));
    }
    let gateway = builder.toml(&rules).start().await;
    let one = async |n: usize| {
        let client = gateway.modern().key(&format!("key-{n}"));
        for _ in 0..2 {
            assert_eq!(client.tool_names().await, [format!("s__t{n}")]);
            let own = client.call(&format!("s__t{n}"), json!({})).await;
            assert_eq!(own.text(), format!("done {n}"));
            let other = client.call(&format!("s__t{}", (n + 1) % 200), json!({})).await;
            assert_eq!(other.code(), -32_602);
        }
    };
    futures_util::future::join_all((0..200).map(one)).await;
    assert_eq!(upstream.calls().len(), 400);
}
