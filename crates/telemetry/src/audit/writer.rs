//! The thread that numbers, chains and writes records.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

use parking_lot::{Condvar, Mutex};

use trunkline_core::backoff::Backoff;
use trunkline_core::text::error_chain;

use super::chain::ChainEnd;
use super::queue::{AuditControl, AuditQueue};
use super::record::format_time;
use super::sink::{AuditSink, Lines};
use super::{AuditSettings, ChainMode};
use crate::batch_queue::{BatchEntry, RecordBatch, WriterTask};
use crate::metrics::AuditFate;

/// State of the writer, for `/status` and for the decision to serve a request.
#[derive(Debug, Default)]
pub(super) struct WriterState {
    report: Mutex<WriterReport>,
    /// True if the last attempt to open the sink, or to write to it, succeeded.
    is_writable: AtomicBool,
    /// Notified when the sink of new settings was tried.
    tried: Condvar,
}

/// The last record, and the fault that blocks the next one.
#[derive(Debug, Clone, Default)]
pub(super) struct WriterReport {
    pub(super) number: u64,
    pub(super) hash: Option<String>,
    pub(super) fault: Option<String>,
    /// The number of settings that the writer has received so far, or will receive.
    given: u64,
    /// The number of the last settings whose sink was tried.
    tried: u64,
}

impl WriterState {
    pub(super) fn snapshot(&self) -> WriterReport {
        self.report.lock().clone()
    }

    /// Returns true if records can be written, as far as is known.
    #[inline]
    pub(super) fn is_writable(&self) -> bool {
        self.is_writable.load(Relaxed)
    }

    /// Notes that the writer gets new settings, and returns their number.
    pub(super) fn expect_attempt(&self) -> u64 {
        let mut report = self.report.lock();
        report.given += 1;
        report.given
    }

    /// Waits until the sink of the newest settings was tried, for this time at most. Returns false if
    /// it was not.
    pub(super) fn await_attempt(&self, within: Duration) -> bool {
        let mut report = self.report.lock();
        let is_untried = |report: &mut WriterReport| report.tried < report.given;
        !self.tried.wait_while_for(&mut report, is_untried, within).timed_out()
    }
}

/// The writer. It retains records until they are written.
pub(super) struct AuditWriter {
    queue: Arc<AuditQueue>,
    state: Arc<WriterState>,
    log: Option<WritableLog>,
    /// The number of the settings, until their sink was tried.
    untried: Option<u64>,
    held: RecordBatch,
    backoff: Backoff,
    dice: fastrand::Rng,
}

/// A sink, and the last record in it.
#[derive(Debug)]
pub(super) struct WritableLog {
    settings: Arc<AuditSettings>,
    sink: AuditSink,
    is_open: bool,
    /// `None` until the sink was read.
    end: Option<ChainEnd>,
    /// The lines of the current batch; the next one uses their memory.
    lines: PreparedLines,
}

/// Formatted lines, and the end of each.
#[derive(Debug, Default)]
struct PreparedLines {
    text: Vec<u8>,
    ends: Vec<usize>,
    /// End of the log after each line.
    chain: Vec<ChainEnd>,
}

impl AuditWriter {
    pub(super) fn new(queue: Arc<AuditQueue>, state: Arc<WriterState>) -> Self {
        let (backoff, dice) = (Backoff::new(FIRST_PAUSE, LAST_PAUSE), fastrand::Rng::new());
        let held = RecordBatch::default();
        Self { queue, state, log: None, untried: None, held, backoff, dice }
    }

    /// Runs the loop of the thread.
    pub(super) fn write_records(mut self) {
        let mut pause = Duration::ZERO;
        loop {
            match self.next_task(pause) {
                WriterTask::Control(control) => self.apply(control),
                WriterTask::Write => {}
                WriterTask::End => break,
            }
            pause = self.write_held();
        }
        self.queue.records.note_end();
    }

    /// Waits for the next task: for records, or for another attempt to open the sink.
    fn next_task(&mut self, pause: Duration) -> WriterTask<AuditControl> {
        let is_closed = self.log.as_ref().is_some_and(|log| !log.is_open);
        if is_closed && self.held.is_empty() {
            return self.queue.records.await_retry(pause);
        }
        self.queue.records.next_task(&mut self.held, pause)
    }

    fn apply(&mut self, control: AuditControl) {
        if let Some(settings) = control.settings {
            self.configure(settings, control.log);
            self.untried = Some(control.number);
        }
        if control.is_reopening {
            self.reopen();
        }
    }

