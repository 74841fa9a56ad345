//! A call whose answer comes as a stream of events.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use http::HeaderMap;
use tokio::sync::mpsc;

use crate::call::{Call, Event, Notice, Question};
use crate::jsonrpc::{self, Frame, Id};
use crate::link::LinkFault;
use crate::link::deadline::Deadline;
use crate::link::news::Inbox;
use crate::link::outside::Connected;
use crate::link::peer::{answer_to_server, not_offered};
use crate::link::Whose;
use crate::link::questions::{Aside, Questions, Tie, cancelled, tie};
use crate::mcp::{Era, notification};

use super::Shared;
use super::reception::{Events, Reception, answer_in};
use super::resume::{Resumable, Said};
use super::verdict::Settled;

/// A request that the server may still be working on. Dropped before its end
/// it is cancelled: a Legacy server is told; to a Modern one the end of the
/// connection's stream, which the drop brings about, says it all.
pub(super) struct UnderWay {
    shared: Arc<Shared>,
    /// `None` once there is nothing left to cancel.
    id: Option<Id>,
}

impl UnderWay {
    pub(super) fn begin(shared: &Arc<Shared>, id: &Id) -> Self {
        let legacy = shared.peer.era() == Era::Legacy;
        Self { shared: Arc::clone(shared), id: legacy.then(|| id.clone()) }
    }

    /// Answered, or refused.
    pub(super) fn end(&mut self) {
        self.id = None;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            let params = [b"{\"requestId\":", id.raw(), b"}"].concat();
            let body = jsonrpc::notification(notification::CANCELLED, Some(&params));
            self.shared.send_aside(body);
        }
    }
}

/// A call whose answer comes as a stream, or whose server may ask before it
/// answers. Dropped before the answer, it is cancelled.
pub(super) struct Coming {
    pub(super) shared: Arc<Shared>,
    pub(super) id: Id,
    pub(super) stage: Stage,
    pub(super) deadline: Deadline,
    /// Before the questions, so that a cancellation goes before what it leaves
    /// unanswered.
    pub(super) under_way: UnderWay,
    pub(super) questions: Questions,
    /// Its place among the calls that a Legacy server's questions can belong
    /// to, wherever they come.
    pub(super) in_call: Option<InCall>,
}

/// How far the answer has come.
pub(super) enum Stage {
    /// Its head has not. Meanwhile a server that answers with plain JSON may ask
    /// on the session's own stream. The headers are those that the client's own
    /// are taken from if the answer's stream has to be resumed.
    Sent(Pin<Box<dyn Future<Output = Result<Reception, LinkFault>> + Send>>, HeaderMap),
    /// It is a stream of events.
    Streaming(Resumable),
}

/// What was heard of a call.
enum Heard {
    Head(Result<Reception, LinkFault>),
    Said(Result<Option<Said>, LinkFault>),
}

impl Stage {
    async fn next(&mut self) -> Heard {
        match self {
            Self::Sent(head, _) => Heard::Head(head.await),
            Self::Streaming(events) => Heard::Said(events.next().await),
        }
    }
}

impl Coming {
    /// The next event, and what is left of the call.
    pub(super) async fn step(coming: Option<Self>) -> Option<(Event, Option<Self>)> {
        let mut this = coming?;
        let answer = loop {
            let heard = tokio::select! {
                heard = this.stage.next() => heard,
                (id, response) = this.questions.answer() => {
                    if this.questions.close(&id, &mut this.deadline)
                        && let Err(fault) = this.shared.respond(&id, &response).await
                    {
                        break Err(fault);
                    }
                    continue;
                }
                Some(aside) = next_aside(&mut this.in_call) => {
                    match this.aside(aside) {
                        Some(event) => return Some((event, Some(this))),
                        None => continue,
                    }
                }
                after = this.deadline.passed() => break Err(LinkFault::Timeout { after }),
            };
            let frame = match heard {
                Heard::Head(Ok(Reception::Events(events))) => {
                    this.stream(events);
                    continue;
                }
                Heard::Head(head) => return Some((this.whole(head).await, None)),
                Heard::Said(Ok(Some(Said::Pause(wait)))) => {
                    return Some((Event::Pause(wait), Some(this)));
                }
                Heard::Said(Ok(Some(Said::Frame(frame)))) => frame,
                Heard::Said(Ok(None)) => break Err(LinkFault::NoAnswer),
                Heard::Said(Err(fault)) => break Err(fault),
            };
            match frame {
                frame @ Frame::Response { .. } => {
                    this.under_way.end();
                    break answer_in(frame, &this.id);
                }
                Frame::Request { id, method, params } => {
                    if let Some(event) = this.asks(id, Question { method, params }) {
                        return Some((event, Some(this)));
                    }
                }
                Frame::Notification { method, params } if method == notification::CANCELLED => {
                    let id = params.as_ref().and_then(cancelled);
                    if let Some(event) = id.and_then(|id| this.took_back(id)) {
                        return Some((event, Some(this)));
                    }
                }
                Frame::Notification { method, params } => {
                    if let Some(notice) = this.notice(method, params) {
                        return Some((Event::Notice(notice), Some(this)));
                    }
                }
            }
        };
        let Self { shared, stage, .. } = this;
        if let (Ok(_), Stage::Streaming(events)) = (&answer, stage) {
            events.finish();
        }
        let answer = answer.and_then(|answer| shared.checked(answer));
        let answer = answer.map_err(|fault| fault.into_failure(&shared.server));
        Some((Event::Answer(answer), None))
    }

