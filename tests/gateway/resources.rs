//! Resources of many servers under URIs that lead back to them, anywhere in a message.

use serde_json::{Value, json};

use crate::support::upstream::offers::{everything, resource, template};
use crate::support::{Client, Gateway, Step, Upstream, every_kind};

async fn listed(client: &Client, member: &str, key: &str) -> Vec<String> {
    let method = match member {
        "resources" => "resources/list",
        _ => "resources/templates/list",
    };
    let said = client.request(method, json!({})).await;
    let all = said.result()[member].as_array().unwrap_or_else(|| panic!("{said:?}"));
    all.iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

async fn resources(client: &Client) -> Vec<String> {
    listed(client, "resources", "uri").await
}

async fn templates(client: &Client) -> Vec<String> {
    listed(client, "resourceTemplates", "uriTemplate").await
}

#[tokio::test]
async fn resources_of_every_kind_of_server_are_listed_and_read() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.offers_everything();
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        let natives = ["file:///a.txt", "b://2"];
        let expected =
            kinds.iter().flat_map(|kind| natives.map(|uri| format!("mcp://{}/{uri}", kind.name)));
        let expected: Vec<_> = expected.collect();
        assert_eq!(resources(&client).await, expected, "{era}");
        let expected: Vec<_> =
            kinds.iter().map(|kind| format!("mcp://{}/db://{{table}}/{{id}}", kind.name)).collect();
        assert_eq!(templates(&client).await, expected, "{era}");
        for kind in &kinds {
            for native in ["file:///a.txt", "db://users/é?x=1#y", "not listed"] {
                let uri = format!("mcp://{}/{native}", kind.name);
                let mut ask = client.ask("resources/read", json!({ "uri": uri }));
                if era == "Modern" && !uri.is_ascii() {
                    ask = ask.header("mcp-name", &encoded(&uri));
                }
                let said = ask.send().await.said().await;
                let contents = &said.result()["contents"][0];
                assert_eq!(contents["uri"], uri, "{era} {}", kind.name);
                assert_eq!(contents["text"], format!("what {native} is"), "{era} {}", kind.name);
                if era == "Modern" {
                    assert_eq!(said.result()["ttlMs"], 0, "{}", kind.name);
                    assert_eq!(said.result()["cacheScope"], "private", "{}", kind.name);
                    assert_eq!(said.result()["resultType"], "complete", "{}", kind.name);
                }
            }
            let read = kind.upstream.all("resources/read").pop().unwrap();
            if kind.name == "modern-http" {
                assert_eq!(read.header("mcp-name"), Some("not listed"), "the server's own");
            }
        }
    }
}

fn encoded(text: &str) -> String {
    use base64::Engine as _;
    format!("=?base64?{}?=", base64::engine::general_purpose::STANDARD.encode(text))
}

#[tokio::test]
async fn a_missing_resource_is_reported_in_the_form_of_the_clients_era() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.offers_everything();
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        let code = if era == "Modern" { -32602 } else { -32002 };
        let mut uris =
            vec!["file:///a.txt".to_owned(), "mcp://nobody/x".to_owned(), "ui://x".to_owned()];
        uris.extend(kinds.iter().map(|kind| format!("mcp://{}/file:///missing", kind.name)));
        for uri in uris {
            let said = client.request("resources/read", json!({ "uri": uri })).await;
            assert_eq!((said.status, said.code()), (200, code), "{era} {uri}");
            assert_eq!(said.error()["data"]["uri"], uri, "{era}");
        }
        let said = client.request("resources/read", json!({})).await;
        assert_eq!(said.code(), -32602, "{era}");
    }
}

#[tokio::test]
async fn uris_in_the_results_of_tools_are_those_that_can_be_read() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.offers_everything();
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        for kind in &kinds {
            let said = client.call(&format!("{}__link", kind.name), json!({})).await;
            let content = &said.result()["content"];
            assert_eq!(content[0]["uri"], format!("mcp://{}/file:///a.txt", kind.name), "{era}");
            assert_eq!(content[1]["resource"]["uri"], format!("mcp://{}/db://users/7", kind.name));
            assert_eq!(content[2]["text"], "file:///a.txt", "words are words");
            assert_eq!(said.result()["structuredContent"]["uri"], "file:///a.txt");
            for uri in [&content[0]["uri"], &content[1]["resource"]["uri"]] {
                let read = client.request("resources/read", json!({ "uri": uri })).await;
                assert_eq!(&read.result()["contents"][0]["uri"], uri, "{era}");
            }
        }
    }
}

