//! The permits of one rate at this replica.

use std::num::NonZeroU32;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use super::SharedRates;
use crate::clock;
use crate::cluster::store::{PermitDemand, PermitGrant};
use crate::config::Rate;
use crate::shares::{PermitTaking, PermitWait, SharedPermits};

/// Permits that were taken from the store, and are not used yet.
#[derive(Debug)]
pub(super) struct RatePermits {
    own: Weak<Self>,
    rates: Weak<SharedRates>,
    /// The name of the bucket in the store.
    name: String,
    rate: Rate,
    state: Mutex<PermitState>,
    fetched: Notify,
}

#[derive(Debug)]
struct PermitState {
    /// Permits that can be used.
    held: u32,
    /// Those of them that calls have waited for.
    reserved: Reservations,
    /// Permits that were used before the store gave them.
    owed: u32,
    /// The permits to hold beyond those that calls wait for. It grows while requests to the store
    /// follow each other quickly, and falls while the rate is used little.
    ahead: u32,
    /// True while a request to the store is under way.
    is_fetching: bool,
    /// The permits that waiting calls need.
    wanted: u32,
    /// Time of the last request.
    asked_at: Instant,
    /// The last reply.
    known: Option<KnownBucket>,
}

/// The bucket in the store at its last reply.
#[derive(Debug, Clone, Copy)]
struct KnownBucket {
    at: Instant,
    left: u32,
    /// The bucket has too few permits until then.
    refuses_until: Instant,
}

/// Permits that calls have waited for and take next. Notifications and refused requests never take
/// theirs, which are free again after a moment.
#[derive(Debug)]
struct Reservations {
    recent: u32,
    earlier: u32,
    /// Time of the last change of generations.
    turned_at: Instant,
}

impl Reservations {
    fn new(now: Instant) -> Self {
        Self { recent: 0, earlier: 0, turned_at: now }
    }

    /// Returns their number, without those that were not taken in time.
    fn count(&mut self, now: Instant) -> u32 {
        let age = now.saturating_duration_since(self.turned_at);
        if age >= RESERVATION_TIME {
            let is_late = age >= RESERVATION_TIME * 2;
            self.earlier = if is_late { 0 } else { self.recent };
            (self.recent, self.turned_at) = (0, now);
        }
        self.recent + self.earlier
    }

    /// Removes those of a call that takes its permits.
    fn remove(&mut self, cost: u32) {
        let of_earlier = self.earlier.min(cost);
        self.earlier -= of_earlier;
        self.recent = self.recent.saturating_sub(cost - of_earlier);
    }
}

impl RatePermits {
    pub(super) fn new(
        own: &Weak<Self>,
        rates: Weak<SharedRates>,
        name: String,
        rate: Rate,
    ) -> Self {
        let state = PermitState {
            held: 0,
            reserved: Reservations::new(clock::now()),
            owed: 0,
            ahead: 0,
            is_fetching: false,
            wanted: 0,
            asked_at: clock::now(),
            known: None,
        };
        let (own, fetched) = (Weak::clone(own), Notify::new());
        Self { own, rates, name, rate, state: Mutex::new(state), fetched }
    }

    /// Returns true if the bucket in the store would be full by now.
    pub(super) fn is_stale(&self, now: Instant) -> bool {
        let state = self.state.lock();
        !state.is_fetching && now.saturating_duration_since(state.asked_at) > self.rate.per
    }

    fn decide_degraded(&self) -> Option<PermitTaking> {
        self.rates.upgrade()?.decide_degraded()
    }

    /// The time in which one permit is refilled.
    fn refill_time(&self) -> Duration {
        self.rate.per / self.rate.count.get()
    }

    /// Returns the batch: the most permits of this rate that are held ahead, or used in advance.
    fn batch(&self) -> u32 {
        (self.rate.count.get() / BATCHES_PER_BURST).max(1)
    }

    /// The part of a batch that may be used in advance.
    fn most_owed(&self) -> u32 {
        (self.batch() / 5).max(1)
    }

    /// Requests permits, if no request is under way.
    fn fetch(&self, state: &mut PermitState, now: Instant) {
        let Some(own) = self.own.upgrade() else { return };
        let Some(rates) = self.rates.upgrade() else { return };
        if std::mem::replace(&mut state.is_fetching, true) {
            return;
        }
        let most_ahead = self.batch() - self.most_owed();
        let pause = now.saturating_duration_since(state.asked_at);
        if state.known.is_some() && pause < QUICK_PAUSE {
            state.ahead = (state.ahead * 2).clamp(1, most_ahead.max(1)).min(most_ahead);
        } else if pause > SLOW_PAUSE {
            state.ahead /= 4;
        }
        state.asked_at = now;
        // The needs of many calls are divided into batches, since some of them may be cancelled.
        let free = state.held.saturating_sub(state.reserved.count(now));
        let needed = (state.wanted + state.owed).saturating_sub(free).min(self.batch());
        let spare = state.ahead.saturating_sub(free.saturating_sub(state.wanted));
        let most = (needed + spare).max(1);
        let demand = PermitDemand { rate: self.rate, least: 1, most };
        let runtime = rates.health.runtime().clone();
        runtime.spawn(async move {
            let grant = rates.request(&own.name, &demand).await;
            own.finish_fetch(grant);
        });
    }

    fn finish_fetch(&self, grant: Option<PermitGrant>) {
        let mut state = self.state.lock();
        state.is_fetching = false;
        if let Some(grant) = grant {
            let now = clock::now();
            let paid = grant.taken.min(state.owed);
            state.owed -= paid;
            state.held += grant.taken - paid;
            let wait =
                if grant.wait.is_zero() { grant.wait } else { grant.wait.max(MIN_STORE_WAIT) };
            state.known =
                Some(KnownBucket { at: now, left: grant.left, refuses_until: now + wait });
        }
        drop(state);
        self.fetched.notify_waiters();
    }

