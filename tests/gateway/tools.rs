//! The tools of many servers in one list, and calls that reach the right one.

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::{Gateway, Step, Upstream, client_table, every_kind, within};

#[tokio::test]
async fn tools_of_servers_of_both_eras_and_transports_stand_in_one_list_in_file_order() {
    let [modern, legacy] = Upstream::both().await;
    let gateway = Gateway::with("z", modern.http())
        .server("a", legacy.stdio())
        .example("clock")
        .server("m", modern.stdio())
        .example("notes")
        .server("b", legacy.http())
        .start()
        .await;
    for (era, client) in gateway.both().await {
        let names = client.tool_names().await;
        let mut servers: Vec<&str> =
            names.iter().map(|name| name.split_once("__").unwrap().0).collect();
        servers.dedup();
        assert_eq!(servers, ["z", "a", "clock", "m", "notes", "b"], "{era}");
        assert!(names.contains(&"clock__search".into()) && names.contains(&"notes__search".into()));
        for server in ["z", "a", "m", "b"] {
            let said = client.call(&format!("{server}__echo"), json!({ "to": server })).await;
            assert_eq!(said.text(), json!({ "to": server }).to_string(), "{era} {said:?}");
        }
    }
    assert!(modern.calls().iter().chain(&legacy.calls()).all(|call| call.params["name"] == "echo"));
    gateway.stop().await;
}

#[tokio::test]
async fn every_field_of_a_tool_is_kept_byte_for_byte_but_its_name() {
    let odd = r#"{"x-later": [1.0,  2e3], "name":"odd" ,"title":"é\u00e9","inputSchema":{"type":"object","properties":{"b":{},"a":{}},"zeta":12345678901234567890123},"outputSchema":{"type":"object"},"icons":[{"src":"data:image/png;base64,AA=="}],"annotations":{"readOnlyHint":true},"_meta":{"com.example/k":1e400},"execution":{"taskSupport":"forbidden"}}"#;
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.set_tools([odd]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        let said = client.request("tools/list", json!({})).await;
        for kind in &kinds {
            let public = odd.replace(r#""name":"odd""#, &format!(r#""name":"{}__odd""#, kind.name));
            assert!(said.body.contains(&public), "{era} {}: {}", kind.name, said.body);
        }
    }
}

#[tokio::test]
async fn answers_of_a_server_arrive_unchanged() {
    let raw = r#"{"content":[{"type":"text","text":"a\u0000\ud83d\ude00"}],"structuredContent":{"z":1,"a":12345678901234567890123,"f":1.0},"later":{"b":[ ]}}"#;
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.does("raw", move |_| vec![Step::Raw(raw.into())]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let members = &raw[1..raw.len() - 1];
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let said = client.call(&format!("{}__raw", kind.name), json!({})).await;
            assert!(said.body.contains(members), "{era} {}: {}", kind.name, said.body);
        }
    }
}

#[tokio::test]
async fn arguments_reach_the_server_as_they_were_written() {
    let kinds = every_kind().await;
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    let arguments = r#"{"z":1.0,"a":12345678901234567890123, "s":"\u00e9\/","n":null}"#;
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let ask = client.ask_call(&format!("{}__echo", kind.name), json!("HERE"));
            let body = ask.message().to_string().replace("\"HERE\"", arguments);
            let said = ask.body(body).send().await.said().await;
            assert!(!said.is_error(), "{era} {}: {said:?}", kind.name);
            let call = kind.upstream.calls().pop().unwrap();
            assert!(call.text.contains(arguments), "{era} {}: {}", kind.name, call.text);
        }
    }
}

#[tokio::test]
async fn a_hidden_tool_is_as_unknown_as_one_that_never_was() {
    let upstream = Upstream::legacy().await;
    let lines = upstream.http() + "tools.deny = [\"ho*\"]\ntools.allow = [\"echo\", \"hold\"]";
    let gateway = Gateway::with("s", lines).start().await;
    for (era, client) in gateway.both().await {
        assert_eq!(client.tool_names().await, ["s__echo"], "{era}");
        let mut told = Vec::new();
        for name in ["s__hold", "s__fail", "s__nope", "hold", "t__hold"] {
            let said = client.call(name, json!({})).await;
            assert_eq!((said.status, said.code()), (200, -32602), "{era} {name}");
            told.push(said.error().to_string().replace(name, "NAME"));
        }
        told.dedup();
        assert_eq!(told.len(), 1, "{era}: {told:?}");
    }
    assert!(upstream.calls().is_empty());
}

