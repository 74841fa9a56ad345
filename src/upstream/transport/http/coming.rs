//! A call whose answer comes as a stream of events.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc;

use crate::call::{Answers, Call, Event, Notice, Question, Reply};
use crate::jsonrpc::{self, Frame, Id};
use crate::mcp::{Era, LogLevel, notification};
use crate::policy::CallTarget;
use crate::upstream::interaction::deadline::Deadline;
use crate::upstream::interaction::given_up::GivenUp;
use crate::upstream::interaction::outside::Connected;
use crate::upstream::interaction::questions::{Aside, Caller, Questions, Tie, tie, tie_question};
use crate::upstream::notifications::{Inbox, Listener};
use crate::upstream::transport::peer::{answer_to_server, not_offered};
use crate::upstream::{LinkFault, Whose};

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
    caller: Whose,
    /// How long the server may be at it without a sign of life.
    time: Duration,
}

impl UnderWay {
    fn begin(shared: &Arc<Shared>, id: &Id, call: &Call, deadline: &Deadline) -> Self {
        let legacy = shared.peer.era() == Era::Legacy;
        let (caller, time) = (Whose::of(&call.context), deadline.quiet());
        Self { shared: Arc::clone(shared), id: legacy.then(|| id.clone()), caller, time }
    }

    /// Answered, or refused.
    pub(super) fn end(&mut self) {
        self.id = None;
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            let number = id.as_number().unwrap_or_default();
            self.shared.calls.given_up.add(number, self.caller.clone(), self.time);
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
    pub(super) hearing: Hearing,
}

/// The head of an answer that is on its way.
pub(super) type Head = Pin<Box<dyn Future<Output = Result<Reception, LinkFault>> + Send>>;

/// How far the answer has come.
pub(super) enum Stage {
    /// The call is not on its way yet.
    Unsent,
    /// Its head has not. Meanwhile a server that answers with plain JSON may ask
    /// on the session's own stream. The headers are those that the client's own
    /// are taken from if the answer's stream has to be resumed.
    Sent(Head, HeaderMap),
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
            Self::Unsent => Heard::Head(Err(LinkFault::NoAnswer)),
            Self::Sent(head, _) => Heard::Head(head.await),
            Self::Streaming(events) => Heard::Said(events.next().await),
        }
    }
}

impl Coming {
    /// A call that is about to be sent, and the way for answers to what the
    /// server asks in it.
    pub(super) fn of(
        shared: &Arc<Shared>,
        id: &Id,
        (call, target): (&Call, &CallTarget),
        deadline: Deadline,
    ) -> (Self, Option<Answers>) {
        let under_way = UnderWay::begin(shared, id, call, &deadline);
        let (questions, answers) = Questions::of(call, shared.peer.era(), shared);
        let hearing = Hearing::of(shared, call);
        let in_call = InCall::begin(shared, id, call, target, (&questions, &hearing));
        let coming = Self {
            shared: Arc::clone(shared),
            id: id.clone(),
            stage: Stage::Unsent,
            deadline,
            questions,
            in_call,
            under_way,
            hearing,
        };
        (coming, answers)
    }

    /// What comes of it, step by step.
    pub(super) fn reply(self) -> Reply {
        Reply::stream(stream::unfold(Some(self), Self::step))
    }

