//! The records that wait for the writer: bounded in bytes, in the order in which they were made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};

use super::AuditSettings;
use crate::clock;
use crate::telemetry::metrics::{AuditCounts, AuditFate};

/// The queue. Callers that add to it never wait.
#[derive(Debug)]
pub(super) struct AuditQueue {
    waiting: Mutex<WaitingRecords>,
    /// Wakes the writer.
    writer: Condvar,
    /// Wakes [`AuditQueue::close`]: the writer has ended.
    ended: Condvar,
    counts: AuditCounts,
}

#[derive(Debug, Default)]
struct WaitingRecords {
    entries: VecDeque<QueueEntry>,
    bytes: usize,
    /// The most bytes.
    limit: usize,
    /// Records that were lost after the last entry.
    lost: u64,
    settings: Option<Arc<AuditSettings>>,
    reopening: bool,
    stage: QueueStage,
    /// The writer holds an entry that it could not write.
    is_holding: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum QueueStage {
    /// Records are accepted and written.
    #[default]
    Open,
    /// The writer writes the remaining records, as long as it succeeds.
    Closing,
    /// The writer has ended, or is given up.
    Ended,
}

/// What is to be written.
#[derive(Debug, Clone)]
pub(super) enum QueueEntry {
    /// A record, as JSON.
    Record(Arc<[u8]>),
    /// The number of records that were lost here.
    Lost(u64),
}

/// What the writer is to do next.
#[derive(Debug)]
pub(super) enum WriterTask {
    /// Write where these settings say.
    Configure(Arc<AuditSettings>),
    /// Open the file again.
    Reopen,
    /// Write an entry.
    Write(QueueEntry),
    /// Try again to write the entry that it holds.
    Retry,
    /// End.
    End,
}

impl AuditQueue {
    pub(super) fn new(counts: AuditCounts) -> Self {
        let (writer, ended) = (Condvar::new(), Condvar::new());
        Self { waiting: Mutex::default(), writer, ended, counts }
    }

    pub(super) fn counts(&self) -> &AuditCounts {
        &self.counts
    }

    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.waiting.lock().bytes
    }

    /// Gives the writer new settings.
    pub(super) fn configure(&self, settings: &Arc<AuditSettings>) {
        let mut waiting = self.waiting.lock();
        waiting.limit = settings.queue_size;
        waiting.settings = Some(Arc::clone(settings));
        self.writer.notify_one();
    }

    pub(super) fn request_reopening(&self) {
        self.waiting.lock().reopening = true;
        self.writer.notify_one();
    }

    /// Adds a record, or counts it as lost if there is no room. Records about strangers have half of
    /// the room, so that a flood of them displaces no others.
    pub(super) fn push(&self, json: Vec<u8>, is_of_stranger: bool) {
        let mut waiting = self.waiting.lock();
        let limit = if is_of_stranger { waiting.limit / 2 } else { waiting.limit };
        if waiting.bytes + json.len() > limit || waiting.stage == QueueStage::Ended {
            return self.count_lost(&mut waiting);
        }
        if let lost @ 1.. = std::mem::take(&mut waiting.lost) {
            waiting.entries.push_back(QueueEntry::Lost(lost));
        }
        waiting.bytes += json.len();
        waiting.entries.push_back(QueueEntry::Record(json.into()));
        drop(waiting);
        self.writer.notify_one();
    }

    /// Counts a record that could not be made or written.
    pub(super) fn note_lost(&self) {
        self.count_lost(&mut self.waiting.lock());
        self.writer.notify_one();
    }

    fn count_lost(&self, waiting: &mut MutexGuard<'_, WaitingRecords>) {
        waiting.lost += 1;
        self.counts.count(AuditFate::Dropped, 1);
    }

    /// Waits for the writer's next task. A writer that `holds` an entry gets no other one, and
    /// tries again after a `pause`.
    pub(super) fn next_task(&self, holds: bool, pause: Duration) -> WriterTask {
        let until = clock::real_now() + pause;
        let mut waiting = self.waiting.lock();
        waiting.is_holding = holds;
        loop {
            if waiting.stage == QueueStage::Ended {
                return WriterTask::End;
            }
            if let Some(settings) = waiting.settings.take() {
                return WriterTask::Configure(settings);
            }
            if std::mem::take(&mut waiting.reopening) {
                return WriterTask::Reopen;
            }
            if holds {
                if self.writer.wait_until(&mut waiting, until).timed_out() {
                    return WriterTask::Retry;
                }
                continue;
            }
            if let Some(entry) = waiting.take_first() {
                return WriterTask::Write(entry);
            }
            if waiting.stage == QueueStage::Closing {
                return WriterTask::End;
            }
            self.writer.wait(&mut waiting);
        }
    }

    /// Notes that the writer has ended.
    pub(super) fn note_end(&self) {
        self.waiting.lock().stage = QueueStage::Ended;
        self.ended.notify_all();
    }

    /// Has the remaining records written, within this time; the number of those that were not.
    pub(super) fn close(&self, within: Duration) -> u64 {
        let mut waiting = self.waiting.lock();
        if waiting.stage == QueueStage::Open {
            waiting.stage = QueueStage::Closing;
        }
        self.writer.notify_one();
        self.ended.wait_while_for(&mut waiting, |w| w.stage != QueueStage::Ended, within);
        waiting.stage = QueueStage::Ended;
        self.writer.notify_one();
        let records = waiting.entries.iter().filter(|it| matches!(it, QueueEntry::Record(_)));
        let left = records.count() as u64 + u64::from(waiting.is_holding);
        waiting.entries.clear();
        waiting.bytes = 0;
        self.counts.count(AuditFate::Dropped, left);
        left + std::mem::take(&mut waiting.lost)
    }
}

impl WaitingRecords {
    fn take_first(&mut self) -> Option<QueueEntry> {
        match self.entries.pop_front() {
            Some(entry) => {
                if let QueueEntry::Record(json) = &entry {
                    self.bytes -= json.len();
                }
                Some(entry)
            }
            None => match std::mem::take(&mut self.lost) {
                0 => None,
                lost => Some(QueueEntry::Lost(lost)),
            },
        }
    }
}
