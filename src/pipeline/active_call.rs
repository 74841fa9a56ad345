//! A call under way, as `downstream` holds it.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::stream;
use tokio::time::{Instant, timeout_at};

use crate::call::{
    Abilities, Answer, Call, Event, Failure, Input, MOST_QUESTIONS, Passing, Question, Reply,
    ResultType,
};
use crate::era::lift;
use crate::era::state::RequestState;
use crate::jsonrpc::{Id, Response};
use crate::mcp::code;
use crate::policy::Permitted;
use crate::upstream::parking::{ParkedReply, ParkingSlot, Ticket};

use super::input::{Requester, invalid_state};
use super::record::Record;
use super::release::Release;
use super::route::Route;

/// A reply that is watched to its end: access log, metrics and trace record how
/// the call ended, even if the client has gone.
///
/// A server's questions are gathered into one `InputRequiredResult`, and the rest
/// of the reply is parked until the client retries the call with its answers.
pub struct ActiveCall {
    reply: Reply,
    record: Option<Record>,
    /// What the reply passes before the client has it.
    release: Option<Release>,
    asker: Requester,
    open: OpenQuestions,
    /// What came while the call waited.
    backlog: VecDeque<Event>,
    ticket: Option<Ticket>,
}

/// Questions of the server that the client has not been asked yet.
#[derive(Default)]
struct OpenQuestions {
    questions: Vec<(String, Id, Question)>,
    /// How many there were in this call; they are numbered by it.
    asked: usize,
    /// When the client is asked: what comes until then goes with it.
    due: Option<Instant>,
}

impl ActiveCall {
    /// A call that has not been sent yet.
    pub(super) fn begin(record: Record, asker: Requester) -> Self {
        Self {
            reply: Reply::ready(Err(Failure::Cancelled)),
            record: Some(record),
            release: None,
            asker,
            open: OpenQuestions::default(),
            backlog: VecDeque::new(),
            ticket: None,
        }
    }

    /// Notes where the call goes.
    pub(super) fn set_route(&mut self, route: &Route<'_>, release: Release, call: &mut Call) {
        self.asker.server = Some(route.server().clone());
        self.release = Some(release).filter(Release::is_needed);
        if let Some(record) = &mut self.record {
            record.set_route(route);
            call.context.trace.sent = record.trace_to_send(&call.context.trace);
        }
    }

    pub(super) fn mark_sent(&mut self) {
        if let Some(record) = &mut self.record {
            record.mark_sent();
        }
    }

    /// The notes of a call that goes on as another active call.
    pub(super) fn take_record(&mut self) -> Option<Record> {
        self.ticket = None;
        self.record.take()
    }

    pub(super) fn asker(&self) -> &Requester {
        &self.asker
    }

    /// The reply that the client reads from here on.
    pub(super) fn attach_reply(&mut self, reply: Reply) {
        self.reply = reply;
    }

    /// Goes on with a call that waited, and gives the server its answers.
    pub(super) async fn resume(
        &mut self,
        permitted: &Permitted<Call>,
        id: u64,
        input: &Input,
    ) -> Result<Reply, Failure> {
        let waiting = self.asker.inputs.parking.resume(permitted, id).await;
        let gone = || invalid_state("the call that it belongs to no longer waits");
        let ParkedReply { reply, mut open, asked, events } = waiting.ok_or_else(gone)?;
        for (key, response) in &input.responses {
            if let Some(at) = open.iter().position(|(open, ..)| open == key) {
                let (_, id, _) = open.swap_remove(at);
                reply.answer_question(id, response.clone());
            }
        }
        let due = (!open.is_empty()).then(|| Instant::now() + TOGETHER);
        self.open = OpenQuestions { questions: open, asked, due };
        self.backlog = events;
        Ok(reply)
    }

