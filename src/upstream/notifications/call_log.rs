//! Log lines for one call that arrive on a stream other than the call's.

use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use crate::call::Notice;
use crate::mcp::LogLevel;

/// Log lines that wait for a call. Uses no memory until one arrives.
#[derive(Debug)]
pub(crate) struct CallLog {
    least: LogLevel,
    lines: Mutex<VecDeque<Notice>>,
    news: Notify,
}

impl CallLog {
    /// Creates an empty queue for lines of at least this level.
    pub(crate) fn new(least: LogLevel) -> Self {
        Self { least, lines: Mutex::default(), news: Notify::new() }
    }

    /// Queues a line, if its level is high enough.
    pub(crate) fn hear(&self, method: &str, params: &Bytes) {
        let notice = Notice::line(method.to_owned(), params.clone(), self.least);
        let mut lines = self.lines();
        // A slow client loses lines, never its response.
        let fits = |notice: &Notice| {
            let waiting: usize = lines.iter().map(Notice::size).sum();
            lines.len() < MAX_CALL_LOG_LINES
                && (lines.is_empty() || waiting + notice.size() <= WAITING_BYTES)
        };
        if let Some(notice) = notice.filter(fits) {
            lines.push_back(notice);
            self.news.notify_one();
        }
    }

    /// Waits until there is a line.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn arrived(&self) {
        while self.lines().is_empty() {
            self.news.notified().await;
        }
    }

    /// Returns the next line.
    ///
    /// # Cancel safety
    /// Safe.
    pub(crate) async fn next(&self) -> Notice {
        loop {
            let line = self.lines().pop_front();
            if let Some(line) = line {
                return line;
            }
            self.news.notified().await;
        }
    }

    fn lines(&self) -> MutexGuard<'_, VecDeque<Notice>> {
        self.lines.lock()
    }
}

/// Maximum number of lines that wait for one call.
const MAX_CALL_LOG_LINES: usize = 64;
/// Maximum size of these lines in bytes. A single line may exceed it.
const WAITING_BYTES: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt as _;

    #[tokio::test]
    async fn lines_that_are_severe_enough_wait_and_not_too_many() {
        let listener = CallLog::new(LogLevel::Warning);
        let line = |level: &str| {
            listener.hear("m", &Bytes::from(format!(r#"{{"level":"{level}"}}"#)));
        };
        line("debug");
        assert!(listener.arrived().now_or_never().is_none());
        for _ in 0..2 * MAX_CALL_LOG_LINES {
            line("alert");
        }
        listener.arrived().await;
        let mut heard = 0;
        while listener.next().now_or_never().is_some() {
            heard += 1;
        }
        assert_eq!(heard, MAX_CALL_LOG_LINES);
    }

    #[tokio::test]
    async fn large_lines_wait_up_to_a_sum_of_bytes() {
        let listener = CallLog::new(LogLevel::Warning);
        let line = |size: usize| {
            let data = "x".repeat(size);
            let params = format!(r#"{{"level":"alert","data":"{data}"}}"#);
            listener.hear("m", &Bytes::from(params));
        };
        line(2 * WAITING_BYTES);
        assert!(listener.next().now_or_never().is_some(), "one always fits");
        for _ in 0..10 {
            line(WAITING_BYTES / 4 - 100);
        }
        let heard = std::iter::from_fn(|| listener.next().now_or_never());
        assert_eq!(heard.count(), 4);
    }
}
