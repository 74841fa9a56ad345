//! Room in the queue for the records of requests, if the audit log is required.

use std::sync::Arc;

use super::AuditSettings;
use super::queue::AuditQueue;
use crate::batch_queue::QueueShare;

/// The audit log is required and cannot take another record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the audit log cannot be written")]
pub struct UnrecordableError;

/// Room for one record, reserved before the request is served. It is free again once the record is
/// written, or when this is dropped.
#[derive(Debug)]
pub struct RecordRoom {
    queue: Arc<AuditQueue>,
    bytes: usize,
}

impl RecordRoom {
    /// Reserves room; `None` if there is none.
    pub(super) fn reserve(queue: &Arc<AuditQueue>, settings: &AuditSettings) -> Option<Self> {
        let bytes = record_bytes(settings);
        let queue = Arc::clone(queue);
        queue.records.reserve(bytes).then_some(Self { queue, bytes })
    }

    /// Returns the share of the queue for the record.
    pub(super) fn into_share(mut self) -> QueueShare {
        QueueShare::Reserved(std::mem::take(&mut self.bytes))
    }
}

impl Drop for RecordRoom {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.queue.records.release_reserved(self.bytes);
        }
    }
}

/// Returns the bytes to reserve for a record. A small queue holds one record at a time.
fn record_bytes(settings: &AuditSettings) -> usize {
    // Redaction and escapes lengthen the arguments.
    let arguments = settings.arguments.as_ref().map_or(0, |recording| recording.size * 2);
    (MAX_PLAIN_RECORD_BYTES + arguments).min(settings.queue_size)
}

/// Maximum bytes of a record without arguments: names of clients and of their subjects are clipped.
const MAX_PLAIN_RECORD_BYTES: usize = 4 << 10;
