//! The faults of a run: a replica is killed every 20 seconds, and beside that the network and the
//! store fail in turns.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::{interval, sleep};

use crate::fleet::{Fleet, REPLICAS};
use crate::network::{Network, Way, WayState};
use crate::run::Run;
use crate::store::{LinkState, Store};

/// Everything that can fail.
#[derive(Clone, Copy)]
pub struct Faults<'a> {
    pub run: &'a Run,
    pub fleet: &'a Fleet,
    pub store: &'a Store,
    /// Minimum number of messages of the run.
    pub messages: u64,
}

impl Faults<'_> {
    /// Causes all faults until the clients have received their messages, and each fault has occurred.
    pub async fn cause_all(self) {
        tokio::join!(self.kill_replicas(), self.disturb());
        self.run.end();
    }

    fn is_enough(&self) -> bool {
        self.run.messages() >= self.messages
    }

    async fn kill_replicas(&self) {
        let mut times = interval(KILL_INTERVAL);
        times.tick().await;
        for victim in (0..REPLICAS).cycle() {
            times.tick().await;
            self.report(&format!("replica {victim} is killed"));
            self.fleet.kill(victim).await;
            sleep(DOWN_TIME).await;
            self.fleet.restart(victim).await;
            if self.is_enough() {
                return;
            }
        }
    }

    async fn disturb(&self) {
        for first in (0..REPLICAS).cycle() {
            sleep(CALM_TIME).await;
            self.slow_store().await;
            sleep(CALM_TIME).await;
            self.part_replicas(first, (first + 1) % REPLICAS).await;
            sleep(CALM_TIME).await;
            self.part_from_store((first + 2) % REPLICAS).await;
            sleep(CALM_TIME).await;
            self.report("the store fails over");
            self.store.fail_over().await;
            if self.is_enough() {
                return;
            }
        }
    }

    async fn slow_store(&self) {
        self.report("the store is slow");
        let delay = Duration::from_millis(100);
        self.store.set_link(LinkState { delay, is_stopped: false });
        sleep(SLOW_TIME).await;
        self.store.set_link(LinkState::default());
    }

    /// Cuts the ways between two replicas. Without namespaces, one of them is suspended.
    async fn part_replicas(&self, one: u8, other: u8) {
        self.report(&format!("replicas {one} and {other} are parted"));
        let ways = [Way::ToReplica(one, other), Way::ToReplica(other, one)];
        if matches!(self.fleet.network(), Network::Loopback) {
            self.fleet.signal(one, Signal::STOP).await;
        }
        for way in ways {
            self.fleet.network().set_way(way, WayState::Cut);
        }
        sleep(PARTED_TIME).await;
        for way in ways {
            self.fleet.network().set_way(way, WayState::Open);
        }
        if matches!(self.fleet.network(), Network::Loopback) {
            self.fleet.signal(one, Signal::CONT).await;
        }
    }

    /// Cuts the way from a replica to the store, longer than its lease. Without namespaces, all
    /// replicas are cut off.
    async fn part_from_store(&self, replica: u8) {
        self.report(&format!("replica {replica} is parted from the store"));
        if matches!(self.fleet.network(), Network::Loopback) {
            self.store.set_link(LinkState { delay: Duration::ZERO, is_stopped: true });
        }
        self.fleet.network().set_way(Way::ToStore(replica), WayState::Cut);
        sleep(STORELESS_TIME).await;
        self.fleet.network().set_way(Way::ToStore(replica), WayState::Open);
        self.store.set_link(LinkState::default());
    }

    fn report(&self, fault: &str) {
        println!("{:7.1?} {:6} messages: {fault}", self.run.now(), self.run.messages());
    }
}

const KILL_INTERVAL: Duration = Duration::from_secs(20);
/// Time between the end of a replica and its next start.
const DOWN_TIME: Duration = Duration::from_secs(2);
const CALM_TIME: Duration = Duration::from_secs(3);
const SLOW_TIME: Duration = Duration::from_secs(6);
const PARTED_TIME: Duration = Duration::from_secs(10);
const STORELESS_TIME: Duration = Duration::from_secs(14);
