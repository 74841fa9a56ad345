//! The events that wait for their receiver: bounded in bytes, in the order in which they happened.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::kind::EventType;
use crate::telemetry::metrics::{EventCounts, EventFate};

/// An event that waits.
#[derive(Debug)]
pub(super) struct QueuedEvent {
    pub(super) id: Box<str>,
    pub(super) kind: EventType,
    /// When it happened.
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
    /// Whether the queue is empty.
    emptied: watch::Sender<bool>,
    /// The number of changes that the journal has.
    saved: watch::Sender<u64>,
    counts: EventCounts,
}

#[derive(Debug, Default)]
struct WaitingEvents {
    events: VecDeque<Arc<QueuedEvent>>,
    bytes: usize,
    /// The most bytes.
    limit: usize,
    /// How many of them are of calls.
    of_calls: usize,
    /// Whether events were dropped since the queue was last empty.
    has_dropped: bool,
    /// The number of events that came and left.
    changes: u64,
    journal: Option<JournalChanges>,
}

/// What has changed since the journal was last written.
#[derive(Debug, Default)]
pub(super) struct JournalChanges {
    /// Lines to append.
    pub(super) lines: Vec<u8>,
    /// Bytes of the file, as it will be.
    file: usize,
    /// Whether the file is to be written anew, instead.
    pub(super) rewrite: bool,
    /// The number of changes that the journal has with these.
    pub(super) number: u64,
}

impl EventQueue {
    pub(super) fn new(counts: EventCounts) -> Self {
        Self {
            waiting: Mutex::default(),
            added: Notify::new(),
            unsaved: Notify::new(),
            emptied: watch::Sender::new(true),
            saved: watch::Sender::new(0),
            counts,
        }
    }

    /// Sets the most bytes; what is more is dropped.
    pub(super) fn set_limit(&self, limit: usize) {
        let mut waiting = self.waiting.lock();
        waiting.limit = limit;
        let dropped = waiting.make_room(0);
        self.note_dropped(&mut waiting, dropped);
    }

    /// Has the queue kept in a journal from now on.
    pub(super) fn keep_journal(&self) {
        let rewrite = JournalChanges { rewrite: true, ..JournalChanges::default() };
        self.waiting.lock().journal = Some(rewrite);
        self.unsaved.notify_one();
    }

    /// Adds an event. If there is no room, the oldest events of calls are dropped, and then the
    /// oldest of all.
    pub(super) fn push(&self, event: QueuedEvent) {
        let mut waiting = self.waiting.lock();
        let is_lesser = event.kind.is_of_calls() && waiting.of_calls == 0;
        let is_full = waiting.bytes + event.json.len() > waiting.limit;
        if event.json.len() > waiting.limit || (is_full && is_lesser) {
            return self.note_dropped(&mut waiting, 1);
        }
        let dropped = waiting.make_room(event.json.len());
        self.note_dropped(&mut waiting, dropped);
        waiting.append(Arc::new(event));
        drop(waiting);
        self.emptied.send_replace(false);
        self.added.notify_one();
        self.unsaved.notify_one();
    }

    /// The event that is next.
    pub(super) fn first(&self) -> Option<Arc<QueuedEvent>> {
        self.waiting.lock().events.front().cloned()
    }

    /// Removes an event that was delivered or given up, unless it was dropped meanwhile.
    pub(super) fn remove(&self, event: &Arc<QueuedEvent>, fate: EventFate) {
        let mut waiting = self.waiting.lock();
        let place = waiting.events.iter().position(|other| Arc::ptr_eq(other, event));
        let Some(place) = place else { return };
        waiting.remove_at(place);
        let is_empty = waiting.events.is_empty();
        if is_empty && std::mem::take(&mut waiting.has_dropped) {
            tracing::info!("all events that were left in the queue are delivered");
        }
        drop(waiting);
        self.counts.count(fate, 1);
        self.emptied.send_replace(is_empty);
        self.unsaved.notify_one();
    }

    /// Waits until the queue is empty.
    pub(super) async fn drained(&self) {
        // The sender is part of `self`, so it cannot be dropped.
        let _ = self.emptied.subscribe().wait_for(|is_empty| *is_empty).await;
    }

    /// The changes to write to the journal, with all lines of the queue if it is to be written anew.
    pub(super) fn take_changes(&self) -> Option<JournalChanges> {
        let mut waiting = self.waiting.lock();
        let lines = waiting.journal.as_ref()?.rewrite.then(|| waiting.all_lines());
        let (file, number) = (waiting.bytes + waiting.events.len(), waiting.changes);
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

    /// Records that the journal has these changes.
    pub(super) fn note_saved(&self, number: u64) {
        self.saved.send_replace(number);
    }

    /// Waits until the journal has all changes.
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
                queue_size = waiting.limit,
                "the queue of events is full: the oldest are dropped, those of calls first"
            );
        }
    }
}

