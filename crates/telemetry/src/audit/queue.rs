//! Queue of pending records: bounded in bytes, in order of creation.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::{Condvar, Mutex, MutexGuard};

use trunkline_core::clock;

use super::AuditSettings;
use crate::metrics::{AuditCounts, AuditFate};

/// The queue. Callers that add to it never wait.
#[derive(Debug)]
pub(super) struct AuditQueue {
    waiting: Mutex<WaitingRecords>,
    /// Wakes the writer.
    writer: Condvar,
    /// Wakes [`AuditQueue::close`] when the writer has ended.
    ended: Condvar,
    counts: AuditCounts,
}

#[derive(Debug, Default)]
struct WaitingRecords {
    /// In order, before `filling`.
    full: VecDeque<RecordBatch>,
    /// The batch that receives new records.
    filling: RecordBatch,
    /// An empty batch. The next batch reuses its memory.
    spare: RecordBatch,
    /// Bytes of all records, including those that the writer holds.
    bytes: usize,
    /// Maximum bytes.
    limit: usize,
    /// Records lost after the last entry.
    lost: u64,
    settings: Option<Arc<AuditSettings>>,
    reopening: bool,
    stage: QueueStage,
    /// Records that the writer holds: it is writing them, or could not write them.
    held: HeldRecords,
    /// The writer waits for the next record without a time limit.
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
    /// The writer has ended, or missed the time limit.
    Ended,
}

/// Records that are written together.
#[derive(Debug, Default)]
pub(super) struct RecordBatch {
    entries: VecDeque<QueueEntry>,
    /// The records as consecutive JSON.
    bytes: Vec<u8>,
    /// Offset of the first of `entries`.
    read: usize,
}

/// Entry to write.
#[derive(Debug, Clone, Copy)]
enum QueueEntry {
    /// A record with its number of bytes.
    Record(usize),
    /// The number of records lost at this position, and the time at which the loss was noticed.
    Lost(u64, SystemTime),
}

/// An entry with its text.
#[derive(Debug, Clone, Copy)]
pub(super) enum BatchEntry<'a> {
    /// A record, as JSON.
    Record(&'a [u8]),
    /// The number of records lost at this position, and the time at which the loss was noticed.
    Lost(u64, SystemTime),
}

/// Next task of the writer.
#[derive(Debug)]
pub(super) enum WriterTask {
    /// Write to the destination of these settings.
    Configure(Arc<AuditSettings>),
    /// Open the file again.
    Reopen,
    /// Write the held records.
    Write,
    /// Exit.
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

    /// Returns the bytes of pending records.
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

    /// Adds a record, or counts it as lost if there is no room. Records about unknown callers get
    /// half of the room, so that a flood of them displaces no others.
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

    /// Waits for the writer's next task. A writer that still holds records after a failure gets no
    /// others, and tries again after the `pause`. Otherwise the writer rests for the `pause`,
    /// unless many records are pending, so that it writes several together. The first record after
    /// a longer rest is written at once.
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

    /// Lets the writer finish within this time, and returns the number of records that remain.
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
    /// Returns the number of bytes at which the writer stops waiting for more.
    fn enough(&self) -> usize {
        ENOUGH.min(self.limit / 4)
    }

    /// Returns the batch for the next record.
    fn batch_for(&mut self, bytes: usize) -> &mut RecordBatch {
        if !self.filling.is_empty() && self.filling.bytes.len() + bytes > BATCH {
            let next = std::mem::take(&mut self.spare);
            self.full.push_back(std::mem::replace(&mut self.filling, next));
        }
        &mut self.filling
    }

    /// Moves the first batch to the writer, which holds none. Returns false if the queue is empty.
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

    /// Updates the number of records and bytes that the writer still holds.
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

    /// Returns the number of records, without the lost ones.
    pub(super) fn records(&self) -> usize {
        self.entries.iter().filter(|entry| matches!(entry, QueueEntry::Record(_))).count()
    }

    /// Returns the entries that are not written yet.
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

    /// Removes the first entries, and returns the number of records among them.
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

    /// Removes all entries, and keeps the memory unless it is large.
    fn empty(&mut self) {
        self.entries.clear();
        self.bytes.clear();
        self.bytes.shrink_to(BATCH);
        self.read = 0;
    }
}

/// Maximum bytes of records in one batch; a single record may exceed it.
const BATCH: usize = 64 << 10;
/// Number of bytes at which the writer stops waiting for more.
const ENOUGH: usize = BATCH / 2;
