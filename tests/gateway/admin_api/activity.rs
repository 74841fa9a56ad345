//! Use of the gateway: activity, clients with their limits and refusals, and the last use of elements.

use serde_json::{Value, json};

use super::resources::get;
use super::{code, send, with_roles};
use crate::support::upstream::offers::{prompt, resource, template};
use crate::support::{Client, Gateway, Upstream, client_table};

pub(super) fn find<'a>(list: &'a Value, member: &str, value: &str) -> &'a Value {
    let found = list.as_array().unwrap().iter().find(|one| one[member] == value);
    found.unwrap_or_else(|| panic!("{member} {value}: {list:#}"))
}

#[tokio::test]
async fn activity_counts_requests_and_refusals_by_server_and_reason() {
    let upstream = Upstream::modern().await;
    let gateway = with_roles(Gateway::with("s", upstream.http())).start().await;
    let client = gateway.modern().key("plain-key");
    let before = get(&gateway, "/activity").await;
    for _ in 0..3 {
        assert!(!client.call("s__echo", json!({})).await.is_error());
    }
    client.call("s__none", json!({})).await.error();
    let after = get(&gateway, "/activity").await;
    let server = find(&after["servers"], "name", "s");
    assert_eq!((&server["state"], &server["requests"]["calls"]), (&json!("ready"), &json!(3)));
    let buckets = server["requests"]["buckets"].as_array().unwrap();
    assert_eq!(buckets.len(), after["bucket_bounds"].as_array().unwrap().len() + 1);
    assert_eq!(buckets.iter().map(|count| count.as_u64().unwrap()).sum::<u64>(), 3);
    let calls = |document: &Value| document["requests"]["calls"].as_u64().unwrap();
    assert_eq!(calls(&after) - calls(&before), 4);
    let unknown = find(&after["failures"], "reason", "unknown_tool");
    assert_eq!((&unknown["outcome"], &unknown["count"]), (&json!("refused"), &json!(1)));
    assert_eq!(after["started_at"], before["started_at"]);
    assert!(after["memory_bytes"].as_u64().unwrap() > 1 << 20, "{after}");
    // A viewer may look.
    let viewer = gateway.remote_operator().key("looks-key");
    assert_eq!(send(&viewer, "GET", "/api/v1/activity").await.status, 200);
    let plain = gateway.remote_operator().key("plain-key");
    assert_eq!(code(&send(&plain, "GET", "/api/v1/activity").await, 403), "role_needed");
}

#[tokio::test]
async fn clients_have_the_rest_of_their_limits_and_their_refusals_by_reason() {
    let upstream = Upstream::modern().await;
    let server = upstream.http() + "quota_each = \"7/day\"\nrate_each = \"9/h\"";
    let ann = client_table("ann", "ann-key", "rate = \"5/h\"\nquota = \"3/day\"");
    let builder = Gateway::with("s", server).toml(&ann).toml(&client_table("bob", "bob-key", ""));
    let eve = client_table("eve", "eve-key", "quota = \"4/minute\"");
    let gateway = builder.toml(&eve).start().await;
    let client = gateway.modern().key("ann-key");
    client.call("s__echo", json!({})).await.text();
    client.call("s__none", json!({})).await.error();
    let page = get(&gateway, "/clients").await;
    let ann = find(&page["clients"], "name", "ann");
    for (limit, remaining, setting) in [
        ("client:ann", 3, "5/h"),
        ("quota:client:ann", 2, "3/day"),
        ("quota:server:s", 6, "7/day"),
        ("each:server:s", 8, "9/h"),
    ] {
        let found = find(&ann["limits"], "limit", limit);
        assert_eq!(found["remaining"], remaining, "{ann:#}");
        assert_eq!(found["setting"], setting, "{found}");
    }
    let eve = find(&find(&page["clients"], "name", "eve")["limits"], "limit", "quota:client:eve");
    assert_eq!((&eve["remaining"], &eve["setting"]), (&json!(4), &json!("4/min")));
    assert_eq!((&ann["calls"], &ann["failures"][0]["count"]), (&json!(2), &json!(1)), "{ann:#}");
    assert!(ann["last_used_at"].is_string());
    // Looking takes nothing.
    let again = get(&gateway, "/clients").await;
    assert_eq!(find(&again["clients"], "name", "ann")["limits"], ann["limits"]);
    let bob = find(&page["clients"], "name", "bob");
    assert_eq!((&bob["limits"], &bob["failures"]), (&json!([]), &json!([])), "nothing is used");
    // A rate refuses requests before they are calls.
    for _ in 0..3 {
        client.ask("tools/list", json!({})).send().await;
    }
    assert_eq!(client.ask("tools/list", json!({})).send().await.status(), 429);
    let page = get(&gateway, "/clients").await;
    let ann = find(&page["clients"], "name", "ann");
    assert_eq!(find(&ann["failures"], "reason", "over_limit")["count"], 1, "{ann:#}");
    assert_eq!(find(&ann["limits"], "limit", "client:ann")["remaining"], 0);
    assert_eq!(find(&page["groups"], "name", "anonymous")["calls"], 0);
}

