//! Calls with an event stream as their response.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::Stream;
use http::HeaderMap;
use parking_lot::{Mutex, MutexGuard};

use crate::call::{Answers, Call, Event, Notice, Question, Reply, ServerName};
use crate::jsonrpc::{Frame, Id};
use crate::mcp::{Era, LogLevel, notification};
use crate::policy::CallTarget;
use crate::shares::Holder;
use crate::upstream::interaction::cancelled_calls::CancelledCalls;
use crate::upstream::interaction::deadline::Deadline;
use crate::upstream::interaction::questions::{
    CallMatch, CallOrigin, CallQuestions, SideMessage, tie, tie_question,
};
use crate::upstream::interaction::server_link::ServerLink;
use crate::upstream::interaction::side_queue::{SideReceiver, SideSender, side_queue};
use crate::upstream::notifications::routing::LegacyConnection;
use crate::upstream::notifications::{CallLog, Inbox};
use crate::upstream::peer::answer_to_server;
use crate::upstream::{InstanceScope, UpstreamError};

use super::large_result::LargeResponse;
use super::reply::{HttpReply, MessageStream, find_answer};
use super::resume::{Resumable, StreamItem};
use crate::upstream::transport::http::HttpShared;

/// A call with the id of its request.
#[derive(Clone, Copy)]
pub(crate) struct SentCall<'a> {
    pub(crate) id: &'a Id,
    pub(crate) call: &'a Call,
    pub(crate) target: &'a CallTarget,
}

/// Cancels a request when dropped before its end. A Legacy server receives a notification. For a
/// Modern server the drop ends the response stream, which is the cancellation.
pub(crate) struct CancelOnDrop {
    shared: Arc<HttpShared>,
    /// `None` if there is nothing to cancel.
    id: Option<Id>,
    caller: InstanceScope,
    /// Time limit for the server's work without progress.
    time: Duration,
}

impl CancelOnDrop {
    fn begin(shared: &Arc<HttpShared>, id: &Id, call: &Call, deadline: &Deadline) -> Self {
        let legacy = shared.peer.era() == Era::Legacy;
        let (caller, time) = (InstanceScope::of(&call.context), deadline.quiet());
        Self { shared: Arc::clone(shared), id: legacy.then(|| id.clone()), caller, time }
    }

    /// Marks the request as answered or rejected.
    pub(crate) fn end(&mut self) {
        self.id = None;
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(id) = &self.id {
            let number = id.as_number().unwrap_or_default();
            self.shared.calls.cancelled_calls.add(number, self.caller.clone(), self.time, None);
            self.shared.send_aside(notification::cancelled(id));
        }
    }
}

/// A call with a stream as its response, or to a server that may send requests before it responds.
/// Dropping it before the response cancels the call.
pub(crate) struct StreamedCall {
    pub(crate) shared: Arc<HttpShared>,
    pub(crate) id: Id,
    pub(crate) stage: ReplyStage,
    pub(crate) deadline: Deadline,
    /// Declared before the questions, so that a cancellation is sent before the
    /// refusals of open questions.
    pub(crate) under_way: CancelOnDrop,
    pub(crate) questions: CallQuestions,
    /// Registration of the call, so that a Legacy server's requests can be matched to it on any
    /// stream.
    pub(crate) in_call: Option<CallRegistration>,
    pub(crate) hearing: LogForwarding,
    /// The client, to which the memory of a large response is charged.
    pub(crate) holder: Holder,
}

/// The future head of a response.
pub(crate) type Head = Pin<Box<dyn Future<Output = Result<HttpReply, UpstreamError>> + Send>>;

/// Progress of the response.
pub(crate) enum ReplyStage {
    /// The call has not been sent.
    Unsent,
    /// The head has not arrived. Meanwhile a server that responds with plain JSON may send requests
    /// on the session's stream. The headers include the client's, in case the response stream has
    /// to be resumed.
    Sent(Head, HeaderMap),
    /// The response is an event stream.
    Streaming(Resumable),
}

