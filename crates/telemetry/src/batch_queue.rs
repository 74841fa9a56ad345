//! The queue between callers that write records and the thread that writes them to their
//! destination: bounded in bytes, in order of creation.
//!
//! The access log and the audit log use it. Callers never wait: a record without room is counted as
//! lost, and an entry at its position says so. The writer gathers records for a moment, so that it
//! writes several together. Events have a queue of their own, because they leave it one by one and
//! the least valuable are dropped first.

use std::collections::VecDeque;
use std::time::{Duration, SystemTime};

use parking_lot::{Condvar, Mutex};

use trunkline_core::clock;

/// The queue. `C` has the messages to its writer besides records.
#[derive(Debug)]
pub(super) struct BatchQueue<C> {
    waiting: Mutex<WaitingRecords<C>>,
    /// Wakes the writer.
    writer: Condvar,
    /// Wakes [`BatchQueue::close`] when the writer has ended.
    ended: Condvar,
}

/// Share of the capacity that a record may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueueShare {
    Whole,
    /// For records of unknown callers, so that a flood of them displaces no others.
    Half,
    /// The bytes that were reserved for the record ([`BatchQueue::reserve`]), and unreserved room.
    Reserved(usize),
}

#[derive(Debug, Default)]
struct WaitingRecords<C> {
    /// In order, before `filling`.
    full: VecDeque<RecordBatch>,
    /// The batch that receives new records.
    filling: RecordBatch,
    /// An empty batch. The next batch reuses its memory.
    spare: RecordBatch,
    /// Bytes of all records, including those that the writer has not released.
    bytes: usize,
    /// Maximum bytes.
    limit: usize,
    /// Bytes for records that will be added.
    reserved: usize,
    /// Records lost after the last entry.
    lost: u64,
    /// Messages that the writer has not received.
    control: Option<C>,
    stage: QueueStage,
    /// Records that the writer has not released: it is writing them, or could not write them.
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
    /// The records, one after the other.
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
    /// A record.
    Record(&'a [u8]),
    /// The number of records lost at this position, and the time at which the loss was noticed.
    Lost(u64, SystemTime),
}

/// Next task of the writer.
#[derive(Debug)]
pub(super) enum WriterTask<C> {
    /// Apply these messages.
    Control(C),
    /// Write the held records.
    Write,
    /// Exit.
    End,
}

impl<C: Default> BatchQueue<C> {
    /// Creates a queue of this many bytes.
    pub(super) fn new(limit: usize) -> Self {
        let waiting = Mutex::new(WaitingRecords { limit, ..WaitingRecords::default() });
        Self { waiting, writer: Condvar::new(), ended: Condvar::new() }
    }

    /// Returns the bytes of pending records.
    pub(super) fn bytes(&self) -> usize {
        self.waiting.lock().bytes
    }

    /// Sets the maximum bytes for further records.
    pub(super) fn set_limit(&self, limit: usize) {
        self.waiting.lock().limit = limit;
    }

    /// Changes the messages that the writer applies before it writes further records.
    pub(super) fn control(&self, change: impl FnOnce(&mut C)) {
        change(self.waiting.lock().control.get_or_insert_default());
        self.writer.notify_one();
    }

    /// Adds a record. Returns false if there is no room, and counts it as lost.
    #[must_use]
    pub(super) fn push(&self, record: &[u8], room: QueueShare) -> bool {
        let mut waiting = self.waiting.lock();
        if let QueueShare::Reserved(bytes) = room {
            waiting.reserved = waiting.reserved.saturating_sub(bytes);
        }
        let free = waiting.limit.saturating_sub(waiting.reserved);
        let limit = match room {
            QueueShare::Whole => free,
            QueueShare::Half => free.min(waiting.limit / 2),
            // Its room was promised: a limit that was lowered since applies to later records.
            QueueShare::Reserved(_) => usize::MAX,
        };
        let before = waiting.bytes;
        if before + record.len() > limit || waiting.stage == QueueStage::Ended {
            waiting.lost += 1;
            return false;
        }
        if let lost @ 1.. = std::mem::take(&mut waiting.lost) {
            waiting.batch_for(0).push_loss(lost);
        }
        waiting.bytes += record.len();
        waiting.batch_for(record.len()).push_record(record);
        let enough = waiting.enough();
        let is_needed = waiting.is_idle || (before < enough && waiting.bytes >= enough);
        drop(waiting);
        if is_needed {
            self.writer.notify_one();
        }
        true
    }

