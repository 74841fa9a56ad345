//! The switch of the observation, and its observers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use trunkline_core::clock;

use super::call::ObservedCall;
use super::in_flight::{CallInFlight, FlightPlace, FlightTable, StartedCall};
use super::steps::CallTimer;
use crate::recent::{
    LiveItem, LiveItems, Numbered, RecentBounds, RecentItems, TooManyObserversError,
};

/// The recent calls and their observers. Calls are kept during an observation, for
/// [`OBSERVATION_LEASE`] after the last look at them, or always with `admin.recent`.
#[derive(Debug)]
pub struct CallObservers {
    /// True if the next call is observed. It may have to be switched off: see [`Self::begin`].
    on: AtomicBool,
    lease: Mutex<ObservationLease>,
    calls: RecentItems<ObservedCall>,
    /// The calls that are observed and have not ended.
    in_flight: Arc<Mutex<FlightTable>>,
}

#[derive(Debug, Default)]
struct ObservationLease {
    /// The setting `admin.recent`.
    recent: usize,
    /// The end of the lease of the last look.
    until: Option<Instant>,
}

/// The calls that an observer receives.
#[derive(Debug)]
pub struct LiveCalls {
    /// `None` once dropped.
    live: Option<LiveItems<ObservedCall>>,
    of: Arc<CallObservers>,
}

impl Default for CallObservers {
    fn default() -> Self {
        let (on, lease) = (AtomicBool::new(false), Mutex::default());
        let calls = RecentItems::new(&[bounds(OBSERVED_CALLS)]);
        Self { on, lease, calls, in_flight: Arc::default() }
    }
}

impl CallObservers {
    /// Keeps this many calls also without observers.
    pub fn set_recent(&self, recent: usize) {
        let mut lease = self.lease.lock();
        lease.recent = recent;
        self.follow(&mut lease);
    }

    /// Returns true if calls may be observed. It costs one relaxed load.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// Returns the timer of a call that starts now; `None` without an observation.
    #[cold]
    pub fn begin(&self, now: Instant) -> Option<Arc<CallTimer>> {
        self.end_lease(now);
        self.is_on().then(|| CallTimer::start(now))
    }

    /// Lists an observed call as one in flight, until the place is dropped; `None` if there are too
    /// many.
    #[cold]
    pub fn enter_flight(
        &self,
        call: StartedCall<'_>,
        id: &str,
        timer: &Arc<CallTimer>,
    ) -> Option<FlightPlace> {
        FlightPlace::enter(&self.in_flight, CallInFlight::new(call, id, timer))
    }

    /// Returns the observed calls that have not ended, the oldest first. Calls are observed for some
    /// time from then on; those that had begun before are missing.
    pub fn in_flight(&self) -> Vec<Arc<CallInFlight>> {
        self.look(clock::real_now());
        self.in_flight.lock().list()
    }

    /// Adds a call that has ended.
    pub fn add(&self, call: ObservedCall) {
        let bytes = call.bytes();
        self.calls.push(0, call, bytes);
    }

    /// Returns the matching calls before the one with this number, the newest first. Calls are
    /// observed for some time from then on.
    pub fn list(
        &self,
        before: Option<u64>,
        limit: usize,
        matches: impl Fn(&ObservedCall) -> bool,
    ) -> Vec<Arc<Numbered<ObservedCall>>> {
        self.look(clock::real_now());
        self.calls.select(before, limit, matches)
    }

    /// Returns the call with this id. Calls are observed for some time from then on.
    pub fn find(&self, id: &str) -> Option<Arc<Numbered<ObservedCall>>> {
        self.look(clock::real_now());
        self.calls.find(|call| call.id == id)
    }

    /// Observes all calls that end from now on, after the last matching ones up to a limit.
    ///
    /// # Errors
    /// [`TooManyObserversError`].
    pub fn observe(
        self: &Arc<Self>,
        limit: usize,
        matches: impl Fn(&ObservedCall) -> bool,
    ) -> Result<LiveCalls, TooManyObserversError> {
        self.end_lease(clock::real_now());
        let live = Some(self.calls.observe(limit, matches)?);
        self.renew(clock::real_now());
        Ok(LiveCalls { live, of: Arc::clone(self) })
    }

    /// Drops the calls of a lease that is over, and begins another one.
    fn look(&self, now: Instant) {
        self.end_lease(now);
        self.renew(now);
    }

    /// Ends a lease that is over, unless there are observers.
    fn end_lease(&self, now: Instant) {
        let mut lease = self.lease.lock();
        if lease.until.is_some_and(|until| until <= now) && self.calls.observers() == 0 {
            lease.until = None;
            self.follow(&mut lease);
        }
    }

    /// Renews the lease.
    fn renew(&self, now: Instant) {
        let mut lease = self.lease.lock();
        lease.until = Some(now + OBSERVATION_LEASE);
        self.follow(&mut lease);
    }

    /// Sets switch and bounds. Without an observation the calls are dropped.
    fn follow(&self, lease: &mut ObservationLease) {
        let kept = match (lease.recent, lease.until) {
            (0, None) => 0,
            (recent, None) => recent,
            (recent, Some(_)) => recent.max(OBSERVED_CALLS),
        };
        self.calls.set_bounds(0, bounds(kept));
        self.on.store(kept > 0, Ordering::Relaxed);
    }
}

