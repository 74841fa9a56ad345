//! What a Legacy server asks, and on whose behalf.
//!
//! On its call's own stream a question belongs to that call. Anywhere else it
//! is tied to the calls in flight ([`tie`](crate::upstream::interaction::questions::tie)); with none
//! in flight an instance that is one client's own still knows whom it means: a
//! Legacy client is asked on its session's own stream, if it listens to one. If
//! the instance was just opened, the call that it was opened for is on its way,
//! and is waited for. Everybody else is refused, with the reason.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use crate::call::Question;
use crate::jsonrpc::{Id, Response};

use crate::upstream::interaction::questions::{CallMatch, SideMessage, message};
use crate::upstream::notifications::Inbox;
use crate::upstream::transport::peer::{answer_to_server, not_offered, unanswered};

/// A connection to a Legacy server, as its questions see it.
pub(in crate::upstream) trait LegacyConnection: Send + Sync + 'static {
    fn inbox(&self) -> &Arc<Inbox>;

    /// The call that a question belongs to which comes on no call's stream.
    fn tied(&self, question: &Question) -> CallMatch<mpsc::Sender<SideMessage>>;

    /// Sends a message to the server, beside the calls. Never waits.
    fn send(self: &Arc<Self>, message: Bytes);
}

/// A Legacy session, as a front has it.
pub trait QuestionableSession: Send + Sync {
    /// Asks its client; the answer comes by `answers`, with a number that says
    /// nothing here. False where the client cannot be asked that, or does not
    /// listen.
    fn ask(&self, question: &Question, answers: mpsc::Sender<(u64, Response)>) -> bool;
}

/// The server asks, on no call's own stream.
pub(in crate::upstream) fn asked<C: LegacyConnection>(
    connection: &Arc<C>,
    id: Id,
    question: Question,
) {
    let inbox = connection.inbox();
    tracing::debug!(server = %inbox.server(), method = question.method, "the server asks");
    if !question.is_known() {
        return connection.send(answer_to_server(&id, &question.method));
    }
    match connection.tied(&question) {
        CallMatch::To(asides) => {
            if let Err(method) = hand(&asides, &id, question) {
                connection.send(answer_to_server(&id, &method));
            }
        }
        CallMatch::Mute => connection.send(not_offered(&id, &question.method)),
        CallMatch::Nobody => {
            let place = Arc::clone(&inbox.seeking).try_acquire_owned().ok();
            let Some(place) = place.filter(|_| inbox.subscriptions.is_one_clients()) else {
                return connection.send(answer_to_server(&id, &question.method));
            };
            let (connection, inbox) = (Arc::downgrade(connection), Arc::clone(inbox));
            tokio::spawn(async move {
                let answer = seek(&connection, &inbox, &id, question).await;
                if let (Some(connection), Some(answer)) = (connection.upgrade(), answer) {
                    connection.send(answer);
                }
                drop(place);
            });
        }
    }
}

/// Gives a question to its call; the method again, where that takes no more.
fn hand(asides: &mpsc::Sender<SideMessage>, id: &Id, question: Question) -> Result<(), String> {
    let method = question.method.clone();
    asides.try_send(SideMessage::Asks(id.clone(), question)).map_err(|_| method)
}

/// Looks for somebody to ask; what the server is told, unless a call has the
/// question.
async fn seek<C: LegacyConnection>(
    connection: &Weak<C>,
    inbox: &Inbox,
    id: &Id,
    question: Question,
) -> Option<Bytes> {
    let (answers, mut said) = mpsc::channel(1);
    if inbox.subscriptions.ask(&question, answers) {
        if let Ok(Some((_, response))) = timeout(PATIENCE, said.recv()).await {
            return Some(message(id, &response));
        }
        return Some(unanswered(id));
    }
    let soon = Instant::now() + SOON;
    loop {
        let begun = inbox.begun.notified();
        if let CallMatch::To(asides) = connection.upgrade()?.tied(&question) {
            return hand(&asides, id, question).err().map(|method| answer_to_server(id, &method));
        }
        if timeout_at(soon, begun).await.is_err() {
            return Some(answer_to_server(id, &question.method));
        }
    }
}

/// How long a call may be on its way to an instance that was opened for it.
const SOON: Duration = Duration::from_secs(1);
/// How long a client may take that is asked outside of its calls.
const PATIENCE: Duration = Duration::from_mins(10);
/// How many questions of one connection may look for somebody.
pub(in crate::upstream) const SEEKING: usize = 8;
