//! A request's body on its way from the connection to whoever reads it.
//!
//! The connection reads its socket only when a piece is asked for: at most one is held here.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};

use super::super::BodyFault;

/// Where pieces are handed over.
pub(super) struct Coming(Arc<Mutex<Passage>>);

/// The reader's end.
pub(in crate::listener) struct Pieces(Arc<Mutex<Passage>>);

struct Passage {
    piece: Option<Bytes>,
    end: Option<Result<(), BodyFault>>,
    /// Whoever waits for a piece.
    waiting: Option<Waker>,
    /// The connection, while it waits to be asked for one.
    connection: Option<Waker>,
    /// Nobody reads it any more.
    abandoned: bool,
    /// How many bytes are still to come at least, and whether that is all.
    left: (u64, bool),
}

/// Both ends, for a body of which so much is to come.
pub(super) fn passage(left: (u64, bool)) -> (Coming, Pieces) {
    let passage = Arc::new(Mutex::new(Passage {
        piece: None,
        end: None,
        waiting: None,
        connection: None,
        abandoned: false,
        left,
    }));
    (Coming(Arc::clone(&passage)), Pieces(passage))
}

fn lock(passage: &Mutex<Passage>) -> MutexGuard<'_, Passage> {
    passage.lock()
}

impl Coming {
    /// Waits until somebody asks for a piece; whether anybody ever will.
    pub(super) fn poll_wanted(&self, cx: &Context<'_>) -> Poll<bool> {
        let mut passage = lock(&self.0);
        if passage.abandoned {
            return Poll::Ready(false);
        }
        if passage.waiting.is_some() {
            return Poll::Ready(true);
        }
        passage.connection = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Hands over a piece, behind which so much is to come.
    pub(super) fn piece(&self, piece: Bytes, left: (u64, bool), cx: &Context<'_>) {
        self.say(cx, |passage| {
            passage.piece = Some(piece);
            passage.left = left;
        });
    }

    /// Says that nothing comes any more.
    pub(super) fn end(&self, end: Result<(), BodyFault>, cx: &Context<'_>) {
        self.say(cx, |passage| {
            passage.end = Some(end);
            passage.left = (0, true);
        });
    }

    fn say(&self, cx: &Context<'_>, what: impl FnOnce(&mut Passage)) {
        let waiting = {
            let mut passage = lock(&self.0);
            what(&mut passage);
            passage.waiting.take()
        };
        // Mostly it is the connection itself, which looks at once.
        if let Some(waiting) = waiting.filter(|waiting| !waiting.will_wake(cx.waker())) {
            waiting.wake();
        }
    }
}

impl Pieces {
    pub(in crate::listener) fn poll(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, BodyFault>>> {
        let mut passage = lock(&self.0);
        if let Some(piece) = passage.piece.take() {
            return Poll::Ready(Some(Ok(piece)));
        }
        if let Some(end) = &mut passage.end {
            return Poll::Ready(std::mem::replace(end, Ok(())).err().map(Err));
        }
        passage.waiting = Some(cx.waker().clone());
        // Mostly it is the connection that reads, and looks at once.
        let connection = passage.connection.take();
        drop(passage);
        if let Some(connection) = connection.filter(|it| !it.will_wake(cx.waker())) {
            connection.wake();
        }
        Poll::Pending
    }

    pub(in crate::listener) fn is_over(&self) -> bool {
        let passage = lock(&self.0);
        passage.piece.is_none() && matches!(passage.end, Some(Ok(())))
    }

    /// How many bytes are to come at least, and whether that is all.
    pub(in crate::listener) fn left(&self) -> (u64, bool) {
        let passage = lock(&self.0);
        let here = passage.piece.as_ref().map_or(0, |piece| piece.len() as u64);
        (passage.left.0.saturating_add(here), passage.left.1)
    }
}

impl Drop for Pieces {
    fn drop(&mut self) {
        let connection = {
            let mut passage = lock(&self.0);
            passage.abandoned = true;
            passage.connection.take()
        };
        if let Some(connection) = connection {
            connection.wake();
        }
    }
}

impl Drop for Coming {
    fn drop(&mut self) {
        let waiting = {
            let mut passage = lock(&self.0);
            passage.end.get_or_insert(Err(BodyFault::Gone));
            passage.waiting.take()
        };
        if let Some(waiting) = waiting {
            waiting.wake();
        }
    }
}