#[tokio::test]
async fn modern_clients_of_the_last_hour_are_listed_within_a_share_of_each_principal() {
    let upstream = Upstream::modern().await;
    let builder = Gateway::with("s", upstream.http()).toml(&client_table("ann", "ann-key", ""));
    let gateway = builder.toml(&client_table("bob", "bob-key", "")).start().await;
    let client = |key: &str, name: &str| gateway.modern().key(key).named(name, "3");
    client("bob-key", "ed\u{1b}itor").tool_names().await;
    for number in 0..25 {
        client("ann-key", &format!("program-{number}")).tool_names().await;
    }
    let page = get(&gateway, "/clients").await;
    let recent = page["recent"].as_array().unwrap();
    let of = |name: &str| recent.iter().filter(|one| one["principal"] == name).count();
    assert_eq!((of("ann"), of("bob")), (20, 1), "{page:#}");
    assert_eq!(recent[0]["software"], "program-24", "the last one first");
    let bob = recent.iter().find(|one| one["principal"] == "bob").unwrap();
    for (member, value) in
        [("software", "editor"), ("version", "3"), ("profile", "default"), ("address", "127.0.0.1")]
    {
        assert_eq!(bob[member], value, "{bob}");
    }
    assert!(bob["last_seen_at"].is_string() && bob["protocol_version"] == "2026-07-28", "{bob}");
    // A Legacy client has a session instead.
    let legacy = Client::sessionless(gateway.running.address, "2025-11-25").key("bob-key");
    let _legacy = legacy.named("old", "1").initialized().await;
    let page = get(&gateway, "/clients").await;
    assert_eq!(page["recent"].as_array().unwrap().len(), 21);
    assert_eq!(page["sessions"][0]["software"], "old");
    assert_eq!(
        (&page["sessions"][0]["streams"], &page["sessions"][0]["calls"]),
        (&json!(0), &json!(0))
    );
    assert_eq!(find(&page["clients"], "name", "bob")["sessions"], 1);
}

#[tokio::test]
async fn elements_have_the_clients_that_see_them_under_profiles_and_rules() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http())
        .toml(&client_table("all", "all-key", ""))
        .toml(&client_table("few", "few-key", "profiles = [\"few\"]"))
        .toml(&client_table("ruled", "ruled-key", ""))
        .toml("[profiles.few]\ntools = [\"s__hold\"]\n")
        .toml("[policy.rules.ruled]\neffect = \"deny\"\nprincipals = [\"ruled\"]\ntools = [\"s__echo\"]\n")
        .toml("[policy.rules.rest]\neffect = \"allow\"\n")
        .start()
        .await;
    let page = get(&gateway, "/catalog").await;
    let clients = |native: &str| find(&page["elements"], "native", native)["clients"].clone();
    assert_eq!(clients("echo"), json!(["all"]), "{page:#}");
    assert_eq!(clients("hold"), json!(["all", "few", "ruled"]), "{page:#}");
}

#[tokio::test]
async fn elements_have_the_time_of_their_last_use() {
    let upstream = Upstream::modern().await;
    upstream.offers_everything();
    upstream.lists("prompts", [prompt("greet"), prompt("other")]);
    upstream.lists("resources", [resource("file:///a.txt"), resource("file:///b.txt")]);
    upstream.lists("resourceTemplates", [template("db://{table}/{id}")]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let client = gateway.modern();
    let used = async || {
        let page = get(&gateway, "/catalog").await;
        let elements = page["elements"].as_array().unwrap().iter();
        let used = elements.filter(|one| one["last_used_at"].is_string());
        let mut used: Vec<_> = used.map(|one| one["native"].as_str().unwrap().to_owned()).collect();
        used.sort();
        used
    };
    assert_eq!(used().await, Vec::<String>::new());
    client.call("s__echo", json!({})).await;
    client.request("prompts/get", json!({ "name": "s__greet" })).await;
    client.read_resource("mcp://s/file:///a.txt").await;
    client.read_resource("mcp://s/db://people/7").await;
    // Neither listed nor covered by a template: it has no place in the catalog.
    client.read_resource("mcp://s/file:///unlisted.txt").await;
    assert_eq!(used().await, ["db://{table}/{id}", "echo", "file:///a.txt", "greet"]);
}
