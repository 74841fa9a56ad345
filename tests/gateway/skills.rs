//! Skills of many servers (extension `io.modelcontextprotocol/skills`), under URIs that lead back to
//! them.

use serde_json::{Value, json};

use crate::support::upstream::skills::{TEXT, shown, skill};
use crate::support::{Client, Gateway, Upstream, every_kind};

const EXTENSION: &str = "/capabilities/extensions/io.modelcontextprotocol~1skills";

async fn skills(client: &Client) -> Vec<Value> {
    let said = client.request("skills/list", json!({})).await;
    said.result()["skills"].as_array().unwrap_or_else(|| panic!("{said:?}")).clone()
}

async fn uris(client: &Client) -> Vec<String> {
    skills(client).await.iter().map(|one| one["uri"].as_str().unwrap().to_owned()).collect()
}

async fn introduction(client: &Client) -> Value {
    let said = match client.is_modern() {
        true => client.request("server/discover", json!({})).await,
        false => client.initialize("2025-11-25").await.said().await,
    };
    said.result().clone()
}

#[tokio::test]
async fn skills_of_every_kind_of_server_are_listed_got_and_read() {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.offers_skills(&["skill://acme/refunds"]);
    }
    let gateway = Gateway::alone().kinds(&kinds).start().await;
    for (era, client) in gateway.both().await {
        let told = introduction(&client).await;
        assert_eq!(told.pointer(EXTENSION), Some(&json!({ "directoryRead": true })), "{era}");
        let prefix = |name: &str| format!("mcp://{name}/");
        let all = kinds.iter().map(|kind| shown("skill://acme/refunds", &prefix(kind.name)));
        assert_eq!(skills(&client).await, all.collect::<Vec<_>>(), "{era}");
        for kind in &kinds {
            let case = format!("{era} {}", kind.name);
            let entry = shown("skill://acme/refunds", &prefix(kind.name));
            let uri = json!({ "uri": entry["uri"] });
            let got = client.request("skills/get", uri.clone()).await.result().clone();
            assert_eq!(got["skill"], entry, "{case}");
            let asked = kind.upstream.all("skills/get").pop().unwrap();
            assert_eq!(asked.params["uri"], "skill://acme/refunds/SKILL.md", "{case}");
            if client.is_modern() {
                let fresh = if kind.name.starts_with("modern") { 9 } else { 0 };
                assert_eq!(
                    (&got["ttlMs"], &got["resultType"]),
                    (&json!(fresh), &json!("complete"))
                );
            }
            for file in entry["resources"].as_array().unwrap() {
                let read = client.request("resources/read", json!({ "uri": file["uri"] }));
                let read = read.await.result()["contents"][0].clone();
                assert_eq!((&read["uri"], &read["text"]), (&file["uri"], &json!(TEXT)), "{case}");
            }
            let directory = format!("mcp://{}/skill://acme/refunds", kind.name);
            let read = client.request("resources/directory/read", json!({ "uri": directory }));
            let children = read.await.result()["resources"].clone();
            assert_eq!(children[0]["uri"], entry["uri"], "{case}");
            assert_eq!(children[1]["uri"], format!("{directory}/parts"), "{case}");
        }
    }
}

#[tokio::test]
async fn skills_are_listed_in_pages() {
    let upstream = Upstream::modern().await;
    upstream.offers_skills(&["skill://a", "skill://b", "skill://c"]).pages_of(2);
    let gateway = Gateway::with("s", upstream.http()).gateway("page_size = 1").start().await;
    let client = gateway.modern();
    let mut found = Vec::new();
    let mut cursor = json!({});
    for _ in 0..3 {
        let said = client.request("skills/list", cursor).await.result().clone();
        found.extend(said["skills"].as_array().unwrap().iter().map(|one| one["uri"].clone()));
        cursor = json!({ "cursor": said["nextCursor"] });
    }
    assert_eq!(cursor, json!({ "cursor": null }));
    assert_eq!(found, ["a", "b", "c"].map(|name| format!("mcp://s/skill://{name}/SKILL.md")));
}

