//! The time of log lines for people.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::json_text::SecondText;

/// Clock of log lines.
#[derive(Debug)]
pub(crate) enum LineClock {
    /// Date and time in UTC, for files and pipes.
    Utc,
    /// The local time of day, for a terminal.
    Local(LocalClock),
}

/// The local time of day, with the day of the last line.
#[derive(Debug)]
pub(crate) struct LocalClock {
    zone: TimeZone,
    /// Local days since 1970, plus one. Zero before the first line.
    day: AtomicU64,
}

/// The time of one line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LineTime<'a> {
    /// The date, if the last line was not of this day: a line of its own.
    pub(crate) new_day: Option<&'a str>,
    /// `14:02:11` on a terminal, otherwise with the date.
    pub(crate) text: &'a str,
    /// `Z` after a time in UTC.
    pub(crate) zone: &'static str,
}

impl LineClock {
    /// Returns the clock of a terminal, in the time zone of the system.
    pub(crate) fn local() -> Self {
        Self::in_zone(TimeZone::system())
    }

    fn in_zone(zone: TimeZone) -> Self {
        Self::Local(LocalClock { zone, day: AtomicU64::new(0) })
    }

    /// Returns the text of a time since 1970.
    pub(crate) fn read<'a>(&self, now: Duration, second: &'a mut SecondText) -> LineTime<'a> {
        let Self::Local(clock) = self else {
            return LineTime { new_day: None, text: second.of(now), zone: "Z" };
        };
        let now = clock.shift(now);
        let text = second.of(now);
        let (date, time) = text.split_once('T').unwrap_or(("", text));
        let day = now.as_secs() / SECONDS_PER_DAY + 1;
        let is_new = clock.day.swap(day, Ordering::Relaxed) != day;
        LineTime { new_day: is_new.then_some(date), text: time, zone: "" }
    }
}

impl LocalClock {
    /// Returns the time whose text in UTC is the local time.
    fn shift(&self, now: Duration) -> Duration {
        let seconds = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        let offset = Timestamp::from_second(seconds)
            .map_or(0, |time| i64::from(self.zone.to_offset(time).seconds()));
        Duration::from_secs(u64::try_from(seconds.saturating_add(offset)).unwrap_or_default())
    }
}

const SECONDS_PER_DAY: u64 = 86_400;

#[cfg(test)]
mod tests {
    use jiff::tz::offset;

    use super::*;

    #[test]
    fn a_terminal_shows_the_local_time_and_the_date_once_a_day() {
        let clock = LineClock::in_zone(TimeZone::fixed(offset(2)));
        let mut second = SecondText::new();
        // 2026-07-28T21:59:59Z
        for (seconds, new_day, text) in [
            (1_785_275_999, Some("2026-07-28"), "23:59:59"),
            (1_785_275_999, None, "23:59:59"),
            (1_785_276_000, Some("2026-07-29"), "00:00:00"),
            (1_785_276_001, None, "00:00:01"),
        ] {
            let time = clock.read(Duration::from_secs(seconds), &mut second);
            assert_eq!(time, LineTime { new_day, text, zone: "" }, "{seconds}");
        }
    }

    #[test]
    fn files_have_the_whole_time() {
        let mut second = SecondText::new();
        let time = LineClock::Utc.read(Duration::from_secs(1_785_275_999), &mut second);
        assert_eq!(time, LineTime { new_day: None, text: "2026-07-28T21:59:59", zone: "Z" });
    }
}