    /// The next event, and what is left of the call.
    pub(super) async fn step(coming: Option<Self>) -> Option<(Event, Option<Self>)> {
        let mut this = coming?;
        let answer = loop {
            let came = tokio::select! {
                came = this.stage.next() => came,
                (id, response) = this.questions.answer() => {
                    if this.questions.close(&id, &mut this.deadline)
                        && let Err(fault) = this.shared.respond(&id, &response).await
                    {
                        break Err(fault);
                    }
                    continue;
                }
                line = this.hearing.next() => return Some((Event::Notice(line), Some(this))),
                Some(aside) = next_aside(&mut this.in_call) => {
                    match this.aside(aside) {
                        Some(event) => return Some((event, Some(this))),
                        None => continue,
                    }
                }
                after = this.deadline.passed() => break Err(LinkFault::Timeout { after }),
            };
            let frame = match came {
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
                    if let Some(event) =
                        this.asks(id, Question { method, params: params.map(Bytes::from) })
                    {
                        return Some((event, Some(this)));
                    }
                }
                Frame::Notification { method, params } if method == notification::CANCELLED => {
                    let id = params.as_ref().and_then(notification::cancelled_request);
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
    fn stream(&mut self, events: Box<Events>) {
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
            Aside::Line(method, params) => self.hearing.line(method, params).map(Event::Notice),
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
        if method == notification::MESSAGE {
            return self.hearing.line(method, params?);
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

/// Which lines of the server's log a call's client gets.
pub(super) struct Hearing {
    /// The least severe ones.
    least: Option<LogLevel>,
    /// Those that come by another stream than the call's.
    elsewhere: Option<Arc<Listener>>,
}

impl Hearing {
    fn of(shared: &Shared, call: &Call) -> Self {
        let least = call.context.hears();
        // On a stream that several clients share a line may come when the call
        // that it is of has ended, and another's has not.
        let own = shared.peer.era() == Era::Legacy && shared.owner.whose != Whose::Everybody;
        let elsewhere = least.filter(|_| own).map(|least| Arc::new(Listener::new(least)));
        Self { least, elsewhere }
    }

    /// A line on the call's own stream.
    fn line(&self, method: String, params: Bytes) -> Option<Notice> {
        Notice::line(method, params, self.least?)
    }

    /// Whether lines can come by another stream.
    pub(super) fn elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Waits until such a line is there.
    pub(super) async fn arrived(&self) {
        match &self.elsewhere {
            Some(lines) => lines.arrived().await,
            None => std::future::pending().await,
        }
    }

    /// The next such line.
    async fn next(&self) -> Notice {
        match &self.elsewhere {
            Some(lines) => lines.next().await,
            None => std::future::pending().await,
        }
    }
}

/// The calls that are under way to a Legacy server.
#[derive(Default)]
pub(super) struct Calls {
    tied: Mutex<HashMap<u64, Tied>>,
    given_up: GivenUp,
}

/// What a call can be told by another stream than its own.
struct Tied {
    caller: Caller,
    /// Questions.
    asks: Option<mpsc::Sender<Aside>>,
    /// Lines of the server's log.
    lines: Option<Arc<Listener>>,
}

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
        target: &CallTarget,
        (questions, hearing): (&Questions, &Hearing),
    ) -> Option<Self> {
        let number = id.as_number().filter(|_| shared.peer.era() == Era::Legacy)?;
        let (asks, asides) = questions.can_be().then(|| mpsc::channel(ASIDES)).unzip();
        let caller = Caller::of(call, target);
        let tied = Tied { caller, asks, lines: hearing.elsewhere.clone() };
        shared.calls.lock().insert(number, tied);
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
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Tied>> {
        self.tied.lock()
    }
}

impl Calls {
    /// The call that hears a line which a server writes outside of one.
    fn hears(&self) -> Tie<Arc<Listener>> {
        let calls = self.lock();
        let calls =
            calls.iter().map(|(number, call)| (*number, &call.caller.whose, call.lines.clone()));
        tie(calls, &self.given_up)
    }
}

impl Connected for Shared {
    fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    fn tied(&self, question: &Question) -> Tie<mpsc::Sender<Aside>> {
        let calls = self.calls.lock();
        let calls = calls.iter().map(|(number, call)| (*number, &call.caller, call.asks.clone()));
        tie_question(question, calls, &self.calls.given_up)
    }

    fn send(self: &Arc<Self>, message: Bytes) {
        self.send_aside(message);
    }
}

impl Shared {
    /// A Legacy server takes a question back on a stream that is no call's.
    pub(super) fn took_back(&self, params: &Bytes) {
        let Some(id) = notification::cancelled_request(params) else { return };
        // Whose it is the calls know.
        for asks in self.calls.lock().values().filter_map(|call| call.asks.as_ref()) {
            let _ = asks.try_send(Aside::TookBack(id.clone()));
        }
    }

    /// A Legacy server writes a line into its log on a stream that is no call's.
    pub(super) fn wrote(&self, method: &str, params: &Bytes) {
        match self.calls.hears() {
            Tie::To(lines) => lines.hear(method, params),
            Tie::Mute | Tie::Nobody => self.inbox.line(method, params),
        }
    }
}

/// What waits for one call beside its own stream.
const ASIDES: usize = 64;
