//! What one stream of a Legacy session carries: messages with event ids, kept
//! for a while, so that a client whose connection broke can resume
//! (2025-11-25, Streamable HTTP, "Resumability and Redelivery").
//!
//! A session has one outbox for messages outside of calls, which its GET
//! stream carries; what comes while no stream is open waits in it. Each call
//! whose answer became a stream has one, too, which a source feeds. The
//! reader of an outbox polls its source; a reader that goes away leaves a task
//! behind that polls it instead, until the next one comes.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::{Mutex, MutexGuard};

use crate::call::Failure;
use crate::clock;
use crate::codec::sse::{self, OpenMessage};
use crate::jsonrpc::{self, Id};

/// The messages of one stream, bounded in bytes and in number.
pub(super) struct Outbox {
    /// The stream's number within its session.
    stream: u64,
    log: Mutex<EventLog>,
    /// Never locked while the log is.
    source: Mutex<Option<Source>>,
    /// The request that the source answers.
    request: Option<Id>,
}

/// What a stream's source brings.
#[derive(Debug)]
pub(in crate::downstream) enum Piece {
    /// A JSON-RPC message.
    Message(Bytes),
    /// The same as an event, for a message that is too large to be encoded on a serving thread.
    Event(OpenMessage),
    /// Nothing for a while: the client may let go of its connection, and ask
    /// again after so long.
    Pause(Duration),
}

/// The outcome of moving a stream's source.
#[derive(Debug)]
enum SourceStep {
    /// A message was put at the end of the log.
    Kept,
    /// See [`Piece::Pause`].
    Pause(Duration),
}

/// Where the messages of a call's stream come from.
pub(super) type Source = Pin<Box<dyn Stream<Item = Piece> + Send>>;

/// Whether a message stands for one like it that no connection has had yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge<'a> {
    /// Each counts.
    Never,
    /// One that waits under this key says it all, such as a list's change.
    With(&'a str),
}

/// From where on a stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::downstream) enum ReplayStart {
    /// What no connection has had yet.
    Unsent,
    /// What comes after the message of that number.
    Behind(u64),
}

/// How many bytes are kept.
#[derive(Debug, Clone)]
pub(super) struct OutboxBounds {
    /// Of one stream.
    pub(super) each: usize,
    /// Of all streams together: beyond it nothing is kept that was sent, nor an answer that comes
    /// while nobody reads.
    pub(super) all: usize,
    /// How many there are in all.
    pub(super) held: Arc<AtomicUsize>,
}

struct EventLog {
    kept: VecDeque<KeptEvent>,
    /// The sizes of all that is kept.
    bytes: usize,
    /// The most of them.
    bounds: OutboxBounds,
    /// The number of the newest message.
    newest: u64,
    /// The newest that a connection has had.
    sent: u64,
    /// Counts the readers: only the newest gets anything.
    reader: u64,
    /// Wakes that one.
    waker: Option<Waker>,
    /// When the source's last message came.
    ended: Option<Instant>,
}

struct KeptEvent {
    number: u64,
    event: Bytes,
    key: Option<Box<str>>,
    at: Instant,
}

impl Outbox {
    /// An outbox that others push into.
    pub(super) fn new(stream: u64, bounds: &OutboxBounds) -> Arc<Self> {
        Self::with(stream, bounds, (None, None))
    }

    /// An outbox that the source of a request's messages feeds.
    pub(super) fn fed(
        stream: u64,
        bounds: &OutboxBounds,
        source: Source,
        request: Id,
    ) -> Arc<Self> {
        Self::with(stream, bounds, (Some(source), Some(request)))
    }

    fn with(
        stream: u64,
        bounds: &OutboxBounds,
        (source, request): (Option<Source>, Option<Id>),
    ) -> Arc<Self> {
        let log = EventLog {
            kept: VecDeque::new(),
            bytes: 0,
            bounds: bounds.clone(),
            newest: 0,
            sent: 0,
            reader: 0,
            waker: None,
            ended: None,
        };
        Arc::new(Self { stream, log: Mutex::new(log), source: Mutex::new(source), request })
    }

    /// Whether it is the stream of that number.
    pub(super) fn is(&self, stream: u64) -> bool {
        self.stream == stream
    }

    /// How many bytes it keeps, if nothing comes any more.
    pub(super) fn left_over(&self) -> Option<usize> {
        let log = self.log();
        log.ended.map(|_| log.bytes)
    }

