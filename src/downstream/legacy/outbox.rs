//! The outbox of one stream of a Legacy session: messages with event ids, kept for a while, so that
//! a client can resume after a broken connection (2025-11-25, Streamable HTTP, "Resumability and
//! Redelivery").
//!
//! A session has one outbox for messages outside of calls, for its GET stream; messages wait in it
//! while no stream is open. Each call that is answered with a stream has one, too, fed by a source.
//! The reader of an outbox polls its source. A reader that is dropped leaves a task behind that
//! polls the source until the next reader comes.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use futures_util::Stream;
use parking_lot::{Mutex, MutexGuard};
use serde_json::value::RawValue;

use crate::call::Failure;
use crate::clock;
use crate::codec::sse::{self, OpenMessage};
use crate::jsonrpc::{self, Id};

/// Messages of one stream, bounded in bytes and in number.
pub(super) struct Outbox {
    /// The stream's number within its session.
    stream: u64,
    log: Mutex<EventLog>,
    /// Never locked while the log is.
    source: Mutex<Option<Source>>,
    /// The request that the source answers.
    request: Option<Id>,
}

/// One step of a stream's source.
#[derive(Debug)]
pub(crate) enum Piece {
    /// A JSON-RPC message.
    Message(Bytes),
    /// A message that is too large to be encoded on a serving thread, encoded.
    Event(OpenMessage),
    /// No message for a while: the client may close its connection, and ask again after this time.
    Pause(Duration),
}

/// The outcome of polling a stream's source.
#[derive(Debug)]
enum SourceStep {
    /// A message was appended to the log.
    Kept,
    /// See [`Piece::Pause`].
    Pause(Duration),
}

/// Source of the messages of a call's stream.
pub(super) type Source = Pin<Box<dyn Stream<Item = Piece> + Send>>;

/// Merging of a message with an unsent one of the same kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Merge<'a> {
    /// Each message is sent.
    Never,
    /// An unsent message with this key makes it superfluous, such as a list's change.
    With(&'a str),
}

/// Position from which a stream is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReplayStart {
    /// The first unsent message.
    Unsent,
    /// The message after the one with this number.
    Behind(u64),
}

/// Limits of the kept bytes.
#[derive(Debug, Clone)]
pub(super) struct OutboxBounds {
    /// For one stream.
    pub(super) each: usize,
    /// For all streams together. Beyond it, sent messages are dropped, and so is an answer that
    /// nothing reads.
    pub(super) all: usize,
    /// Bytes of all streams at present.
    pub(super) held: Arc<AtomicUsize>,
    /// Naming of requests in event ids.
    pub(super) naming: RequestNaming,
}

/// Naming of the request that a stream answers in its event ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestNaming {
    /// It is not named.
    Never,
    /// It is named, so that another replica can tell the client which request was lost with its
    /// stream.
    Short,
}

struct EventLog {
    /// Names the request in event ids.
    suffix: Box<str>,
    kept: VecDeque<KeptEvent>,
    /// The size of all kept messages.
    bytes: usize,
    /// The limits of it.
    bounds: OutboxBounds,
    /// Number of the newest message.
    newest: u64,
    /// Number of the newest message that was sent.
    sent: u64,
    /// Number of the newest reader: only this one gets messages.
    reader: u64,
    /// Wakes that reader.
    waker: Option<Waker>,
    /// Time of the source's end.
    ended: Option<Instant>,
}

struct KeptEvent {
    number: u64,
    /// The event in pieces.
    event: Vec<Bytes>,
    bytes: usize,
    key: Option<Box<str>>,
    at: Instant,
}

impl Outbox {
    /// Creates an outbox that others push into.
    pub(super) fn new(stream: u64, bounds: &OutboxBounds) -> Arc<Self> {
        Self::with(stream, bounds, None, None)
    }

    /// Creates an outbox that is fed by the source of a request's messages.
    pub(super) fn fed(
        stream: u64,
        bounds: &OutboxBounds,
        source: Source,
        request: Id,
    ) -> Arc<Self> {
        Self::with(stream, bounds, Some(source), Some(request))
    }

