//! Lines about faults that repeat: a repeated fault is counted, and logged once a minute. A fault that
//! has not occurred for [`QUIET_INTERVAL`] is over, and logged as a new one when it returns.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use trunkline_core::clock;

/// The last faults of one part of the gateway, such as an instance of a server, in the log.
#[derive(Debug)]
pub struct FaultLog {
    /// The last few different faults, oldest first.
    faults: VecDeque<LoggedFault>,
    /// Maximum number of faults that are counted.
    max_faults: usize,
}

/// A [`FaultLog`] of a part that several tasks use.
#[derive(Debug, Default)]
pub struct SharedFaultLog(Mutex<FaultLog>);

#[derive(Debug)]
struct LoggedFault {
    subject: String,
    /// Number of times that it occurred.
    times: u64,
    /// Time of its last line.
    logged_at: Instant,
    /// Time at which it last occurred.
    noted_at: Instant,
}

impl Default for FaultLog {
    fn default() -> Self {
        Self::holding(MAX_LOGGED_FAULTS)
    }
}

impl FaultLog {
    /// Starts without faults, for this many subjects.
    pub const fn holding(max_faults: usize) -> Self {
        Self { faults: VecDeque::new(), max_faults }
    }

    /// Notes a fault. Returns the text of its line, or `None` if a line about it is recent.
    pub fn note(&mut self, text: &str, now: Instant) -> Option<String> {
        self.note_about(text, text, now)
    }

    /// Notes a fault with a text that may differ each time: faults of one subject are counted
    /// together.
    pub fn note_about(&mut self, subject: &str, text: &str, now: Instant) -> Option<String> {
        self.faults.retain(|fault| now.saturating_duration_since(fault.noted_at) < QUIET_INTERVAL);
        if let Some(fault) = self.faults.iter_mut().find(|fault| fault.subject == subject) {
            fault.times += 1;
            fault.noted_at = now;
            if now.saturating_duration_since(fault.logged_at) < LINE_INTERVAL {
                return None;
            }
            fault.logged_at = now;
            return Some(format!("still {text}, {} times", fault.times));
        }
        if self.faults.len() >= self.max_faults {
            self.faults.pop_front();
        }
        let subject = subject.to_owned();
        self.faults.push_back(LoggedFault { subject, times: 1, logged_at: now, noted_at: now });
        Some(text.to_owned())
    }

    /// Forgets all faults. The next one is logged at once.
    pub fn clear(&mut self) {
        self.faults.clear();
    }
}

impl SharedFaultLog {
    /// Starts without faults.
    pub const fn new() -> Self {
        Self::holding(MAX_LOGGED_FAULTS)
    }

    /// Starts without faults, for this many subjects.
    pub const fn holding(max_faults: usize) -> Self {
        Self(Mutex::new(FaultLog::holding(max_faults)))
    }

    /// Notes a fault now: see [`FaultLog::note_about`].
    pub fn note_about(&self, subject: &str, text: &str) -> Option<String> {
        self.0.lock().note_about(subject, text, clock::now())
    }
}

/// Interval of the lines about one fault.
const LINE_INTERVAL: Duration = Duration::from_mins(1);
/// Time without a fault after which it is over. Longer than the pauses between the attempts that note
/// one fault again and again.
const QUIET_INTERVAL: Duration = Duration::from_mins(10);
/// Maximum number of faults that are counted. Servers rarely alternate between more.
const MAX_LOGGED_FAULTS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_fault_is_logged_once_a_minute_with_its_count() {
        let (mut log, start) = (FaultLog::default(), clock::now());
        let mut note = |seconds, text| log.note(text, start + Duration::from_secs(seconds));
        assert_eq!(note(0, "refused").as_deref(), Some("refused"));
        for second in 1..17 {
            assert_eq!(note(second, "refused"), None, "{second}");
        }
        assert_eq!(note(20, "timed out").as_deref(), Some("timed out"), "another fault");
        assert_eq!(note(60, "refused").as_deref(), Some("still refused, 18 times"));
        assert_eq!(note(119, "refused"), None);
        assert_eq!(note(120, "refused").as_deref(), Some("still refused, 20 times"));
        log.clear();
        assert_eq!(log.note("refused", start).as_deref(), Some("refused"));
    }

    #[test]
    fn a_fault_that_returns_after_a_long_time_is_a_new_one() {
        let (mut log, start) = (FaultLog::default(), clock::now());
        assert_eq!(log.note("refused", start).as_deref(), Some("refused"));
        let nearly = start + QUIET_INTERVAL.saturating_sub(Duration::from_secs(1));
        assert_eq!(log.note("refused", nearly).as_deref(), Some("still refused, 2 times"));
        let later = nearly + QUIET_INTERVAL;
        assert_eq!(log.note("refused", later).as_deref(), Some("refused"));
        let soon = later + LINE_INTERVAL;
        assert_eq!(log.note("refused", soon).as_deref(), Some("still refused, 2 times"));
    }

    #[test]
    fn a_log_for_many_subjects_forgets_the_oldest_beyond_its_number() {
        let (mut log, now) = (FaultLog::holding(64), clock::now());
        let mut note = |number: u32| log.note_about(&number.to_string(), "text", now).is_some();
        assert!((0..64).all(&mut note), "each is new");
        assert!(!note(0) && !note(63), "as many are counted");
        assert!(note(64) && !note(1), "the oldest makes room");
        assert!(note(0), "it is forgotten");
        assert_eq!(log.faults.len(), 64);
    }

    #[test]
    fn faults_that_never_repeat_take_bounded_memory() {
        let (mut log, now) = (FaultLog::default(), clock::now());
        for number in 0..1000 {
            assert!(log.note(&format!("fault {number}"), now).is_some());
        }
        assert_eq!(log.faults.len(), MAX_LOGGED_FAULTS);
    }

    #[test]
    fn lines_about_one_subject_are_counted_together_whatever_they_say() {
        let (mut log, start) = (FaultLog::default(), clock::now());
        assert_eq!(log.note_about("a", "first", start).as_deref(), Some("first"));
        for second in 1..60 {
            let now = start + Duration::from_secs(second);
            assert_eq!(log.note_about("a", &format!("text {second}"), now), None);
        }
        let now = start + LINE_INTERVAL;
        assert_eq!(log.note_about("b", "other", now).as_deref(), Some("other"));
        assert_eq!(log.note_about("a", "last", now).as_deref(), Some("still last, 61 times"));
        let shared = SharedFaultLog::new();
        assert_eq!(shared.note_about("a", "one").as_deref(), Some("one"));
        assert_eq!(shared.note_about("a", "two"), None);
    }
}
