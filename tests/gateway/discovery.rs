//! Tools that clients search instead of listing all of them, and call through `call_tool`.

use serde_json::{Value, json};

use crate::confirm::form;
use crate::support::client::Client;
use crate::support::gateway::Builder;
use crate::support::{Gateway, Said, Step, Upstream, client_table, within};

const SEARCH: &str = "[profiles.default]\ndiscovery = \"search\"\npin = [\"*__ping\"]\n";
const META: [&str; 3] = ["find_tools", "describe_tools", "call_tool"];

/// Sets up a server with some tools of a tracker. A call returns its arguments.
fn tracker(upstream: &Upstream) {
    let text = |description: &str| json!({ "type": "string", "description": description });
    for tool in [
        json!({
            "name": "find_issue", "description": "Finds an issue in the tracker.\nAnd so on.",
            "inputSchema": {
                "type": "object", "required": ["repo", "query"],
                "properties": {
                    "repo": text("The repository"), "query": text("What to look for"),
                    "state": { "enum": ["open", "closed"] },
                },
            },
            "annotations": { "readOnlyHint": true },
        }),
        json!({
            "name": "create_issue", "description": "Opens a new issue in the tracker.",
            "inputSchema": { "type": "object", "properties": { "title": text("The title") } },
            "annotations": { "destructiveHint": false },
        }),
        json!({
            "name": "delete_repository", "description": "Deletes a repository with all it has.",
            "inputSchema": { "type": "object", "properties": { "repo": text("The repository") } },
        }),
        json!({ "name": "ping", "inputSchema": { "type": "object" } }),
    ] {
        upstream.tool(&tool, |received| {
            let arguments = received.params["arguments"].to_string();
            vec![Step::Result(json!({ "content": [{ "type": "text", "text": arguments }] }))]
        });
    }
}

async fn tracker_behind(settings: &str) -> (Vec<Upstream>, Builder) {
    let upstreams = Upstream::both().await;
    for upstream in &upstreams {
        upstream.set_tools([""; 0]);
        tracker(upstream);
    }
    let [modern, legacy] = &upstreams;
    let trusted = |upstream: &Upstream| upstream.http() + "trusted = true\n";
    let builder = Gateway::with("m", trusted(modern)).server("l", trusted(legacy)).toml(settings);
    (upstreams.into(), builder)
}

/// Returns the lines of `find_tools`.
async fn found(client: &Client, query: &str) -> Vec<String> {
    let said = client.call("find_tools", json!({ "query": query, "limit": 20 })).await;
    let lines = said.result()["structuredContent"]["tools"].as_array().unwrap();
    let lines: Vec<_> = lines.iter().map(|line| line.as_str().unwrap().to_owned()).collect();
    for line in &lines {
        assert!(said.text().contains(line.as_str()), "{said:?}");
    }
    lines
}

async fn through(client: &Client, meta: &str, tool: &str, arguments: Value) -> Said {
    client.call(meta, json!({ "name": tool, "arguments": arguments })).await
}