#[tokio::test]
async fn a_large_result_with_uris_is_rewritten_all_the_same() {
    for upstream in Upstream::both().await {
        let text = "x".repeat(700_000);
        upstream.offers_everything().does("large", move |_| {
            let content = json!([
                { "type": "text", "text": text },
                { "type": "resource_link", "uri": "b://2", "name": "b" },
            ]);
            vec![Step::Result(json!({ "content": content }))]
        });
        let gateway = Gateway::with("s", upstream.http()).start().await;
        for (era, client) in gateway.both().await {
            let said = client.call("s__large", json!({})).await;
            assert_eq!(said.result()["content"][1]["uri"], "mcp://s/b://2", "{era}");
            assert_eq!(said.text().len(), 700_000, "{era}");
        }
    }
}

#[tokio::test]
async fn one_server_with_its_own_names_and_uris_is_passed_through_byte_for_byte() {
    let kinds = every_kind().await;
    let odd = r#"{"contents":[{"uri":"b:\/\/2", "text":"\u00e9"}],"later":[1 , 2]}"#;
    for kind in kinds {
        kind.upstream.offers_everything();
        kind.upstream.when_asked("resources/read", move |_| vec![Step::Raw(odd.into())]);
        let gateway = Gateway::with("s", &kind.lines)
            .gateway("naming = \"none\"\nuris = \"original\"")
            .start()
            .await;
        for (era, client) in gateway.both().await {
            assert_eq!(resources(&client).await, ["file:///a.txt", "b://2"], "{era} {}", kind.name);
            assert_eq!(templates(&client).await, ["db://{table}/{id}"], "{era} {}", kind.name);
            let said = client.request("resources/read", json!({ "uri": "b://2" })).await;
            assert!(
                said.body.contains(&odd[1..odd.len() - 1]),
                "{era} {}: {}",
                kind.name,
                said.body
            );
            let said = client.call("link", json!({})).await;
            assert_eq!(said.result()["content"][0]["uri"], "file:///a.txt", "{era} {}", kind.name);
            let get = json!({ "name": "greet" });
            let said = client.request("prompts/get", get).await;
            assert_eq!(said.result()["messages"][1]["content"]["resource"]["uri"], "b://2");
        }
    }
}

#[tokio::test]
async fn original_uris_stay_unless_another_server_could_be_meant() {
    let [one, two] = Upstream::both().await;
    one.offers_everything().lists("resources", ["x://1", "x://same"].map(resource));
    two.offers_everything().lists("resources", ["y://1", "x://same", "db://users/1"].map(resource));
    two.lists("resourceTemplates", [template("log://{day}")]);
    let gateway = Gateway::with("one", one.http())
        .server("two", two.stdio())
        .gateway("uris = \"original\"")
        .start()
        .await;
    for (era, client) in gateway.both().await {
        let public = [
            "x://1",
            "mcp://one/x://same",
            "y://1",
            "mcp://two/x://same",
            "mcp://two/db://users/1",
        ];
        assert_eq!(resources(&client).await, public, "{era}");
        assert_eq!(templates(&client).await, ["db://{table}/{id}", "log://{day}"], "{era}");
        for (uri, server) in [
            ("x://1", "one"),
            ("db://orders/1", "one"),
            ("log://today", "two"),
            ("mcp://two/db://users/1", "two"),
            ("mcp://one/z://unlisted", "one"),
        ] {
            let upstream = if server == "one" { &one } else { &two };
            let before = upstream.all("resources/read").len();
            let said = client.request("resources/read", json!({ "uri": uri })).await;
            assert_eq!(said.result()["contents"][0]["uri"], uri, "{era}");
            assert_eq!(upstream.all("resources/read").len(), before + 1, "{era} {uri}");
        }
        for uri in ["x://same", "z://unlisted"] {
            let said = client.request("resources/read", json!({ "uri": uri })).await;
            assert_eq!(said.error()["data"]["uri"], uri, "{era}");
        }
        let said = client.call("two__link", json!({})).await;
        let content = &said.result()["content"];
        assert_eq!(content[0]["uri"], "mcp://two/file:///a.txt", "{era} not listed by anybody");
        assert_eq!(content[1]["resource"]["uri"], "mcp://two/db://users/7", "{era} one's template");
    }
}

