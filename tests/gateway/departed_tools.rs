//! Tools that were recently in a client's list.

use serde_json::json;

use crate::support::{Client, Gateway, Said, Step, Upstream, client_table, within};

fn tool(name: &str) -> String {
    json!({ "name": name, "inputSchema": { "type": "object" } }).to_string()
}

#[track_caller]
fn is_gone(said: &Said, name: &str) {
    assert!(said.status == 200 && said.is_error(), "{said:?}");
    assert_eq!(
        said.text(),
        format!("the tool {name} is no longer available: list the tools again")
    );
}

#[track_caller]
fn is_unknown(said: &Said) {
    assert_eq!((said.status, said.code()), (200, -32_602), "{said:?}");
    assert!(said.error()["message"].as_str().unwrap().starts_with("unknown tool: "), "{said:?}");
}

async fn waits_for(client: &Client, names: &[&str]) {
    within(async { while client.tool_names().await != names {} }).await;
}

#[tokio::test]
async fn a_tool_that_left_its_servers_list_is_reported_as_a_result() {
    let upstream = Upstream::legacy().await;
    upstream.set_tools([tool("old"), tool("echo")]);
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let both = gateway.both().await;
    for (_, client) in &both {
        waits_for(client, &["s__old", "s__echo"]).await;
    }
    upstream.set_tools([tool("echo")]).announce().await;
    for (era, client) in &both {
        waits_for(client, &["s__echo"]).await;
        is_gone(&client.call("s__old", json!({})).await, "s__old");
        is_unknown(&client.call("s__never", json!({})).await);
        assert_eq!(client.call("s__echo", json!({})).await.text(), "{}", "{era}");
    }
    // It is remembered after another change, and called once it is back.
    upstream.set_tools([tool("echo"), tool("count")]).announce().await;
    for (_, client) in &both {
        waits_for(client, &["s__echo", "s__count"]).await;
        is_gone(&client.call("s__old", json!({})).await, "s__old");
    }
    upstream.does("old", |_| vec![Step::text("old")]);
    upstream.set_tools([tool("old")]).announce().await;
    for (_, client) in &both {
        waits_for(client, &["s__old"]).await;
        assert_eq!(client.call("s__old", json!({})).await.text(), "old");
    }
    let metrics = gateway.metrics().await;
    assert!(metrics.contains("reason=\"departed_tool\""), "{metrics}");
}

#[tokio::test]
async fn a_tool_that_a_reload_removed_is_reported_to_clients_that_saw_it() {
    let upstream = Upstream::modern().await;
    let (s, t) = (upstream.http(), upstream.http());
    let config = |profiles: &str, of_late: &str, more: &str| {
        let builder = Gateway::with("s", format!("{s}{more}")).server("t", &t).toml(profiles);
        let builder = builder.toml(&client_table("seer", "seer", "profiles = [\"p\", \"q\"]"));
        builder.toml(&client_table("late", "late", of_late))
    };
    let before = "[profiles.p]\ntools = [\"s__*\"]\n[profiles.q]\ntools = [\"t__*\"]\n";
    let gateway = config(before, "profiles = [\"q\"]", "").start().await;
    let at = |key: &str, profile: &str| gateway.modern().key(key).at(&format!("/mcp/{profile}"));
    let seer = at("seer", "p");
    assert_eq!(seer.call("s__echo", json!({})).await.text(), "{}");
    is_unknown(&seer.call("t__echo", json!({})).await);
    // The profile loses a tool, the server loses another, and a client gains access to the profile.
    let after = "[profiles.p]\ntools = [\"s__hold\", \"s__count\"]\n\
                 [profiles.q]\ntools = [\"t__*\"]\n";
    gateway.reload(config(after, "profiles = [\"p\", \"q\"]", "tools.deny = [\"count\"]\n")).await;
    for tool in ["s__echo", "s__count", "s__fail"] {
        is_gone(&seer.call(tool, json!({})).await, tool);
        is_unknown(&at("late", "p").call(tool, json!({})).await);
        is_unknown(&at("seer", "q").call(tool, json!({})).await);
    }
    for tool in ["t__echo", "s__never"] {
        is_unknown(&seer.call(tool, json!({})).await);
    }
}

#[tokio::test]
async fn so_many_departed_tools_of_a_server_are_remembered_and_no_more() {
    let upstream = Upstream::modern().await;
    let name = |round: usize, number: usize| format!("t{round}x{number}");
    let all = (0..4).flat_map(|round| (0..200).map(move |number| (round, number)));
    upstream.set_tools(all.map(|(round, number)| tool(&name(round, number))));
    let lines = upstream.http();
    let config = |round: usize, other: &str| {
        let allow = format!(
            "tools.allow = [\"t{round}x*\"]
"
        );
        Gateway::with("s", format!("{lines}{allow}")).server("o", format!("{lines}{other}"))
    };
    let gateway = config(0, "tools.allow = [\"t0x0\", \"t0x1\"]").start().await;
    let client = gateway.modern();
    for round in 1..=3 {
        gateway.reload(config(round, "tools.allow = [\"t0x1\"]")).await;
    }
    let mut gone = 0;
    for round in 0..3 {
        for number in 0..200 {
            let said = client.call(&format!("s__{}", name(round, number)), json!({})).await;
            let is_remembered = said.answer().get("result").is_some();
            assert!(is_remembered || round < 2, "the newest are remembered");
            gone += usize::from(is_remembered);
        }
    }
    assert_eq!(gone, 256);
    is_gone(&client.call("o__t0x0", json!({})).await, "o__t0x0");
}
