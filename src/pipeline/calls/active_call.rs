//! A call in flight, as `downstream` holds it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream;
use tokio::time::{Instant, timeout_at};

use crate::call::{
    Answer, Call, Event, Failure, Input, Passing, Question, Reply, ResultType, StateError,
};
use crate::clock;
use crate::config::CapabilitiesChoice;
use crate::era::lift;
use crate::era::state::RequestState;
use crate::jsonrpc::Id;
use crate::mcp::{Method, code};
use crate::pipeline::input::Requester;
use crate::pipeline::input::refusal::{refusal_reason, refusal_response};
use crate::pipeline::record::Record;
use crate::pipeline::release::Release;
use crate::pipeline::route::Route;
use crate::policy::{Confirmation, Permitted, ReplyInterceptors};
use crate::snapshot::Snapshots;
use crate::telemetry::observation::{CallStep, CallTimer};
use crate::upstream::parking::{ParkedBy, ParkedReply, ParkingSlot, Ticket};

use super::confirm::CONFIRM_KEY;
use super::interception::ReplyInterception;
use super::slow_notice::SlowNotice;

/// The reply to one call. Its access log, metrics and trace record how the call ended, even if the
/// client has disconnected.
///
/// Requests of the server for input are gathered into one `InputRequiredResult`, and the rest of
/// the reply is parked until the client retries the call with its answers.
pub struct ActiveCall {
    reply: Reply,
    record: Option<Record>,
    /// Rewrites the reply for the client; `None` if nothing needs rewriting.
    release: Option<Release>,
    asker: Requester,
    open: OpenQuestions,
    /// Events that arrived while the call was parked.
    backlog: VecDeque<Event>,
    ticket: Option<Ticket>,
    /// The answer is a question of the gateway itself, and is released already.
    is_asking: bool,
    /// Notification for the client if the call is slow; `None` for most calls.
    slow: Option<Box<SlowNotice>>,
    /// Interceptors of the reply, called before it is released; `None` for most calls.
    interception: Option<Box<ReplyInterception>>,
}

/// Input requests of the server that the client has not received yet.
#[derive(Default)]
struct OpenQuestions {
    questions: Vec<(String, Id, Question)>,
    /// The number of input requests in this call so far; their keys are numbered by it.
    asked: usize,
    /// Time at which the input requests are sent: those that arrive before then are sent together.
    due: Option<Instant>,
}

impl ActiveCall {
    /// Starts the record of a call that has not been sent yet.
    pub(in crate::pipeline) fn begin(record: Record, asker: Requester) -> Self {
        Self {
            reply: Reply::ready(Err(Failure::Cancelled)),
            record: Some(record),
            release: None,
            asker,
            open: OpenQuestions::default(),
            backlog: VecDeque::new(),
            ticket: None,
            is_asking: false,
            slow: None,
            interception: None,
        }
    }

    /// Records the route of the call.
    pub(super) fn set_route(
        &mut self,
        route: &Route<'_>,
        release: Option<Release>,
        call: &mut Call,
    ) {
        self.asker.server = Some(route.server().clone());
        self.release = release;
        let results = route.results.filter(|_| call.method == Method::ToolsCall);
        self.slow = results.and_then(|it| SlowNotice::prepare(&it.settings, &call.context));
        if let Some(record) = &mut self.record {
            record.set_route(route);
            call.context.trace.sent = record.trace_to_send(&call.context.trace);
        }
    }

    /// Hides the client's capabilities from a server that is configured so. Its input requests are
    /// then refused like those to a client without capabilities.
    pub(super) fn hide_capabilities(
        &mut self,
        route: &Route<'_>,
        call: &mut Call,
    ) -> Result<(), Failure> {
        match route.member.config.client_capabilities {
            CapabilitiesChoice::Hide => self.asker.hide_capabilities(call),
            CapabilitiesChoice::Declare => Ok(()),
        }
    }

    /// Sets the interceptors that see the reply.
    pub(super) fn set_interceptors(&mut self, interceptors: Option<Arc<ReplyInterceptors>>) {
        self.interception = interceptors.map(|all| Box::new(ReplyInterception::new(all)));
    }

    pub(in crate::pipeline) fn mark_sent(&mut self) {
        if let Some(record) = &mut self.record {
            record.mark_sent();
        }
    }

    /// Notes that a step of an observed call begins.
    pub(super) fn begin_step(&self, step: CallStep) {
        if let Some(record) = &self.record {
            record.begin_step(step);
        }
    }

    /// Returns the timer of an observed call; `None` for any other.
    pub(super) fn timer(&self) -> Option<Arc<CallTimer>> {
        self.record.as_ref()?.timer().cloned()
    }

