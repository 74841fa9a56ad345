//! The thread that numbers, chains and writes records, one after the other.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use super::AuditSettings;
use super::chain::ChainEnd;
use super::queue::{AuditQueue, QueueEntry, WriterTask};
use super::record::format_time;
use super::sink::AuditSink;
use crate::backoff::Backoff;
use crate::clock;
use crate::telemetry::metrics::AuditFate;
use crate::text::error_chain;

/// What `/status` tells of the writer.
#[derive(Debug, Default)]
pub(super) struct WriterState(Mutex<WriterReport>);

/// The last record, and the fault that keeps the next one waiting.
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

/// The writer. An entry that cannot be written is held until it can be.
pub(super) struct AuditWriter {
    queue: Arc<AuditQueue>,
    state: Arc<WriterState>,
    log: Option<WritableLog>,
    held: Option<QueueEntry>,
    backoff: Backoff,
    dice: fastrand::Rng,
}

/// A sink, and the last record in it.
struct WritableLog {
    settings: Arc<AuditSettings>,
    sink: AuditSink,
    /// `None` until the sink was read.
    end: Option<ChainEnd>,
}

impl AuditWriter {
    pub(super) fn new(queue: Arc<AuditQueue>, state: Arc<WriterState>) -> Self {
        let (backoff, dice) = (Backoff::new(FIRST_PAUSE, LAST_PAUSE), fastrand::Rng::new());
        Self { queue, state, log: None, held: None, backoff, dice }
    }

    /// The thread's loop.
    pub(super) fn write_records(mut self) {
        let mut pause = FIRST_PAUSE;
        loop {
            match self.queue.next_task(self.held.is_some(), pause) {
                WriterTask::Configure(settings) => self.configure(settings),
                WriterTask::Reopen => self.reopen(),
                WriterTask::Write(entry) => self.held = Some(entry),
                WriterTask::Retry => {}
                WriterTask::End => break,
            }
            pause = self.write_held();
        }
        self.queue.note_end();
    }

    fn configure(&mut self, settings: Arc<AuditSettings>) {
        let same = self.log.take().filter(|log| log.settings.sink == settings.sink);
        // The same file stays open, and its chain goes on.
        let (sink, end) =
            same.map_or_else(|| (AuditSink::new(&settings.sink), None), |log| (log.sink, log.end));
        self.log = Some(WritableLog { settings, sink, end });
        self.backoff.reset();
    }

    fn reopen(&mut self) {
        if let Some(log) = &mut self.log
            && let Err(error) = log.sink.reopen()
        {
            tracing::warn!("the audit log cannot be opened again: {}", error_chain(&error));
        }
    }

    /// Tries to write the entry that is held; how long to wait if that fails.
    fn write_held(&mut self) -> Duration {
        let (Some(log), Some(entry)) = (&mut self.log, &self.held) else { return FIRST_PAUSE };
        match log.write_entry(entry, &self.queue) {
            Ok(()) => {
                let is_record = matches!(entry, QueueEntry::Record(_));
                self.held = None;
                self.queue.counts().count(AuditFate::Written, u64::from(is_record));
                self.note_success();
                FIRST_PAUSE
            }
            Err(error) if error.raw_os_error() == Some(TOO_LONG) => {
                // It will never fit into a datagram.
                self.held = None;
                self.queue.note_lost();
                FIRST_PAUSE
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
            tracing::info!("the audit log is written again");
        }
    }

    fn note_failure(&self, error: &io::Error) {
        self.queue.counts().count(AuditFate::Failed, 1);
        let told = self.state.0.lock().fault.replace(error_chain(error));
        if told.is_none() {
            tracing::error!(
                "the audit log cannot be written, and is retried: {}",
                error_chain(error)
            );
        }
    }
}

impl WritableLog {
    fn write_entry(&mut self, entry: &QueueEntry, queue: &AuditQueue) -> io::Result<()> {
        let end = self.take_end(queue)?;
        let chain = &self.settings.chain;
        let (line, next) = match entry {
            QueueEntry::Record(json) => end.append(json, chain),
            QueueEntry::Lost(records) => end.append(&write_loss(*records), chain),
        };
        match self.sink.write_line(&line) {
            Ok(()) => {
                self.end = Some(next);
                Ok(())
            }
            Err(error) => {
                self.end = Some(end);
                Err(error)
            }
        }
    }
}

impl WritableLog {
    /// The last record of the log, which is read first if it is not known.
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

/// The record that says how many were lost where it stands.
fn write_loss(records: u64) -> Vec<u8> {
    let time = format_time(clock::wall_now());
    format!("{{\"time\":\"{time}\",\"event\":\"lost\",\"records\":{records}}}").into_bytes()
}

/// The pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two attempts.
const LAST_PAUSE: Duration = Duration::from_secs(5);
/// `EMSGSIZE`.
const TOO_LONG: i32 = rustix::io::Errno::MSGSIZE.raw_os_error();
