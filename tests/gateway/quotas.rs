//! Rates of profiles and of each client, costs of tools, and quotas.

use serde_json::json;
use trunkline::telemetry::metrics::ReloadOutcome;

use crate::support::gateway::Builder;
use crate::support::{Client, Gateway, Said, Upstream, client_table, poll_for};

/// Adds two clients with keys, the first with more settings.
fn clients(builder: Builder, more: &str) -> Builder {
    builder.toml(&client_table("a", "a", more)).toml(&client_table("b", "b", ""))
}

/// Returns the limit that refused a call; empty without a refusal.
fn limit(said: &Said) -> String {
    if said.answer()["error"].is_null() {
        return String::new();
    }
    assert_eq!((said.status, said.code()), (429, 42_900), "{said:?}");
    assert!(said.error()["data"]["retryAfterMs"].as_u64().unwrap() > 0, "{said:?}");
    said.error()["data"]["limit"].as_str().unwrap().to_owned()
}

async fn calls<const N: usize>(client: &Client, tools: [&str; N]) -> [String; N] {
    let mut limits = [const { String::new() }; N];
    for (tool, found) in tools.iter().zip(&mut limits) {
        *found = limit(&client.call(tool, json!({})).await);
    }
    limits
}

#[tokio::test]
async fn rates_of_profiles_and_of_each_client_are_enforced() {
    for (server, profile, of_a, of_b) in [
        ("rate_each = \"2/h\"", "", ["", "", "each:server:s"], ["", "", "each:server:s"]),
        (
            "tools.echo.rate_each = \"1/h\"",
            "",
            ["", "each:tool:s/echo", "each:tool:s/echo"],
            ["", "each:tool:s/echo", "each:tool:s/echo"],
        ),
        ("", "rate = \"4/h\"", ["", "", ""], ["", "profile:default", "profile:default"]),
        // The narrower limit uses up none of the other.
        ("rate_each = \"1/h\"\nrate = \"2/h\"", "", ["", EACH, EACH], ["", EACH, EACH]),
    ] {
        let upstream = Upstream::modern().await;
        let builder = Gateway::with("s", upstream.http() + server);
        let builder = builder.toml(&format!("[profiles.default]\n{profile}"));
        let gateway = clients(builder, "").start().await;
        let echo = ["s__echo"; 3];
        assert_eq!(calls(&gateway.modern().key("a"), echo).await, of_a, "{server}{profile}");
        assert_eq!(calls(&gateway.modern().key("b"), echo).await, of_b, "{server}{profile}");
    }
}

const EACH: &str = "each:server:s";

#[tokio::test]
async fn a_call_costs_as_many_as_its_tool_in_every_limit() {
    for (gateway_line, server, client, refused) in [
        ("", "rate = \"5/h\"", "", "server:s"),
        ("", "rate_each = \"5/h\"", "", EACH),
        ("", "tools.count.rate = \"5/h\"", "", "tool:s/count"),
        ("", "", "rate = \"5/h\"", "client:a"),
        ("rate = \"5/h\"", "", "", "gateway"),
        ("", "", "quota = \"5/day\"", "quota:client:a"),
        ("", "quota_each = \"5/day\"", "", "quota:server:s"),
    ] {
        let upstream = Upstream::modern().await;
        let server = format!("{}{server}\ntools.count.cost = 3", upstream.http());
        let gateway = clients(Gateway::with("s", server).gateway(gateway_line), client);
        let gateway = gateway.start().await;
        let client = gateway.modern().key("a");
        let of_calls = calls(&client, ["s__count", "s__count"]).await;
        assert_eq!(of_calls, ["", refused], "{refused}");
        if refused != "gateway" && refused != "client:a" {
            assert_eq!(calls(&client, ["s__echo"]).await, [""], "{refused}: two are left");
        }
    }
}

#[tokio::test]
async fn a_cost_that_no_limit_allows_is_a_fault() {
    let upstream = Upstream::modern().await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    for (lines, of) in [
        ("rate = \"2/s\"\ntools.x.cost = 3", "servers.s.rate"),
        ("tools.x = { cost = 3, quota_each = \"2/day\" }", "servers.s.tools.x.quota_each"),
        ("tools.x.cost = 3\n[profiles.p]\nrate = \"2/s\"", "profiles.p.rate"),
    ] {
        let outcome = gateway.reload(Gateway::with("s", upstream.http() + lines)).await;
        assert_eq!(outcome, ReloadOutcome::Rejected);
        let faults = gateway.status().await["configuration"]["last_reload"]["faults"].to_string();
        assert!(faults.contains(of) && faults.contains("tools.x.cost"), "{faults}");
    }
    let fine = upstream.http() + "rate = \"3/s\"\ntools.x.cost = 3";
    assert_eq!(gateway.reload(Gateway::with("s", fine)).await, ReloadOutcome::Applied);
}