    /// Returns true if the client receives a notification when the call is slow.
    pub(super) fn has_slow_notice(&self) -> bool {
        self.slow.is_some()
    }

    /// Takes the record of a call that continues as another active call.
    pub(in crate::pipeline) fn take_record(&mut self) -> Option<Record> {
        self.ticket = None;
        self.record.take()
    }

    pub(in crate::pipeline) fn asker(&self) -> &Requester {
        &self.asker
    }

    /// Records whether the user has agreed to the call.
    pub(super) fn set_confirmation(&mut self, confirmation: Confirmation) {
        self.asker.confirmation = confirmation;
    }

    /// Answers with a question of the gateway itself; the call is made when the user agrees.
    pub(super) fn ask_user(&mut self, question: &Question) -> Result<Reply, Failure> {
        self.is_asking = true;
        let asked = [(CONFIRM_KEY, question)];
        let result = self.asker.build_question_result(asked, RequestState::Confirm)?;
        Ok(Reply::ready(Ok(Answer::Result(result))))
    }

    /// Records the number of login links that the call was answered with, for a call that has
    /// waited for a login. Returns the snapshots, as a newer one may have the server's lists.
    pub(super) fn wait_for_login(&mut self, links: u8) -> &Arc<Snapshots> {
        self.asker.login_links = links;
        &self.asker.inputs.snapshots
    }

    /// Sets the reply that the client reads from now on.
    pub(in crate::pipeline) fn attach_reply(&mut self, reply: Reply) {
        self.reply = reply;
    }

    /// Replaces the failure of a reply that fails before it begins.
    pub(in crate::pipeline) fn map_failure<F>(
        &mut self,
        other: impl FnOnce(Failure) -> F + Send + 'static,
    ) where
        F: Future<Output = Failure> + Send + 'static,
    {
        let reply = std::mem::replace(&mut self.reply, Reply::ready(Err(Failure::Cancelled)));
        self.reply = reply.map_failure(other);
    }

    /// Resumes a parked call and passes the client's answers to the server.
    pub(super) async fn resume(
        &mut self,
        permitted: &Permitted<Call>,
        id: u64,
        input: &Input,
    ) -> Result<Reply, Failure> {
        let waiting = self.asker.inputs.parking.resume(permitted, id).await;
        Ok(self.take_up(waiting.ok_or(StateError::Ended)?, input))
    }

    /// Like [`ActiveCall::resume`], for a call that the gateway answers itself.
    pub(in crate::pipeline) async fn resume_own(
        &mut self,
        id: u64,
        input: &Input,
    ) -> Result<Reply, Failure> {
        let waiting = self.asker.inputs.parking.resume_own(&self.asker.principal, id).await;
        Ok(self.take_up(waiting.ok_or(StateError::Ended)?, input))
    }

    fn take_up(&mut self, waiting: ParkedReply, input: &Input) -> Reply {
        let ParkedReply { reply, mut open, asked, events } = waiting;
        for (key, response) in &input.responses {
            if let Some(at) = open.iter().position(|(open, ..)| open == key) {
                let (_, id, _) = open.swap_remove(at);
                reply.answer_question(id, response.clone());
            }
        }
        let due = (!open.is_empty()).then(|| clock::now() + QUESTION_BATCH_WINDOW);
        self.open = OpenQuestions { questions: open, asked, due };
        self.backlog = events;
        reply
    }

