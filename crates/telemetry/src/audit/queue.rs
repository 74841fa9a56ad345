//! Queue of pending audit records, and the messages to their writer.

use std::sync::Arc;
use std::time::Duration;

use super::AuditSettings;
use crate::batch_queue::{BatchQueue, QueueShare};
use crate::metrics::{AuditCounts, AuditFate};

/// The queue. Callers that add to it never wait.
#[derive(Debug)]
pub(super) struct AuditQueue {
    pub(super) records: BatchQueue<AuditControl>,
    counts: AuditCounts,
}

/// Messages to the writer besides records.
#[derive(Debug, Default)]
pub(super) struct AuditControl {
    /// Write to the destination of these settings.
    pub(super) settings: Option<Arc<AuditSettings>>,
    /// Open the file again.
    pub(super) is_reopening: bool,
}

impl AuditQueue {
    /// Creates a queue without room, which the first settings give it.
    pub(super) fn new(counts: AuditCounts) -> Self {
        Self { records: BatchQueue::new(0), counts }
    }

    pub(super) fn counts(&self) -> &AuditCounts {
        &self.counts
    }

    /// Gives the writer new settings.
    pub(super) fn configure(&self, settings: &Arc<AuditSettings>) {
        self.records.set_limit(settings.queue_size);
        self.records.control(|control| control.settings = Some(Arc::clone(settings)));
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