#[tokio::test]
async fn every_quota_is_enforced_and_named_in_the_error() {
    for (server, profile, client, refused, of_b) in [
        ("", "", "quota = \"2/day\"", "quota:client:a", ""),
        ("quota_each = \"2/day\"", "", "", "quota:server:s", ""),
        ("tools.echo.quota_each = \"2/day\"", "", "", "quota:tool:s/echo", ""),
        ("", "quota = \"2/day\"", "", "quota:profile:default", "quota:profile:default"),
    ] {
        let upstream = Upstream::modern().await;
        let lines = upstream.http() + server;
        let build = || {
            let builder = Gateway::with("s", lines.clone());
            clients(builder.toml(&format!("[profiles.default]\n{profile}")), client)
        };
        let gateway = build().start().await;
        let (a, b) = (gateway.modern().key("a"), gateway.modern().key("b"));
        assert_eq!(calls(&a, ["s__echo"; 3]).await, ["", "", refused]);
        assert_eq!(calls(&b, ["s__echo"]).await, [of_b], "{refused}");
        assert_eq!(upstream.calls().len(), 2 + usize::from(of_b.is_empty()));
        // A reload refills nothing, even if it changes other settings of the server.
        gateway.reload(build().server("other", upstream.http())).await;
        assert_eq!(calls(&a, ["s__echo"]).await, [refused]);
        let metrics = gateway.metrics().await;
        assert!(metrics.contains(&format!("limit=\"{refused}\"")), "{metrics}");
        let legacy = gateway.both_as("a", "/mcp").await;
        for (era, client) in legacy {
            let said = client.call("s__echo", json!({})).await;
            assert_eq!(said.error()["data"]["limit"], refused, "{era} {said:?}");
        }
    }
}

#[tokio::test]
async fn quotas_survive_a_restart_with_a_state_dir_and_calls_with_wrong_arguments_use_none() {
    let upstream = Upstream::modern().await;
    let schema = json!({ "type": "object", "required": ["city"] });
    let tool = json!({ "name": "weather", "inputSchema": schema });
    upstream.tool(&tool, |_| vec![crate::support::Step::text("fine")]);
    let build = || {
        let builder = Gateway::with("s", upstream.http()).gateway("state_dir = \"state\"");
        clients(builder, "quota = \"2/day\"")
    };
    let gateway = build().start().await;
    let client = gateway.modern().key("a");
    for _ in 0..3 {
        assert!(client.call("s__weather", json!({})).await.is_error());
    }
    assert_eq!(calls(&client, ["s__echo"; 2]).await, ["", ""]);
    let folder = gateway.stop().await;
    let gateway = build().in_folder(folder).start().await;
    let client = gateway.modern().key("a");
    assert_eq!(calls(&client, ["s__echo"]).await, ["quota:client:a"]);
}

#[tokio::test]
async fn a_call_that_waits_in_vain_for_a_slot_is_not_charged() {
    let upstream = Upstream::modern().await;
    let lines = upstream.stdio() + "in_flight = 1\nqueue = 0\n";
    let gateway = clients(Gateway::with("s", lines), "quota = \"2/day\"").start().await;
    let client = gateway.modern().key("a");
    let crowd = async {
        upstream.heard("tools/call", 1).await;
        assert_eq!(calls(&client, ["s__echo"; 3]).await, ["in_flight:s"; 3]);
        upstream.release(1);
    };
    let (held, ()) = tokio::join!(client.call("s__hold", json!({})), crowd);
    assert_eq!(held.text(), "held");
    assert_eq!(calls(&client, ["s__echo"; 2]).await, ["", "quota:client:a"]);
}

#[tokio::test]
async fn a_call_beyond_its_quota_waits_for_no_slot() {
    let upstream = Upstream::modern().await;
    let lines = upstream.stdio() + "in_flight = 1\nqueue = 0\n";
    let gateway = clients(Gateway::with("s", lines), "quota = \"1/day\"").start().await;
    let client = gateway.modern().key("a");
    let crowd = async {
        upstream.heard("tools/call", 1).await;
        assert_eq!(calls(&client, ["s__echo"]).await, ["quota:client:a"]);
        upstream.release(1);
    };
    let (held, ()) = tokio::join!(client.call("s__hold", json!({})), crowd);
    assert_eq!(held.text(), "held");
}

#[tokio::test]
async fn a_quota_per_second_is_refilled_with_the_next_second() {
    let upstream = Upstream::modern().await;
    let gateway = clients(Gateway::with("s", upstream.http()), "quota = \"1/s\"").start().await;
    let client = gateway.modern().key("a");
    // Two calls in one second are soon made.
    let refused = poll_for(async || {
        let said = client.call("s__echo", json!({})).await;
        (said.status != 200).then_some(said)
    })
    .await;
    assert_eq!(limit(&refused), "quota:client:a");
    assert!(refused.error()["data"]["retryAfterMs"].as_u64().unwrap() <= 1000, "{refused:?}");
    assert_eq!(refused.header("retry-after"), Some("1"));
    poll_for(async || (client.call("s__echo", json!({})).await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn a_quota_whose_unit_is_changed_by_a_reload_has_a_count_of_its_own() {
    let upstream = Upstream::modern().await;
    let build = |quota: &str| {
        let lines = format!("quota = \"{quota}\"");
        clients(Gateway::with("s", upstream.http()), &lines)
    };
    let gateway = build("1/day").start().await;
    let client = gateway.modern().key("a");
    assert_eq!(calls(&client, ["s__echo"; 2]).await, ["", "quota:client:a"]);
    gateway.reload(build("2/h")).await;
    assert_eq!(calls(&client, ["s__echo"; 3]).await, ["", "", "quota:client:a"]);
    gateway.reload(build("2/day")).await;
    assert_eq!(calls(&client, ["s__echo"; 2]).await, ["", "quota:client:a"]);
}