    /// Waits until permits are reserved, or known to be missing.
    async fn wait(self: Arc<Self>, cost: u32) {
        self.state.lock().wanted += cost;
        let waiting = WaitingCall { permits: &self, cost };
        let _ = timeout(WAIT_TIMEOUT, async {
            loop {
                let mut fetched = std::pin::pin!(self.fetched.notified());
                fetched.as_mut().enable();
                {
                    let (mut state, now) = (self.state.lock(), clock::now());
                    if state.reserve(cost, now) || state.wait_for_refill(now).is_some() {
                        return;
                    }
                    self.fetch(&mut state, now);
                }
                fetched.await;
                if self.decide_degraded().is_some() {
                    return;
                }
            }
        })
        .await;
        drop(waiting);
    }

    fn decide(&self, state: &mut PermitState, cost: u32, now: Instant) -> PermitTaking {
        state.expire(now, self.rate.per);
        if state.held >= cost {
            return PermitTaking::Taken;
        }
        if let Some(wait) = state.wait_for_refill(now) {
            return PermitTaking::Over(wait.max(self.refill_time() * (cost - 1)));
        }
        // Another call has taken the permits that this one has waited for.
        if state.owed + cost <= self.most_owed() {
            return PermitTaking::Taken;
        }
        PermitTaking::Over(self.refill_time().max(MIN_STORE_WAIT))
    }
}

impl PermitState {
    /// Drops permits after the time in which their bucket would be full without them.
    fn expire(&mut self, now: Instant, after: Duration) {
        if now.saturating_duration_since(self.asked_at) > after && !self.is_fetching {
            (self.held, self.owed, self.known) = (0, 0, None);
            self.reserved = Reservations::new(now);
        }
    }

    /// Reserves permits for a call that takes them next.
    fn reserve(&mut self, cost: u32, now: Instant) -> bool {
        let is_free = self.held.saturating_sub(self.reserved.count(now)) >= cost;
        if is_free {
            self.reserved.recent += cost;
        }
        is_free
    }

    /// Returns the time in which the store has no permits; `None` if it may have some.
    fn wait_for_refill(&self, now: Instant) -> Option<Duration> {
        let wait = self.known?.refuses_until.saturating_duration_since(now);
        (!wait.is_zero()).then_some(wait)
    }
}

impl SharedPermits for RatePermits {
    fn take(&self, cost: NonZeroU32) -> PermitTaking {
        if let Some(degraded) = self.decide_degraded() {
            return degraded;
        }
        let (mut state, now, cost) = (self.state.lock(), clock::now(), cost.get());
        let decided = self.decide(&mut state, cost, now);
        if decided == PermitTaking::Taken {
            if state.held >= cost {
                state.held -= cost;
            } else {
                state.owed += cost;
            }
            state.reserved.remove(cost);
            let is_low = state.held <= state.ahead / 2 && state.ahead > 0;
            if (is_low || state.owed > 0) && state.wait_for_refill(now).is_none() {
                self.fetch(&mut state, now);
            }
        }
        decided
    }

    fn look(&self, cost: NonZeroU32) -> PermitTaking {
        if let Some(degraded) = self.decide_degraded() {
            return degraded;
        }
        let (mut state, now) = (self.state.lock(), clock::now());
        match self.decide(&mut state, cost.get(), now) {
            // Only the store knows.
            PermitTaking::Over(_) if state.wait_for_refill(now).is_none() => PermitTaking::Taken,
            decided => decided,
        }
    }

    fn remaining(&self) -> Option<u32> {
        if self.decide_degraded().is_some() {
            return None;
        }
        let (mut state, now) = (self.state.lock(), clock::now());
        state.expire(now, self.rate.per);
        let known = state.known?;
        let since = now.saturating_duration_since(known.at).as_nanos();
        let refilled = since / self.refill_time().as_nanos().max(1);
        let refilled = u32::try_from(refilled).unwrap_or(u32::MAX);
        let left = known.left.saturating_add(refilled).saturating_add(state.held);
        Some(left.min(self.rate.count.get()))
    }

    fn prepare(&self, cost: NonZeroU32) -> Option<PermitWait> {
        if self.decide_degraded().is_some() {
            return None;
        }
        let (mut state, now, cost) = (self.state.lock(), clock::now(), cost.get());
        state.expire(now, self.rate.per);
        if state.reserve(cost, now) || state.wait_for_refill(now).is_some() {
            return None;
        }
        drop(state);
        let own = self.own.upgrade()?;
        Some(Box::pin(own.wait(cost)))
    }
}

/// A call that waits for permits.
struct WaitingCall<'a> {
    permits: &'a RatePermits,
    cost: u32,
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        let mut state = self.permits.state.lock();
        state.wanted = state.wanted.saturating_sub(self.cost);
    }
}

/// A batch is this part of a burst, and at least one permit.
const BATCHES_PER_BURST: u32 = 20;
/// Shortest time for which permits are reserved, and half of the longest.
const RESERVATION_TIME: Duration = Duration::from_secs(1);
/// Requests to the store at shorter intervals fetch more permits.
const QUICK_PAUSE: Duration = Duration::from_millis(100);
/// Requests at longer intervals fetch fewer.
const SLOW_PAUSE: Duration = Duration::from_secs(1);
/// The shortest time in which a store that has too few permits is not asked again.
const MIN_STORE_WAIT: Duration = Duration::from_millis(20);
/// Time limit of a call's wait for permits.
const WAIT_TIMEOUT: Duration = Duration::from_secs(3);
