//! Rules: denied elements are in no list, and are answered as if they did not exist.

mod attacks;
#[cfg(feature = "code-mode")]
mod hidden_names;
mod reloads;
mod requests;

use std::path::Path;

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::gateway::Builder;
use crate::support::{Gateway, Said, Upstream, client_table, json_lines, until};

/// Two servers that offer all features, `a` and `b`, of different eras.
pub struct Two {
    pub a: Upstream,
    pub b: Upstream,
}

impl Two {
    pub async fn new() -> Self {
        let [a, b] = Upstream::both().await;
        a.offers_everything();
        b.offers_everything();
        Self { a, b }
    }

    pub fn with(&self, rules: &str) -> Builder {
        Gateway::with("a", self.a.http())
            .server("b", self.b.http())
            .toml(&client_table("ann", "key-of-ann", "groups = [\"readers\"]"))
            .toml(&client_table("root", "key-of-root", "groups = [\"admins\"]"))
            .toml("[audit]\nfile = \"audit.jsonl\"\n")
            .toml(rules)
    }
}

const RULES: &str = r#"
[policy.rules.admins]
groups = ["admins"]

[policy.rules.readers]
groups = ["readers"]
tools = ["a__echo", "a__link", "a__fail"]
prompts = ["b__greet"]
resources = ["mcp://a/file:///*", "mcp://a/db://{table}/{id}", "mcp://a/db://users/*"]

[policy.rules.not_even_so]
effect = "deny"
principals = ["ann"]
tools = ["*__fail"]
"#;

pub async fn names(client: &Client, method: &str, member: &str, key: &str) -> Vec<String> {
    let said = client.request(method, json!({})).await;
    let all = said.result()[member].as_array().unwrap_or_else(|| panic!("{said:?}"));
    all.iter().map(|one| one[key].as_str().unwrap().to_owned()).collect()
}

/// Returns the status and body of an answer, without the requested name.
pub fn told(said: &Said, name: &str) -> (u16, String) {
    (said.status, said.body.replace(name, "NAME"))
}

/// Returns an answer without its id, which differs.
pub fn bare(said: &Said, name: &str) -> (u16, String) {
    (said.status, said.error().to_string().replace(name, "NAME"))
}

/// Returns the number of client requests that have reached the servers.
fn asked_of(two: &Two) -> usize {
    let methods =
        ["tools/call", "prompts/get", "resources/read", "completion/complete", "tools/other"];
    let of =
        |server: &Upstream| methods.map(|method| server.all(method).len()).iter().sum::<usize>();
    of(&two.a) + of(&two.b)
}

/// Waits for this many records of a gateway's audit log, and returns all of them.
pub async fn audited(folder: &Path, least: usize) -> Vec<Value> {
    let path = folder.join("audit.jsonl");
    until(|| json_lines(&path).len() >= least).await;
    json_lines(&path)
}

#[tokio::test]
async fn a_client_sees_allowed_elements_and_others_do_not_exist_for_it() {
    let two = Two::new().await;
    let gateway = two.with(RULES).start().await;
    for (era, client) in gateway.both_as("key-of-ann", "/mcp").await {
        assert_eq!(client.tool_names().await, ["a__echo", "a__link"], "{era}");
        assert_eq!(names(&client, "prompts/list", "prompts", "name").await, ["b__greet"], "{era}");
        let resources = names(&client, "resources/list", "resources", "uri").await;
        assert_eq!(resources, ["mcp://a/file:///a.txt"], "{era}");
        let method = "resources/templates/list";
        let templates = names(&client, method, "resourceTemplates", "uriTemplate").await;
        assert_eq!(templates, ["mcp://a/db://{table}/{id}"], "{era}");

        assert_eq!(client.call("a__echo", json!({})).await.text(), "{}", "{era}");
        let read = async |uri: &str| client.request("resources/read", json!({ "uri": uri })).await;
        for uri in ["mcp://a/file:///a.txt", "mcp://a/db://users/7"] {
            assert_eq!(read(uri).await.result()["contents"][0]["uri"], uri, "{era}");
        }
        let heard = asked_of(&two);
        let never = bare(&client.call("a__never", json!({})).await, "a__never");
        for tool in ["a__fail", "a__count", "b__echo"] {
            assert_eq!(bare(&client.call(tool, json!({})).await, tool), never, "{era} {tool}");
        }
        let get = async |name: &str| client.request("prompts/get", json!({ "name": name })).await;
        let never = bare(&get("a__never").await, "a__never");
        assert_eq!(bare(&get("a__greet").await, "a__greet"), never, "{era}");
        let never = bare(&read("mcp://c/x").await, "mcp://c/x");
        for uri in [
            "mcp://a/b://2",
            "mcp://a/db://secrets/7",
            "mcp://a/file:///../b",
            "mcp://A/b://2",
            "mcp://b/file:///a.txt",
        ] {
            assert_eq!(bare(&read(uri).await, uri), never, "{era} {uri}");
        }
        let complete = async |reference: Value| {
            let argument = json!({ "name": "x", "value": "" });
            let params = json!({ "ref": reference, "argument": argument });
            client.request("completion/complete", params).await
        };
        let prompt = |name: &str| json!({ "type": "ref/prompt", "name": name });
        let template = |uri: &str| json!({ "type": "ref/resource", "uri": uri });
        let never = bare(&complete(prompt("a__never")).await, "a__never");
        assert_eq!(bare(&complete(prompt("a__greet")).await, "a__greet"), never, "{era}");
        let never = bare(&complete(template("mcp://c/x")).await, "mcp://c/x");
        let hidden = "mcp://b/db://{table}/{id}";
        assert_eq!(bare(&complete(template(hidden)).await, hidden), never, "{era}");
        assert_eq!(client.request("tools/other", json!({})).await.code(), -32601, "{era}");
        assert!(!client.subscribes("mcp://b/file:///a.txt").await, "{era}");
        assert_eq!(asked_of(&two), heard, "{era}: none heard");
        complete(prompt("b__greet")).await.result();
        complete(template("mcp://a/db://{table}/{id}")).await.result();
        assert!(client.subscribes("mcp://a/file:///a.txt").await, "{era}");
    }
    for (era, root) in gateway.both_as("key-of-root", "/mcp").await {
        assert!(root.tool_names().await.contains(&"b__fail".to_owned()), "{era}");
        assert!(!root.call("b__echo", json!({})).await.is_error(), "{era}");
    }
}

