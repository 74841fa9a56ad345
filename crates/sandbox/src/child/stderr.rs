//! Logs a child's standard error, line by line.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::io::AsyncRead;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::output_log::OutputLog;

use trunkline_config::ServerSecrets;
use trunkline_core::clock;
use trunkline_core::codec::lines::{LineError, LineReader};
use trunkline_core::text::escape_controls;
use trunkline_protocol::call::ServerName;

/// The task that reads a child's standard error, and the last lines.
#[derive(Debug)]
pub(super) struct StderrLog {
    last: Arc<Mutex<LastLines>>,
    task: Option<JoinHandle<()>>,
    /// Dropped with the child. The task then reads the remaining output and ends, even if a process
    /// that left the group keeps the pipe open.
    _child_lives: oneshot::Sender<()>,
}

impl StderrLog {
    pub(super) fn start(
        server: ServerName,
        secrets: ServerSecrets,
        stderr: impl AsyncRead + Unpin + Send + 'static,
    ) -> Self {
        let (child_lives, child_gone) = oneshot::channel();
        let last = Arc::<Mutex<LastLines>>::default();
        let rate = LineRate::new(clock::real_now());
        let log = StderrLines { server, secrets, last: last.clone(), rate };
        let task = tokio::spawn(log.run(stderr, child_gone));
        Self { last, task: Some(task), _child_lives: child_lives }
    }

    pub(super) fn last_lines(&self) -> Vec<String> {
        self.last.lock().lines.iter().cloned().collect()
    }

    /// Keeps lines in a log, too. Those that have arrived already are usually none.
    pub(super) fn keep_in(&self, log: &OutputLog) {
        let mut last = self.last.lock();
        last.lines.iter().for_each(|line| log.note(line));
        last.log = Some(log.clone());
    }

    /// Waits briefly until all output of an ended child is logged.
    pub(super) async fn finish(&mut self) {
        if let Some(task) = &mut self.task {
            let _in_time = timeout(LAST_LINES_TIMEOUT, task).await;
            self.task = None;
        }
    }
}

/// The last lines of a child, and the log of its server.
#[derive(Debug, Default)]
struct LastLines {
    lines: VecDeque<String>,
    log: Option<OutputLog>,
}

struct StderrLines {
    server: ServerName,
    secrets: ServerSecrets,
    last: Arc<Mutex<LastLines>>,
    rate: LineRate,
}

impl StderrLines {
    async fn run(mut self, stderr: impl AsyncRead + Unpin, child_gone: oneshot::Receiver<()>) {
        let mut lines = LineReader::new(stderr, MAX_LINE);
        tokio::select! {
            () = self.copy(&mut lines) => {}
            _ = child_gone => {
                let _in_time = timeout(LAST_LINES_TIMEOUT, self.copy(&mut lines)).await;
            }
        }
        self.say_suppressed();
    }

    /// Cancel safe, because the reader is.
    async fn copy(&mut self, lines: &mut LineReader<impl AsyncRead + Unpin>) {
        loop {
            let Ok(line) = timeout(QUIET_TIME, lines.next()).await else {
                self.say_suppressed();
                continue;
            };
            match line {
                Ok(Some(line)) => {
                    let line = String::from_utf8_lossy(&line);
                    self.line(escape_controls(&self.secrets.hide_in(&line)));
                }
                Ok(None) | Err(LineError::Io(_)) => return,
                Err(LineError::TooLong { ends, .. }) => {
                    let head = String::from_utf8_lossy(&ends.head);
                    self.line(escape_controls(&self.secrets.hide_in_cut(&head)) + " … (cut)");
                }
            }
        }
    }

    fn line(&mut self, line: String) {
        if self.rate.allows(clock::real_now()) {
            self.say_suppressed();
            tracing::info!(target: "trunkline::server", server = %self.server, "{line}");
        }
        let mut last = self.last.lock();
        if let Some(log) = &last.log {
            log.note(&line);
        }
        if last.lines.len() >= LAST_LINES {
            last.lines.pop_front();
        }
        last.lines.push_back(line);
    }

    fn say_suppressed(&mut self) {
        let lines = std::mem::take(&mut self.rate.suppressed);
        if lines > 0 {
            tracing::warn!(target: "trunkline::server", server = %self.server, "{lines} lines suppressed");
        }
    }
}