    /// Reserves room for a record that is added later. Returns false if there is none.
    #[must_use]
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let mut waiting = self.waiting.lock();
        let is_free = waiting.stage == QueueStage::Open
            && waiting.bytes + waiting.reserved + bytes <= waiting.limit;
        if is_free {
            waiting.reserved += bytes;
        }
        is_free
    }

    /// Releases reserved room, because no record is added.
    pub(super) fn release_reserved(&self, bytes: usize) {
        let mut waiting = self.waiting.lock();
        waiting.reserved = waiting.reserved.saturating_sub(bytes);
    }

    /// Counts a record that could not be made or written.
    pub(super) fn note_lost(&self) {
        self.waiting.lock().lost += 1;
        self.writer.notify_one();
    }

    /// Releases the room of the records that were removed from the batch of the writer.
    pub(super) fn release(&self, held: &RecordBatch) {
        self.waiting.lock().note_written(held);
    }

    /// Waits for the writer's next task. A writer that still holds records after a failure gets no
    /// others, and tries again after the `pause`. Otherwise the writer rests for the `pause`,
    /// unless many records are pending, so that it writes several together. The first record after
    /// a longer rest is written at once.
    pub(super) fn next_task(&self, held: &mut RecordBatch, pause: Duration) -> WriterTask<C> {
        let until = clock::real_now() + pause;
        let mut waiting = self.waiting.lock();
        waiting.note_written(held);
        loop {
            if waiting.stage == QueueStage::Ended {
                return WriterTask::End;
            }
            if let Some(control) = waiting.control.take() {
                return WriterTask::Control(control);
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

    /// Gives a writer without records the first pending ones, if there are any. Never waits.
    pub(super) fn take_pending(&self, held: &mut RecordBatch) {
        let mut waiting = self.waiting.lock();
        waiting.note_written(held);
        if held.is_empty() {
            waiting.give_batch(held);
        }
    }

    /// Waits before another attempt of a writer that holds no records, such as to open its
    /// destination. It gets no records meanwhile.
    pub(super) fn await_retry(&self, pause: Duration) -> WriterTask<C> {
        let until = clock::real_now() + pause;
        let mut waiting = self.waiting.lock();
        loop {
            let is_over = match waiting.stage {
                QueueStage::Open => false,
                QueueStage::Closing => waiting.full.is_empty() && waiting.filling.is_empty(),
                QueueStage::Ended => true,
            };
            if is_over {
                return WriterTask::End;
            }
            if let Some(control) = waiting.control.take() {
                return WriterTask::Control(control);
            }
            if self.writer.wait_until(&mut waiting, until).timed_out() {
                return WriterTask::Write;
            }
        }
    }

    /// Notes that the writer has ended.
    pub(super) fn note_end(&self) {
        self.waiting.lock().stage = QueueStage::Ended;
        self.ended.notify_all();
    }

    /// Lets the writer finish within this time, and returns the numbers of records that remain and
    /// of those that were lost before.
    pub(super) fn close(&self, within: Duration) -> (u64, u64) {
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
        (left, std::mem::take(&mut waiting.lost))
    }
}

impl<C> WaitingRecords<C> {
    /// Returns the number of bytes at which the writer stops waiting for more.
    fn enough(&self) -> usize {
        WRITE_THRESHOLD_BYTES.min(self.limit / 4)
    }

    /// Returns the batch for the next record.
    fn batch_for(&mut self, bytes: usize) -> &mut RecordBatch {
        if !self.filling.is_empty() && self.filling.bytes.len() + bytes > BATCH_BYTES {
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
    fn push_record(&mut self, record: &[u8]) {
        self.entries.push_back(QueueEntry::Record(record.len()));
        self.bytes.extend_from_slice(record);
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
                let (record, after) = rest.split_at_checked(length).unwrap_or_default();
                rest = after;
                BatchEntry::Record(record)
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
        self.bytes.shrink_to(BATCH_BYTES);
        self.read = 0;
    }
}

/// Maximum bytes of records in one batch; a single record may exceed it.
const BATCH_BYTES: usize = 64 << 10;
/// Number of bytes at which the writer stops waiting for more.
const WRITE_THRESHOLD_BYTES: usize = BATCH_BYTES / 2;