/// An event of a call.
enum CallEvent {
    Head(Result<HttpReply, UpstreamError>),
    Said(Result<Option<StreamItem>, UpstreamError>),
}

impl ReplyStage {
    async fn next(&mut self) -> CallEvent {
        match self {
            Self::Unsent => CallEvent::Head(Err(UpstreamError::NoAnswer)),
            Self::Sent(head, _) => CallEvent::Head(head.await),
            Self::Streaming(events) => CallEvent::Said(events.next().await),
        }
    }
}

impl StreamedCall {
    /// Creates a call that is about to be sent, with the channel for answers to the server's
    /// requests.
    pub(crate) fn of(
        shared: &Arc<HttpShared>,
        sent: SentCall<'_>,
        deadline: Deadline,
    ) -> (Self, Option<Answers>) {
        let SentCall { id, call, .. } = sent;
        let under_way = CancelOnDrop::begin(shared, id, call, &deadline);
        let (questions, answers) = CallQuestions::of(call, shared.peer.era(), shared);
        let hearing = LogForwarding::of(shared, call);
        let in_call = CallRegistration::begin(shared, sent, &questions, &hearing);
        let coming = Self {
            shared: Arc::clone(shared),
            id: id.clone(),
            stage: ReplyStage::Unsent,
            deadline,
            questions,
            in_call,
            under_way,
            hearing,
            holder: Holder::of_context(&call.context),
        };
        (coming, answers)
    }

    /// Returns the reply as a stream of events.
    pub(crate) fn reply(self) -> Reply {
        Reply::stream(self.events())
    }

    fn events(mut self) -> impl Stream<Item = Event> + Send {
        stream! {
            let answer = loop {
                let came = tokio::select! {
                    came = self.stage.next() => came,
                    (id, response) = self.questions.answer() => {
                        if self.questions.close(&id, &mut self.deadline)
                            && let Err(fault) = self.shared.respond(&id, &response).await
                        {
                            break Err(fault);
                        }
                        continue;
                    }
                    line = self.hearing.next() => {
                        yield Event::Notice(line);
                        continue;
                    }
                    Some(aside) = next_aside(&mut self.in_call) => {
                        if let Some(event) = self.aside(aside) {
                            yield event;
                        }
                        continue;
                    }
                    after = self.deadline.passed() => break Err(UpstreamError::Timeout { after }),
                };
                match came {
                    CallEvent::Head(Ok(HttpReply::Events(events))) => self.stream(events),
                    CallEvent::Head(head) => {
                        yield self.whole(head).await;
                        return;
                    }
                    CallEvent::Said(Ok(Some(StreamItem::Pause(wait)))) => yield Event::Pause(wait),
                    CallEvent::Said(Ok(Some(StreamItem::Frame(frame @ Frame::Response { .. })))) => {
                        self.under_way.end();
                        break find_answer(frame, &self.id).await;
                    }
                    CallEvent::Said(Ok(Some(StreamItem::Frame(frame)))) => {
                        if let Some(event) = self.message(frame) {
                            yield event;
                        }
                    }
                    CallEvent::Said(Ok(None)) => break Err(UpstreamError::NoAnswer),
                    CallEvent::Said(Err(fault)) => break Err(fault),
                }
            };
            let Self { shared, stage, .. } = self;
            if let (Ok(_), ReplyStage::Streaming(events)) = (&answer, stage) {
                events.finish();
            }
            let answer = answer.and_then(|answer| shared.checked(answer));
            yield Event::Answer(answer.map_err(|fault| shared.fail(fault)));
        }
    }

    /// Returns the event for a message that is not the response.
    fn message(&mut self, frame: Frame) -> Option<Event> {
        match frame {
            Frame::Request { id, method, params } => {
                self.asks(id, Question { method, params: params.map(Bytes::from) })
            }
            Frame::Notification { method, params } if method == notification::CANCELLED => {
                let id = params.as_ref().and_then(notification::cancelled_request)?;
                self.took_back(id)
            }
            Frame::Notification { method, params } => {
                self.notice(method, params).map(Event::Notice)
            }
            Frame::Response { .. } => None,
        }
    }