    fn configure(&mut self, settings: Arc<AuditSettings>, opened: Option<WritableLog>) {
        let same = self.log.take().filter(|log| log.settings.sink == settings.sink);
        // The same file stays open, and its chain continues.
        self.log = Some(match (opened, same) {
            (Some(opened), _) => opened,
            (None, Some(log)) => WritableLog { settings, lines: PreparedLines::default(), ..log },
            (None, None) => WritableLog::new(settings),
        });
        self.backoff.reset();
    }

    fn reopen(&mut self) {
        if let Some(log) = &mut self.log {
            log.sink.close_file();
            log.is_open = false;
        }
    }

    /// Opens the sink, unless it is open, and tries to write the held records. Returns the pause
    /// before the next attempt or batch.
    fn write_held(&mut self) -> Duration {
        let Some(log) = &mut self.log else { return FIRST_PAUSE };
        if self.untried.is_some() {
            // A sink that can be opened may still take no record.
            self.queue.records.take_pending(&mut self.held);
        }
        let is_idle = self.held.is_empty();
        if log.is_open && is_idle {
            if self.untried.is_some() {
                self.note_success();
            }
            return Duration::ZERO;
        }
        match log.open_and_write(&mut self.held, &self.queue) {
            Ok(()) => {
                self.note_success();
                if is_idle { Duration::ZERO } else { RECORD_GATHER_TIME }
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
        let mut report = self.state.report.lock();
        if let Some(end) = self.log.as_ref().and_then(|log| log.end.as_ref()) {
            report.number = end.number;
            report.hash.clone_from(&end.hash);
        }
        let was_writable = self.state.is_writable.swap(true, Relaxed);
        let lasting = self.log.as_ref().and_then(|log| log.sink.lasting_fault());
        if report.fault.is_some() && !was_writable {
            tracing::info!(target: "trunkline::telemetry::audit::writer", "the audit log is written again");
        } else if report.fault.is_some() && lasting.is_none() {
            tracing::info!(target: "trunkline::telemetry::audit::writer", "the audit log is rotated again");
        }
        report.fault = lasting.map(str::to_owned);
        drop(report);
        self.note_tried();
    }

    fn note_failure(&mut self, error: &io::Error) {
        self.queue.counts().count(AuditFate::Failed, 1);
        // A fault may be known that did not keep records from being written.
        let was_writable = self.state.is_writable.swap(false, Relaxed);
        let told = self.state.report.lock().fault.replace(error_chain(error));
        if told.is_none() || was_writable {
            let place = self.log.as_ref().map(|log| log.settings.sink.to_string());
            tracing::error!(
                target: "trunkline::telemetry::audit::writer",
                "the audit log cannot be written to {}, and is retried: {}",
                place.unwrap_or_default(),
                error_chain(error)
            );
        }
        self.note_tried();
    }

    /// Notes that the sink of new settings was tried.
    fn note_tried(&mut self) {
        if let Some(number) = self.untried.take() {
            self.state.report.lock().tried = number;
            self.state.tried.notify_all();
        }
    }
}

impl WritableLog {
    fn new(settings: Arc<AuditSettings>) -> Self {
        let (sink, lines) = (AuditSink::new(&settings.sink), PreparedLines::default());
        Self { settings, sink, is_open: false, end: None, lines }
    }

    /// Opens the sink of settings, and reads its last record.
    pub(super) fn open(settings: Arc<AuditSettings>, queue: &AuditQueue) -> io::Result<Self> {
        let mut log = Self::new(settings);
        log.open_and_write(&mut RecordBatch::default(), queue)?;
        Ok(log)
    }

    fn open_and_write(&mut self, batch: &mut RecordBatch, queue: &AuditQueue) -> io::Result<()> {
        if !self.is_open {
            self.sink.open()?;
            self.end = Some(self.take_end(queue)?);
            self.is_open = true;
        }
        if batch.is_empty() { Ok(()) } else { self.write_batch(batch, queue) }
    }

    /// Writes the records of a batch, and removes the written ones from it.
    fn write_batch(&mut self, batch: &mut RecordBatch, queue: &AuditQueue) -> io::Result<()> {
        let end = self.take_end(queue)?;
        self.lines.prepare(batch, &end, &self.settings.chain);
        self.end = Some(end);
        let (mut done, mut begin) = (0, 0);
        while let Some(ends) = self.lines.ends.get(done..).filter(|ends| !ends.is_empty()) {
            let lines = Lines { text: &self.lines.text, begin, ends };
            let written = self.sink.write_lines(lines)?;
            queue.show(lines.first(written));
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
