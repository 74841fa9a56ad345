//! The clock: the current time, from one place.
//!
//! Clippy bans the clocks of the standard library and of tokio elsewhere. Some crates read the
//! system's clock themselves: `governor` for rates, and `jiff` for the timestamps of `/status` and of
//! some commands. Pure code takes the time as an argument. Unlike tokio's timers, nothing here waits.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as RealInstant, SystemTime};

use tokio::time::Instant;

/// The monotonic clock of timers. Does not advance while a test pauses tokio's time.
#[inline]
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The monotonic clock for measurements, which tests cannot pause.
#[inline]
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn real_now() -> RealInstant {
    RealInstant::now()
}

/// The time of day, for timestamps. It may jump.
#[inline]
#[expect(clippy::disallowed_methods, reason = "this is the clock")]
pub fn wall_now() -> SystemTime {
    SystemTime::now()
}

/// The time of day, as time since 1970. Zero if the clock is set before that.
#[inline]
pub fn unix_now() -> Duration {
    wall_now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The processor time that the calling thread has used, for limits.
#[cfg(target_os = "linux")]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// The time of the last use, updated without a lock.
#[derive(Debug)]
pub struct LastUse {
    created: Instant,
    /// In milliseconds after `created`.
    used: AtomicU64,
}

impl LastUse {
    /// Created at this time, and not used since.
    #[inline]
    pub fn new(created: Instant) -> Self {
        Self { created, used: AtomicU64::new(0) }
    }

    /// Records a use at this time.
    #[inline]
    pub fn touch(&self, now: Instant) {
        let since = now.saturating_duration_since(self.created).as_millis();
        self.used.store(u64::try_from(since).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// The time of creation.
    #[inline]
    pub fn created(&self) -> Instant {
        self.created
    }

    /// The time of the last use; `None` if there was none after the first millisecond.
    pub fn last_if_used(&self) -> Option<Instant> {
        (self.used.load(Ordering::Relaxed) > 0).then(|| self.last())
    }

    /// The time of the last use, to the millisecond.
    #[inline]
    pub fn last(&self) -> Instant {
        self.created + Duration::from_millis(self.used.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_use_counts_to_the_millisecond() {
        let created = now();
        let used = LastUse::new(created);
        assert_eq!((used.last(), used.last_if_used()), (created, None));
        used.touch(created + Duration::from_micros(2500));
        assert_eq!(used.last(), created + Duration::from_millis(2));
        assert_eq!(used.last_if_used(), Some(used.last()));
        assert_eq!(used.created(), created);
    }
}
