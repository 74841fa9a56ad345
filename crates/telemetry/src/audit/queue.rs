//! Queue of pending audit records, and the messages to their writer.

use std::sync::Arc;
use std::time::Duration;

use super::AuditSettings;
use super::writer::WritableLog;
use crate::batch_queue::{BatchQueue, QueueShare};
use crate::metrics::{AuditCounts, AuditFate};
use crate::recent::RecentItems;

/// The queue. Callers that add to it never wait.
#[derive(Debug)]
pub(super) struct AuditQueue {
    pub(super) records: BatchQueue<AuditControl>,
    /// Sends written records to observers. It keeps none.
    pub(super) written: RecentItems<WrittenRecord>,
    counts: AuditCounts,
}

/// A record as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenRecord {
    /// Its JSON; `None` for a record beyond [`MAX_LIVE_RECORD_BYTES`].
    pub json: Option<Vec<u8>>,
}

/// Messages to the writer besides records.
#[derive(Debug, Default)]
pub(super) struct AuditControl {
    /// Write to the destination of these settings.
    pub(super) settings: Option<Arc<AuditSettings>>,
    /// The open destination of these settings; `None` if it is to be opened.
    pub(super) log: Option<WritableLog>,
    /// The number of these settings.
    pub(super) number: u64,
    /// Open the file again.
    pub(super) is_reopening: bool,
}

impl AuditQueue {
    /// Creates a queue without room, which the first settings give it.
    pub(super) fn new(counts: AuditCounts) -> Self {
        Self { records: BatchQueue::new(0), written: RecentItems::new(&[]), counts }
    }

    /// Sends written lines to observers, if there are any.
    pub(super) fn show(&self, lines: &[u8]) {
        if self.written.observers() == 0 {
            return;
        }
        for line in lines.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let json = (line.len() <= MAX_LIVE_RECORD_BYTES).then(|| line.to_vec());
            self.written.push(0, WrittenRecord { json }, 0);
        }
    }

    pub(super) fn counts(&self) -> &AuditCounts {
        &self.counts
    }

    /// Gives the writer new settings with their number, and their destination if it is open already.
    pub(super) fn configure(
        &self,
        number: u64,
        settings: &Arc<AuditSettings>,
        log: Option<WritableLog>,
    ) {
        self.records.set_limit(settings.queue_size);
        self.records.control(|control| {
            control.settings = Some(Arc::clone(settings));
            control.log = log;
            control.number = number;
        });
    }

    pub(super) fn request_reopening(&self) {
        self.records.control(|control| control.is_reopening = true);
    }

    /// Adds a record, or counts it as lost if there is no room for it.
    pub(super) fn push(&self, json: &[u8], share: QueueShare) {
        if !self.records.push(json, share) {
            self.counts.count(AuditFate::Dropped, 1);
        }
    }

    /// Counts a record that could not be made or written.
    pub(super) fn note_lost(&self) {
        self.counts.count(AuditFate::Dropped, 1);
        self.records.note_lost();
    }

    /// Lets the writer finish within this time, and returns the number of records that remain.
    pub(super) fn close(&self, within: Duration) -> u64 {
        let (left, lost) = self.records.close(within);
        self.counts.count(AuditFate::Dropped, left);
        left + lost
    }
}

/// Limit of the bytes of a record that observers receive. A larger one counts as missed.
pub const MAX_LIVE_RECORD_BYTES: usize = 64 << 10;