impl WaitingEvents {
    /// Drops events until there is room for one of this length; returns how many.
    fn make_room(&mut self, length: usize) -> u64 {
        let mut dropped = 0;
        while self.bytes + length > self.limit && !self.events.is_empty() {
            let of_call = (self.of_calls > 0)
                .then(|| self.events.iter().position(|event| event.kind.is_of_calls()));
            self.remove_at(of_call.flatten().unwrap_or(0));
            dropped += 1;
        }
        dropped
    }

    fn append(&mut self, event: Arc<QueuedEvent>) {
        self.bytes += event.json.len();
        self.of_calls += usize::from(event.kind.is_of_calls());
        self.note_change(&[&event.json[..], b"\n"]);
        self.events.push_back(event);
    }

    fn remove_at(&mut self, place: usize) {
        let Some(event) = self.events.remove(place) else { return };
        self.bytes -= event.json.len();
        self.of_calls -= usize::from(event.kind.is_of_calls());
        if self.events.is_empty() {
            // An empty file says the same, and is the shortest.
            if let Some(journal) = &mut self.journal {
                journal.rewrite = true;
            }
        }
        self.note_change(&[REMOVED, event.id.as_bytes(), b"\n"]);
    }

    /// Notes a line for the journal. The file has at most twice the bytes of the queue: then it is
    /// written anew, which also bounds what waits for a slow disk.
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
        let mut lines = Vec::with_capacity(self.bytes + self.events.len());
        for event in &self.events {
            lines.extend_from_slice(&event.json);
            lines.push(b'\n');
        }
        lines
    }
}

/// What precedes the id of an event that is no longer in the queue, in a line of the journal.
pub(super) const REMOVED: &[u8] = b"-";

#[cfg(test)]
mod tests {
    use super::*;

    fn event(id: &str, kind: EventType, length: usize) -> QueuedEvent {
        let json = Bytes::from(vec![b'x'; length]);
        QueuedEvent { id: id.into(), kind, at: SystemTime::UNIX_EPOCH, json }
    }

    fn ids(queue: &EventQueue) -> Vec<String> {
        queue.waiting.lock().events.iter().map(|event| event.id.to_string()).collect()
    }

    #[test]
    fn a_full_queue_drops_the_oldest_call_events_and_then_the_oldest_of_all() {
        let (server, call) = (EventType::ServerReady, EventType::CallEnded);
        let counts = EventCounts::default();
        let queue = EventQueue::new(counts.clone());
        queue.set_limit(30);
        for (id, kind) in [("a", server), ("b", call), ("c", call), ("d", server)] {
            queue.push(event(id, kind, 10));
        }
        assert_eq!(ids(&queue), ["a", "c", "d"], "the oldest call event went first");
        queue.push(event("e", server, 10));
        assert_eq!(ids(&queue), ["a", "d", "e"]);
        queue.push(event("f", call, 10));
        assert_eq!(ids(&queue), ["a", "d", "e"], "a call event drops no other");
        queue.push(event("g", server, 10));
        assert_eq!(ids(&queue), ["d", "e", "g"]);
        queue.push(event("h", server, 31));
        assert_eq!(ids(&queue), ["d", "e", "g"], "too large for any queue");
        queue.set_limit(20);
        assert_eq!(ids(&queue), ["e", "g"]);
        assert_eq!(counts.of(EventFate::Dropped), 6);
    }

    #[test]
    fn the_journal_has_twice_the_bytes_of_the_queue_at_most() {
        let queue = EventQueue::new(EventCounts::default());
        queue.set_limit(100);
        queue.keep_journal();
        let (mut file, mut largest) = (Vec::new(), 0);
        for round in 0..1000 {
            queue.push(event("id", EventType::ServerReady, 30));
            if round % 3 == 0
                && let Some(first) = queue.first()
            {
                queue.remove(&first, EventFate::Delivered);
            }
            let changes = queue.take_changes().unwrap();
            if changes.rewrite {
                file.clear();
            }
            file.extend(changes.lines);
            largest = largest.max(file.len());
        }
        assert!((150..=200).contains(&largest), "{largest}");
        // What waits for a slow disk is bounded as well.
        for _ in 0..1000 {
            queue.push(event("id", EventType::ServerReady, 30));
        }
        let changes = queue.take_changes().unwrap();
        assert!(changes.rewrite && changes.lines.len() <= 200, "{}", changes.lines.len());
    }
}