/// A token bucket of [`LINE_BURST`] lines, refilled at [`PER_SECOND`].
struct LineRate {
    tokens: f64,
    at: Instant,
    suppressed: u64,
}

impl LineRate {
    fn new(now: Instant) -> Self {
        Self { tokens: LINE_BURST, at: now, suppressed: 0 }
    }

    fn allows(&mut self, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.tokens = (self.tokens + passed * PER_SECOND).min(LINE_BURST);
        self.at = now;
        // While lines are being dropped, wait for a second's worth instead of
        // alternating between single lines and notices of dropped ones.
        let needed = if self.suppressed > 0 { PER_SECOND } else { 1.0 };
        let allowed = self.tokens >= needed;
        if allowed {
            self.tokens -= 1.0;
        } else {
            self.suppressed += 1;
        }
        allowed
    }
}

/// Maximum number of logged bytes per line. Longer lines are clipped.
const MAX_LINE: usize = 4096;
/// Enough for a stack trace, and few enough that one server's output does not bury that of the
/// others.
const LINE_BURST: f64 = 50.0;
const PER_SECOND: f64 = 10.0;
/// Maximum number of lines kept as last words.
const LAST_LINES: usize = 5;
/// Time limit for the last lines of an ended child to arrive.
const LAST_LINES_TIMEOUT: Duration = Duration::from_millis(250);
/// Time without output after which the number of suppressed lines is logged.
const QUIET_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::captured_log::CapturedLog;

    #[test]
    fn a_burst_passes_then_a_second_of_lines_at_a_time() {
        let start = clock::real_now();
        let mut rate = LineRate::new(start);
        let passed = |rate: &mut LineRate, at, lines| {
            (0..lines).filter(|_| rate.allows(start + Duration::from_millis(at))).count()
        };
        assert_eq!(passed(&mut rate, 0, 150), 50);
        assert_eq!(rate.suppressed, 100);
        assert_eq!(passed(&mut rate, 500, 10), 0);
        assert!(rate.allows(start + Duration::from_secs(1)));
        assert_eq!(std::mem::take(&mut rate.suppressed), 110);
        assert_eq!(passed(&mut rate, 1000, 100), 9);
    }

    // Paused, so that no wait for the log's end is over before it.
    #[tokio::test(start_paused = true)]
    async fn the_last_lines_are_kept_and_long_ones_cut() {
        let text = format!("1\n2\n{}\n3\n4\n5\n", "x".repeat(10_000));
        let mut log = StderrLog::start(
            ServerName::new("test").unwrap(),
            ServerSecrets::default(),
            std::io::Cursor::new(text.into_bytes()),
        );
        log.finish().await;
        let cut = format!("{} … (cut)", "x".repeat(512));
        assert_eq!(log.last_lines(), ["2", &cut, "3", "4", "5"]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_line_shows_a_secret_not_even_one_that_was_cut() {
        let log = CapturedLog::start();
        let server = ServerName::new("s").unwrap();
        let secrets = ServerSecrets::new(["hunter2-hunter2"]);
        let text = format!(
            "key hunter2-hunter2\n{}hunter2-hunter2{}\n",
            "x".repeat(505),
            "x".repeat(9_000)
        );
        let text = std::io::Cursor::new(text.into_bytes());
        let mut lines = StderrLog::start(server, secrets, text);
        lines.finish().await;
        let cut = format!("{}*** … (cut)", "x".repeat(505));
        assert_eq!(lines.last_lines(), ["key ***", &cut]);
        let logged = log.text();
        assert!(logged.contains("key ***") && !logged.contains("hunter2"), "{logged}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_logged_in_part_and_the_rest_counted() {
        let log = CapturedLog::start();
        let server = ServerName::new("noisy").unwrap();
        let text = std::io::Cursor::new("one line of many\n".repeat(2_000).into_bytes());
        StderrLog::start(server, ServerSecrets::default(), text).finish().await;
        let logged = log.text();
        let lines: Vec<_> = logged.lines().collect();
        assert!((50..110).contains(&lines.len()), "{}", lines.len());
        assert!(lines[0].contains("trunkline::server: one line of many server=noisy"), "{logged}");
        assert!(lines.last().unwrap().contains("lines suppressed"));
    }
}