    /// The head of a stream has come.
    fn stream(&mut self, events: Events) {
        let Stage::Sent(_, own) = &mut self.stage else { return };
        let events = self.shared.resumable(&self.id, events, std::mem::take(own));
        self.stage = Stage::Streaming(events);
    }

    /// The answer is no stream.
    async fn whole(self, head: Result<Reception, LinkFault>) -> Event {
        let Self { shared, id, deadline, mut under_way, .. } = self;
        if !matches!(head, Err(LinkFault::Broken(_))) {
            under_way.end();
        }
        let settled = match head {
            Ok(head) => shared.settle(head, &id, deadline).await,
            Err(fault) => Err(fault),
        };
        match settled {
            Ok(Settled::Answer(answer)) => Event::Answer(Ok(answer)),
            Ok(Settled::Passing(passing)) => Event::Passing(passing),
            Err(fault) => Event::Answer(Err(fault.into_failure(&shared.server))),
        }
    }

    fn aside(&mut self, aside: Aside) -> Option<Event> {
        match aside {
            Aside::Notice(notice) => Some(Event::Notice(notice)),
            Aside::Asks(id, question) => self.asks(id, question),
            Aside::TookBack(id) => self.took_back(id),
        }
    }

    /// A Legacy server's request in this call. A Modern one sends none.
    fn asks(&mut self, id: Id, question: Question) -> Option<Event> {
        if question.is_known() && self.questions.open(&id, &mut self.deadline) {
            return Some(Event::Asks(id, question));
        }
        let refusal = if question.is_known() { not_offered } else { answer_to_server };
        self.shared.send_aside(refusal(&id, &question.method));
        None
    }

    fn took_back(&mut self, id: Id) -> Option<Event> {
        self.questions.close(&id, &mut self.deadline).then_some(Event::TookBack(id))
    }

    fn notice(&mut self, method: String, params: Option<Bytes>) -> Option<Notice> {
        if method == notification::PROGRESS {
            self.deadline.extend();
            return Notice::progress(method, params?).map(|(notice, _)| notice);
        }
        self.shared.inbox.sort(&method, params.as_ref());
        None
    }
}

async fn next_aside(in_call: &mut Option<InCall>) -> Option<Aside> {
    match in_call.as_mut().and_then(|in_call| in_call.asides.as_mut()) {
        Some(asides) => asides.recv().await,
        None => None,
    }
}

/// The calls that are under way to a Legacy server.
#[derive(Default)]
pub(super) struct Calls(Mutex<HashMap<u64, (Whose, Option<mpsc::Sender<Aside>>)>>);

/// A call's place among them.
pub(super) struct InCall {
    shared: Arc<Shared>,
    number: u64,
    /// What comes for the call by another stream than its own.
    asides: Option<mpsc::Receiver<Aside>>,
}

impl InCall {
    /// Notes a call, if its server is one that asks.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        id: &Id,
        call: &Call,
        questions: &Questions,
    ) -> Option<Self> {
        let number = id.as_number().filter(|_| shared.peer.era() == Era::Legacy)?;
        let (asks, asides) = questions.can_be().then(|| mpsc::channel(ASIDES)).unzip();
        shared.calls.lock().insert(number, (Whose::of(&call.context), asks));
        shared.inbox.begun.notify_waiters();
        Some(Self { shared: Arc::clone(shared), number, asides })
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        self.shared.calls.lock().remove(&self.number);
    }
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, (Whose, Option<mpsc::Sender<Aside>>)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Connected for Shared {
    fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    fn tied(&self) -> Tie {
        let calls = self.calls.lock();
        tie(calls.iter().map(|(number, (caller, asks))| (*number, caller, asks.as_ref())))
    }

    fn send(self: &Arc<Self>, message: Bytes) {
        self.send_aside(message);
    }
}

impl Shared {
    /// A Legacy server takes a question back on a stream that is no call's.
    pub(super) fn took_back(&self, params: &Bytes) {
        let Some(id) = cancelled(params) else { return };
        // Whose it is the calls know.
        for (_, asks) in self.calls.lock().values() {
            if let Some(asks) = asks {
                let _ = asks.try_send(Aside::TookBack(id.clone()));
            }
        }
    }
}

/// What waits for one call beside its own stream.
const ASIDES: usize = 64;
