//! Queue of pending events: bounded in bytes, in order of occurrence.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::health::EventHealth;
use super::kind::EventType;
use crate::metrics::{EventCounts, EventFate};

/// A pending event.
#[derive(Debug)]
pub(super) struct QueuedEvent {
    pub(super) id: Box<str>,
    pub(super) kind: EventType,
    /// Time of the event.
    pub(super) at: SystemTime,
    /// The event as one line of JSON, without a line end.
    pub(super) json: Bytes,
}

/// The queue. Callers that add to it never wait.
#[derive(Debug)]
pub(super) struct EventQueue {
    waiting: Mutex<WaitingEvents>,
    /// Notified when an event was added.
    pub(super) added: Notify,
    /// Notified when the queue differs from its journal.
    pub(super) unsaved: Notify,
    /// Notified when the last event has left.
    emptied: Notify,
    /// Number of changes that the journal contains.
    saved: watch::Sender<u64>,
    /// State of the sinks that the queue is written to.
    pub(super) health: EventHealth,
    counts: EventCounts,
}

#[derive(Debug, Default)]
struct WaitingEvents {
    /// Events of calls, which are dropped first.
    of_calls: VecDeque<NumberedEvent>,
    /// All other events.
    others: VecDeque<NumberedEvent>,
    /// Number of events that were added.
    added: u64,
    bytes: usize,
    /// Maximum bytes.
    limit: usize,
    /// True if events were dropped since the queue was last empty.
    has_dropped: bool,
    /// Number of events that were added or removed.
    changes: u64,
    journal: Option<JournalChanges>,
}

/// An event, and its position in the order of all additions.
type NumberedEvent = (u64, Arc<QueuedEvent>);

/// Changes since the last write to the journal.
#[derive(Debug, Default)]
pub(super) struct JournalChanges {
    /// Lines to append.
    pub(super) lines: Vec<u8>,
    /// Bytes of the file after these changes.
    file: usize,
    /// True if the file is rewritten instead.
    pub(super) rewrite: bool,
    /// Number of changes that the journal contains after these.
    pub(super) number: u64,
}

impl EventQueue {
    pub(super) fn new(counts: EventCounts) -> Self {
        Self {
            waiting: Mutex::default(),
            added: Notify::new(),
            unsaved: Notify::new(),
            emptied: Notify::new(),
            saved: watch::Sender::new(0),
            health: EventHealth::default(),
            counts,
        }
    }

    /// Sets the maximum bytes. Drops events beyond it.
    pub(super) fn set_limit(&self, limit: usize) {
        let mut waiting = self.waiting.lock();
        waiting.limit = limit;
        let dropped = waiting.make_room(0);
        self.note_dropped(&mut waiting, dropped);
        if waiting.is_empty() {
            self.emptied.notify_waiters();
        }
    }

    /// Keeps the queue in a journal from now on.
    pub(super) fn keep_journal(&self) {
        let rewrite = JournalChanges { rewrite: true, ..JournalChanges::default() };
        self.waiting.lock().journal = Some(rewrite);
        self.unsaved.notify_one();
    }

    /// Adds an event. If there is no room, the oldest events of calls are dropped first, and then
    /// the oldest of the others.
    pub(super) fn push(&self, event: QueuedEvent) {
        let mut waiting = self.waiting.lock();
        let is_lesser = event.kind.is_of_calls() && waiting.of_calls.is_empty();
        let is_full = waiting.bytes + event.json.len() > waiting.limit;
        if event.json.len() > waiting.limit || (is_full && is_lesser) {
            return self.note_dropped(&mut waiting, 1);
        }
        let dropped = waiting.make_room(event.json.len());
        self.note_dropped(&mut waiting, dropped);
        waiting.append(Arc::new(event));
        drop(waiting);
        self.added.notify_one();
        self.unsaved.notify_one();
    }

    /// Returns the next event.
    pub(super) fn first(&self) -> Option<Arc<QueuedEvent>> {
        self.waiting.lock().first().cloned()
    }

    /// Removes the first event, delivered or not, unless it was dropped meanwhile.
    pub(super) fn remove(&self, event: &Arc<QueuedEvent>, fate: EventFate) {
        let mut waiting = self.waiting.lock();
        if !waiting.first().is_some_and(|first| Arc::ptr_eq(first, event)) {
            return;
        }
        waiting.remove_first();
        let is_empty = waiting.is_empty();
        if is_empty && std::mem::take(&mut waiting.has_dropped) {
            tracing::info!(
                target: "trunkline::telemetry::events::queue", "all events that were left in the queue are delivered"
            );
        }
        drop(waiting);
        self.counts.count(fate, 1);
        if is_empty {
            self.emptied.notify_waiters();
        }
        self.unsaved.notify_one();
    }

    /// Waits until the queue is empty.
    pub(super) async fn drained(&self) {
        loop {
            // Registered before the check, so that no notification is lost in between.
            let emptied = self.emptied.notified();
            if self.waiting.lock().is_empty() {
                return;
            }
            emptied.await;
        }
    }