#[tokio::test]
async fn tools_are_found_described_and_called_in_both_eras() {
    let (upstreams, builder) = tracker_behind(SEARCH).await;
    let gateway = builder.start().await;
    let said = gateway.modern().request("server/discover", json!({})).await;
    let instructions = said.result()["instructions"].as_str().unwrap();
    assert!(instructions.contains("`find_tools` finds them"), "{instructions}");
    assert!(instructions.contains("m (4), l (4)."), "{instructions}");
    for (era, client) in gateway.both().await {
        let names = client.tool_names().await;
        assert_eq!(names, [&META[..], &["m__ping", "l__ping"]].concat(), "{era}");
        let lines = found(&client, "look for a bug report").await;
        let signature = "__find_issue(repo: string, query: string, state?: open|closed) — Finds an \
            issue in the tracker.";
        assert!(lines[0].contains(signature) && lines[1].contains(signature), "{era}: {lines:?}");

        let names = json!({ "names": ["m__find_issue", "m__nothing"] });
        let said = client.call("describe_tools", names).await;
        let described = &said.result()["structuredContent"]["tools"];
        assert_eq!(described[0]["inputSchema"]["required"], json!(["repo", "query"]), "{era}");
        assert!(said.text().contains("Not described: m__nothing"), "{era}: {said:?}");

        let arguments = json!({ "repo": "r", "query": "q" });
        for (upstream, tool) in upstreams.iter().zip(["m__find_issue", "l__find_issue"]) {
            let before = upstream.calls().len();
            let said = through(&client, "call_tool", tool, arguments.clone()).await;
            assert_eq!(said.text(), arguments.to_string(), "{era} {tool}");
            let calls = upstream.calls();
            assert_eq!(calls.len(), before + 1);
            assert_eq!(calls[before].params["name"], "find_issue", "{era}: its real name");
            // An unlisted tool can still be called.
            let said = client.call(tool, arguments.clone()).await;
            assert_eq!(said.text(), arguments.to_string(), "{era} {tool}");
        }
    }
}

#[tokio::test]
async fn a_search_asks_for_english_and_knows_common_words_of_other_languages() {
    let (_upstreams, builder) = tracker_behind(SEARCH).await;
    let gateway = builder.start().await;
    for (era, client) in gateway.both().await {
        let tools = client.tools().await;
        let find = tools.iter().find(|tool| tool["name"] == "find_tools").unwrap();
        assert!(find["description"].as_str().unwrap().contains("Search in English"), "{era}");
        let query = &find["inputSchema"]["properties"]["query"];
        assert!(query["description"].as_str().unwrap().contains("English words"), "{era}");
        let said = client.call("find_tools", json!({ "query": "xyzzy" })).await;
        assert!(said.text().contains("Try other words, in English."), "{era}: {}", said.text());
        let lines = found(&client, "neues Ticket eröffnen").await;
        assert!(lines[0].contains("__create_issue"), "{era}: {lines:?}");
    }
}

