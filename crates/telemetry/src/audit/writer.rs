//! The thread that numbers, chains and writes records.

use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;

use trunkline_core::backoff::Backoff;
use trunkline_core::text::error_chain;

use super::chain::ChainEnd;
use super::queue::{AuditControl, AuditQueue};
use super::record::format_time;
use super::sink::{AuditSink, Lines};
use super::{AuditSettings, ChainMode};
use crate::batch_queue::{BatchEntry, RecordBatch, WriterTask};
use crate::metrics::AuditFate;

/// State of the writer, for `/status`.
#[derive(Debug, Default)]
pub(super) struct WriterState(Mutex<WriterReport>);

/// The last record, and the fault that blocks the next one.
#[derive(Debug, Clone, Default)]
pub(super) struct WriterReport {
    pub(super) number: u64,
    pub(super) hash: Option<String>,
    pub(super) fault: Option<String>,
}

impl WriterState {
    pub(super) fn snapshot(&self) -> WriterReport {
        self.0.lock().clone()
    }
}

/// The writer. It retains records until they are written.
pub(super) struct AuditWriter {
    queue: Arc<AuditQueue>,
    state: Arc<WriterState>,
    log: Option<WritableLog>,
    held: RecordBatch,
    backoff: Backoff,
    dice: fastrand::Rng,
}

/// A sink, and the last record in it.
struct WritableLog {
    settings: Arc<AuditSettings>,
    sink: AuditSink,
    /// `None` until the sink was read.
    end: Option<ChainEnd>,
    /// The lines of the current batch; the next one uses their memory.
    lines: PreparedLines,
}

/// Formatted lines, and the end of each.
#[derive(Default)]
struct PreparedLines {
    text: Vec<u8>,
    ends: Vec<usize>,
    /// End of the log after each line.
    chain: Vec<ChainEnd>,
}

impl AuditWriter {
    pub(super) fn new(queue: Arc<AuditQueue>, state: Arc<WriterState>) -> Self {
        let (backoff, dice) = (Backoff::new(FIRST_PAUSE, LAST_PAUSE), fastrand::Rng::new());
        Self { queue, state, log: None, held: RecordBatch::default(), backoff, dice }
    }

    /// Runs the loop of the thread.
    pub(super) fn write_records(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            match self.queue.records.next_task(&mut self.held, pause) {
                WriterTask::Control(control) => self.apply(control),
                WriterTask::Write => {}
                WriterTask::End => break,
            }
            pause = self.write_held();
        }
        self.queue.records.note_end();
    }

    fn apply(&mut self, control: AuditControl) {
        if let Some(settings) = control.settings {
            self.configure(settings);
        }
        if control.is_reopening {
            self.reopen();
        }
    }

    fn configure(&mut self, settings: Arc<AuditSettings>) {
        let same = self.log.take().filter(|log| log.settings.sink == settings.sink);
        // The same file stays open, and its chain continues.
        let (sink, end) =
            same.map_or_else(|| (AuditSink::new(&settings.sink), None), |log| (log.sink, log.end));
        let lines = PreparedLines::default();
        self.log = Some(WritableLog { settings, sink, end, lines });
        self.backoff.reset();
    }

    fn reopen(&mut self) {
        if let Some(log) = &mut self.log
            && let Err(error) = log.sink.reopen()
        {
            tracing::warn!(
                target: "trunkline::telemetry::audit::writer", "the audit log cannot be opened again: {}", error_chain(&error)
            );
        }
    }

    /// Tries to write the held records. Returns the pause before the next attempt or batch.
    fn write_held(&mut self) -> Duration {
        let Some(log) = &mut self.log else { return FIRST_PAUSE };
        if self.held.is_empty() {
            return Duration::ZERO;
        }
        match log.write_batch(&mut self.held, &self.queue) {
            Ok(()) => {
                self.note_success();
                RECORD_GATHER_TIME
            }
            Err(error) if error.raw_os_error() == Some(TOO_LONG) => {
                // It will never fit into a datagram.
                self.held.remove_first(1);
                self.queue.note_lost();
                Duration::ZERO
            }
            Err(error) => {
                self.note_failure(&error);
                self.backoff.jittered_wait_after(Duration::ZERO, &mut self.dice)
            }
        }
    }

    fn note_success(&mut self) {
        self.backoff.reset();
        let mut report = self.state.0.lock();
        if let Some(end) = self.log.as_ref().and_then(|log| log.end.as_ref()) {
            report.number = end.number;
            report.hash.clone_from(&end.hash);
        }
        if report.fault.take().is_some() {
            tracing::info!(target: "trunkline::telemetry::audit::writer", "the audit log is written again");
        }
    }

    fn note_failure(&self, error: &io::Error) {
        self.queue.counts().count(AuditFate::Failed, 1);
        let told = self.state.0.lock().fault.replace(error_chain(error));
        if told.is_none() {
            tracing::error!(
                target: "trunkline::telemetry::audit::writer",
                "the audit log cannot be written, and is retried: {}",
                error_chain(error)
            );
        }
    }
}

impl WritableLog {
    /// Writes the records of a batch, and removes the written ones from it.
    fn write_batch(&mut self, batch: &mut RecordBatch, queue: &AuditQueue) -> io::Result<()> {
        let end = self.take_end(queue)?;
        self.lines.prepare(batch, &end, &self.settings.chain);
        self.end = Some(end);
        let (mut done, mut begin) = (0, 0);
        while let Some(ends) = self.lines.ends.get(done..).filter(|ends| !ends.is_empty()) {
            let lines = Lines { text: &self.lines.text, begin, ends };
            let written = self.sink.write_lines(lines)?;
            begin += lines.first(written).len();
            done += written;
            self.end = done.checked_sub(1).and_then(|last| self.lines.chain.get(last).cloned());
            queue.counts().count(AuditFate::Written, batch.remove_first(written));
        }
        Ok(())
    }

    /// Returns the last record of the log. Reads it first if it is unknown.
    fn take_end(&mut self, queue: &AuditQueue) -> io::Result<ChainEnd> {
        if let Some(end) = self.end.take() {
            return Ok(end);
        }
        let (end, had_torn_line) = self.sink.find_end()?;
        if had_torn_line {
            queue.note_lost();
        }
        Ok(end)
    }
}

impl PreparedLines {
    /// Numbers and chains the entries of a batch after the `end` of the log.
    fn prepare(&mut self, batch: &RecordBatch, end: &ChainEnd, mode: &ChainMode) {
        self.text.clear();
        self.ends.clear();
        self.chain.clear();
        let mut last = end;
        for entry in batch.entries() {
            let next = match entry {
                BatchEntry::Record(json) => last.append(json, mode, &mut self.text),
                BatchEntry::Lost(records, at) => {
                    last.append(&write_loss(records, at), mode, &mut self.text)
                }
            };
            self.ends.push(self.text.len());
            self.chain.push(next);
            last = self.chain.last().unwrap_or(end);
        }
    }
}

/// Returns the record that reports a loss at its position.
fn write_loss(records: u64, at: SystemTime) -> Vec<u8> {
    let time = format_time(at);
    format!("{{\"time\":\"{time}\",\"event\":\"lost\",\"records\":{records}}}").into_bytes()
}

/// Pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Time for which records are collected after a write, as for the access log.
const RECORD_GATHER_TIME: Duration = Duration::from_millis(20);
/// Maximum pause between two attempts.
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// `EMSGSIZE`.
const TOO_LONG: i32 = rustix::io::Errno::MSGSIZE.raw_os_error();