#[tokio::test]
async fn a_tool_has_the_name_and_the_words_that_the_configuration_gives_it() {
    let upstream = Upstream::modern().await;
    let tools = "[servers.s.tools.echo]\nname = \"say\"\ndescription = \"Says \\\"it\\\".\"";
    let gateway = Gateway::with("s", upstream.http()).toml(tools).start().await;
    for (era, client) in gateway.both().await {
        let tools = client.tools().await;
        assert_eq!(
            (&tools[0]["name"], &tools[0]["description"]),
            (&json!("say"), &json!("Says \"it\"."))
        );
        assert_eq!(client.call("say", json!({ "a": 1 })).await.text(), r#"{"a":1}"#, "{era}");
        assert_eq!(client.call("s__echo", json!({})).await.code(), -32602, "{era}");
        assert_eq!(upstream.calls().pop().unwrap().params["name"], "echo");
    }
}

#[tokio::test]
async fn names_collide_only_where_the_naming_lets_them() {
    let [modern, legacy] = Upstream::both().await;
    modern.set_tools([r#"{"name":"echo","inputSchema":{"type":"object"}}"#]);
    for (naming, names) in [
        ("conflict", &["a__echo", "b__echo", "count", "hold", "fail"][..]),
        ("prefix", &["a__echo", "b__echo", "b__count", "b__hold", "b__fail"]),
        ("none", &["echo", "count", "hold", "fail"]),
        ("first", &["echo", "mcp_b_echo", "count", "hold", "fail"]),
    ] {
        let format = if naming == "first" { "name_format = \"mcp_{server}_{tool}\"" } else { "" };
        let gateway = Gateway::with("a", modern.http())
            .gateway(&format!("naming = \"{naming}\"\n{format}"))
            .server("b", legacy.http())
            .start()
            .await;
        assert_eq!(gateway.modern().tool_names().await, names, "{naming}");
        let said = gateway.modern().call(names[0], json!({})).await;
        assert_eq!(said.text(), "{}");
        gateway.modern().call(names[1], json!({})).await.text();
    }
    let heard = [&modern, &legacy].map(|server| {
        let names = server.calls().into_iter().map(|call| call.params["name"].clone());
        names.collect::<Vec<_>>()
    });
    assert_eq!(heard, [vec!["echo"; 4], vec!["echo", "echo", "count", "echo"]]);
}

#[tokio::test]
async fn an_invalid_tool_is_left_out_alone_and_reported() {
    for upstream in Upstream::both().await {
        upstream.set_tools([
            r#"{"name":"good","inputSchema":{"type":"object"}}"#,
            r#"{"name":"bad","inputSchema":"none"}"#,
            r#"{"name":7,"inputSchema":{}}"#,
            r#""text""#,
            r#"{"name":"good","inputSchema":{"type":"object"}}"#,
            r#"{"name":"also","inputSchema":{"type":"object"}}"#,
        ]);
        let gateway = Gateway::with("s", upstream.http()).start().await;
        assert_eq!(gateway.modern().tool_names().await, ["s__good", "s__also"]);
        let warnings = gateway.server("s").await["warnings"].to_string();
        assert!(warnings.contains("bad: "), "{warnings}");
    }
}

#[tokio::test]
async fn a_list_that_comes_in_pages_is_served_whole() {
    for upstream in Upstream::both().await {
        upstream.pages_of(1);
        for (way, lines) in upstream.ways() {
            let gateway = Gateway::with("s", lines).start().await;
            let names = gateway.modern().tool_names().await;
            assert_eq!(names, ["s__echo", "s__count", "s__hold", "s__fail"], "{way}");
        }
    }
}

#[tokio::test]
async fn pages_follow_each_other_and_their_cursors_are_sealed() {
    let upstream = Upstream::legacy().await;
    let gateway = Gateway::with("s", upstream.http()).gateway("page_size = 3").start().await;
    let mut cursor = None;
    for (era, client) in gateway.both().await {
        let first = client.request("tools/list", json!({})).await.result().clone();
        let next = first["nextCursor"].as_str().unwrap().to_owned();
        let last = client.request("tools/list", json!({ "cursor": next })).await.result().clone();
        let names: Vec<&Value> = first["tools"]
            .as_array()
            .unwrap()
            .iter()
            .chain(last["tools"].as_array().unwrap())
            .collect();
        assert_eq!((names.len(), last.get("nextCursor")), (4, None), "{era}");
        for forged in
            ["", "3", "AAAA", &next[..next.len() - 2], &format!("{next}A"), &"x".repeat(9999)]
        {
            let said = client.request("tools/list", json!({ "cursor": forged })).await;
            assert_eq!((said.status, said.code()), (200, -32602), "{era} {forged}");
        }
        let said = client.request("tools/list", json!({ "cursor": 3 })).await;
        assert_eq!(said.code(), -32602, "{era} {said:?}");
        cursor = Some(next);
    }
    upstream.set_tools([r#"{"name":"new","inputSchema":{"type":"object"}}"#]);
    upstream.announce().await;
    gateway.wait_for(|status| status["catalog"]["tools"] == 1).await;
    for (era, client) in gateway.both().await {
        // The last page belongs to the same list as the first.
        let said = client.request("tools/list", json!({ "cursor": cursor })).await;
        let tools = said.result()["tools"].as_array().unwrap();
        assert_eq!((tools.len(), &tools[0]["name"]), (1, &json!("s__fail")), "{era}");
        assert_eq!(client.tool_names().await, ["s__new"], "{era}");
    }
    // Tools hidden by another configuration are on none of the earlier pages.
    let other = Gateway::with("s", upstream.http()).gateway("page_size = 2");
    gateway.reload(other).await;
    for (era, client) in gateway.both().await {
        let said = client.request("tools/list", json!({ "cursor": cursor })).await;
        assert_eq!(said.code(), -32602, "{era}");
        let why = said.error()["message"].as_str().unwrap();
        assert!(why.contains("changed"), "{why}");
    }
}

#[tokio::test]
async fn a_page_of_a_list_that_has_changed_is_for_those_who_have_its_first_page_alone() {
    let upstream = Upstream::modern().await;
    let tool =
        |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } }).to_string();
    upstream.set_tools(["a", "b", "c"].map(tool));
    let gateway = Gateway::with("s", upstream.http())
        .gateway("page_size = 1")
        .toml(&client_table("ann", "key-of-ann", ""))
        .toml(&client_table("bob", "key-of-bob", ""))
        .toml("[policy.rules.ann]\nprincipals = [\"ann\"]\n")
        .toml("[policy.rules.bob]\nprincipals = [\"bob\"]\ntools = [\"s__a\", \"s__c\"]\n")
        .start()
        .await;
    let (ann, bob) = (gateway.modern().key("key-of-ann"), gateway.modern().key("key-of-bob"));
    let page = async |client: &Client, cursor: &Value| {
        client.request("tools/list", json!({ "cursor": cursor })).await
    };
    let first = ann.request("tools/list", json!({})).await;
    let cursor = &first.result()["nextCursor"];
    bob.request("tools/list", json!({})).await.result();
    upstream.set_tools(["a", "d", "e"].map(tool));
    upstream.announce().await;
    within(async { while !knows(&ann).await {} }).await;
    assert_eq!(page(&ann, cursor).await.result()["tools"][0]["name"], "s__b");
    assert_eq!(page(&bob, cursor).await.code(), -32602);
}

/// Returns true if the client gets the second version of the tools, page by page.
async fn knows(client: &Client) -> bool {
    let first = client.request("tools/list", json!({})).await;
    let next = first.result()["nextCursor"].clone();
    let second = client.request("tools/list", json!({ "cursor": next })).await;
    second.result()["tools"][0]["name"] == "s__d"
}

#[tokio::test]
async fn five_thousand_tools_are_listed_whole() {
    let upstream = Upstream::modern().await;
    let tool = |n| {
        let schema = json!({ "type": "object", "properties": { "n": { "type": "integer" } } });
        json!({ "name": format!("tool_{n}"), "description": "x".repeat(100), "inputSchema": schema }).to_string()
    };
    upstream.set_tools((0..5000).map(tool)).pages_of(700);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        let names = client.tool_names().await;
        assert_eq!((names.len(), names[4999].as_str()), (5000, "s__tool_4999"), "{era}");
    }
}

#[tokio::test]
async fn of_many_invalid_tools_the_first_are_reported() {
    let upstream = Upstream::modern().await;
    let tool = |n| format!(r#"{{"name":"bad_{n}\u000a","inputSchema":"none"}}"#);
    upstream.set_tools((0..100).map(tool));
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let warnings = gateway.server("s").await["warnings"].clone();
    let warnings = warnings.as_array().unwrap();
    assert_eq!((warnings.len(), &warnings[20]), (21, &json!("and 80 more")), "{warnings:?}");
    assert!(!warnings[0].as_str().unwrap().contains('\n'), "{warnings:?}");
}

#[tokio::test]
async fn pages_of_more_bytes_than_one_answer_may_have_are_given_up_with_a_reason() {
    let upstream = Upstream::modern().await;
    let tool =
        |n| json!({ "name": format!("t{n}"), "description": "x".repeat(4000), "inputSchema": {} });
    upstream.set_tools((0..40).map(|n| tool(n).to_string())).pages_of(1);
    let lines = upstream.http() + "max_response = \"64KiB\"\n";
    let gateway = Gateway::with("s", lines).start().await;
    let error = gateway.server("s").await["last_error"]["message"].to_string();
    assert!(error.contains("65536 bytes"), "{error}");
}

#[tokio::test]
async fn a_list_without_end_is_given_up_with_a_reason() {
    let upstream = Upstream::modern().await;
    upstream.pages_of(1);
    let lines = upstream.http() + "max_pages = 3";
    let gateway = Gateway::with("s", lines).start().await;
    let error = gateway.server("s").await["last_error"]["message"].to_string();
    assert!(error.contains("3 pages"), "{error}");
    assert!(gateway.modern().tools().await.is_empty());
}