#[tokio::test]
async fn a_refused_call_names_the_correct_way() {
    let (upstreams, builder) = tracker_behind(SEARCH).await;
    let gateway = builder.start().await;
    for (era, client) in gateway.both().await {
        let said = through(&client, "call_tool", "m__find_issue", json!({ "repo": 1 })).await;
        assert!(said.is_error(), "{era}: {said:?}");
        for part in ["query", "The schema: ", r#""required":["repo","query"]"#] {
            assert!(said.text().contains(part), "{era} {part}: {}", said.text());
        }
        let said = through(&client, "call_tool", "find_isue", json!({})).await;
        assert!(said.is_error(), "{era}: {said:?}");
        let expected = "there is no tool \"find_isue\", but m__find_issue";
        assert!(said.text().contains(expected), "{era}: {}", said.text());
        for wrong in [json!({}), json!({ "name": 1 }), json!({ "name": "x", "args": {} })] {
            let said = client.call("call_tool", wrong.clone()).await;
            assert!(said.is_error(), "{era} {wrong}: {said:?}");
            assert!(said.text().contains("The schema: "), "{era} {wrong}: {said:?}");
        }
        // Typical mistakes of models.
        let flat = json!({ "name": "m__find_issue", "repo": "r", "query": "q" });
        let said = client.call("call_tool", flat).await;
        let expected = "repo, query belong(s) in `arguments`";
        assert!(said.is_error() && said.text().contains(expected), "{era}: {}", said.text());
        assert!(said.text().contains(r#""required":["repo","query"]"#), "{era}: {}", said.text());
        let said = through(&client, "call_tool", "find_tools", json!({ "query": "x" })).await;
        assert!(said.text().contains("call find_tools directly"), "{era}: {said:?}");
        let said = client.call("describe_tools", json!({ "names": "m__ping" })).await;
        assert_eq!(said.result()["structuredContent"]["tools"][0]["name"], "m__ping", "{era}");
        let said = client.call("find_tools", json!({ "query": "x", "kind": "skills" })).await;
        assert!(said.text().contains("There are no skills."), "{era}: {}", said.text());
        // Models often write the arguments as a string.
        let text = json!({ "name": "m__create_issue", "arguments": "{\"title\":\"t\"}" });
        assert_eq!(client.call("call_tool", text).await.text(), r#"{"title":"t"}"#, "{era}");
    }
    let calls: usize = upstreams.iter().map(|upstream| upstream.calls().len()).sum();
    assert_eq!(calls, 2, "only the right ones reach a server");
}

#[tokio::test]
async fn each_intent_has_a_tool_of_its_own() {
    let (upstreams, builder) = tracker_behind(&format!("{SEARCH}intent = true\n")).await;
    let builder = builder.server("u", upstreams[0].http());
    let gateway = builder.start().await;
    let client = gateway.modern();
    let [read, write, destructive] = ["call_tool_read", "call_tool_write", "call_tool_destructive"];
    let names = client.tool_names().await;
    assert_eq!(names[..5], ["find_tools", "describe_tools", read, write, destructive]);
    let lines = found(&client, "issue").await;
    for (tool, right) in [("m__find_issue(", read), ("u__find_issue(", destructive)] {
        let line = lines.iter().find(|line| line.starts_with(tool)).unwrap();
        assert!(line.ends_with(&format!(" [{right}]")), "{line}");
    }
    for (tool, right) in [
        ("m__find_issue", read),
        ("m__create_issue", write),
        ("m__delete_repository", destructive),
        // This server is untrusted, with any annotations.
        ("u__find_issue", destructive),
    ] {
        for meta in [read, write, destructive] {
            let said = through(&client, meta, tool, json!({ "repo": "r", "query": "q" })).await;
            assert_eq!(said.is_error(), meta != right, "{tool} {meta}: {said:?}");
            assert!(meta == right || said.text().contains(right), "{tool} {meta}: {said:?}");
        }
    }
    let said = client.call("call_tool", json!({ "name": "m__find_issue" })).await;
    assert_eq!(said.code(), -32602, "there is no such tool here");
}

#[tokio::test]
async fn forbidden_tools_are_never_named() {
    let clients = client_table("ann", "key-ann", "") + &client_table("bob", "key-bob", "");
    let rules = "[policy.rules.all]\nprincipals = [\"ann\"]\n\
        [policy.rules.some]\nprincipals = [\"bob\"]\ntools = [\"*__create_issue\", \"*__ping\"]\n";
    let (upstreams, builder) = tracker_behind(&format!("{SEARCH}{clients}{rules}")).await;
    let gateway = builder.start().await;
    for (era, bob) in gateway.both_as("key-bob", "/mcp").await {
        let heard: usize = upstreams.iter().map(|upstream| upstream.calls().len()).sum();
        let mut said = Vec::new();
        for query in ["find an issue", "delete repository", "delete_repository", "m__find_issue"] {
            said.push(client_says(&bob, "find_tools", json!({ "query": query })).await);
        }
        let names = json!({ "names": ["m__create_issue", "m__find_issue"] });
        let described = client_says(&bob, "describe_tools", names).await;
        said.push(described.replace("Not described: m__find_issue", ""));
        let unknown = async |tool: &str| {
            let asked = json!({ "name": tool, "arguments": {} });
            client_says(&bob, "call_tool", asked).await.replace(tool, "NAME")
        };
        // Like a tool that never existed.
        let never = unknown("m__never_issue").await;
        assert_eq!(unknown("m__find_issue").await, never.clone(), "{era}");
        said.push(never);
        for text in said {
            assert!(!text.contains("find_issue") && !text.contains("delete_repo"), "{era}: {text}");
        }
        let now: usize = upstreams.iter().map(|upstream| upstream.calls().len()).sum();
        assert_eq!(now, heard, "{era}");
        let lines = found(&bob, "issue").await;
        assert_eq!(lines.len(), 2, "{era}: {lines:?}");
        let made = through(&bob, "call_tool", "m__create_issue", json!({})).await;
        assert!(!made.is_error(), "{era}: {made:?}");
    }
    let [(_, ann), _] = gateway.both_as("key-ann", "/mcp").await;
    assert!(found(&ann, "delete repository").await[0].contains("delete_repository"));
}

#[tokio::test]
async fn no_tool_of_a_server_takes_the_name_of_a_meta_tool() {
    let upstream = Upstream::modern().await;
    for name in ["find_tools", "run_code", "ping"] {
        upstream.tool(&json!({ "name": name, "inputSchema": { "type": "object" } }), |_| {
            vec![Step::text("of the server")]
        });
    }
    let builder = Gateway::with("s", upstream.http()).gateway("naming = \"none\"");
    let gateway = builder.toml("[profiles.p]\ndiscovery = \"search\"\n").start().await;
    let client = gateway.modern().at("/mcp/p");
    assert!(!client.call("find_tools", json!({ "query": "ping" })).await.text().contains("of the"));
    let said = through(&client, "call_tool", "run_code", json!({})).await;
    assert!(said.is_error(), "{said:?}");
    assert_eq!(through(&client, "call_tool", "ping", json!({})).await.text(), "of the server");
    // A profile that lists everything has no meta-tools.
    let said = gateway.modern().call("find_tools", json!({})).await;
    assert_eq!(said.text(), "of the server");
}

/// Returns the result of a call as text.
async fn client_says(client: &Client, tool: &str, arguments: Value) -> String {
    client.call(tool, arguments).await.result().to_string()
}

#[tokio::test]
async fn a_call_through_a_meta_tool_is_rated_confirmed_and_recorded_as_the_tool_itself() {
    let (upstreams, _) = tracker_behind("").await;
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    let server = upstreams[0].http()
        + "[servers.m.tools.find_issue]\nrate = \"1/min\"\n\
           [servers.m.tools.delete_repository]\nconfirm = true\n";
    let settings = format!("{SEARCH}[audit]\nfile = \"{}\"\n", audit.display());
    let gateway = Gateway::with("m", server).toml(&settings).start().await;
    let client = gateway.modern();
    let arguments = json!({ "repo": "r", "query": "q" });
    let said = through(&client, "call_tool", "m__find_issue", arguments.clone()).await;
    assert!(!said.is_error(), "{said:?}");
    let said = client.call("m__find_issue", arguments.clone()).await;
    assert_eq!(said.status, 429, "the rate of the tool: {said:?}");
    let said = through(&client, "call_tool", "m__find_issue", arguments).await;
    assert_eq!(said.status, 429, "{said:?}");

    // The user is asked about the tool to be called, in both eras.
    let wanted = json!({ "name": "m__delete_repository", "arguments": { "repo": "r" } });
    let asking = gateway.modern().offering(form()).await;
    let said = asking.call("call_tool", wanted.clone()).await;
    let question = &said.result()["inputRequests"]["confirm"]["params"]["message"];
    assert!(question.as_str().unwrap().contains("m__delete_repository"), "{said:?}");
    let retried = json!({
        "name": "call_tool", "arguments": wanted, "requestState": said.result()["requestState"],
        "inputResponses": { "confirm": { "action": "accept" } },
    });
    let said = asking.request("tools/call", retried).await;
    assert_eq!(said.text(), r#"{"repo":"r"}"#, "{said:?}");
    let legacy = gateway.legacy().await.offering(form()).await;
    let mut stream = legacy.ask_call("call_tool", wanted).send().await;
    let asked = within(stream.message()).await.unwrap();
    assert_eq!(asked["method"], "elicitation/create", "{asked}");
    legacy.respond(&asked["id"], json!({ "action": "accept" })).await;
    let said = within(stream.message()).await.unwrap();
    assert_eq!(said["result"]["content"][0]["text"], r#"{"repo":"r"}"#, "{said}");

    client.call("find_tools", json!({ "query": "issue" })).await.result();
    gateway.stop().await;
    let records = std::fs::read_to_string(&audit).unwrap();
    let records = records.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let tools: Vec<_> =
        records.filter_map(|record| Some(record["tool"].as_str()?.to_owned())).collect();
    assert_eq!(tools.iter().filter(|tool| *tool == "m__find_issue").count(), 3, "{tools:?}");
    assert!(!tools.contains(&"call_tool".to_owned()), "{tools:?}");
    assert!(tools.contains(&"find_tools".to_owned()), "{tools:?}");
}

#[tokio::test]
async fn auto_gives_each_client_a_list_that_it_can_handle() {
    let (_upstreams, builder) = tracker_behind(
        "[profiles.default]\ndiscovery = \"auto\"\npin = [\"m__ping\"]\nbudget = 100\n\
         [profiles.roomy]\ndiscovery = \"auto\"\n\
         [search]\nclients = { \"small-agent\" = 3, \"old-agent@1.*\" = \"search\" }\n",
    )
    .await;
    let gateway = builder.start().await;
    let names = async |endpoint: &str, name: &str, version: &str| {
        let client = gateway.modern().at(endpoint).named(name, version);
        client.tool_names().await.len()
    };
    let (pinned, all) = (META.len() + 1, 8);
    // An unknown client: the budget decides.
    assert_eq!(names("/mcp", "some-agent", "1.0").await, pinned);
    assert_eq!(names("/mcp/roomy", "some-agent", "1.0").await, all);
    assert_eq!(names("/mcp/roomy", "small-agent", "1.0").await, META.len());
    assert_eq!(names("/mcp/roomy", "old-agent", "1.4").await, META.len());
    assert_eq!(names("/mcp/roomy", "old-agent", "2.0").await, all);
    // A client that searches by itself gets all tools, with marks.
    assert_eq!(names("/mcp", "claude-code", "2.1.0").await, META.len() + all);
    let client = gateway.modern().named("claude-code", "2.1.0");
    let said = client.request("tools/list", json!({})).await;
    assert_eq!(said.result()["cacheScope"], "private");
    for tool in said.result()["tools"].as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        let is_marked = tool["_meta"]["anthropic/alwaysLoad"] == json!(true);
        assert_eq!(is_marked, META.contains(&name) || name == "m__ping", "{tool}");
    }
}

#[tokio::test]
async fn slim_definitions_are_described_in_full_and_checked_in_full() {
    let (upstreams, builder) = tracker_behind(
        "[profiles.default]\nslim = { descriptions = 30, examples = \"drop\", titles = \"drop\" }\n\
         [profiles.found]\ndiscovery = \"search\"\npin = [\"m__*\"]\nslim = { descriptions = 30 }\n",
    )
    .await;
    upstreams[0].tool(
        &json!({
            "name": "merge", "title": "Merge", "description": "Merges two branches. Which of them \
                stays depends on the arguments.",
            "inputSchema": { "type": "object", "title": "Arguments", "required": ["title"], "properties": {
                "title": { "type": "string", "minLength": 2, "examples": ["x"], "title": "Title" },
            } },
        }),
        |_| vec![Step::Result(json!({ "content": [] }))],
    );
    let gateway = builder.start().await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 9).await;
    for (era, client) in gateway.both().await {
        let said = client.request("tools/list", json!({})).await;
        let tools = said.result()["tools"].as_array().unwrap();
        assert_eq!((tools.len(), &tools[0]["name"]), (10, &json!("describe_tools")), "{era}");
        let merge = tools.iter().find(|tool| tool["name"] == "m__merge").unwrap();
        let schema = json!({ "type": "object", "required": ["title"], "properties": {
            "title": { "type": "string", "minLength": 2 },
        } });
        let short = json!({ "name": "m__merge", "description": "Merges two branches. …",
            "inputSchema": schema });
        assert_eq!(merge, &short, "{era}");

        let said = client.call("describe_tools", json!({ "names": ["m__merge"] })).await;
        let whole = &said.result()["structuredContent"]["tools"][0];
        assert_eq!(whole["title"], "Merge", "{era}");
        assert!(whole["description"].as_str().unwrap().ends_with("arguments."), "{era}");
        let said = client.call("m__merge", json!({ "title": "x" })).await;
        assert!(said.is_error() && said.text().contains("title"), "{era}: {said:?}");
        let said = client.call("find_tools", json!({ "query": "merge" })).await;
        assert_eq!(said.error()["code"], -32602, "{era}: only lists are shorter here");
    }
    let pinned = gateway.modern().at("/mcp/found").request("tools/list", json!({})).await;
    let pinned = pinned.result()["tools"].to_string();
    assert!(pinned.contains("Merges two branches. …") && pinned.contains("call_tool"), "{pinned}");
}

#[tokio::test]
async fn tokens_of_tools_servers_and_profiles_are_counted() {
    let (_upstreams, builder) = tracker_behind(
        "[profiles.found]\ndiscovery = \"search\"\n[profiles.short]\nslim = { descriptions = 20 }\n",
    )
    .await;
    let gateway = builder.start().await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 8).await;
    let status = gateway.status().await;
    assert_eq!(
        (&status["profiles"], &status["servers"][0]["tool_tokens"]),
        (&json!([]), &json!(null))
    );
    let page = gateway.admin("/tools").await.json();
    let tokens = |value: &Value| value.as_u64().unwrap();
    let (tools, servers) = (page["tools"].as_array().unwrap(), page["servers"].as_array().unwrap());
    assert_eq!((tools.len(), servers.len()), (8, 2));
    assert_eq!((&tools[0]["name"], &tools[0]["server"]), (&json!("m__find_issue"), &json!("m")));
    let sum = |all: &[Value]| all.iter().map(|one| tokens(&one["tokens"])).sum::<u64>();
    assert_eq!((sum(tools), sum(servers)), (tokens(&page["tokens"]), tokens(&page["tokens"])));
    assert!(tokens(&tools[0]["tokens"]) > tokens(&tools[3]["tokens"]), "{page}");
    let profiles = page["profiles"].as_array().unwrap();
    let [found, short, default] = &profiles[..] else { panic!("{profiles:?}") };
    assert_eq!((&found["tools"], &found["listed"]), (&json!(8), &json!(3)));
    assert_eq!(default["all_tokens"], default["listed_tokens"]);
    assert_eq!(default["all_tokens"], page["tokens"]);
    let [full, listed] = [&short["all_tokens"], &short["listed_tokens"]].map(tokens);
    assert!(listed < full + 200 && short["listed"] == 9, "{short}");

    let status = gateway.status().await;
    assert_eq!(status["profiles"], page["profiles"]);
    assert_eq!(status["servers"][0]["tool_tokens"], servers[0]["tokens"]);
    let metrics = gateway.metrics().await;
    for line in [
        format!("trunkline_server_definition_tokens{{server=\"m\"}} {}", servers[0]["tokens"]),
        format!("trunkline_profile_list_tokens{{profile=\"found\"}} {}", found["listed_tokens"]),
        format!(
            "trunkline_tool_definition_tokens{{server=\"m\",tool=\"find_issue\"}} {}",
            tools[0]["tokens"]
        ),
    ] {
        assert!(metrics.contains(&line), "{line} in {metrics}");
    }
}

#[tokio::test]
async fn a_budget_is_counted_without_being_asked_for() {
    let (_upstreams, builder) =
        tracker_behind("[profiles.default]\nbudget = 100\n[profiles.roomy]\nbudget = 5000\n").await;
    let gateway = builder.start().await;
    let status = gateway.wait_for(|status| status["profiles"][0]["tools"] == 8).await;
    let profiles = &status["profiles"];
    assert_eq!((&profiles[0]["name"], &profiles[0]["budget"]), (&json!("default"), &json!(100)));
    assert!(profiles[0]["listed_tokens"].as_u64().unwrap() > 100, "{profiles}");
}
