//! Clients that arrive while servers are still starting.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::gateway::of;
use crate::support::upstream::every_kind;
use crate::support::{AGENTS, Client, Gateway, Kind, Step, Upstream, client_table};

/// Returns servers of every kind with a slow start.
async fn slow_kinds() -> Vec<Kind> {
    let kinds = every_kind().await;
    for kind in &kinds {
        kind.upstream.before_tools([Step::Pause(Duration::from_millis(300))]);
    }
    kinds
}

/// Returns a server that does not list until it is released.
async fn held() -> Upstream {
    let upstream = Upstream::modern().await;
    upstream.before_tools([Step::Hold]);
    upstream
}

#[tokio::test]
async fn a_client_waits_once_for_a_server_that_takes_too_long() {
    for agent in AGENTS {
        let late = held().await;
        let gateway = Gateway::with("late", late.http())
            .example("clock")
            .gateway("list_wait = \"2s\"")
            .start_at_once()
            .await;
        gateway.ready("clock").await;
        let began = Instant::now();
        let names = agent.list_tools(&gateway).await;
        assert!(began.elapsed() >= Duration::from_secs(2), "{agent:?}: {:?}", began.elapsed());
        assert!(names.iter().all(|name| name.starts_with("clock__")), "{agent:?}: {names:?}");
        late.release(1);
        gateway.ready("late").await;
    }
}

#[tokio::test]
async fn the_lists_of_a_client_wait_once_together_and_later_ones_are_announced() {
    let late = held().await;
    let gateway = Gateway::with("late", late.http()).gateway("list_wait = \"10s\"");
    let gateway = gateway.start_at_once().await;
    let list_wait = Duration::from_secs(10);
    let (one, other, modern) = (gateway.legacy().await, gateway.legacy().await, gateway.modern());
    let waits_once = async |client: &Client| {
        let began = Instant::now();
        assert!(client.tool_names().await.is_empty());
        assert!(began.elapsed() >= list_wait, "each session has its own patience");
        let began = Instant::now();
        client.request("prompts/list", json!({})).await;
        client.request("resources/list", json!({})).await;
        assert!(client.tool_names().await.is_empty());
        assert!(began.elapsed() < list_wait, "{:?}", began.elapsed());
    };
    // The second session begins later, and waits as long.
    let later = async {
        tokio::task::yield_now().await;
        waits_once(&other).await;
    };
    tokio::join!(waits_once(&one), later, waits_once(&modern));
    let mut stream = one.listen().await;
    late.release(1);
    let change = stream.message().await.unwrap();
    assert_eq!(change["method"], "notifications/tools/list_changed");
    assert_eq!(one.tool_names().await.len(), 4);
}

#[tokio::test]
async fn a_list_waits_neither_for_servers_that_failed_nor_for_those_that_it_does_not_show() {
    let (hidden, restarting) = (held().await, Upstream::legacy().await);
    let gateway = Gateway::with("failed", "command = \"no-such-program-anywhere\"")
        .server("hidden", hidden.http())
        .server("restarting", restarting.stdio())
        .gateway("list_wait = \"1h\"")
        .toml("[profiles.open]\nservers = [\"failed\", \"restarting\"]")
        .toml(&client_table("ci", "key", "profiles = [\"open\"]"))
        .start_at_once()
        .await;
    for (era, client) in gateway.both_as("key", "/mcp/open").await {
        assert_eq!(client.tool_names().await.len(), 4, "{era}");
    }
    gateway.ready("restarting").await;
    // It restarts, and does not reach its list.
    restarting.before_tools([Step::Never]);
    restarting.crash();
    let is_down = |status: &Value| of(status, "restarting")["state"] != "ready";
    gateway.wait_for(is_down).await;
    for (era, client) in gateway.both_as("key", "/mcp/open").await {
        assert_eq!(client.tool_names().await.len(), 4, "{era}: the last list");
    }
}

#[tokio::test]
async fn a_server_that_a_reload_adds_is_waited_for_as_well() {
    let added = Upstream::modern().await;
    added.before_tools([Step::Pause(Duration::from_millis(300))]);
    let builder = || Gateway::alone().gateway("list_wait = \"15s\"");
    let gateway = builder().start().await;
    let client = gateway.legacy().await;
    assert!(client.tool_names().await.is_empty());
    gateway.reload(builder().server("added", added.stdio())).await;
    assert_eq!(client.tool_names().await.len(), 4);
}

#[tokio::test]
async fn no_list_waits_where_the_configuration_says_so() {
    for agent in AGENTS {
        let (late, lazy) = (held().await, Upstream::legacy().await);
        let gateway = Gateway::with("late", late.http())
            .server("lazy", lazy.stdio() + "start = \"lazy\"\n")
            .gateway("list_wait = \"0s\"")
            .start_at_once()
            .await;
        assert!(agent.list_tools(&gateway).await.is_empty(), "{agent:?}");
        // Started for the list nonetheless.
        gateway.ready("lazy").await;
    }
}

#[tokio::test]
async fn a_call_of_a_tool_that_is_not_listed_yet_waits_for_its_server() {
    for era in 0..2 {
        let kinds = slow_kinds().await;
        let gateway = Gateway::alone().kinds(&kinds).gateway("list_wait = \"15s\"");
        let gateway = gateway.start_at_once().await;
        let [modern, legacy] = gateway.both().await;
        let client = [modern.1, legacy.1].into_iter().nth(era).unwrap();
        for kind in &kinds {
            let said = client.call(&format!("{}__echo", kind.name), json!({})).await;
            assert_eq!(said.text(), "{}", "{}", kind.name);
        }
    }
}

#[tokio::test]
async fn so_many_children_start_side_by_side_and_no_more() {
    let upstream = Upstream::legacy().await;
    upstream.before_tools([Step::Hold]);
    let builder = || {
        let servers = (0..8).map(|number| format!("s{number}"));
        servers.fold(Gateway::alone(), |all, name| all.server(&name, upstream.stdio()))
    };
    let gateway = builder().gateway("start_parallel = 2").start_at_once().await;
    for listing in 2..5 {
        upstream.heard("tools/list", listing).await;
        assert_eq!(upstream.starts(), listing, "each that is ready makes room for one");
        upstream.release(1);
    }
    upstream.heard("tools/list", 5).await;
    // A reload with another limit applies at once.
    gateway.reload(builder().gateway("start_parallel = 5")).await;
    upstream.heard("tools/list", 8).await;
    assert_eq!(upstream.starts(), 8);
}