    /// Takes the changes for the journal, with all lines of the queue if the file is rewritten.
    pub(super) fn take_changes(&self) -> Option<JournalChanges> {
        let mut waiting = self.waiting.lock();
        let lines = waiting.journal.as_ref()?.rewrite.then(|| waiting.all_lines());
        let (file, number) = (waiting.bytes + waiting.len(), waiting.changes);
        let journal = waiting.journal.as_mut()?;
        let mut changes = std::mem::take(journal);
        changes.number = number;
        match lines {
            Some(lines) => {
                changes.lines = lines;
                journal.file = file;
            }
            None => journal.file = changes.file,
        }
        Some(changes)
    }

    /// Records that the journal contains these changes.
    pub(super) fn note_saved(&self, number: u64) {
        self.saved.send_replace(number);
    }

    /// Waits until the journal contains all changes.
    pub(super) async fn saved(&self) {
        let number = self.waiting.lock().changes;
        // The sender is part of `self`, so it cannot be dropped.
        let _ = self.saved.subscribe().wait_for(|saved| *saved >= number).await;
    }

    fn note_dropped(&self, waiting: &mut WaitingEvents, dropped: u64) {
        if dropped == 0 {
            return;
        }
        self.counts.count(EventFate::Dropped, dropped);
        if !std::mem::replace(&mut waiting.has_dropped, true) {
            tracing::warn!(
                target: "trunkline::telemetry::events::queue",
                queue_size = waiting.limit,
                "the queue of events is full: the oldest are dropped, those of calls first"
            );
        }
    }
}

impl WaitingEvents {
    fn len(&self) -> usize {
        self.of_calls.len() + self.others.len()
    }

    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn first(&self) -> Option<&Arc<QueuedEvent>> {
        self.in_order().next()
    }

    /// Returns all events in the order of their addition.
    fn in_order(&self) -> impl Iterator<Item = &Arc<QueuedEvent>> {
        let (mut of_calls, mut others) = (self.of_calls.iter(), self.others.iter());
        let (mut of_call, mut other) = (of_calls.next(), others.next());
        std::iter::from_fn(move || {
            if precedes(of_call, other) {
                std::mem::replace(&mut of_call, of_calls.next())
            } else {
                std::mem::replace(&mut other, others.next())
            }
        })
        .map(|(_, event)| event)
    }

    /// Drops events until there is room for one of this length; returns the number of dropped
    /// events.
    fn make_room(&mut self, length: usize) -> u64 {
        let mut dropped = 0;
        while self.bytes + length > self.limit && !self.is_empty() {
            let removed = self.of_calls.pop_front().or_else(|| self.others.pop_front());
            self.note_removal(removed);
            dropped += 1;
        }
        dropped
    }

    fn append(&mut self, event: Arc<QueuedEvent>) {
        self.bytes += event.json.len();
        self.note_change(&[&event.json[..], b"\n"]);
        self.added += 1;
        let lane = if event.kind.is_of_calls() { &mut self.of_calls } else { &mut self.others };
        lane.push_back((self.added, event));
    }

    fn remove_first(&mut self) {
        let is_of_call = precedes(self.of_calls.front(), self.others.front());
        let lane = if is_of_call { &mut self.of_calls } else { &mut self.others };
        let first = lane.pop_front();
        self.note_removal(first);
    }

    fn note_removal(&mut self, removed: Option<NumberedEvent>) {
        let Some((_, event)) = removed else { return };
        self.bytes -= event.json.len();
        if self.is_empty() {
            // An empty file has the same meaning, and is the shortest.
            if let Some(journal) = &mut self.journal {
                journal.rewrite = true;
            }
        }
        self.note_change(&[REMOVAL_PREFIX, event.id.as_bytes(), b"\n"]);
    }

    /// Adds a line for the journal. The file has at most twice the bytes of the queue. Beyond that
    /// it is rewritten, which also bounds the changes that wait for a slow disk.
    fn note_change(&mut self, pieces: &[&[u8]]) {
        self.changes += 1;
        let limit = self.limit.saturating_mul(2);
        let Some(journal) = self.journal.as_mut().filter(|journal| !journal.rewrite) else {
            return;
        };
        journal.file += pieces.iter().map(|piece| piece.len()).sum::<usize>();
        if journal.file > limit {
            journal.lines = Vec::new();
            journal.rewrite = true;
            return;
        }
        for piece in pieces {
            journal.lines.extend_from_slice(piece);
        }
    }

    fn all_lines(&self) -> Vec<u8> {
        let mut lines = Vec::with_capacity(self.bytes + self.len());
        for event in self.in_order() {
            lines.extend_from_slice(&event.json);
            lines.push(b'\n');
        }
        lines
    }
}

/// Returns true if an event of a call precedes another event.
fn precedes(of_call: Option<&NumberedEvent>, other: Option<&NumberedEvent>) -> bool {
    of_call.is_some_and(|of_call| other.is_none_or(|other| of_call.0 < other.0))
}

/// Prefix of a journal line with the id of an event that has left the queue.
pub(super) const REMOVAL_PREFIX: &[u8] = b"-";

#[cfg(test)]
mod tests;