    /// Starts to read the stream after its head.
    fn stream(&mut self, events: Box<MessageStream>) {
        let ReplyStage::Sent(_, own) = &mut self.stage else { return };
        let own = std::mem::take(own);
        let events = self.shared.resumable(&self.id, events, own).charged_to(&self.holder);
        self.stage = ReplyStage::Streaming(events);
    }

    /// Reads a response that is not a stream.
    async fn whole(self, head: Result<HttpReply, UpstreamError>) -> Event {
        let Self { shared, id, deadline, mut under_way, holder, .. } = self;
        if !matches!(head, Err(UpstreamError::Broken(_))) {
            under_way.end();
        }
        let answer = match head {
            Ok(HttpReply::Begun(begun)) => {
                match shared.pass(begun, &id, shared.bound(deadline, &holder)).await {
                    Ok(LargeResponse::Passing(passing)) => return Event::Passing(passing),
                    Ok(LargeResponse::Whole(answer)) => Ok(answer),
                    Err(fault) => Err(fault),
                }
            }
            Ok(reply) => shared.answer_large(reply, &id).await,
            Err(fault) => Err(fault),
        };
        Event::Answer(answer.map_err(|fault| shared.fail(fault)))
    }

    fn aside(&mut self, aside: SideMessage) -> Option<Event> {
        match aside {
            SideMessage::Notice(notice) => Some(Event::Notice(notice)),
            SideMessage::Line(method, params) => {
                self.hearing.line(method, params).map(Event::Notice)
            }
            SideMessage::Asks(id, question) => self.asks(id, question),
            SideMessage::TookBack(id) => self.took_back(id),
        }
    }

