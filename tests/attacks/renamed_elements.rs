//! Servers that take the names of other servers' elements, so that a denied element gets a new
//! name.

use serde_json::{Value, json};

use crate::support::upstream::offers::{prompt, resource, template};
use crate::support::upstream::tool;
use crate::support::{Client, Gateway, Upstream};

/// All naming modes. In `mcp_{server}{tool}`, servers `git` and `gi` share names.
const NAMINGS: [&str; 6] = [
    "naming = \"prefix\"",
    "naming = \"conflict\"",
    "naming = \"first\"",
    "naming = \"none\"",
    "naming = \"prefix\"\nname_format = \"mcp_{server}{tool}\"",
    "naming = \"conflict\"\nname_format = \"{tool}-{server}\"\nname_case = \"snake\"",
];

const ALLOW_ALL: &str = "[policy.rules.all]\n";

fn deny(setting: &str, patterns: &[&str]) -> String {
    format!("{ALLOW_ALL}[policy.rules.never]\neffect = \"deny\"\n{setting} = {patterns:?}\n")
}

/// Returns a tool name that is too long for any public name.
fn long_name() -> String {
    format!("delete_{}", "x".repeat(70))
}

/// Returns the denied native names of `git`, each with the patterns that deny it individually.
fn denied_tools() -> Vec<(String, Vec<String>)> {
    let long = long_name();
    let patterns = |all: &[&str]| all.iter().map(|one| (*one).to_owned()).collect();
    vec![
        ("delete_repo".into(), patterns(&["delete_repo", "git__delete_repo", "git__delete_*"])),
        ("delete.all".into(), patterns(&["delete.all", "git__delete.all", "git__delete_all_*"])),
        (long.clone(), vec![long.clone(), format!("git__{long}"), format!("git__*{}", &long[8..])]),
    ]
}

/// Returns the denied server between two others that take its names.
async fn crowd(denied: &[String]) -> [Upstream; 3] {
    let [git, other] = Upstream::both().await;
    let upstreams = [other, git, Upstream::modern().await];
    for (place, upstream) in upstreams.iter().enumerate() {
        let own = if place == 1 { "read_repo" } else { "other" };
        let mut names: Vec<String> = denied.to_vec();
        names.push(own.to_owned());
        if place == 0 {
            // The name of `git`'s tool in the format `mcp_{server}{tool}`, and the prefixed one.
            names.extend(["tdelete_repo".to_owned(), "git__delete_repo".to_owned()]);
        }
        upstream.set_tools(names.iter().map(|name| tool(name).to_string()));
    }
    upstreams
}

async fn start([first, git, last]: &[Upstream; 3], gateway: &str, toml: &str) -> Gateway {
    let builder = Gateway::with("gi", first.http());
    let builder = builder.server("git", git.http()).server("zz", last.http());
    builder.gateway(gateway).toml(toml).start().await
}

/// Returns the native names of the calls that a server has received after the first `from`.
fn called(upstream: &Upstream, from: usize) -> Vec<String> {
    let calls = upstream.calls().split_off(from);
    calls.iter().map(|call| call.params["name"].as_str().unwrap().to_owned()).collect()
}

/// Calls every name, directly and through `call_tool`.
async fn call_all(gateway: &Gateway, names: &[String]) {
    let profile = gateway.modern().at("/mcp/found");
    for (_, client) in gateway.both().await {
        for name in names {
            client.call(name, json!({})).await;
        }
    }
    for name in names {
        profile.call("call_tool", json!({ "name": name, "arguments": {} })).await;
    }
}

