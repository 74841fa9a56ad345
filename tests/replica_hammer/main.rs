//! Fifty principals hammer replicas behind a balancer while the replicas, their network and their
//! store fail. No message reaches a wrong client, every call ends with an answer or an error, and no
//! call is executed twice.
//!
//! Each principal has a Legacy client, with a session and its streams, and a Modern one. Every call
//! has a mark that names its client and is used once (`player`). The scripted servers log each
//! execution (`servers`), clients record the end of each call and the marks of all messages
//! (`run`), and a check compares both afterwards (`history`). Meanwhile replicas are killed, parted
//! from each other and from the store, and the store is slow or fails over (`faults`).
//!
//! `TRUNKLINE_HAMMER_MESSAGES=100000` sets the minimum number of messages. The logs of the replicas
//! and the history are in `target/tmp/replica_hammer`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::large_futures,
    missing_docs,
    clippy::pedantic,
    reason = "a test that cannot go on fails; scripts and fixtures are held to the common lints"
)]

mod faults;
mod fleet;
mod history;
mod network;
mod player;
#[path = "../system/process.rs"]
mod process;
mod run;
mod servers;
mod store;
#[path = "../support/mod.rs"]
mod support;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;

use faults::Faults;
use fleet::{Fleet, REPLICAS};
use history::violations;
use network::{Isolation, Network};
use player::{Era, Player, key};
use run::{Run, write_history};
use store::Store;
use support::{client_table, waiting};

#[test]
fn calls_of_fifty_principals_are_answered_once_while_replicas_and_their_store_fail() {
    if std::env::var_os(IN_NAMESPACE).is_some() {
        return hammer(Isolation::Namespace);
    }
    let Some(way) = Network::isolation() else {
        println!("network: loopback addresses, because namespaces are not permitted");
        return hammer(Isolation::Loopback);
    };
    println!("network: namespaces, by {}", way.join(" "));
    let mut command = Command::new(way[0]);
    command.args(&way[1..]).arg(std::env::current_exe().unwrap());
    let name = std::thread::current().name().unwrap().to_owned();
    command.args(["--exact", &name, "--nocapture"]).env(IN_NAMESPACE, "1");
    assert!(command.status().unwrap().success());
}

fn hammer(isolation: Isolation) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let network = Network::build(REPLICAS, isolation);
    let messages = std::env::var("TRUNKLINE_HAMMER_MESSAGES");
    let messages = messages.map_or(MESSAGES, |messages| messages.parse().unwrap());
    runtime.block_on(async {
        // Far more time than a run takes on a slow machine.
        let limit = Duration::from_secs(300 + messages / 20);
        let run = tokio::spawn(hammer_replicas(network, messages));
        tokio::time::timeout(limit, run).await.expect("the run ends in time").unwrap();
    });
}

async fn hammer_replicas(network: Network, messages: u64) {
    let run = Arc::new(Run::new());
    let (_servers, mut tables) = servers::start(&run).await;
    let principals: Vec<_> = (0..PRINCIPALS).map(|number| format!("p{number:02}")).collect();
    for principal in &principals {
        tables.push_str(&client_table(principal, &key(principal), ""));
    }
    let store = Store::start().await;
    let fleet = Fleet::start(network, &store.url(), &tables).await;
    let mut players = Vec::new();
    for principal in &principals {
        for era in [Era::Legacy, Era::Modern] {
            players.push(Player::enter(&run, fleet.address(), principal, era).await);
        }
    }
    let mut crowd: JoinSet<()> = players.iter().map(|player| Arc::clone(player).play()).collect();
    Faults { run: &run, fleet: &fleet, store: &store, messages }.cause_all().await;
    while let Some(played) = crowd.join_next().await {
        played.unwrap();
    }
    println!("{:7.1?} {:6} messages: all faults are over", run.now(), run.messages());
    fleet.is_complete().await;
    let mut recoveries = JoinSet::new();
    for player in &players {
        let player = Arc::clone(player);
        recoveries.spawn(async move { player.recover().await });
    }
    let unrecovered: Vec<_> = recoveries.join_all().await.into_iter().flatten().collect();
    players.iter().for_each(|player| player.leave());
    fleet.keep_logs().await;
    report(&run, &fleet, &unrecovered);
}

/// Prints the counts of the run, and fails if it has violated a guarantee.
fn report(run: &Run, fleet: &Fleet, unrecovered: &[String]) {
    for (event, times) in run.summary() {
        println!("{times:8} {event}");
    }
    println!("{:7.1?} {:6} messages", run.now(), run.messages());
    let history = run.take_history();
    write_history(&history, fleet.logs());
    let violations = violations(&history);
    for violation in violations.iter().take(20) {
        println!("violation: {violation}");
    }
    assert!(violations.is_empty(), "{} violations: {}", violations.len(), fleet.logs().display());
    assert!(unrecovered.is_empty(), "{unrecovered:#?}");
}

const PRINCIPALS: usize = 50;
/// Minimum number of messages, unless `TRUNKLINE_HAMMER_MESSAGES` sets it.
const MESSAGES: u64 = 15_000;
/// Set for the program within its namespace.
const IN_NAMESPACE: &str = "TRUNKLINE_HAMMER_IN_NAMESPACE";
