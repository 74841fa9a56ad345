//! Lines about the faults of an instance. A repeated fault is counted, and logged once a minute.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

/// The last faults of an instance in the log.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    /// The last few different faults, oldest first.
    faults: VecDeque<LoggedFault>,
}

#[derive(Debug)]
struct LoggedFault {
    text: String,
    /// Number of times that it occurred.
    times: u64,
    /// Time of its last line.
    logged_at: Instant,
}

impl FaultLog {
    /// Notes a fault. Returns the text of its line, or `None` if a line about it is recent.
    pub(super) fn note(&mut self, text: &str, now: Instant) -> Option<String> {
        if let Some(fault) = self.faults.iter_mut().find(|fault| fault.text == text) {
            fault.times += 1;
            if now.saturating_duration_since(fault.logged_at) < LINE_INTERVAL {
                return None;
            }
            fault.logged_at = now;
            return Some(format!("still {text}, {} times", fault.times));
        }
        if self.faults.len() >= MAX_LOGGED_FAULTS {
            self.faults.pop_front();
        }
        let text = text.to_owned();
        self.faults.push_back(LoggedFault { text: text.clone(), times: 1, logged_at: now });
        Some(text)
    }

    /// Forgets all faults. The next one is logged at once.
    pub(super) fn clear(&mut self) {
        self.faults.clear();
    }
}

/// Interval of the lines about one fault.
const LINE_INTERVAL: Duration = Duration::from_mins(1);
/// Maximum number of faults that are counted. Servers rarely alternate between more.
const MAX_LOGGED_FAULTS: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

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
    fn faults_that_never_repeat_take_bounded_memory() {
        let (mut log, now) = (FaultLog::default(), clock::now());
        for number in 0..1000 {
            assert!(log.note(&format!("fault {number}"), now).is_some());
        }
        assert_eq!(log.faults.len(), MAX_LOGGED_FAULTS);
    }
}
