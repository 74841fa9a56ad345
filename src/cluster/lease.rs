//! The lease of this replica, by its own clocks.
//!
//! The store removes the lease a fixed time after it has received it. This clock counts from the moment
//! before it was sent, and ends earlier: when another replica finds no lease, this one knows it.

use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::LEASE_TIME;
use crate::clock;

/// The time for which this replica has its lease.
#[derive(Debug, Default)]
pub(super) struct LeaseClock(Mutex<LeaseTimes>);

#[derive(Debug, Default)]
struct LeaseTimes {
    start: Option<LeaseStart>,
    has_left: bool,
}

/// The moment before a lease was sent to the store.
#[derive(Debug, Clone, Copy)]
pub(super) struct LeaseStart {
    at: Instant,
    /// The system's time, which goes on while the machine sleeps.
    wall: SystemTime,
}

/// States of a replica's lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseStatus {
    /// There was none yet: no other replica can know a session of this one.
    Never,
    /// The store has it.
    Held,
    /// It may be over: others may have taken over the sessions of this replica.
    Lapsed,
    /// This replica has removed it.
    Left,
}

impl LeaseStart {
    /// Returns the present moment.
    pub(super) fn now() -> Self {
        Self { at: clock::now(), wall: clock::wall_now() }
    }

    /// Returns the time since then, also that in which the machine or the process was asleep.
    pub(super) fn age(self) -> Duration {
        let asleep = clock::wall_now().duration_since(self.wall).unwrap_or_default();
        clock::now().saturating_duration_since(self.at).max(asleep)
    }
}

impl LeaseClock {
    pub(super) fn state(&self) -> LeaseStatus {
        let times = self.0.lock();
        match times.start {
            _ if times.has_left => LeaseStatus::Left,
            None => LeaseStatus::Never,
            Some(start) if start.age() + LEASE_MARGIN < LEASE_TIME => LeaseStatus::Held,
            Some(_) => LeaseStatus::Lapsed,
        }
    }

    /// Notes a lease that the store has received.
    pub(super) fn extend(&self, start: LeaseStart) {
        self.0.lock().start = Some(start);
    }

    /// Notes that the lease is being removed, for good.
    pub(super) fn leave(&self) {
        self.0.lock().has_left = true;
    }
}

/// Time before the end of a lease at which its replica stops to answer for its sessions.
pub(super) const LEASE_MARGIN: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_lapses_before_the_store_removes_it() {
        let clock = LeaseClock::default();
        assert_eq!(clock.state(), LeaseStatus::Never);
        clock.extend(LeaseStart::now());
        tokio::time::advance(Duration::from_millis(8_999)).await;
        assert_eq!(clock.state(), LeaseStatus::Held);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(clock.state(), LeaseStatus::Lapsed);
        clock.extend(LeaseStart::now());
        assert_eq!(clock.state(), LeaseStatus::Held);
        // The machine has slept: only the system's time went on.
        let now = LeaseStart::now();
        clock.extend(LeaseStart { wall: now.wall - LEASE_TIME, ..now });
        assert_eq!(clock.state(), LeaseStatus::Lapsed);
        clock.leave();
        clock.extend(LeaseStart::now());
        assert_eq!(clock.state(), LeaseStatus::Left);
    }
}