#[tokio::test]
async fn bound_variables_turn_templates_into_resources_that_cannot_be_left() {
    for upstream in Upstream::both().await {
        upstream.offers_everything().lists("resources", []);
        upstream
            .lists("resourceTemplates", [template("db://{table}/{id}"), template("t://{table}")]);
        let lines = upstream.stdio() + "resource_vars = { table = \"my users\" }\n";
        let gateway = Gateway::with("s", &lines).start().await;
        for (era, client) in gateway.both().await {
            assert_eq!(resources(&client).await, ["mcp://s/t://my%20users"], "{era}");
            let template = "mcp://s/db://my%20users/{id}";
            assert_eq!(templates(&client).await, [template], "{era}");
            for (uri, found) in [
                ("mcp://s/t://my%20users", true),
                ("mcp://s/db://my%20users/7", true),
                ("mcp://s/db://orders/7", false),
                ("mcp://s/t://orders", false),
            ] {
                let said = client.request("resources/read", json!({ "uri": uri })).await;
                assert_eq!(said.answer().get("result").is_some(), found, "{era} {said:?}");
            }
            let argument = json!({ "name": "id", "value": "" });
            let mut params =
                json!({ "ref": { "type": "ref/resource", "uri": template }, "argument": argument });
            for (context, table) in [
                (Value::Null, json!({ "arguments": { "table": "my users" } })),
                (
                    json!({ "arguments": { "x": "1" } }),
                    json!({ "arguments": { "x": "1", "table": "my users" } }),
                ),
            ] {
                if !context.is_null() {
                    params["context"] = context;
                }
                let said = client.request("completion/complete", params.clone()).await;
                let values = &said.result()["completion"]["values"];
                let reference = json!({ "type": "ref/resource", "uri": "db://{table}/{id}" });
                assert_eq!(values[0], format!("{reference} {table}"), "{era}");
            }
        }
        // Another value needs no new process.
        let starts = upstream.starts();
        assert!(starts > 0, "a child process");
        let lines = upstream.stdio() + "resource_vars = { table = \"x\", nobody = \"y\" }\n";
        gateway.reload(Gateway::with("s", &lines)).await;
        assert_eq!(resources(&gateway.modern()).await, ["mcp://s/t://x"]);
        assert_eq!(upstream.starts(), starts);
    }
}

#[tokio::test]
async fn interfaces_of_tools_are_found_and_read_end_to_end() {
    let [one, two] = Upstream::both().await;
    let ui = "io.modelcontextprotocol/ui";
    for upstream in [&one, &two] {
        let mut capabilities = everything();
        capabilities["extensions"] = json!({ ui: { "mimeTypes": ["text/html;profile=mcp-app"] } });
        upstream.offers_everything().can(capabilities);
        upstream.lists("resources", [resource("ui://app/main")]);
        let tool = json!({
            "name": "show", "inputSchema": { "type": "object" },
            "_meta": { "ui": { "resourceUri": "ui://app/main" }, "ui/resourceUri": "ui://app/main" },
        });
        upstream.tool(&tool, |_| {
            vec![Step::Result(
                json!({ "content": [], "_meta": { "ui": { "resourceUri": "ui://app/main" } } }),
            )]
        });
    }
    for mode in ["prefix", "original"] {
        let gateway = Gateway::with("one", one.http())
            .server("two", two.stdio())
            .gateway(&format!("uris = \"{mode}\""))
            .start()
            .await;
        for (era, client) in gateway.both().await {
            let public = ["ui://app/main", "ui://mcp.two/ui://app/main"];
            assert_eq!(resources(&client).await, public, "{mode} {era}");
            let tools = client.tools().await;
            for (server, uri) in [("one", public[0]), ("two", public[1])] {
                let name = format!("{server}__show");
                let tool = tools.iter().find(|tool| tool["name"] == name).unwrap();
                assert_eq!(tool["_meta"]["ui"]["resourceUri"], uri, "{mode} {era}");
                assert_eq!(tool["_meta"]["ui/resourceUri"], uri, "{mode} {era}");
                let said = client.call(&name, json!({})).await;
                assert_eq!(said.result()["_meta"]["ui"]["resourceUri"], uri, "{mode} {era}");
                let said = client.request("resources/read", json!({ "uri": uri })).await;
                assert_eq!(said.result()["contents"][0]["uri"], uri, "{mode} {era}");
            }
        }
        let discovered = gateway.modern().request("server/discover", json!({})).await;
        let said = discovered.result()["capabilities"]["extensions"][ui].clone();
        assert_eq!(said["mimeTypes"][0], "text/html;profile=mcp-app");
        let opened = gateway.plain().initialize("2025-11-25").await.said().await;
        assert_eq!(opened.result()["capabilities"]["extensions"][ui], said);
    }
}

