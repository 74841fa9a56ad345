//! The records that wait for the writer: bounded in bytes, in the order in which they were made.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

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
    /// In order, before `filling`.
    full: VecDeque<RecordBatch>,
    /// The batch that records are added to.
    filling: RecordBatch,
    /// An empty batch, whose memory the next one uses.
    spare: RecordBatch,
    /// The size of all records, with those that the writer holds.
    bytes: usize,
    /// The most bytes.
    limit: usize,
    /// Records that were lost after the last entry.
    lost: u64,
    settings: Option<Arc<AuditSettings>>,
    reopening: bool,
    stage: QueueStage,
    /// What the writer holds: it is writing it, or could not write it.
    held: HeldRecords,
    /// The writer waits for the next record, however long that takes.
    is_idle: bool,
}

#[derive(Debug, Default, Clone, Copy)]
struct HeldRecords {
    records: usize,
    bytes: usize,
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

/// Records that are written together.
#[derive(Debug, Default)]
pub(super) struct RecordBatch {
    entries: VecDeque<QueueEntry>,
    /// The records, as JSON, one after the other.
    bytes: Vec<u8>,
    /// Where the first of `entries` begins.
    read: usize,
}

/// What is to be written.
#[derive(Debug, Clone, Copy)]
enum QueueEntry {
    /// A record of so many bytes.
    Record(usize),
    /// The number of records that were lost here, and when that was noticed.
    Lost(u64, SystemTime),
}

/// An entry with its text.
#[derive(Debug, Clone, Copy)]
pub(super) enum BatchEntry<'a> {
    /// A record, as JSON.
    Record(&'a [u8]),
    /// The number of records that were lost here, and when that was noticed.
    Lost(u64, SystemTime),
}

/// What the writer is to do next.
#[derive(Debug)]
pub(super) enum WriterTask {
    /// Write where these settings say.
    Configure(Arc<AuditSettings>),
    /// Open the file again.
    Reopen,
    /// Write what it holds.
    Write,
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
    pub(super) fn push(&self, json: &[u8], is_of_stranger: bool) {
        let mut waiting = self.waiting.lock();
        let limit = if is_of_stranger { waiting.limit / 2 } else { waiting.limit };
        let before = waiting.bytes;
        if before + json.len() > limit || waiting.stage == QueueStage::Ended {
            return self.count_lost(&mut waiting);
        }
        if let lost @ 1.. = std::mem::take(&mut waiting.lost) {
            waiting.batch_for(0).push_loss(lost);
        }
        waiting.bytes += json.len();
        waiting.batch_for(json.len()).push_record(json);
        let enough = waiting.enough();
        let is_needed = waiting.is_idle || (before < enough && waiting.bytes >= enough);
        drop(waiting);
        if is_needed {
            self.writer.notify_one();
        }
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

    /// Waits for the writer's next task. A writer that holds records, because it could not write
    /// them, gets no others, and tries again after the `pause`. Another one rests for the `pause`, unless
    /// many records wait, so that it writes them together; the first record after a longer rest is
    /// written at once.
    pub(super) fn next_task(&self, held: &mut RecordBatch, pause: Duration) -> WriterTask {
        let until = clock::real_now() + pause;
        let mut waiting = self.waiting.lock();
        waiting.note_written(held);
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
            if !held.is_empty() {
                if self.writer.wait_until(&mut waiting, until).timed_out() {
                    return WriterTask::Write;
                }
                continue;
            }
            let rests = waiting.stage == QueueStage::Open && waiting.bytes < waiting.enough();
            if rests && clock::real_now() < until {
                self.writer.wait_until(&mut waiting, until);
                continue;
            }
            if waiting.give_batch(held) {
                return WriterTask::Write;
            }
            if waiting.stage == QueueStage::Closing {
                return WriterTask::End;
            }
            waiting.is_idle = true;
            self.writer.wait(&mut waiting);
            waiting.is_idle = false;
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
        let waits = waiting.full.iter().map(RecordBatch::records).sum::<usize>();
        let left = (waits + waiting.filling.records() + waiting.held.records) as u64;
        (waiting.held, waiting.bytes) = (HeldRecords::default(), 0);
        waiting.full.clear();
        waiting.filling.empty();
        self.counts.count(AuditFate::Dropped, left);
        left + std::mem::take(&mut waiting.lost)
    }
}

impl WaitingRecords {
    /// With this many bytes the writer does not wait for more.
    fn enough(&self) -> usize {
        ENOUGH.min(self.limit / 4)
    }

    /// The batch that the next record goes into.
    fn batch_for(&mut self, bytes: usize) -> &mut RecordBatch {
        if !self.filling.is_empty() && self.filling.bytes.len() + bytes > BATCH {
            let next = std::mem::take(&mut self.spare);
            self.full.push_back(std::mem::replace(&mut self.filling, next));
        }
        &mut self.filling
    }

    /// Gives the writer, which holds nothing, the first batch; `false` if there is none.
    fn give_batch(&mut self, held: &mut RecordBatch) -> bool {
        if self.full.is_empty() && self.filling.is_empty() {
            match std::mem::take(&mut self.lost) {
                0 => return false,
                lost => self.filling.push_loss(lost),
            }
        }
        held.empty();
        match self.full.pop_front() {
            Some(first) => self.spare = std::mem::replace(held, first),
            None => std::mem::swap(held, &mut self.filling),
        }
        self.held = HeldRecords { records: held.records(), bytes: held.bytes.len() };
        true
    }

    /// Notes how much of what the writer was given it still holds.
    fn note_written(&mut self, held: &RecordBatch) {
        let left = HeldRecords { records: held.records(), bytes: held.bytes.len() - held.read };
        self.bytes = self.bytes.saturating_sub(self.held.bytes.saturating_sub(left.bytes));
        self.held = left;
    }
}

impl RecordBatch {
    fn push_record(&mut self, json: &[u8]) {
        self.entries.push_back(QueueEntry::Record(json.len()));
        self.bytes.extend_from_slice(json);
    }

    fn push_loss(&mut self, lost: u64) {
        self.entries.push_back(QueueEntry::Lost(lost, clock::wall_now()));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The number of records, without what was lost.
    pub(super) fn records(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry, QueueEntry::Record(_))).count()
    }

    /// The entries that are not written yet.
    pub(super) fn entries(&self) -> impl Iterator<Item = BatchEntry<'_>> {
        let mut rest = self.bytes.get(self.read..).unwrap_or_default();
        self.entries.iter().map(move |entry| match *entry {
            QueueEntry::Record(length) => {
                let (json, after) = rest.split_at_checked(length).unwrap_or_default();
                rest = after;
                BatchEntry::Record(json)
            }
            QueueEntry::Lost(records, at) => BatchEntry::Lost(records, at),
        })
    }

    /// Removes the first entries; how many of them were records.
    pub(super) fn remove_first(&mut self, entries: usize) -> u64 {
        let mut records = 0;
        for entry in self.entries.drain(..entries.min(self.entries.len())) {
            if let QueueEntry::Record(length) = entry {
                self.read += length;
                records += 1;
            }
        }
        records
    }

    /// Removes everything, and keeps the memory unless it is large.
    fn empty(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.bytes.shrink_to(BATCH);
        self.read = 0;
    }
}

/// The most bytes of records that are written together, unless one has more.
const BATCH: usize = 64 << 10;
/// With this many bytes the writer does not wait for more.
const ENOUGH: usize = BATCH / 2;