    /// The next step; `None` after the answer. The server's own questions are
    /// never one: an answer asks them.
    ///
    /// # Cancel safety
    /// Safe: no step is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Event> {
        loop {
            let event = match (self.backlog.pop_front(), self.open.due) {
                (Some(event), _) => Some(event),
                (None, None) => self.reply.next().await,
                (None, Some(due)) => match timeout_at(due, self.reply.next()).await {
                    Ok(event) => event,
                    Err(_) => Some(Event::Answer(self.park_call())),
                },
            };
            match event {
                Some(Event::Asks(id, question)) => self.receive_question(id, question),
                Some(Event::TookBack(id)) => self.open.forget(&id),
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
                        passing.on_end(move |ended| record.finish_passing(ended));
                    }
                    return Some(Event::Passing(passing));
                }
                Some(Event::Notice(notice)) => {
                    let notice = match &self.release {
                        Some(release) => release.release_notice(notice),
                        None => Some(notice),
                    };
                    if let Some(notice) = notice {
                        return Some(Event::Notice(notice));
                    }
                }
                Some(Event::Pause(_)) | None => return event,
            }
        }
    }

    /// Whether a large result has to be read to its end before it goes on.
    fn needs_whole(&self, passing: &Passing) -> bool {
        self.release.as_ref().is_some_and(|release| release.needs_whole(passing.era()))
    }

    /// Waits until the server says something to a call that waits for input;
    /// false once the call no longer waits. For ever, where none waits.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn server_intervened(&mut self) -> bool {
        match &mut self.ticket {
            Some(ticket) => ticket.news.changed().await.is_ok(),
            None => std::future::pending().await,
        }
    }

    /// Takes back a call that waits for input: the server is told.
    pub fn cancel_parked(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.asker.inputs.parking.cancel(ticket.id);
        }
        // Taken back, and not left to a retry.
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

    /// A place among the calls that wait for input, for one whose server keeps
    /// nothing; `None` where the call waits here and has one.
    ///
    /// # Errors
    /// [`Failure::OverLimit`].
    pub fn reserve_place(&self) -> Result<Option<ParkingSlot>, Failure> {
        if self.ticket.is_some() {
            return Ok(None);
        }
        let inputs = &self.asker.inputs;
        inputs.parking.enter(&self.asker.principal, inputs.bounds()).map(Some)
    }

    /// How long a client may take to give its input.
    pub fn input_timeout(&self) -> Duration {
        self.asker.inputs.bounds().lasting
    }

    /// The failure of a server that has asked so often.
    pub fn too_many_rounds(&self, limit: usize) -> Failure {
        match self.asker.server() {
            Ok(server) => Failure::InputEndless { server: server.clone(), limit },
            Err(failure) => failure,
        }
    }

    /// Waits for the end without looking at it: for a client that is gone but
    /// has not taken the call back.
    pub async fn run_to_end(mut self) {
        while let Some(event) = self.next().await {
            if let Event::Passing(mut passing) = event {
                while let Ok(Some(_)) = passing.next().await {}
            }
        }
    }

    /// The server asks. What this client cannot be asked is refused at once.
    fn receive_question(&mut self, id: Id, question: Question) {
        let refusal = refusal_reason(&question, self.asker.abilities(), self.open.questions.len());
        if let Some(text) = refusal {
            tracing::debug!(server = ?self.asker.server, method = question.method, "the server asks in vain");
            return self.reply.answer_question(id, refusal_response(&text));
        }
        let mut question =
            if self.asker.is_modern() { lift::question(&question) } else { question };
        if let (Some(release), Some(params)) = (&self.release, &mut question.params) {
            release.rename_task_ids(params);
        }
        self.open.asked += 1;
        self.open.questions.push((format!("input-{}", self.open.asked), id, question));
        self.open.due.get_or_insert_with(|| Instant::now() + TOGETHER);
    }

    /// Has the call wait for its client.
    fn park_call(&mut self) -> Result<Answer, Failure> {
        let bounds = self.asker.inputs.bounds();
        let server = self.asker.server()?.clone();
        let OpenQuestions { questions: open, asked, .. } = std::mem::take(&mut self.open);
        let reply = std::mem::replace(&mut self.reply, Reply::ready(Err(Failure::Cancelled)));
        let questions = open.clone();
        let waiting = ParkedReply { reply, open, asked, events: VecDeque::new() };
        let parking = &self.asker.inputs.parking;
        let ticket = parking.park(waiting, &self.asker.principal, &server, bounds)?;
        let questions = questions.iter().map(|(key, _, question)| (key.as_str(), question));
        let asked = self.asker.build_question_result(questions, RequestState::Parked(ticket.id));
        self.ticket = Some(ticket);
        asked.map(Answer::Result).inspect_err(|_| self.cancel_parked())
    }

    /// An answer as the client may have it; the notes are told.
    fn finish_answer(&mut self, answer: Result<Answer, Failure>) -> Result<Answer, Failure> {
        let released = match &self.release {
            Some(release) => answer.map(|answer| release.release_answer(answer)),
            None => answer,
        };
        let answer = match released {
            Ok(Answer::Result(result))
                if *result.kind() == ResultType::InputRequired && self.ticket.is_none() =>
            {
                self.asker.relay_questions(&result).map(Answer::Result)
            }
            Ok(Answer::Error(error))
                if error.code() == code::URL_ELICITATION_REQUIRED && self.asker.is_modern() =>
            {
                self.asker.relay_url_elicitations(error)
            }
            answer => answer,
        };
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

/// Why a client with these abilities cannot be asked this, of whom so many
/// answers are awaited; `None` where it can.
pub(super) fn refusal_reason(
    question: &Question,
    abilities: &Abilities,
    open: usize,
) -> Option<String> {
    if !question.is_known() {
        Some(format!("clients of this gateway cannot be asked for {}", question.method))
    } else if question.missing_capabilities(abilities).is_some() {
        let method = &question.method;
        Some(format!("the client that made this call does not offer {method} in this form"))
    } else if open >= MOST_QUESTIONS {
        Some(format!("more than {MOST_QUESTIONS} requests of this call are open"))
    } else {
        None
    }
}

/// What a server is told whose question cannot be asked.
pub(super) fn refusal_response(text: &str) -> Response {
    let error = serde_json::json!({ "code": code::METHOD_NOT_FOUND, "message": text });
    Response::Error(error.to_string().into())
}

/// Questions that come within this time of the first go to the client with it.
const TOGETHER: Duration = Duration::from_millis(15);