    /// Handles a Legacy server's request during this call. Modern servers send
    /// none.
    fn asks(&mut self, id: Id, question: Question) -> Option<Event> {
        if question.is_known() && self.questions.open(&id, &question, &mut self.deadline) {
            return Some(Event::Asks(id, question));
        }
        self.shared.send_aside(if question.is_known() {
            self.questions.refusal(&id, &question)
        } else {
            answer_to_server(&id, &question.method)
        });
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

async fn next_aside(in_call: &mut Option<CallRegistration>) -> Option<SideMessage> {
    match in_call.as_mut().and_then(|in_call| in_call.asides.as_mut()) {
        Some(asides) => asides.next().await,
        None => None,
    }
}

/// Selects the server's log lines for a call's client.
pub(crate) struct LogForwarding {
    /// The lowest level that the client receives.
    least: Option<LogLevel>,
    /// Lines that arrive on a stream other than the call's.
    elsewhere: Option<Arc<CallLog>>,
}

impl LogForwarding {
    fn of(shared: &HttpShared, call: &Call) -> Self {
        let least = call.context.hears();
        // On a stream that several clients share, a line may arrive after its own call has ended,
        // while another client's call is in flight.
        let own =
            shared.peer.era() == Era::Legacy && shared.owner.whose != InstanceScope::Everybody;
        let elsewhere = least.filter(|_| own).map(|least| Arc::new(CallLog::new(least)));
        Self { least, elsewhere }
    }

    /// Returns a line on the call's own stream.
    fn line(&self, method: String, params: Bytes) -> Option<Notice> {
        Notice::line(method, params, self.least?)
    }

    /// Returns true if lines can arrive on another stream.
    pub(crate) fn elsewhere(&self) -> bool {
        self.elsewhere.is_some()
    }

    /// Waits for a line on another stream.
    pub(crate) async fn arrived(&self) {
        match &self.elsewhere {
            Some(lines) => lines.arrived().await,
            None => std::future::pending().await,
        }
    }

    /// Returns the next line from another stream.
    async fn next(&self) -> Notice {
        match &self.elsewhere {
            Some(lines) => lines.next().await,
            None => std::future::pending().await,
        }
    }
}

/// The calls in flight to a Legacy server.
#[derive(Default)]
pub(crate) struct LegacyCalls {
    tied: Mutex<HashMap<u64, RegisteredCall>>,
    cancelled_calls: CancelledCalls,
}

/// The channels to a call for messages that arrive on another stream.
struct RegisteredCall {
    caller: CallOrigin,
    /// Number of requests sent to the server before. Newer calls have a higher one.
    order: u64,
    /// Server requests.
    asks: Option<SideSender>,
    /// Lines of the server's log.
    lines: Option<Arc<CallLog>>,
}

/// A call's registration, removed when dropped.
pub(crate) struct CallRegistration {
    shared: Arc<HttpShared>,
    number: u64,
    /// Messages for the call that arrive on another stream.
    asides: Option<SideReceiver>,
}

impl CallRegistration {
    /// Registers a call to a Legacy server.
    pub(crate) fn begin(
        shared: &Arc<HttpShared>,
        sent: SentCall<'_>,
        questions: &CallQuestions,
        hearing: &LogForwarding,
    ) -> Option<Self> {
        let SentCall { id, call, target } = sent;
        let number = id.as_number().filter(|_| shared.peer.era() == Era::Legacy)?;
        let (asks, asides) = questions.can_be().then(side_queue).unzip();
        let caller = CallOrigin::of(call, target);
        let tied = RegisteredCall {
            caller,
            order: shared.ids.issued(),
            asks,
            lines: hearing.elsewhere.clone(),
        };
        shared.calls.lock().insert(number, tied);
        shared.inbox.question_routing.note_call();
        Some(Self { shared: Arc::clone(shared), number, asides })
    }
}

impl Drop for CallRegistration {
    fn drop(&mut self) {
        self.shared.calls.lock().remove(&self.number);
    }
}

impl LegacyCalls {
    fn lock(&self) -> MutexGuard<'_, HashMap<u64, RegisteredCall>> {
        self.tied.lock()
    }
}

impl LegacyCalls {
    /// Returns the call to which a log line outside its stream belongs.
    fn hears(&self) -> CallMatch<Arc<CallLog>> {
        let calls = self.lock();
        let calls = calls.values().map(|call| (call.order, &call.caller.whose, call.lines.clone()));
        tie(calls, &self.cancelled_calls)
    }
}

impl ServerLink for HttpShared {
    fn server(&self) -> &ServerName {
        self.inbox.server()
    }

    fn is_worth_a_warning(&self) -> bool {
        self.inbox.is_worth_a_warning()
    }

    fn send(self: &Arc<Self>, message: Bytes) {
        self.send_aside(message);
    }
}

impl LegacyConnection for HttpShared {
    fn inbox(&self) -> &Arc<Inbox> {
        &self.inbox
    }

    fn tied(&self, question: &Question) -> CallMatch<SideSender> {
        let calls = self.calls.lock();
        let calls = calls.values().map(|call| (call.order, &call.caller, call.asks.clone()));
        tie_question(question, calls, &self.calls.cancelled_calls)
    }
}

impl HttpShared {
    /// Handles the cancellation of a server request, on a stream that belongs
    /// to no call.
    pub(crate) fn took_back(&self, params: &Bytes) {
        let Some(id) = notification::cancelled_request(params) else { return };
        // Only the calls know which of them has the request.
        for asks in self.calls.lock().values().filter_map(|call| call.asks.as_ref()) {
            asks.send(SideMessage::TookBack(id.clone()));
        }
    }

    /// Handles a log line of a Legacy server, on a stream that belongs to no
    /// call.
    pub(crate) fn wrote(&self, method: &str, params: &Bytes) {
        match self.calls.hears() {
            CallMatch::To(lines) => lines.hear(method, params),
            CallMatch::Mute | CallMatch::Nobody => self.inbox.line(method, params),
        }
    }
}
