//! The buffer between logging callers and the writing thread.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use tracing_subscriber::fmt::MakeWriter;

use super::LogFormat;

/// Maximum bytes of queued lines; further lines are dropped.
const CAPACITY: usize = 1 << 20;

/// With this many bytes queued, the writer stops waiting for more.
const ENOUGH: usize = CAPACITY / 8;

/// Time for which the writer collects lines after a write. The first line after a pause is written
/// at once: it may be the address of a gateway that just started.
const GATHER: Duration = Duration::from_millis(20);

/// Time limit for the last lines when the process exits.
const LAST_LINES: Duration = Duration::from_secs(1);

/// Accepts whole lines and never waits for the file descriptor.
#[derive(Debug, Clone)]
pub(super) struct Sink(Arc<SinkState>);

/// Ends the writer when dropped, after the queued lines are written.
#[derive(Debug)]
pub(super) struct Flusher(Arc<SinkState>);

#[derive(Debug, Default)]
struct SinkState {
    waiting: Mutex<QueuedLines>,
    /// Wakes the writer: for the first line, at [`ENOUGH`] bytes, or to end.
    writer: Condvar,
    /// Wakes [`Flusher`]: the writer has ended.
    ended: Condvar,
}

#[derive(Debug, Default)]
struct QueuedLines {
    lines: Vec<u8>,
    lost: u64,
    stage: SinkStage,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum SinkStage {
    /// Lines are accepted and written.
    #[default]
    Open,
    /// The writer writes the remaining lines, without gathering.
    Closing,
    /// The writer has ended.
    Ended,
}

/// Starts the thread that writes to `out`.
pub(super) fn start_sink(
    out: impl Write + Send + 'static,
    format: LogFormat,
) -> io::Result<(Sink, Flusher)> {
    let shared = Arc::new(SinkState::default());
    let writer = Arc::clone(&shared);
    thread::Builder::new().name("log".to_owned()).spawn(move || writer.write_all(out, format))?;
    Ok((Sink(Arc::clone(&shared)), Flusher(shared)))
}

impl SinkState {
    fn lock(&self) -> MutexGuard<'_, QueuedLines> {
        self.waiting.lock()
    }

    fn push_line(&self, line: &[u8]) {
        let mut waiting = self.lock();
        let before = waiting.lines.len();
        if before + line.len() > CAPACITY || waiting.stage == SinkStage::Ended {
            waiting.lost += 1;
            return;
        }
        waiting.lines.extend_from_slice(line);
        let after = waiting.lines.len();
        drop(waiting);
        if before == 0 || (before < ENOUGH && after >= ENOUGH) {
            self.writer.notify_one();
        }
    }

    /// Runs the loop of the writer thread.
    fn write_all(&self, mut out: impl Write, format: LogFormat) {
        let mut lines = Vec::new();
        while let Some(lost) = self.take(&mut lines) {
            if lost > 0 {
                lines.extend_from_slice(lost_lines_notice(lost, format).as_bytes());
            }
            // If the log itself cannot be written, there is nowhere to report it.
            let _ = out.write_all(&lines).and_then(|()| out.flush());
            lines.clear();
            self.gather();
        }
        self.lock().stage = SinkStage::Ended;
        self.ended.notify_all();
    }

    /// Waits for lines and takes them all; `None` after the last ones.
    fn take(&self, lines: &mut Vec<u8>) -> Option<u64> {
        let mut waiting = self.lock();
        self.writer.wait_while(&mut waiting, |w| w.lines.is_empty() && w.stage == SinkStage::Open);
        if waiting.lines.is_empty() && waiting.lost == 0 {
            return None;
        }
        std::mem::swap(&mut waiting.lines, lines);
        Some(std::mem::take(&mut waiting.lost))
    }

    /// Waits for further lines, to write them together.
    fn gather(&self) {
        let mut waiting = self.lock();
        let few = |w: &mut QueuedLines| w.lines.len() < ENOUGH && w.stage == SinkStage::Open;
        self.writer.wait_while_for(&mut waiting, few, GATHER);
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        if waiting.stage == SinkStage::Open {
            waiting.stage = SinkStage::Closing;
        }
        self.0.writer.notify_one();
        self.0.ended.wait_while_for(&mut waiting, |w| w.stage != SinkStage::Ended, LAST_LINES);
    }
}

/// The subscriber formats a complete line and writes it with one call.
impl Write for &Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.push_line(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Sink {
    type Writer = &'w Sink;

    fn make_writer(&'w self) -> Self::Writer {
        self
    }
}

fn lost_lines_notice(lost: u64, format: LogFormat) -> String {
    let text = "log lines were lost: standard error is read too slowly";
    match format {
        LogFormat::Human => format!("WARN {lost} {text}\n"),
        LogFormat::Json => {
            format!("{{\"level\":\"WARN\",\"lost\":{lost},\"message\":\"{text}\"}}\n")
        }
    }
}
