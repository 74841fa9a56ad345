//! Requests that wait for a child's response, and the messages that precede it.

use tokio::sync::oneshot;

use crate::call::Answer;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::questions::CallOrigin;
use crate::upstream::interaction::side_queue::{SideReceiver, SideSender, side_queue};

/// The sender's side of a request that waits for its response.
pub(super) struct PendingRequest {
    pub(super) asides: Option<SideSender>,
    /// The call that the request belongs to, if it is a client's.
    pub(super) caller: Option<CallOrigin>,
    /// How many requests the child had been sent: newer requests have more.
    pub(super) order: u64,
    /// Whether the call receives lines of the child's log.
    pub(super) lines: LogSubscription,
    pub(super) answer: oneshot::Sender<PendingEvent>,
}

/// An event of a pending request.
pub(super) enum PendingEvent {
    /// The response.
    Answer(Result<Answer, UpstreamError>),
    /// Messages precede the response: the channel for them, and a new one for
    /// the response.
    Asides(SideReceiver, oneshot::Receiver<PendingEvent>),
}

/// The receiver's side of a request in flight.
pub(super) struct AwaitedReply {
    pub(super) id: u64,
    pub(super) asides: Option<SideReceiver>,
    pub(super) answer: oneshot::Receiver<PendingEvent>,
}

impl PendingRequest {
    /// The channel for messages before the response, created when it is first
    /// needed: most calls receive none.
    pub(super) fn asides(&mut self) -> &SideSender {
        self.asides.get_or_insert_with(|| {
            let (sender, receiver) = side_queue();
            let (answer, answer_rx) = oneshot::channel();
            let before = std::mem::replace(&mut self.answer, answer);
            let _ = before.send(PendingEvent::Asides(receiver, answer_rx));
            sender
        })
    }
}

/// Whether a call receives lines of the child's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogSubscription {
    /// No lines.
    Unheard,
    /// The lines that are matched to the call.
    Heard,
}

/// The messages that a request accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestInterest {
    /// The response only.
    Answer,
    /// Also progress, and requests of the child.
    Asides,
}
