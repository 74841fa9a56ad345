//! The queue between logging callers and the writing thread.

use std::io::{self, Write};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use super::LogFormat;
use super::human::wrap::push_wrapped;
use crate::batch_queue::{BatchEntry, BatchQueue, QueueShare, RecordBatch, WriterTask};

/// Accepts whole lines and never waits for the file descriptor.
#[derive(Debug, Clone)]
pub(super) struct Sink(Arc<BatchQueue<()>>);

/// Ends the writer when dropped, after the queued lines are written.
#[derive(Debug)]
pub(super) struct Flusher(Arc<BatchQueue<()>>);

/// Returns the width at which lines are wrapped, if they are.
pub(super) type WidthSource = fn() -> Option<usize>;

/// Starts the thread that writes to `out`.
pub(super) fn start_sink(
    out: impl Write + Send + 'static,
    format: LogFormat,
    width: WidthSource,
) -> io::Result<(Sink, Flusher)> {
    let queue = Arc::new(BatchQueue::new(MAX_QUEUED_BYTES));
    let lines = Arc::clone(&queue);
    let write = move || write_lines(&lines, out, LineFraming { format, width });
    thread::Builder::new().name("log".to_owned()).spawn(write)?;
    Ok((Sink(Arc::clone(&queue)), Flusher(queue)))
}

/// Form in which the writer thread writes lines.
#[derive(Clone, Copy)]
struct LineFraming {
    format: LogFormat,
    width: WidthSource,
}

/// Runs the loop of the writer thread.
fn write_lines(queue: &BatchQueue<()>, mut out: impl Write, framing: LineFraming) {
    let (mut held, mut text, mut pause) = (RecordBatch::default(), Vec::new(), Duration::ZERO);
    while let WriterTask::Write = queue.next_task(&mut held, pause) {
        // Asked for each batch, because the window may be resized.
        let width = (framing.width)();
        for entry in held.entries() {
            match (entry, width) {
                (BatchEntry::Record(line), Some(width)) => push_wrapped(&mut text, line, width),
                (BatchEntry::Record(line), None) => text.extend_from_slice(line),
                (BatchEntry::Lost(lost, _), _) => {
                    text.extend_from_slice(lost_lines_notice(lost, framing.format).as_bytes());
                }
            }
        }
        // Lines that cannot be written are not tried again, so that they take no more room.
        held.remove_first(usize::MAX);
        queue.release(&held);
        // If the log itself cannot be written, there is nowhere to report it.
        let _ = out.write_all(&text).and_then(|()| out.flush());
        text.clear();
        pause = LINE_GATHER_TIME;
    }
    queue.note_end();
}

impl Drop for Flusher {
    fn drop(&mut self) {
        self.0.close(LAST_LINES);
    }
}

/// The subscriber formats a complete line and writes it with one call.
impl Write for &Sink {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        // A lost line is reported by the writer.
        let _ = self.0.push(line, QueueShare::Whole);
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

/// Maximum bytes of queued lines; further lines are dropped.
const MAX_QUEUED_BYTES: usize = 1 << 20;
/// Time for which the writer collects lines after a write. The first line after a pause is written
/// at once: it may be the address of a gateway that just started.
const LINE_GATHER_TIME: Duration = Duration::from_millis(20);
/// Time limit for the last lines when the process exits.
const LAST_LINES: Duration = Duration::from_secs(1);
