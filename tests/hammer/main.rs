//! Two principals hammer the same servers at once, with questions, log lines, progress and
//! subscriptions, until their clients have received 100,000 messages. Each message must have been
//! meant for the client that got it.
//!
//! Every call carries a mark that identifies its client (`world`). The servers' messages about it
//! carry the mark again (`servers`), and each client checks the mark of all messages that it
//! receives (`players`). All clients choose the same request ids and progress tokens, so that these
//! distinguish no messages. Meanwhile clients cancel, sessions begin and end, the configuration is
//! reloaded, and each server is lost once.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::large_futures,
    missing_docs,
    clippy::type_complexity,
    clippy::pedantic,
    reason = "a test that cannot go on fails; scripts and fixtures are held to the common lints"
)]

mod listening;
mod players;
mod servers;
#[path = "../support/mod.rs"]
mod support;
mod world;

use std::sync::Arc;

use tokio::task::JoinSet;
use trunkline::telemetry::metrics::ReloadOutcome;

use players::{Player, Speaks};
use support::gateway::Builder;
use support::{Gateway, client_table};
use world::{Counted, World};

/// Minimum number of messages that the clients receive.
const MESSAGES: u64 = 100_000;
const PRINCIPALS: [&str; 2] = ["ann", "bob"];
/// Clients of each principal.
const PLAYERS: [(&str, Speaks); 6] = [
    ("L1", Speaks::Legacy("2025-11-25")),
    ("L2", Speaks::Legacy("2025-11-25")),
    ("L3", Speaks::Legacy("2025-06-18")),
    ("M1", Speaks::Modern),
    ("M2", Speaks::Modern),
    ("M3", Speaks::Modern),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn of_a_hundred_thousand_messages_none_reaches_the_wrong_client() {
    let world = World::new(servers::all().await, MESSAGES);
    let gateway = configuration(&world).start().await;
    let mut players = Vec::new();
    for principal in PRINCIPALS {
        for (name, speaks) in PLAYERS {
            let seed = players.len() as u64;
            players.push(Player::enter(&world, &gateway, principal, name, speaks, seed).await);
        }
    }
    for player in &players {
        player.alone().await;
    }
    world.is_sound();
    let mut crowd = JoinSet::new();
    for player in &players {
        for hand in 0..2 {
            crowd.spawn(Arc::clone(player).plays(hand));
        }
    }
    for principal in PRINCIPALS {
        crowd.spawn(players::come_and_go(Arc::clone(&world), gateway.running.address, principal));
    }
    disturb(&world, &gateway).await;
    crowd.join_all().await;
    for player in &players {
        player.leave();
    }
    println!("{:?}", world.counts());
    world.is_sound();
    for player in &players {
        player.had_its_share();
    }
    had_enough(&world, &gateway).await;
}

/// Configures six servers and two clients.
fn configuration(world: &World) -> Builder {
    let mut builder = Gateway::alone().gateway("keep_alive = \"5s\"");
    for server in &world.servers {
        builder = builder.server(server.name, &server.lines);
    }
    for principal in PRINCIPALS {
        builder = builder.toml(&client_table(principal, &key(principal), ""));
    }
    builder
}

fn key(principal: &str) -> String {
    format!("key-of-{principal}")
}

/// Reloads the configuration, and loses each server once, while all play.
async fn disturb(world: &World, gateway: &Gateway) {
    let mut part = 1;
    let mut next = async || {
        let target = MESSAGES * part / 10;
        part += 1;
        while world.messages() < target && !world.is_over() {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
    };
    next().await;
    let more = || configuration(world).server("more", &world.servers[0].lines);
    assert_eq!(gateway.reload(more()).await, ReloadOutcome::Applied);
    for server in &world.servers {
        next().await;
        server.is_lost();
    }
    next().await;
    assert_eq!(gateway.reload(configuration(world)).await, ReloadOutcome::Applied);
}

/// Checks that the run mixed enough messages to prove their separation.
async fn had_enough(world: &World, gateway: &Gateway) {
    let counts = world.counts();
    assert!(world.messages() >= MESSAGES, "{counts:?}");
    for (what, least) in [
        (Counted::Answer, 5_000),
        (Counted::Question, 2_000),
        (Counted::Line, 15_000),
        (Counted::Progress, 25_000),
        (Counted::Update, 1_000),
        (Counted::Told, 60),
        (Counted::Cancelled, 100),
        (Counted::Abandoned, 10),
        (Counted::PipeLine, 200),
        (Counted::PipeAnswer, 50),
    ] {
        assert!(world.count(what) >= least, "{what:?}: {counts:?}");
    }
    world.lines_are_whole();
    assert!(world.count(Counted::Late) < 20, "{counts:?}");
    assert!(world.count(Counted::Missing) < 20, "{counts:?}");
    assert!(world.count(Counted::Strayed) < 20, "{counts:?}");
    // The loss of a server costs only the calls in flight, and those made before it is back.
    assert!(world.count(Counted::Failure) < 2_000, "{counts:?}");
    let metrics = gateway.metrics().await;
    let lost = |server: &str| {
        let name = format!("trunkline_server_lost_log_lines_total{{server=\"{server}\"}} ");
        metrics.lines().find_map(|line| line.strip_prefix(&name)?.parse::<u64>().ok()).unwrap_or(0)
    };
    // Clients did meet on shared pipes.
    assert!(lost("lp") > 0 && lost("mp") > 0, "{metrics}");
}
