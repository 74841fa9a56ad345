//! Those who wait for a child's answers, and what they hear before.

use tokio::sync::{mpsc, oneshot};

use crate::call::Answer;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::questions::{CallOrigin, SideMessage};

/// Somebody who waits for an answer.
pub(super) struct PendingRequest {
    pub(super) asides: Option<mpsc::Sender<SideMessage>>,
    /// Whose call it is, where the child is one that asks.
    pub(super) caller: Option<CallOrigin>,
    /// The child's log concerns it.
    pub(super) lines: LogSubscription,
    pub(super) answer: oneshot::Sender<PendingEvent>,
}

/// What comes to whoever waits for an answer.
pub(super) enum PendingEvent {
    /// It.
    Answer(Result<Answer, UpstreamError>),
    /// There is something before it, by this way, and it comes by that.
    Asides(mpsc::Receiver<SideMessage>, oneshot::Receiver<PendingEvent>),
}

/// A request on its way.
pub(super) struct AwaitedReply {
    pub(super) id: u64,
    pub(super) asides: Option<mpsc::Receiver<SideMessage>>,
    pub(super) answer: oneshot::Receiver<PendingEvent>,
}

impl PendingRequest {
    /// The way for what comes before the answer, made when it is needed first:
    /// most calls hear nothing.
    pub(super) fn asides(&mut self) -> &mpsc::Sender<SideMessage> {
        self.asides.get_or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(ASIDES);
            let (answer, answer_rx) = oneshot::channel();
            let before = std::mem::replace(&mut self.answer, answer);
            let _ = before.send(PendingEvent::Asides(receiver, answer_rx));
            sender
        })
    }
}

/// Whether a request's sender gets lines of the child's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogSubscription {
    /// It gets none.
    Unheard,
    /// It gets those that are tied to it.
    Heard,
}

/// What a request's sender wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestInterest {
    /// The answer alone.
    Answer,
    /// Progress, too, and what the child asks.
    Asides,
}

/// Notices and questions that wait to be read by one call.
pub(super) const ASIDES: usize = 64;
