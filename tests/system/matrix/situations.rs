//! Situations: servers of both eras as seen by clients of both eras, during events around their
//! messages. Prints a table.
//!
//! The servers are scripted, and each gateway runs in this process. A cell that stays empty has its
//! reason in [`SITUATIONS`].

use std::fmt::Write as _;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::task::JoinError;

use super::Cell;
use crate::support::upstream::Era;
use crate::support::upstream::skills::{TEXT, shown};
use crate::support::{Agent, Client, Gateway, Step, Upstream, client_table};

/// Era of the clients, and era of the servers.
#[derive(Debug, Clone, Copy)]
struct Pairing {
    client: Era,
    server: Era,
}

const PAIRINGS: [Pairing; 4] = [
    Pairing { client: Era::Legacy, server: Era::Legacy },
    Pairing { client: Era::Legacy, server: Era::Modern },
    Pairing { client: Era::Modern, server: Era::Legacy },
    Pairing { client: Era::Modern, server: Era::Modern },
];

struct Situation {
    name: &'static str,
    /// Fails by a panic.
    play: fn(Pairing) -> BoxFuture<'static, ()>,
    /// Reason that the combination is not tested.
    empty: fn(Pairing) -> Option<&'static str>,
}

const SITUATIONS: [Situation; 8] = [
    Situation {
        name: "a shared child after another client's cancellation",
        play: |on| share_child_after_cancellation(on).boxed(),
        empty: |on| {
            let is_empty = on.client == Era::Legacy && on.server == Era::Modern;
            is_empty.then_some(
                "a Modern server has no ping that tells that it has read the cancellation: for the \
                 time of a call its log lines reach no other session",
            )
        },
    },
    Situation {
        name: "an agent that starts together with the gateway",
        play: |on| start_agent_with_gateway(on).boxed(),
        empty: |_| None,
    },
    Situation {
        name: "40 eager servers on 2 cores",
        play: |on| start_forty_servers(on).boxed(),
        empty: |_| None,
    },
    Situation {
        name: "three clients with three capability sets",
        play: |on| count_children_of_three_sets(on).boxed(),
        empty: |_| None,
    },
    Situation {
        name: "1,000 abandoned sessions and a new client",
        play: |on| abandon_a_thousand_sessions(on).boxed(),
        empty: |on| (on.client == Era::Modern).then_some("a Modern client has no session"),
    },
    Situation { name: "skills", play: |on| use_skills(on).boxed(), empty: |_| None },
    Situation { name: "apps", play: |on| use_app(on).boxed(), empty: |_| None },
    Situation {
        name: "cache hints",
        play: |on| read_cache_hints(on).boxed(),
        empty: |on| (on.client == Era::Legacy).then_some("a Legacy list has no cache hints"),
    },
];

#[tokio::test(flavor = "multi_thread")]
async fn every_situation_holds_for_clients_and_servers_of_both_eras() {
    let mut table = "\nclient × server: Legacy × Legacy, Legacy × Modern, Modern × Legacy, \
                     Modern × Modern\n\n"
        .to_owned();
    let (mut faults, mut reasons) = (Vec::new(), Vec::new());
    for situation in &SITUATIONS {
        let cells = stream::iter(PAIRINGS).map(|on| play(situation, on)).buffered(2);
        for (on, cell) in PAIRINGS.into_iter().zip(cells.collect::<Vec<_>>().await) {
            table.push_str(match cell {
                Cell::Ok => "ok ",
                Cell::Empty(_) => "-  ",
                Cell::Failed(_) => "!  ",
            });
            match cell {
                Cell::Empty(why) if !reasons.contains(&why) => reasons.push(why),
                Cell::Failed(why) => faults.push(format!("{}, {on:?}: {why}", situation.name)),
                _ => {}
            }
        }
        writeln!(table, " {}", situation.name).unwrap();
    }
    println!("{table}- {}", reasons.join("\n- "));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

async fn play(situation: &Situation, on: Pairing) -> Cell {
    if let Some(why) = (situation.empty)(on) {
        return Cell::Empty(why);
    }
    match tokio::spawn((situation.play)(on)).await {
        Ok(()) => Cell::Ok,
        Err(fault) => Cell::Failed(panic_text(fault)),
    }
}

fn panic_text(fault: JoinError) -> String {
    let thrown = fault.into_panic();
    let text = thrown.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| thrown.downcast_ref::<&str>().copied()).unwrap_or_default().to_owned()
}

/// Returns a client of this era; with the key `key`, where clients have keys.
async fn client(gateway: &Gateway, era: Era) -> Client {
    match era {
        Era::Modern => gateway.modern().key("key"),
        Era::Legacy => {
            let client = Client::sessionless(gateway.running.address, "2025-11-25");
            client.key("key").initialized().await
        }
    }
}

