//! Log level of Legacy servers.
//!
//! Such a server has one level for its whole session, which several clients may share. The gateway
//! sets the most verbose level that its recent callers requested. Each client still receives only
//! the lines of its own level. A client without a level leaves the server's level unchanged.

use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::clock;
use crate::mcp::LogLevel;

/// Log level of one connection.
#[derive(Debug, Default)]
pub(crate) struct LogLevelControl(Mutex<SessionLevel>);

#[derive(Debug, Default)]
struct SessionLevel {
    /// Time of the last request for each level.
    wanted: [Option<Instant>; LogLevel::ALL.len()],
    /// The current level, and the number of the session in which it was set.
    set: Option<(u64, LogLevel)>,
}

impl LogLevelControl {
    /// Records a call that requests lines of this level. Returns the level to set before the call,
    /// if it differs from the one set in this session.
    pub(crate) fn before(&self, wants: Option<LogLevel>, session: u64) -> Option<LogLevel> {
        let wants = wants?;
        let now = clock::now();
        let mut state = self.0.lock();
        if let Some(wanted) = state.wanted.get_mut(wants as usize) {
            *wanted = Some(now);
        }
        let current = |wanted: &Option<Instant>| {
            wanted.is_some_and(|at| now.saturating_duration_since(at) < LEVEL_LIFETIME)
        };
        let most = LogLevel::ALL.into_iter().zip(&state.wanted).find(|(_, at)| current(at))?.0;
        let new = (session, most);
        (state.set.replace(new) != Some(new)).then_some(most)
    }
}

/// Returns the params of `logging/setLevel`.
pub(crate) fn params(level: LogLevel) -> Bytes {
    serde_json::json!({ "level": level.as_str() }).to_string().into()
}

/// Time that a client's level counts after its last call.
const LEVEL_LIFETIME: Duration = Duration::from_mins(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_most_curious_client_of_late_decides() {
        let levels = LogLevelControl::default();
        let (debug, info, error) = (LogLevel::Debug, LogLevel::Info, LogLevel::Error);
        assert_eq!(levels.before(None, 1), None, "as it is");
        assert_eq!(levels.before(Some(info), 1), Some(info));
        assert_eq!(levels.before(Some(error), 1), None, "less is filtered");
        assert_eq!(levels.before(Some(debug), 1), Some(debug));
        assert_eq!(levels.before(Some(info), 1), None);
        assert_eq!(levels.before(Some(info), 2), Some(debug), "a new session knows nothing");
        tokio::time::sleep(LEVEL_LIFETIME).await;
        assert_eq!(levels.before(Some(error), 2), Some(error), "the others are gone");
    }
}