    /// Puts a JSON-RPC message at the end. The oldest make room for it.
    pub(super) fn push(&self, message: &[u8], merge: Merge<'_>) {
        let mut log = self.log();
        let key = match merge {
            Merge::Never => None,
            Merge::With(key) if log.waits(key) => return,
            Merge::With(key) => Some(key.into()),
        };
        log.push(self.stream, message, key);
        let waker = log.waker.take();
        drop(log);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Reads from now on. The previous reader gets nothing more: a message
    /// goes to one connection, not to all (2025-11-25, "Multiple Connections").
    pub(super) fn read(self: &Arc<Self>, start: ReplayStart) -> OutboxReader {
        let mut log = self.log();
        log.reader += 1;
        let cursor = match start {
            ReplayStart::Unsent => log.sent,
            ReplayStart::Behind(number) => number.min(log.newest),
        };
        let reader = OutboxReader { outbox: Arc::clone(self), number: log.reader, cursor };
        let waker = log.waker.take();
        drop(log);
        if let Some(waker) = waker {
            waker.wake();
        }
        reader
    }

    /// Forgets what was sent so long ago that nobody asks for it again; says
    /// whether the stream itself is over for as long.
    pub(super) fn forget(&self, now: Instant, after: Duration) -> bool {
        let old = |at: Instant| now.saturating_duration_since(at) >= after;
        let mut log = self.log();
        while log.kept.front().is_some_and(|kept| kept.number <= log.sent && old(kept.at)) {
            log.drop_oldest();
        }
        log.ended.is_some_and(old)
    }

    /// Moves the source for the reader of that number: `None` at the end, or
    /// when another one has taken over.
    fn poll_source(&self, reader: u64, cx: &mut Context<'_>) -> Poll<Option<SourceStep>> {
        let mut source = self.source.lock();
        if !self.log().watch(reader, cx) {
            return Poll::Ready(None);
        }
        let Some(stream) = source.as_mut() else { return Poll::Pending };
        let step = match std::task::ready!(stream.as_mut().poll_next(cx)) {
            Some(Piece::Message(message)) => {
                self.log().push(self.stream, &message, None);
                Some(SourceStep::Kept)
            }
            Some(Piece::Event(event)) => {
                self.log().push_event(self.stream, |id| event.finish(Some(id)), None);
                Some(SourceStep::Kept)
            }
            Some(Piece::Pause(wait)) => Some(SourceStep::Pause(wait)),
            None => {
                *source = None;
                self.log().ended = Some(clock::real_now());
                None
            }
        };
        Poll::Ready(step)
    }

    /// Replaces what nobody has read of a stream that is over by an error, if all streams together
    /// keep too much.
    fn drop_unread(&self, reader: u64) {
        let mut log = self.log();
        if log.reader == reader && log.ended.is_some() && log.is_unread() && log.is_over_all() {
            while !log.kept.is_empty() {
                log.drop_oldest();
            }
            let error = Failure::AnswerDropped { limit: "replay_all" }.to_error();
            log.push(self.stream, &jsonrpc::error(self.request.as_ref(), &error), None);
        }
    }

    fn log(&self) -> MutexGuard<'_, EventLog> {
        self.log.lock()
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("stream", &self.stream).finish_non_exhaustive()
    }
}

impl EventLog {
    fn push(&mut self, stream: u64, message: &[u8], key: Option<Box<str>>) {
        self.push_event(stream, |id| sse::message_with(message, Some(id), None), key);
    }

    /// Puts an event at the end, which is made with its id.
    fn push_event(
        &mut self,
        stream: u64,
        event_with: impl FnOnce(&str) -> Bytes,
        key: Option<Box<str>>,
    ) {
        self.newest += 1;
        let event = event_with(&format!("{stream}-{}", self.newest));
        self.bytes += event.len();
        self.bounds.held.fetch_add(event.len(), Ordering::Relaxed);
        self.kept.push_back(KeptEvent { number: self.newest, event, key, at: clock::real_now() });
        // The newest stays, however large: it may be the answer.
        while self.kept.len() > 1
            && (self.bytes > self.bounds.each || self.kept.len() > MOST || self.is_a_burden())
        {
            self.drop_oldest();
        }
    }

    /// Whether the oldest was sent, and all that is kept is too much.
    fn is_a_burden(&self) -> bool {
        self.is_over_all() && self.kept.front().is_some_and(|kept| kept.number <= self.sent)
    }