    /// Returns the next event; `None` after the answer. Input requests of the server are never
    /// events of their own: an answer carries them.
    ///
    /// # Cancel safety
    /// Safe: no event is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match &self.interception {
                None => self.next_received().await,
                Some(_) => Box::pin(self.next_intercepted()).await,
            };
            match event {
                Some(Event::Asks(id, question)) => self.receive_question(id, question),
                Some(Event::TookBack(id)) => self.open.forget(&id),
                Some(Event::Answer(Ok(answer)))
                    if self.release.as_ref().is_some_and(|it| it.is_large(&answer)) =>
                {
                    self.release_elsewhere(answer);
                }
                Some(Event::Answer(answer)) => {
                    let answer = self.finish_answer(answer);
                    return Some(Event::Answer(answer));
                }
                Some(Event::Passing(passing)) if self.needs_whole(&passing) => {
                    // A reply of its own, so that dropping this future loses nothing of it.
                    let whole = async { Event::Answer(passing.whole().await.map(Answer::Result)) };
                    self.reply = Reply::stream(stream::once(whole));
                }
                Some(Event::Passing(mut passing)) => {
                    if let Some(mut record) = self.record.take() {
                        passing.on_end(move |ended, bytes| record.finish_passing(ended, bytes));
                    }
                    return Some(Event::Passing(passing));
                }
                Some(Event::Notice(notice)) => {
                    let notice = match &self.release {
                        Some(release) => release.release_notice(notice),
                        None => Some(notice),
                    };
                    if let Some(notice) = notice {
                        // A notification of the same kind (progress or log message) makes the
                        // slow-call notification superfluous.
                        self.slow
                            .take_if(|slow| slow.notice.token.is_some() == notice.token.is_some());
                        return Some(Event::Notice(notice));
                    }
                }
                Some(Event::Pause(_)) | None => return event,
            }
        }
    }

    /// Returns the next event before interceptors have seen it: one from the time when the call was
    /// parked, one of the reply, or the server's input requests once they are due.
    async fn next_received(&mut self) -> Option<Event> {
        match (self.backlog.pop_front(), self.open.due) {
            (Some(event), _) => Some(event),
            (None, None) if self.slow.is_some() => self.next_or_slow().await,
            (None, None) => self.reply.next().await,
            (None, Some(due)) => match timeout_at(due, self.reply.next()).await {
                Ok(event) => event,
                Err(_) => Some(Event::Answer(self.park_call())),
            },
        }
    }

    /// Returns the next event that interceptors let pass.
    async fn next_intercepted(&mut self) -> Option<Event> {
        loop {
            if let Some(interception) = self.interception.as_mut().filter(|it| it.is_pending()) {
                let Some(event) = interception.decided().await else { continue };
                if event.is_last() {
                    self.interception = None;
                }
                return Some(event);
            }
            let was_slow = self.slow.is_some();
            let event = self.next_received().await?;
            if event.is_last() {
                // The server has answered, so it waits for no input any more.
                self.open = OpenQuestions::default();
                let is_failure = matches!(event, Event::Answer(Err(_)));
                // A call that was refused ends in the step that refused it.
                if !is_failure || self.timer().is_some_and(|it| it.has_begun(CallStep::Server)) {
                    self.begin_step(CallStep::Interceptors);
                }
            }
            let is_own_notice = was_slow && self.slow.is_none();
            match &mut self.interception {
                Some(interception) if !is_own_notice => {
                    if let Some(event) = interception.take_up(event) {
                        return Some(event);
                    }
                }
                _ => return Some(event),
            }
        }
    }

    /// Returns the next event of the reply, or the slow-call notification once that is due.
    async fn next_or_slow(&mut self) -> Option<Event> {
        let due = self.slow.as_ref().map_or_else(clock::now, |slow| slow.due);
        match timeout_at(due, self.reply.next()).await {
            Ok(event) => event,
            Err(_) => self.slow.take().map(|slow| Event::Notice(slow.notice)),
        }
    }

    /// Starts the rewrite of a large answer on another thread. The answer becomes a reply of its
    /// own, which needs no release any more, so that dropping the future of `next` loses nothing.
    fn release_elsewhere(&mut self, answer: Answer) {
        // The server has answered, so it waits for no input any more.
        self.open = OpenQuestions::default();
        self.begin_step(CallStep::Shaping);
        if let Some(release) = self.release.take() {
            let released = release.release_large(self.asker.holder(), answer);
            self.reply = Reply::stream(stream::once(async { Event::Answer(released.await) }));
        }
    }

    /// Returns true if a large result has to be buffered before it is sent to the client.
    fn needs_whole(&self, passing: &Passing) -> bool {
        self.release.as_ref().is_some_and(|release| release.needs_whole(passing.era()))
    }

    /// Waits until the server sends something to a call that is parked for input; false once the
    /// call is no longer parked. Never resolves if the call is not parked.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn server_intervened(&mut self) -> bool {
        match &mut self.ticket {
            Some(ticket) => ticket.news.changed().await.is_ok(),
            None => std::future::pending().await,
        }
    }

    /// Cancels a call that is parked for input, at the server as well.
    pub fn cancel_parked(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.asker.inputs.parking.cancel(ticket.id);
        }
        // Recorded as cancelled: no retry can follow.
        self.record = self.record.take().map(Record::mark_resumed);
    }

    /// Ends a parked call with a failure.
    pub fn fail_parked(mut self, failure: Failure) -> Event {
        self.cancel_parked();
        let answer = Err(failure);
        if let Some(mut record) = self.record.take() {
            record.finish(&answer);
        }
        Event::Answer(answer)
    }

    /// Reserves a slot among the calls that wait for input, for a server that keeps no state;
    /// `None` if the call is parked here and holds a slot already.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub fn reserve_place(&self) -> Result<Option<ParkingSlot>, Failure> {
        if self.ticket.is_some() {
            return Ok(None);
        }
        let inputs = &self.asker.inputs;
        inputs.parking.enter(&self.asker.holder(), inputs.bounds()).map(Some)
    }

    /// Time limit for the client's input.
    pub fn input_timeout(&self) -> Duration {
        self.asker.inputs.bounds().lasting
    }

    /// Returns the failure of a server that requests input in too many rounds.
    pub fn too_many_rounds(&self, limit: usize) -> Failure {
        match self.asker.server() {
            Ok(server) => Failure::InputEndless { server: server.clone(), limit },
            Err(failure) => failure,
        }
    }

    /// Queues an input request of the server, or refuses one that this client cannot answer.
    fn receive_question(&mut self, id: Id, question: Question) {
        let refusal = refusal_reason(&question, self.asker.abilities(), self.open.questions.len());
        if let Some(text) = refusal {
            tracing::debug!(server = ?self.asker.server, method = question.method, "a server request is refused");
            return self.reply.answer_question(id, refusal_response(&text));
        }
        let mut question =
            if self.asker.is_modern() { lift::question(&question) } else { question };
        if let (Some(release), Some(params)) = (&self.release, &mut question.params) {
            release.rename_task_ids(params);
        }
        self.open.asked += 1;
        self.open.questions.push((format!("input-{}", self.open.asked), id, question));
        self.open.due.get_or_insert_with(|| clock::now() + QUESTION_BATCH_WINDOW);
    }

    /// Parks the call until its client retries it.
    fn park_call(&mut self) -> Result<Answer, Failure> {
        let bounds = self.asker.inputs.bounds();
        let server = self.asker.server.clone();
        let OpenQuestions { questions: open, asked, .. } = std::mem::take(&mut self.open);
        let reply = std::mem::replace(&mut self.reply, Reply::ready(Err(Failure::Cancelled)));
        let questions = open.clone();
        let waiting = ParkedReply { reply, open, asked, events: VecDeque::new() };
        let parking = &self.asker.inputs.parking;
        let origin = ParkedBy { owner: &self.asker.principal, server: server.as_ref() };
        let ticket = parking.park(waiting, origin, &self.asker.holder(), bounds)?;
        let questions = questions.iter().map(|(key, _, question)| (key.as_str(), question));
        let state = self.asker.inputs.parked_state(&ticket);
        let asked = self.asker.build_question_result(questions, state);
        self.ticket = Some(ticket);
        asked.map(Answer::Result).inspect_err(|_| self.cancel_parked())
    }

    /// Rewrites the answer for the client and records the end of the call.
    fn finish_answer(&mut self, answer: Result<Answer, Failure>) -> Result<Answer, Failure> {
        let released = match &self.release {
            _ if self.is_asking => answer,
            Some(release) => answer.map(|answer| {
                self.begin_step(CallStep::Shaping);
                release.release_answer(answer)
            }),
            None => answer,
        };
        let answer = match released {
            Ok(Answer::Result(result))
                if *result.kind() == ResultType::InputRequired
                    && self.ticket.is_none()
                    && !self.is_asking =>
            {
                self.asker.relay_questions(&result).map(Answer::Result)
            }
            Ok(Answer::Error(error))
                if error.code() == code::URL_ELICITATION_REQUIRED && self.asker.is_modern() =>
            {
                self.asker.relay_url_elicitations(error)
            }
            Err(Failure::LoginNeeded { server, link }) if self.asker.can_ask_to_log_in() => {
                self.asker.ask_to_log_in(&server, &link).map(Answer::Result)
            }
            answer => answer,
        };
        if answer.is_err() && self.ticket.is_some() {
            // The client never receives the input requests of the parked call.
            self.cancel_parked();
        }
        match &answer {
            Ok(Answer::Result(result)) if *result.kind() == ResultType::InputRequired => {
                if let Some(record) = &mut self.record {
                    record.mark_suspended();
                }
            }
            answer => {
                if let Some(mut record) = self.record.take() {
                    record.finish(answer);
                }
            }
        }
        answer
    }
}

impl OpenQuestions {
    fn forget(&mut self, id: &Id) {
        self.questions.retain(|(_, open, _)| open != id);
        if self.questions.is_empty() {
            self.due = None;
        }
    }
}

/// Input requests that arrive within this time of the first are sent to the client with it.
const QUESTION_BATCH_WINDOW: Duration = Duration::from_millis(15);