#[tokio::test]
async fn a_denied_tool_is_reached_under_no_name_that_others_leave_it() {
    let denied = denied_tools();
    let natives: Vec<_> = denied.iter().map(|(native, _)| native.clone()).collect();
    let crowd = crowd(&natives).await;
    let git = &crowd[1];
    let found = "[profiles.found]\ndiscovery = \"search\"\n";
    for naming in NAMINGS {
        let open = start(&crowd, naming, found).await;
        let mut names = open.modern().tool_names().await;
        let before = git.calls().len();
        call_all(&open, &names).await;
        let mut reached = called(git, before);
        reached.sort_unstable();
        reached.dedup();
        let is_first = naming.contains("\"none\"");
        assert_eq!(reached.len(), if is_first { 1 } else { 4 }, "{naming} {reached:?}");
        names.extend(natives.iter().flat_map(|one| [one.clone(), format!("git__{one}")]));
        for round in 0..3 {
            let patterns: Vec<_> = denied.iter().map(|(_, all)| &*all[round]).collect();
            let rules = deny("tools", &patterns);
            let gateway = start(&crowd, naming, &format!("{found}{rules}")).await;
            let before = git.calls().len();
            call_all(&gateway, &names).await;
            let mut reached = called(git, before);
            reached.dedup();
            assert_eq!(reached, ["read_repo"], "{naming} {patterns:?}");
            let listed = gateway.modern().tool_names().await;
            let own = names.iter().filter(|name| listed.contains(name));
            assert!(own.count() > 0, "{naming}: not everything is denied");
        }
    }
}

#[tokio::test]
async fn a_tool_that_is_renamed_while_a_client_uses_it_stays_denied() {
    let [git, other] = Upstream::both().await;
    git.set_tools([tool("delete_repo").to_string(), tool("read_repo").to_string()]);
    other.set_tools([tool("other").to_string()]);
    for naming in ["conflict", "first"] {
        let builder = Gateway::with("a", other.http()).server("git", git.http());
        let builder = builder.gateway(&format!("naming = {naming:?}"));
        let gateway = builder.toml(&deny("tools", &["delete_repo"])).start().await;
        let client = gateway.modern();
        assert_eq!(client.tool_names().await, ["other", "read_repo"], "{naming}");
        let taken = ["other", "delete_repo", "read_repo"].map(|name| tool(name).to_string());
        other.set_tools(taken).announce().await;
        let moved = "git__read_repo".to_owned();
        crate::support::within(async { while !client.tool_names().await.contains(&moved) {} })
            .await;
        let before = git.calls().len();
        for name in ["delete_repo", "git__delete_repo", "a__delete_repo", "git__read_repo"] {
            client.call(name, json!({})).await;
        }
        assert_eq!(called(&git, before), ["read_repo"], "{naming}");
        other.set_tools([tool("other").to_string()]).announce().await;
    }
}

#[tokio::test]
async fn a_configured_name_and_all_names_that_it_replaces_are_denied() {
    let [git, other] = Upstream::both().await;
    for upstream in [&git, &other] {
        upstream.set_tools(["delete_repo", "read_repo"].map(|name| tool(name).to_string()));
    }
    for naming in NAMINGS {
        for pattern in ["remove", "delete_repo", "git__delete_repo"] {
            let builder = Gateway::with("git", git.http()).server("b", other.http());
            let named = "[servers.git.tools.delete_repo]\nname = \"remove\"\n";
            let rules = format!("{named}{}", deny("tools", &[pattern]));
            let gateway = builder.gateway(naming).toml(&rules).start().await;
            let client = gateway.modern();
            let before = git.calls().len();
            let mut names = client.tool_names().await;
            assert!(!names.is_empty(), "{naming} {pattern}");
            names.extend(["remove", "delete_repo", "git__delete_repo"].map(String::from));
            for name in names {
                client.call(&name, json!({})).await;
            }
            let mut reached = called(&git, before);
            reached.dedup();
            assert_eq!(reached, ["read_repo"], "{naming} {pattern}");
        }
    }
}

#[tokio::test]
async fn an_allowed_name_admits_its_present_owner_alone() {
    let [git, other] = Upstream::both().await;
    for upstream in [&git, &other] {
        upstream.set_tools([tool("push").to_string()]);
    }
    let builder = Gateway::with("git", git.http()).server("b", other.http());
    let rules = "[policy.rules.only]\ntools = [\"push\"]\n";
    let gateway = builder.gateway("naming = \"conflict\"").toml(rules).start().await;
    assert_eq!(gateway.modern().tool_names().await, Vec::<String>::new(), "its name is git__push");
}

/// Gets a prompt by all its possible names.
async fn get_prompts(client: &Client, names: &[&str]) {
    for name in names {
        client.request("prompts/get", json!({ "name": name })).await;
        let reference = json!({ "type": "ref/prompt", "name": name });
        let argument = json!({ "name": "x", "value": "" });
        let params = json!({ "ref": reference, "argument": argument });
        client.request("completion/complete", params).await;
    }
}

