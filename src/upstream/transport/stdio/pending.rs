//! Those who wait for a child's answers, and what they hear before.

use tokio::sync::{mpsc, oneshot};

use crate::call::Answer;
use crate::upstream::LinkFault;
use crate::upstream::interaction::questions::{Aside, Caller};

/// Somebody who waits for an answer.
pub(super) struct Pending {
    pub(super) asides: Option<mpsc::Sender<Aside>>,
    /// Whose call it is, where the child is one that asks.
    pub(super) caller: Option<Caller>,
    /// The child's log concerns it.
    pub(super) lines: Lines,
    pub(super) answer: oneshot::Sender<Came>,
}

/// What comes to whoever waits for an answer.
pub(super) enum Came {
    /// The answer.
    Answer(Result<Answer, LinkFault>),
    /// Asides come first, by the receiver; the answer follows by the second.
    Asides(mpsc::Receiver<Aside>, oneshot::Receiver<Came>),
}

/// A request on its way.
pub(super) struct Waiting {
    pub(super) id: u64,
    pub(super) asides: Option<mpsc::Receiver<Aside>>,
    pub(super) answer: oneshot::Receiver<Came>,
}

impl Pending {
    /// The way for what comes before the answer, made when it is needed first:
    /// most calls hear nothing.
    pub(super) fn asides(&mut self) -> &mpsc::Sender<Aside> {
        self.asides.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(ASIDES);
            let (answer, answer_rx) = oneshot::channel();
            let before = std::mem::replace(&mut self.answer, answer);
            let _ = before.send(Came::Asides(receiver, answer_rx));
            sender
        })
    }
}

/// Whether a request's sender gets lines of the child's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// It gets none.
    Unheard,
    /// It gets those that are tied to it.
    Heard,
}

/// What a request's sender wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wants {
    /// The answer alone.
    Answer,
    /// Progress, too, and what the child asks.
    Asides,
}

/// Notices and questions that wait to be read by one call.
pub(super) const ASIDES: usize = 64;