/// Returns the lines of a server as a child process with a known era, so that its children can be
/// counted.
fn child_of_known_era(upstream: &Upstream) -> String {
    let era = format!("{:?}", upstream.inner.era).to_lowercase();
    upstream.stdio() + &format!("era = \"{era}\"\n")
}

async fn share_child_after_cancellation(on: Pairing) {
    let upstream = Upstream::start(on.server).await;
    let line = json!({
        "jsonrpc": "2.0", "method": "notifications/message",
        "params": { "level": "error", "data": "of which call?" },
    });
    upstream.logs().does("begin", |_| vec![Step::Progress(1), Step::Never]);
    upstream.does("log", move |_| vec![Step::Send(line.clone()), Step::text("done")]);
    let lines = child_of_known_era(&upstream) + "isolation = \"shared\"\n";
    let gateway = Gateway::with("s", lines).toml(&client_table("one", "key", "")).start().await;
    let [first, second] = [client(&gateway, on.client).await, client(&gateway, on.client).await];
    let ask = first.ask_call("s__begin", json!({})).token(json!(1));
    let id = json!({ "requestId": ask.message()["id"] });
    let mut reply = ask.send().await;
    reply.message().await.expect("progress");
    match on.client {
        Era::Legacy => drop(first.ask("notifications/cancelled", id).notification().send().await),
        Era::Modern => drop(reply),
    }
    upstream.heard("notifications/cancelled", 1).await;
    if on.server == Era::Legacy {
        // Its answer precedes all later messages of the server.
        upstream.heard("ping", 1).await;
    }
    let ask = second.ask_call("s__log", json!({}));
    let ask = match on.client {
        Era::Legacy => {
            second.request("logging/setLevel", json!({ "level": "debug" })).await.result();
            ask
        }
        Era::Modern => ask.meta("io.modelcontextprotocol/logLevel", json!("debug")),
    };
    let said = ask.send().await.said().await;
    assert_eq!((said.text(), said.notices().len()), ("done", 1), "{said:?}");
    assert_eq!(upstream.starts(), 1);
}

async fn start_agent_with_gateway(on: Pairing) {
    for agent in Agent::of(on.client) {
        let slow = Upstream::start(on.server).await;
        slow.before_tools([Step::Pause(Duration::from_millis(300))]);
        let lazy = Upstream::start(on.server).await;
        let gateway = Gateway::with("http", slow.http())
            .server("stdio", slow.stdio())
            .server("lazy", lazy.stdio() + "start = \"lazy\"\n")
            .gateway("list_wait = \"15s\"")
            .start_at_once()
            .await;
        let names = agent.list_tools(&gateway).await;
        for server in ["http", "stdio", "lazy"] {
            assert!(names.contains(&format!("{server}__echo")), "{agent:?}: {server} in {names:?}");
        }
        assert_eq!(names.len(), 4 * 3, "{agent:?}");
    }
}

async fn start_forty_servers(on: Pairing) {
    let [slow, quick] = [Upstream::start(on.server).await, Upstream::start(on.server).await];
    slow.before_tools([Step::Pause(Duration::from_millis(10_500))]);
    let slow_lines = child_of_known_era(&slow);
    let lines = child_of_known_era(&quick) + "start_timeout = \"10s\"\n";
    let mut builder = Gateway::alone().gateway("start_parallel = 4\nlist_wait = \"60s\"");
    for number in 0..40 {
        // The first four take longer than the others may.
        let lines = if number < 4 { &slow_lines } else { &lines };
        builder = builder.server(&format!("s{number}"), lines);
    }
    let gateway = builder.start_at_once().await;
    assert_eq!(client(&gateway, on.client).await.tool_names().await.len(), 40 * 4);
    let status = gateway.status().await;
    let servers = status["servers"].as_array().unwrap();
    let errors: Vec<_> = servers.iter().map(|server| &server["last_error"]).collect();
    assert!(errors.iter().all(|error| error.is_null()), "{errors:?}");
    assert_eq!((slow.starts(), quick.starts()), (4, 36), "none is started twice");
}