#[tokio::test]
async fn a_profile_that_hides_a_skills_files_hides_the_skill() {
    let upstream = Upstream::legacy().await;
    upstream.offers_skills(&["skill://open", "skill://secret"]);
    let gateway = Gateway::with("s", upstream.http())
        .toml("[profiles.some]\nresources = [\"mcp://s/skill://open\", \"mcp://s/skill://open/SKILL.md\"]")
        .toml("[profiles.tools]\ntools = [\"*\"]")
        .start()
        .await;
    for (era, client) in gateway.both_at("/mcp/some").await {
        assert_eq!(uris(&client).await, ["mcp://s/skill://open/SKILL.md"], "{era}");
        let get = |uri| client.request("skills/get", json!({ "uri": uri }));
        assert!(get("mcp://s/skill://open/SKILL.md").await.result()["skill"].is_object(), "{era}");
        let asked = upstream.all("skills/get").len();
        let hidden = get("mcp://s/skill://secret/SKILL.md").await.error().clone();
        let unknown = get("mcp://s/skill://nowhere/SKILL.md").await.error().clone();
        assert_eq!(hidden["code"], -32602, "{era}");
        assert_eq!(
            hidden.to_string().replace("secret", "nowhere"),
            unknown.to_string(),
            "{era}: it answers as one that does not exist"
        );
        assert_eq!(upstream.all("skills/get").len(), asked, "{era}");
        let read = |uri| client.request("resources/directory/read", json!({ "uri": uri }));
        let children = read("mcp://s/skill://open").await.result()["resources"].clone();
        assert_eq!(children.as_array().unwrap().len(), 1, "{era}: its other child is hidden");
        assert_eq!(read("mcp://s/skill://secret").await.code(), -32602, "{era}");
    }
    for (era, client) in gateway.both_at("/mcp/tools").await {
        assert_eq!(introduction(&client).await.pointer(EXTENSION), None, "{era}");
        assert_eq!(skills(&client).await, Vec::<Value>::new(), "{era}");
    }
}

#[tokio::test]
async fn the_same_uri_on_two_servers_stays_two_skills() {
    let [one, two] = [Upstream::modern().await, Upstream::legacy().await];
    one.offers_skills(&["skill://refunds", "skill://mine"]);
    two.offers_skills(&["skill://refunds"]);
    for (mode, own, shared) in
        [("prefix", "mcp://one/skill://mine", "mcp://"), ("original", "skill://mine", "mcp://")]
    {
        let gateway = Gateway::with("one", one.http())
            .server("two", two.http())
            .gateway(&format!("uris = \"{mode}\""))
            .start()
            .await;
        let client = gateway.modern();
        let expected = [
            format!("{shared}one/skill://refunds/SKILL.md"),
            format!("{own}/SKILL.md"),
            format!("{shared}two/skill://refunds/SKILL.md"),
        ];
        assert_eq!(uris(&client).await, expected, "{mode}");
        for uri in &expected {
            let got = client.request("skills/get", json!({ "uri": uri })).await;
            assert_eq!(got.result()["skill"]["uri"], *uri, "{mode}");
            for file in got.result()["skill"]["resources"].as_array().unwrap() {
                let file = file["uri"].as_str().unwrap();
                let directory = uri.strip_suffix("/SKILL.md").unwrap();
                assert!(file.starts_with(directory), "{mode}: references lead from file to file");
                assert!(client.read_resource(file).await.result()["contents"].is_array());
            }
        }
        let read = client.request("resources/directory/read", json!({ "uri": own })).await;
        assert_eq!(read.result()["resources"][1]["uri"], format!("{own}/parts"), "{mode}");
    }
}

#[tokio::test]
async fn an_invalid_skill_is_left_out_alone() {
    let upstream = Upstream::modern().await;
    upstream.offers_skills(&[]);
    let broken = |change: fn(&mut Value)| {
        let mut entry = skill("skill://broken");
        change(&mut entry);
        entry
    };
    let mut dynamic = skill("skill://dynamic");
    dynamic["resources"] = json!("dynamic");
    upstream.lists(
        "skills",
        [
            skill("skill://a"),
            broken(|entry| entry["resources"] = json!(null)),
            broken(|entry| entry["resources"] = json!("static")),
            broken(|entry| entry["resources"][1]["digest"] = json!(null)),
            broken(|entry| entry["resources"][1]["size"] = json!(-1)),
            broken(|entry| entry["resources"][1]["uri"] = json!("skill://broken/a\tb")),
            broken(|entry| entry["frontmatter"]["description"] = json!(null)),
            broken(|entry| entry["frontmatter"] = json!("name: broken")),
            broken(|entry| entry["uri"] = json!("skill://broken\\SKILL.md")),
            dynamic.clone(),
            skill("skill://a"),
        ],
    );
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        let expected = ["a", "dynamic"].map(|name| format!("mcp://s/skill://{name}/SKILL.md"));
        assert_eq!(uris(&client).await, expected, "{era}");
    }
    assert_eq!(gateway.status().await["catalog"]["skills"], 2);
}

#[tokio::test]
async fn a_server_without_the_extension_is_asked_for_no_skill() {
    let upstream = Upstream::legacy().await;
    upstream.offers_skills(&["skill://a"]);
    upstream.can(json!({ "tools": {}, "resources": {} }));
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (era, client) in gateway.both().await {
        assert_eq!(introduction(&client).await.pointer(EXTENSION), None, "{era}");
        for method in ["skills/get", "resources/directory/read"] {
            let said = client.request(method, json!({ "uri": "mcp://s/skill://a/SKILL.md" })).await;
            assert_eq!(said.code(), -32602, "{era} {method}");
        }
    }
    for method in ["skills/list", "skills/get", "resources/directory/read"] {
        assert!(upstream.all(method).is_empty(), "{method}");
    }
}
