//! Matches requests of Legacy servers to the clients that answer them.
//!
//! A request on the stream of a call belongs to that call. Any other request is matched to the
//! calls in flight ([`tie`](crate::upstream::interaction::questions::tie)). If there are none, an
//! instance with a single client still identifies the recipient: a Legacy client receives the
//! request on the stream of its session, if one is open. If the instance was just opened, the
//! request waits for the call that caused the opening. All other requests are rejected with a
//! reason.

use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::{timeout, timeout_at};

use crate::call::{Question, ServerName};
use crate::clock;
use crate::jsonrpc::{Id, Response};

use crate::upstream::interaction::questions::{CallMatch, SideMessage, message};
use crate::upstream::interaction::server_link::ServerLink;
use crate::upstream::interaction::side_queue::SideSender;
use crate::upstream::notifications::Inbox;
use crate::upstream::peer::{answer_to_server, not_offered, unanswered};

/// A connection to a Legacy server that can send requests to clients.
pub(crate) trait LegacyConnection: ServerLink {
    fn inbox(&self) -> &Arc<Inbox>;

    /// Returns the call to which a request belongs, if it did not arrive on a call's stream.
    fn tied(&self, question: &Question) -> CallMatch<SideSender>;
}

/// A client's Legacy session that can be asked for input.
pub trait QuestionableSession: Send + Sync {
    /// Asks the client on behalf of a server. The answer is sent to `answers`, with a number that
    /// has no meaning here. Returns false if the client does not support the request or has no
    /// stream open, or if the server may not ask it.
    fn ask(
        &self,
        server: &ServerName,
        question: &Question,
        answers: mpsc::Sender<(u64, Response)>,
    ) -> bool;

    /// Returns true if the client keeps a stream open for messages outside its calls.
    fn is_listening(&self) -> bool;
}

/// Server requests that wait for the call that caused them.
#[derive(Debug)]
pub(crate) struct QuestionRouting {
    /// Notified whenever a call begins to which server requests can belong.
    call_begun: Notify,
    /// Permits for requests without a matching call so far.
    places: Arc<Semaphore>,
}

impl Default for QuestionRouting {
    fn default() -> Self {
        Self { call_begun: Notify::new(), places: Arc::new(Semaphore::new(MAX_WAITING_REQUESTS)) }
    }
}

impl QuestionRouting {
    /// Records that a call has begun to which server requests can belong.
    #[inline]
    pub(crate) fn note_call(&self) {
        self.call_begun.notify_waiters();
    }

    /// Returns a place for a request that waits, or `None` if there are too many.
    fn take_place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.places).try_acquire_owned().ok()
    }
}

/// Handles a server request that did not arrive on a call's stream.
pub(crate) fn asked<C: LegacyConnection>(connection: &Arc<C>, id: Id, question: Question) {
    let inbox = connection.inbox();
    tracing::debug!(server = %inbox.server(), method = question.method, "server request");
    if !question.is_known() {
        return connection.send(answer_to_server(&id, &question.method));
    }
    match connection.tied(&question) {
        CallMatch::To(asides) => {
            if let Err(method) = hand(&asides, &id, question) {
                connection.send(answer_to_server(&id, &method));
            }
        }
        CallMatch::Mute => connection.send(not_offered(&id, &question)),
        CallMatch::Nobody => {
            let place = inbox.question_routing.take_place();
            let Some(place) = place.filter(|_| inbox.subscriptions.can_be_asked()) else {
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

/// Delivers a request to its call. Returns the method if the call's queue is full.
fn hand(asides: &SideSender, id: &Id, question: Question) -> Result<(), String> {
    let method = question.method.clone();
    let handed = asides.send(SideMessage::Asks(id.clone(), question));
    if handed { Ok(()) } else { Err(method) }
}

/// Finds a client for the request. Returns the response to the server, or `None` if a call has
/// taken the request.
async fn seek<C: LegacyConnection>(
    connection: &Weak<C>,
    inbox: &Inbox,
    id: &Id,
    question: Question,
) -> Option<Bytes> {
    let (answers, mut said) = mpsc::channel(1);
    if inbox.subscriptions.ask(&question, answers) {
        if let Ok(Some((_, response))) = timeout(CLIENT_ANSWER_TIMEOUT, said.recv()).await {
            return Some(message(id, &response));
        }
        return Some(unanswered(id));
    }
    let soon = clock::now() + CAUSING_CALL_TIMEOUT;
    loop {
        let begun = inbox.question_routing.call_begun.notified();
        if let CallMatch::To(asides) = connection.upgrade()?.tied(&question) {
            return hand(&asides, id, question).err().map(|method| answer_to_server(id, &method));
        }
        if timeout_at(soon, begun).await.is_err() {
            return Some(answer_to_server(id, &question.method));
        }
    }
}

/// Time to wait for the call that caused an instance to be opened.
const CAUSING_CALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Time limit for a client's answer outside its calls.
const CLIENT_ANSWER_TIMEOUT: Duration = Duration::from_mins(10);
/// Maximum number of requests on one connection that wait for a client at once.
const MAX_WAITING_REQUESTS: usize = 8;