async fn count_children_of_three_sets(on: Pairing) {
    let upstream = Upstream::start(on.server).await;
    let gateway = Gateway::with("s", child_of_known_era(&upstream)).start().await;
    let mut clients = Vec::new();
    for name in ["roots", "elicitation", "sampling"] {
        let able = client(&gateway, on.client).await.offering(json!({ name: {} })).await;
        assert_eq!(able.tool_names().await.len(), 4);
        clients.push((name, able));
    }
    // A Legacy server receives its client's capabilities in its handshake, a Modern one with each
    // request. To compare lists, there was one more Legacy child for all sets, which has ended.
    gateway.wait_for(|status| status["servers"][0]["instance_count"] == 0).await;
    let (looked, for_each) = if on.server == Era::Legacy { (2, 1) } else { (1, 0) };
    assert_eq!(upstream.starts(), looked);
    for (number, (name, client)) in (1..).zip(&clients) {
        for _ in 0..2 {
            assert!(!client.call("s__echo", json!({})).await.is_error(), "{name}");
        }
        assert_eq!(upstream.starts(), looked + number * for_each, "{name}");
        let told = match on.server {
            Era::Legacy => upstream.all("initialize").pop().unwrap().params["capabilities"].clone(),
            Era::Modern => {
                let call = upstream.calls().pop().unwrap();
                call.meta("io.modelcontextprotocol/clientCapabilities").clone()
            }
        };
        assert!(told.as_object().unwrap().keys().eq([name]), "{name}: {told}");
    }
    assert_eq!(gateway.server("s").await["instance_count"], 3 * for_each);
}

async fn abandon_a_thousand_sessions(on: Pairing) {
    let upstream = Upstream::start(on.server).await;
    let gateway = Gateway::with("s", upstream.http()).start().await;
    let oldest = [gateway.legacy().await, gateway.legacy().await];
    for _ in oldest.len()..1000 {
        assert_eq!(gateway.plain().initialize("2025-11-25").await.status(), 200);
    }
    assert_eq!(gateway.status().await["sessions"], 1000);
    let newest = gateway.legacy().await;
    assert_eq!(newest.call("s__echo", json!({})).await.text(), "{}");
    assert_eq!(gateway.status().await["sessions"], 1000);
    let [first, second] = &oldest;
    assert_eq!(first.request("ping", json!({})).await.status, 404);
    assert_eq!(second.request("ping", json!({})).await.status, 200);
}

async fn use_skills(on: Pairing) {
    let upstream = Upstream::start(on.server).await;
    let directory = "skill://acme/refunds";
    upstream.offers_skills(&[directory]);
    let [(one, http), (two, stdio)] = upstream.ways();
    let gateway = Gateway::with(one, http).server(two, stdio).start().await;
    let client = client(&gateway, on.client).await;
    let entries = [one, two].map(|server| shown(directory, &format!("mcp://{server}/")));
    let listed = client.request("skills/list", json!({})).await;
    assert_eq!(listed.result()["skills"], json!(entries));
    for entry in &entries {
        let got = client.request("skills/get", json!({ "uri": entry["uri"] })).await;
        assert_eq!(got.result()["skill"], *entry);
        for file in entry["resources"].as_array().unwrap() {
            let read = client.read_resource(file["uri"].as_str().unwrap()).await;
            assert_eq!(read.result()["contents"][0]["text"], TEXT, "{file}");
        }
        let folder = entry["uri"].as_str().unwrap().strip_suffix("/SKILL.md").unwrap();
        let read = client.request("resources/directory/read", json!({ "uri": folder })).await;
        assert_eq!(read.result()["resources"][0]["uri"], entry["uri"]);
    }
}

async fn use_app(on: Pairing) {
    let upstream = Upstream::start(on.server).await;
    upstream.offers_app("refresh");
    for (way, lines) in upstream.ways() {
        let gateway = Gateway::with("s", lines).start().await;
        let client = client(&gateway, on.client).await;
        let tools = client.tools().await;
        let tool = tools.iter().find(|tool| tool["name"] == "s__show").unwrap();
        let interface = tool["_meta"]["ui"]["resourceUri"].as_str().unwrap();
        assert_eq!(interface, "ui://app/main", "{way}");
        let read = client.read_resource(interface).await;
        assert_eq!(read.result()["contents"][0]["uri"], interface, "{way}");
        // The app does not know the gateway.
        let said = client.call("refresh", json!({})).await;
        assert_eq!(said.text(), "refresh of the app", "{way}");
    }
}

async fn read_cache_hints(on: Pairing) {
    let [short, long] = [Upstream::start(on.server).await, Upstream::start(on.server).await];
    for (upstream, ttl) in [(&short, 7_000), (&long, 3_600_000)] {
        upstream.can(json!({ "tools": {} }));
        *upstream.inner.list_ttl.lock().unwrap() = Some(ttl);
    }
    // A Legacy server sends none: the gateway lists again after a minute.
    let least = if on.server == Era::Modern { 7_000 } else { 60_000 };
    for (table, scope) in [(String::new(), "public"), (client_table("one", "key", ""), "private")] {
        let gateway = Gateway::with("short", short.http()).server("long", long.stdio());
        let gateway = gateway.gateway("list_ttl = \"10m\"").toml(&table).start().await;
        let said = client(&gateway, on.client).await.request("tools/list", json!({})).await;
        let hints = |result: &Value| (result["ttlMs"].clone(), result["cacheScope"].clone());
        assert_eq!(hints(said.result()), (json!(least), json!(scope)));
    }
}