    fn with(
        stream: u64,
        bounds: &OutboxBounds,
        source: Option<Source>,
        request: Option<Id>,
    ) -> Arc<Self> {
        let log = EventLog {
            suffix: name_request(bounds.naming, request.as_ref()),
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

    /// Returns true if it is the stream with this number.
    pub(super) fn is(&self, stream: u64) -> bool {
        self.stream == stream
    }

    /// Returns the number of kept bytes, if the source has ended.
    pub(super) fn left_over(&self) -> Option<usize> {
        let log = self.log();
        log.ended.map(|_| log.bytes)
    }

    /// Appends a JSON-RPC message. The oldest ones are evicted for it.
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

    /// Starts reading. The previous reader gets nothing more: a message goes to one connection, not
    /// to all (2025-11-25, "Multiple Connections").
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

    /// Drops sent messages that are too old to be resumed from. Returns true if the stream itself
    /// ended that long ago.
    pub(super) fn forget(&self, now: Instant, after: Duration) -> bool {
        let old = |at: Instant| now.saturating_duration_since(at) >= after;
        let mut log = self.log();
        while log.kept.front().is_some_and(|kept| kept.number <= log.sent && old(kept.at)) {
            log.drop_oldest();
        }
        log.ended.is_some_and(old)
    }

    /// Polls the source for this reader: `None` at the end, or when a newer reader has taken over.
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

    /// Replaces the unsent messages of an ended stream by an error, if all streams together exceed
    /// their limit.
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
        self.push_event(stream, |id| vec![sse::message_with(message, Some(id), None)], key);
    }

    /// Appends an event, which is built with its id.
    fn push_event(
        &mut self,
        stream: u64,
        event_with: impl FnOnce(&str) -> Vec<Bytes>,
        key: Option<Box<str>>,
    ) {
        self.newest += 1;
        let event = event_with(&format!("{stream}-{}{}", self.newest, self.suffix));
        let bytes = event.iter().map(Bytes::len).sum();
        self.bytes += bytes;
        self.bounds.held.fetch_add(bytes, Ordering::Relaxed);
        let (number, at) = (self.newest, clock::real_now());
        self.kept.push_back(KeptEvent { number, event, bytes, key, at });
        // The newest stays, however large: it may be the answer.
        while self.kept.len() > 1
            && (self.bytes > self.bounds.each
                || self.kept.len() > MAX_OUTBOX_MESSAGES
                || self.is_a_burden())
        {
            self.drop_oldest();
        }
    }

    /// Returns true if the oldest message was sent, and all streams together exceed their limit.
    fn is_a_burden(&self) -> bool {
        self.is_over_all() && self.kept.front().is_some_and(|kept| kept.number <= self.sent)
    }

    /// Returns true if all streams together exceed their limit.
    fn is_over_all(&self) -> bool {
        self.bounds.held.load(Ordering::Relaxed) > self.bounds.all
    }

    /// Returns true if the newest message has not been sent.
    fn is_unread(&self) -> bool {
        self.sent < self.newest
    }

    /// Returns the first message after `cursor`, and marks it as sent.
    fn take(&mut self, cursor: u64) -> Option<(u64, Vec<Bytes>)> {
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

    /// Registers the reader's waker. Returns false if another reader has taken over.
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
            self.bytes -= oldest.bytes;
            self.bounds.held.fetch_sub(oldest.bytes, Ordering::Relaxed);
            if self.kept.is_empty() {
                // Frees the memory of an outbox that waits.
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

/// The reader of an outbox for one connection.
pub(super) struct OutboxReader {
    outbox: Arc<Outbox>,
    number: u64,
    cursor: u64,
}

/// Items for a reader's connection.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// The pieces of an encoded event.
    Event(Vec<Bytes>),
    /// See [`Piece::Pause`].
    Pause(Duration),
}

impl OutboxReader {
    /// Returns the event that opens a connection: a client that has seen no other event can resume
    /// from here.
    pub(super) fn priming(&self, retry: Duration) -> Bytes {
        let (stream, suffix) = (self.outbox.stream, self.outbox.log().suffix.clone());
        let id = format!("{stream}-{}.{}{suffix}", self.cursor, self.number);
        sse::priming(&id, Some(retry))
    }

    /// Returns the next item; `None` at the stream's end, or when another connection has taken it
    /// over.
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

/// A position in a session's streams, as a client sends it in `Last-Event-ID`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct EventId {
    pub(super) stream: u64,
    pub(super) number: u64,
}

impl EventId {
    /// Parses `STREAM-NUMBER`, or `STREAM-NUMBER.CONNECTION` of a priming event. The name of a request
    /// may follow.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (stream, number) = text.split_once('-')?;
        let number = number.split_once('.').map_or(number, |(number, _)| number);
        Some(Self { stream: stream.parse().ok()?, number: number.parse().ok()? })
    }
}

/// Returns the suffix of event ids that names a request; empty for a long one.
fn name_request(naming: RequestNaming, request: Option<&Id>) -> Box<str> {
    let request = request.filter(|_| naming == RequestNaming::Short);
    match request.map(Id::raw).filter(|raw| raw.len() <= MAX_NAMED_REQUEST) {
        Some(raw) => format!("{REQUEST_MARK}{}", BASE64URL_NOPAD.encode(raw)).into(),
        None => Box::default(),
    }
}

/// Returns the request that an event id names.
pub(super) fn named_request(event: &str) -> Option<Id> {
    let (_, encoded) = event.split_once(REQUEST_MARK)?;
    let source = Bytes::from(BASE64URL_NOPAD.decode(encoded.as_bytes()).ok()?);
    let raw: &RawValue = serde_json::from_slice(&source).ok()?;
    Id::read(&source, raw)
}

/// Introduces the name of a request in an event id.
const REQUEST_MARK: &str = ".r";
/// The most bytes of a request's id that event ids repeat.
const MAX_NAMED_REQUEST: usize = 64;
/// Limit of the kept messages of one stream.
const MAX_OUTBOX_MESSAGES: usize = 1024;

#[cfg(test)]
mod tests;