    /// Whether all streams together keep too much.
    fn is_over_all(&self) -> bool {
        self.bounds.held.load(Ordering::Relaxed) > self.bounds.all
    }

    /// Whether the newest message has not been sent.
    fn is_unread(&self) -> bool {
        self.sent < self.newest
    }

    /// The first message behind `cursor`, which is on its way now.
    fn take(&mut self, cursor: u64) -> Option<(u64, Bytes)> {
        let at = self.kept.partition_point(|kept| kept.number <= cursor);
        let kept = self.kept.get(at)?;
        let taken = (kept.number, kept.event.clone());
        self.sent = self.sent.max(taken.0);
        let sent = |log: &Self| log.kept.front().is_some_and(|k| k.number <= log.sent);
        while (self.bytes > self.bounds.each && sent(self)) || self.is_a_burden() {
            self.drop_oldest();
        }
        Some(taken)
    }

    fn waits(&self, key: &str) -> bool {
        let mut unsent = self.kept.iter().rev().take_while(|kept| kept.number > self.sent);
        unsent.any(|kept| kept.key.as_deref() == Some(key))
    }

    /// Whether `reader` is still the one who reads; it is woken when something
    /// comes, or when it no longer is.
    fn watch(&mut self, reader: u64, cx: &Context<'_>) -> bool {
        if self.reader != reader {
            return false;
        }
        match &mut self.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            none => *none = Some(cx.waker().clone()),
        }
        true
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.kept.pop_front() {
            self.bytes -= oldest.event.len();
            self.bounds.held.fetch_sub(oldest.event.len(), Ordering::Relaxed);
            if self.kept.is_empty() {
                // An outbox that waits for ever takes no room.
                self.kept = VecDeque::new();
            }
        }
    }
}

impl Drop for EventLog {
    fn drop(&mut self) {
        self.bounds.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// Who reads an outbox, on behalf of one connection.
pub(super) struct OutboxReader {
    outbox: Arc<Outbox>,
    number: u64,
    cursor: u64,
}

/// What a reader has for its connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// An event, as it goes out.
    Event(Bytes),
    /// See [`Piece::Pause`].
    Pause(Duration),
}

impl OutboxReader {
    /// The event that opens a connection: a client that has seen no other event
    /// can resume from here.
    pub(super) fn priming(&self, retry: Duration) -> Bytes {
        let id = format!("{}-{}.{}", self.outbox.stream, self.cursor, self.number);
        sse::priming(&id, Some(retry))
    }

    /// What comes next; `None` at the stream's end, or when another connection
    /// has taken it over.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn next(&mut self) -> Option<Sent> {
        poll_fn(|cx| self.poll_next(cx)).await
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Sent>> {
        loop {
            let mut log = self.outbox.log();
            if !log.watch(self.number, cx) {
                return Poll::Ready(None);
            }
            if let Some((number, event)) = log.take(self.cursor) {
                self.cursor = number;
                return Poll::Ready(Some(Sent::Event(event)));
            }
            if log.ended.is_some() {
                return Poll::Ready(None);
            }
            drop(log);
            match std::task::ready!(self.outbox.poll_source(self.number, cx)) {
                Some(SourceStep::Pause(retry)) => return Poll::Ready(Some(Sent::Pause(retry))),
                Some(SourceStep::Kept) | None => {}
            }
        }
    }
}

impl Drop for OutboxReader {
    fn drop(&mut self) {
        let log = self.outbox.log();
        let left = log.reader == self.number && log.ended.is_none();
        drop(log);
        let fed = self.outbox.source.lock().is_some();
        if left && fed {
            let (outbox, number) = (Arc::clone(&self.outbox), self.number);
            tokio::spawn(async move {
                while poll_fn(|cx| outbox.poll_source(number, cx)).await.is_some() {}
                outbox.drop_unread(number);
            });
        }
    }
}

/// A place in a session's streams, as a client names it in `Last-Event-ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventId {
    pub(super) stream: u64,
    pub(super) number: u64,
}

impl EventId {
    /// Reads `STREAM-NUMBER`, or `STREAM-NUMBER.CONNECTION` of a priming event.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (stream, number) = text.split_once('-')?;
        let number = number.split_once('.').map_or(number, |(number, _)| number);
        Some(Self { stream: stream.parse().ok()?, number: number.parse().ok()? })
    }
}

/// The most messages of one stream that are kept.
const MOST: usize = 1024;

#[cfg(test)]
mod tests;