#[tokio::test]
async fn a_denied_prompt_is_reached_under_no_name_that_others_leave_it() {
    let [git, other] = Upstream::both().await;
    for upstream in [&git, &other] {
        upstream.offers_everything();
        upstream.lists("prompts", ["secret", "greet"].map(prompt));
    }
    let heard = |upstream: &Upstream| {
        let all = upstream.received().into_iter();
        all.filter(|it| ["prompts/get", "completion/complete"].contains(&&*it.method)).count()
    };
    let all = ["secret", "git__secret", "secret-git", "mcp_gitsecret", "b__secret"];
    for naming in NAMINGS {
        for pattern in ["secret", "git__secret"] {
            let builder = Gateway::with("b", other.http()).server("git", git.http());
            let rules = deny("prompts", &[pattern]);
            let gateway = builder.gateway(naming).toml(&rules).start().await;
            for (era, client) in gateway.both().await {
                let before = heard(&git);
                get_prompts(&client, &all).await;
                assert_eq!(heard(&git), before, "{naming} {pattern} {era}");
            }
        }
    }
    let builder = Gateway::with("b", other.http()).server("git", git.http());
    let gateway = builder.gateway(NAMINGS[1]).toml(ALLOW_ALL).start().await;
    let before = heard(&git);
    get_prompts(&gateway.modern(), &all).await;
    assert_eq!(heard(&git), before + 2, "without the rule it is reached");
}

#[tokio::test]
async fn a_denied_resource_is_reached_under_no_uri_that_others_leave_it() {
    let [git, other] = Upstream::both().await;
    git.offers_everything();
    let heard = |upstream: &Upstream| {
        let all = upstream.received().into_iter();
        all.filter(|it| it.method.starts_with("resources/") && it.text.contains("secret")).count()
    };
    let uris = ["file:///secret", "mcp://git/file:///secret", "mcp://GIT/file:///secret"];
    // The other server has no resources, takes the URI, or covers it with a template.
    let lists: [&dyn Fn(); 3] = [
        &|| {},
        &|| {
            other.offers_everything();
            other.lists("resources", [resource("file:///secret"), resource("b://3")]);
        },
        &|| {
            other.lists("resources", [resource("b://3")]);
            other.lists("resourceTemplates", [template("file:///{name}")]);
        },
    ];
    git.lists("resources", ["file:///secret", "file:///open"].map(resource));
    for (round, list) in lists.iter().enumerate() {
        list();
        for mode in ["uris = \"prefix\"", "uris = \"original\""] {
            for pattern in uris.iter().take(2) {
                let builder = Gateway::with("b", other.http()).server("git", git.http());
                let rules = deny("resources", &[pattern]);
                let gateway = builder.gateway(mode).toml(&rules).start().await;
                for (era, client) in gateway.both().await {
                    let before = heard(&git);
                    for uri in uris {
                        client.read_resource(uri).await;
                        client.subscribes(uri).await;
                    }
                    assert_eq!(heard(&git), before, "{round} {mode} {pattern} {era}");
                    let open = client.read_resource("mcp://git/file:///open").await;
                    assert!(open.answer().get("result").is_some(), "{round} {mode} {era}");
                }
            }
        }
    }
}

#[tokio::test]
async fn a_denied_template_is_completed_under_no_name() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything();
    for mode in ["uris = \"prefix\"", "uris = \"original\""] {
        for pattern in ["db://{table}/{id}", "mcp://git/db://{table}/{id}"] {
            let rules = deny("resources", &[pattern]);
            let gateway = Gateway::with("git", upstream.http()).gateway(mode).toml(&rules);
            let gateway = gateway.start().await;
            let said = gateway.modern().request("resources/templates/list", json!({})).await;
            assert_eq!(said.result()["resourceTemplates"], json!([]), "{mode} {pattern}");
            for uri in ["db://{table}/{id}", "mcp://git/db://{table}/{id}"] {
                let reference = json!({ "type": "ref/resource", "uri": uri });
                let argument = json!({ "name": "table", "value": "" });
                let params: Value = json!({ "ref": reference, "argument": argument });
                gateway.modern().request("completion/complete", params).await;
            }
            assert_eq!(upstream.all("completion/complete").len(), 0, "{mode} {pattern}");
        }
    }
}