#[tokio::test]
async fn an_app_calls_its_servers_tools_by_their_own_names() {
    let [one, two] = Upstream::both().await;
    one.offers_app("refresh");
    two.offers_app("save");
    let plain = Upstream::modern().await;
    plain.does("plain", |_| vec![Step::text("plain")]);
    let gateway = Gateway::with("one", one.http())
        .server("two", two.http())
        .server("plain", plain.http())
        .toml("[profiles.less]\ntools = [\"one__show\", \"two__*\"]")
        .start()
        .await;
    for (era, client) in gateway.both().await {
        for tool in ["refresh", "save"] {
            let said = client.call(tool, json!({})).await;
            assert_eq!(said.text(), format!("{tool} of the app"), "{era}");
        }
        assert_eq!(client.call("show", json!({})).await.code(), -32602, "{era}: two have it");
        assert_eq!(client.call("plain", json!({})).await.code(), -32602, "{era}: it has no app");
    }
    for (era, client) in gateway.both_at("/mcp/less").await {
        assert_eq!(client.call("save", json!({})).await.text(), "save of the app", "{era}");
        assert_eq!(client.call("refresh", json!({})).await.code(), -32602, "{era}: it is hidden");
    }
}

#[tokio::test]
async fn an_interface_is_visible_wherever_its_tool_is() {
    let [one, two] = Upstream::both().await;
    one.offers_app("refresh");
    two.offers_app("save");
    // An interface need not be listed.
    one.lists("resources", [resource("file:///secret")]);
    let gateway = Gateway::with("one", one.http())
        .server("two", two.http())
        .toml("[profiles.less]\ntools = [\"two__show\"]")
        .toml("[profiles.unlisted]\ntools = [\"one__show\"]")
        .toml("[profiles.none]\ntools = [\"one__refresh\"]")
        .start()
        .await;
    let interface = "ui://mcp.two/ui://app/main";
    for (era, client) in gateway.both_at("/mcp/less").await {
        // Within the profile's servers the interface may have another URI.
        let listed = resources(&client).await;
        assert_eq!(listed, [interface], "{era}");
        let tool = client.tools().await.remove(0);
        assert_eq!(tool["_meta"]["ui"]["resourceUri"], interface, "{era}");
        let read = client.read_resource(interface).await;
        assert_eq!(read.result()["contents"][0]["uri"], interface, "{era}");
        for hidden in ["ui://app/main", "mcp://two/file:///secret", "mcp://one/file:///secret"] {
            assert!(client.read_resource(hidden).await.error().is_object(), "{era} {hidden}");
        }
    }
    for (era, client) in gateway.both_at("/mcp/unlisted").await {
        let read = client.read_resource("ui://app/main").await;
        assert_eq!(read.result()["contents"][0]["uri"], "ui://app/main", "{era}");
    }
    for (era, client) in gateway.both_at("/mcp/none").await {
        assert_eq!(resources(&client).await, Vec::<String>::new(), "{era}");
        assert!(client.read_resource("ui://app/main").await.error().is_object(), "{era}");
    }
    let told = |profile: &str| {
        let client = gateway.modern().at(profile);
        async move { client.request("server/discover", json!({})).await.result().clone() }
    };
    assert!(told("/mcp/less").await["capabilities"]["resources"].is_object());
    assert_eq!(told("/mcp/none").await["capabilities"].get("resources"), None);
}

#[tokio::test]
async fn a_lazy_server_is_started_by_a_read() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything();
    let lines = upstream.stdio() + "start = \"lazy\"\n";
    let gateway = Gateway::with("s", &lines).start().await;
    let said = gateway.modern().request("resources/read", json!({ "uri": "mcp://s/b://2" })).await;
    assert_eq!(said.result()["contents"][0]["text"], "what b://2 is");
    assert_eq!(upstream.starts(), 1);
}

#[tokio::test]
async fn an_unknown_method_goes_to_the_only_possible_server() {
    for upstream in Upstream::both().await {
        upstream.can(json!({ "tools": {}, "extensions": { "com.example/maps": {} } }));
        upstream.when_asked("maps/find", |asked| {
            vec![Step::Result(json!({ "found": asked.params["what"] }))]
        });
        let other = Upstream::legacy().await;
        let alone = Gateway::with("s", upstream.http()).start().await;
        let two = Gateway::with("o", other.http()).server("s", upstream.stdio()).start().await;
        for gateway in [&alone, &two] {
            for (era, client) in gateway.both().await {
                let said = client.request("maps/find", json!({ "what": { "z": 1 } })).await;
                assert_eq!(said.result()["found"], json!({ "z": 1 }), "{era}");
            }
        }
        for (era, client) in two.both().await {
            let said = client.request("weather/now", json!({})).await;
            assert_eq!(said.code(), -32601, "{era}");
        }
        // The only server itself answers that the method is unknown.
        let said = alone.modern().request("weather/now", json!({})).await;
        assert_eq!((said.status, said.code()), (404, -32601));
    }
}