impl LiveCalls {
    /// Waits for the next call; `None` if no more can follow.
    ///
    /// # Cancel safety
    /// Safe: no call is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<LiveItem<ObservedCall>> {
        self.live.as_mut()?.next().await
    }
}

impl Drop for LiveCalls {
    fn drop(&mut self) {
        self.live = None;
        // The calls that were observed can be looked at for some more time.
        self.of.renew(clock::real_now());
    }
}

fn bounds(items: usize) -> RecentBounds {
    RecentBounds { items, bytes: MAX_RECENT_BYTES }
}

/// Time for which calls are kept after a look at them.
const OBSERVATION_LEASE: Duration = Duration::from_mins(1);
/// Calls that are kept during an observation.
const OBSERVED_CALLS: usize = 1000;
/// Limit of the bytes of all kept calls.
const MAX_RECENT_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: &str) -> ObservedCall {
        ObservedCall::of(&crate::log::tests::record(), id.to_owned(), clock::wall_now())
    }

    fn ids(observers: &CallObservers) -> Vec<String> {
        observers.calls.select(None, 100, |_| true).iter().map(|it| it.item.id.clone()).collect()
    }

    #[test]
    fn calls_are_kept_for_a_minute_after_a_look_and_then_dropped() {
        let observers = CallObservers::default();
        let now = clock::real_now();
        assert!(!observers.is_on());
        assert!(observers.list(None, 10, |_| true).is_empty());
        assert!(observers.is_on() && observers.begin(now).is_some());
        observers.add(call("a"));
        assert_eq!(ids(&observers), ["a"]);
        let late = now + OBSERVATION_LEASE + Duration::from_secs(5);
        assert!(observers.begin(late).is_none());
        assert!(!observers.is_on() && ids(&observers).is_empty());
    }

    #[test]
    fn a_look_after_the_minute_drops_the_calls_of_before() {
        let observers = CallObservers::default();
        let now = clock::real_now();
        observers.look(now);
        observers.add(call("a"));
        observers.look(now + OBSERVATION_LEASE / 2);
        assert_eq!(ids(&observers), ["a"]);
        observers.look(now + OBSERVATION_LEASE * 2);
        assert!(ids(&observers).is_empty() && observers.is_on());
    }

    #[test]
    fn an_observer_keeps_the_observation_and_its_end_renews_the_lease() {
        let observers = Arc::new(CallObservers::default());
        let live = observers.observe(0, |_| true).unwrap();
        let late = clock::real_now() + OBSERVATION_LEASE + Duration::from_secs(5);
        assert!(observers.begin(late).is_some());
        observers.add(call("a"));
        drop(live);
        assert!(observers.begin(clock::real_now()).is_some());
        assert_eq!(ids(&observers), ["a"]);
        assert!(observers.begin(late + OBSERVATION_LEASE).is_none());
    }

    #[test]
    fn the_setting_keeps_calls_without_observers() {
        let observers = CallObservers::default();
        observers.set_recent(2);
        let now = clock::real_now();
        assert!(observers.begin(now).is_some());
        for id in ["a", "b", "c"] {
            observers.add(call(id));
        }
        assert_eq!(ids(&observers), ["c", "b"]);
        observers.set_recent(0);
        assert!(!observers.is_on() && ids(&observers).is_empty());
    }

    /// Ends the lease as if its minute were over.
    fn let_lease_end(observers: &CallObservers) {
        observers.lease.lock().until = Some(clock::real_now());
    }

    #[test]
    fn a_look_at_one_call_begins_an_observation() {
        let observers = CallObservers::default();
        assert!(observers.find("a").is_none());
        assert!(observers.is_on());
        observers.add(call("a"));
        assert_eq!(observers.find("a").unwrap().item.id, "a");
        let_lease_end(&observers);
        assert!(observers.find("a").is_none(), "of before");
    }

    #[test]
    fn the_end_of_a_long_observation_begins_another_minute() {
        let observers = Arc::new(CallObservers::default());
        let live = observers.observe(0, |_| true).unwrap();
        observers.add(call("a"));
        let_lease_end(&observers);
        drop(live);
        assert!(observers.begin(clock::real_now()).is_some());
        assert_eq!(ids(&observers), ["a"]);
    }

    #[test]
    fn an_observer_after_the_minute_gets_no_calls_of_before() {
        let observers = Arc::new(CallObservers::default());
        observers.list(None, 1, |_| true);
        observers.add(call("a"));
        let_lease_end(&observers);
        drop(observers.observe(10, |_| true).unwrap());
        assert!(ids(&observers).is_empty());
    }

    #[test]
    fn an_observation_keeps_at_least_a_thousand_calls_and_at_most_eight_mebibytes() {
        let observers = CallObservers::default();
        observers.set_recent(2);
        observers.look(clock::real_now());
        let add = |count: usize| (0..count).for_each(|_| observers.add(call("a")));
        add(OBSERVED_CALLS + 5);
        assert_eq!(observers.calls.select(None, 10_000, |_| true).len(), OBSERVED_CALLS);
        observers.set_recent(1_000_000);
        add(2 * MAX_RECENT_BYTES / call("a").bytes());
        let kept = observers.calls.select(None, 1_000_000, |_| true);
        let bytes: usize = kept.iter().map(|it| it.item.bytes()).sum();
        assert!(kept.len() > OBSERVED_CALLS && bytes <= MAX_RECENT_BYTES, "{bytes}");
    }
}
