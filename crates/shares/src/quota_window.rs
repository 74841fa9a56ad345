//! Windows of time that quotas count in.

use std::num::NonZeroU64;
use std::time::Duration;

use trunkline_config::CountUnit;

/// A window of a quota: one of the equally long parts of the time since 1970, so that days begin at
/// midnight UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaWindow {
    /// Its length in seconds.
    pub seconds: NonZeroU64,
    /// The number of windows of this length before it, since 1970.
    pub number: u64,
}

impl QuotaWindow {
    /// Returns the window of a unit at a time.
    pub fn at(unit: CountUnit, since_1970: Duration) -> Self {
        let seconds = NonZeroU64::new(unit.length().as_secs()).unwrap_or(NonZeroU64::MIN);
        Self::of_length(seconds, since_1970)
    }

    /// Returns the window of this length at a time.
    pub fn of_length(seconds: NonZeroU64, since_1970: Duration) -> Self {
        Self { seconds, number: since_1970.as_secs() / seconds }
    }

    /// Returns its length.
    pub fn length(self) -> Duration {
        Duration::from_secs(self.seconds.get())
    }

    /// Returns the time from `since_1970` to its end, rounded up to milliseconds: the wait that a
    /// refused call learns is never too short. Zero if it has ended.
    pub fn rest(self, since_1970: Duration) -> Duration {
        let end =
            Duration::from_secs(self.seconds.get().saturating_mul(self.number.saturating_add(1)));
        let rest = end.saturating_sub(since_1970);
        Duration::from_millis(
            u64::try_from(rest.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX),
        )
    }

    /// Returns true if this window, which is the current one, ends `known`, which has the same length.
    /// A clock that is set back by a small step does not begin an earlier window.
    pub fn replaces(self, known: Self) -> bool {
        let step = CLOCK_STEP.as_secs().div_ceil(self.seconds.get());
        self.number > known.number || known.number - self.number > step
    }
}

/// Steps back of the clock that begin no earlier window, rounded up to windows. It also covers the time
/// between the readings of the clock by two calls.
const CLOCK_STEP: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const MIDNIGHT: Duration = Duration::from_hours(20_000 * 24);

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn windows_are_the_seconds_minutes_hours_and_days_of_utc() {
        for (unit, after, number, rest) in [
            (CountUnit::Second, millis(0), 20_000 * 86_400, millis(1000)),
            (CountUnit::Second, millis(1400), 20_000 * 86_400 + 1, millis(600)),
            (CountUnit::Second, Duration::from_nanos(999_000_001), 20_000 * 86_400, millis(1)),
            (CountUnit::Minute, millis(61_500), 20_000 * 1440 + 1, millis(58_500)),
            (CountUnit::Hour, millis(3_599_999), 20_000 * 24, millis(1)),
            (CountUnit::Day, millis(86_399_999), 20_000, millis(1)),
            (CountUnit::Day, millis(86_400_000), 20_001, millis(86_400_000)),
        ] {
            let now = MIDNIGHT + after;
            let window = QuotaWindow::at(unit, now);
            assert_eq!((window.number, window.rest(now)), (number, rest), "{unit:?} {after:?}");
            assert_eq!(window.length(), unit.length());
        }
    }

    #[test]
    fn a_later_window_ends_one_and_small_steps_of_the_clock_end_none() {
        for (unit, known, now, replaces) in [
            (CountUnit::Second, 100, 100, false),
            (CountUnit::Second, 100, 101, true),
            (CountUnit::Second, 100, 90, false),
            (CountUnit::Second, 100, 89, true),
            (CountUnit::Minute, 100, 99 * 60, false),
            (CountUnit::Minute, 100, 99 * 60 - 1, true),
            (CountUnit::Day, 100, 101 * 86_400, true),
            (CountUnit::Day, 100, 99 * 86_400, false),
            (CountUnit::Day, 100, 99 * 86_400 - 1, true),
            (CountUnit::Day, u64::MAX, 99 * 86_400, true),
        ] {
            let current = QuotaWindow::at(unit, Duration::from_secs(now));
            let known = QuotaWindow { number: known, ..current };
            assert_eq!(current.replaces(known), replaces, "{known:?} {now}");
        }
    }

    #[test]
    fn the_rest_of_an_absurd_window_is_bounded() {
        let window = QuotaWindow { seconds: NonZeroU64::MAX, number: u64::MAX };
        assert!(window.rest(MIDNIGHT) > MIDNIGHT);
        assert_eq!(window.rest(Duration::MAX), Duration::ZERO);
    }
}