#[tokio::test]
async fn the_audit_log_names_the_rule_that_decided() {
    let two = Two::new().await;
    let gateway = two.with(RULES).start().await;
    let [(_, ann), _] = gateway.both_as("key-of-ann", "/mcp").await;
    for tool in ["a__echo", "a__fail", "b__echo", "a__never"] {
        ann.call(tool, json!({})).await;
    }
    ann.request("resources/read", json!({ "uri": "mcp://a/b://2" })).await;
    ann.request("prompts/get", json!({ "name": "b__greet" })).await;
    ann.tool_names().await;
    let records = audited(gateway.folder(), 7).await;
    let told: Vec<_> = records
        .iter()
        .map(|one| {
            let text = |key: &str| one[key].as_str().unwrap_or("-").to_owned();
            (text("decision"), text("check"), text("rule"), text("reason"))
        })
        .collect();
    let expected = [
        ("allow", "rule", "readers", "-"),
        ("deny", "rule", "not_even_so", "unknown_tool"),
        ("deny", "rule", "-", "unknown_tool"),
        ("deny", "catalog", "-", "unknown_tool"),
        ("deny", "rule", "-", "unknown_resource"),
        ("allow", "rule", "readers", "-"),
        ("allow", "rule", "-", "-"),
    ];
    let expected = expected.map(|(a, b, c, d)| (a.into(), b.into(), c.into(), d.into()));
    assert_eq!(told, expected);
}

#[tokio::test]
async fn lists_that_depend_on_the_client_are_cached_for_it_alone() {
    let upstream = Upstream::modern().await;
    let scope = async |rules: &str| {
        let gateway = Gateway::with("s", upstream.http()).toml(rules).start().await;
        let said = gateway.modern().request("tools/list", json!({})).await;
        said.result()["cacheScope"].as_str().unwrap().to_owned()
    };
    assert_eq!(scope("").await, "public");
    assert_eq!(scope("[policy.rules.all]\nprincipals = [\"anonymous\"]").await, "private");
}

#[tokio::test]
async fn rules_are_about_tools_of_the_gateway_itself_and_about_the_calls_that_these_make() {
    let two = Two::new().await;
    let own = r#"
        [tools.fixed]
        text = "fixed"
        [tools.hidden]
        text = "hidden"
        [tools.batch]
        [tools.batch.calls.echo]
        tool = "a__echo"
        [tools.smuggles]
        [tools.smuggles.calls.fail]
        tool = "b__echo"
        [policy.rules.readers]
        groups = ["readers"]
        tools = ["a__echo", "fixed", "batch", "smuggles"]
        [policy.rules.not_seven]
        effect = "deny"
        when = "has(arguments.n) && arguments.n == 7"
    "#;
    let gateway = two.with(own).start().await;
    for (era, ann) in gateway.both_as("key-of-ann", "/mcp").await {
        assert_eq!(ann.tool_names().await, ["fixed", "batch", "smuggles", "a__echo"], "{era}");
        assert_eq!(ann.call("fixed", json!({ "n": 6 })).await.text(), "fixed", "{era}");
        let denied = ann.call("fixed", json!({ "n": 7 })).await;
        assert!(denied.is_error() && denied.text().contains("not allowed"), "{era} {denied:?}");
        let never = bare(&ann.call("never", json!({})).await, "never");
        assert_eq!(bare(&ann.call("hidden", json!({})).await, "hidden"), never, "{era}");
        assert!(!ann.call("batch", json!({})).await.is_error(), "{era}");
        let heard = two.b.received().len();
        let said = ann.call("smuggles", json!({})).await;
        assert!(said.is_error() && said.text().contains("unknown tool"), "{era} {said:?}");
        assert_eq!(two.b.received().len(), heard, "{era}");
    }
}
