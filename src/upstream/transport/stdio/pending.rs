//! Requests that wait for a child's response, and the messages that precede it.

use tokio::sync::oneshot;

use crate::call::Answer;
use crate::shares::Holder;
use crate::upstream::UpstreamError;
use crate::upstream::interaction::questions::CallOrigin;
use crate::upstream::interaction::side_queue::{SideReceiver, SideSender, side_queue};

/// Sender's side of a request that waits for its response.
pub(super) struct PendingRequest {
    pub(super) asides: Option<SideSender>,
    /// The client's call to which the request belongs, if there is one.
    pub(super) caller: Option<PendingCaller>,
    /// Number of requests sent to the child before. Newer requests have a higher one.
    pub(super) order: u64,
    /// Selects the child's log lines that the call receives.
    pub(super) lines: LogSubscription,
    pub(super) answer: oneshot::Sender<PendingEvent>,
}

/// The client's call that a request belongs to.
pub(super) struct PendingCaller {
    pub(super) origin: CallOrigin,
    /// The client, to which the memory of a large answer is charged.
    pub(super) holder: Holder,
}

/// An event of a pending request.
pub(super) enum PendingEvent {
    /// The response.
    Answer(Result<Answer, UpstreamError>),
    /// Messages precede the response. Carries the channel for them, and a new one for the response.
    Asides(SideReceiver, oneshot::Receiver<PendingEvent>),
}

/// Receiver's side of a request in flight.
pub(super) struct AwaitedReply {
    pub(super) id: u64,
    pub(super) asides: Option<SideReceiver>,
    pub(super) answer: oneshot::Receiver<PendingEvent>,
}

impl PendingRequest {
    /// Returns the channel for messages before the response. It is created on first use, because
    /// most calls receive none.
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

/// Subscription of a call to the child's log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LogSubscription {
    /// No lines.
    Unheard,
    /// The lines matched to the call.
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
