//! Server requests to a Legacy client in the middle of its call.
//!
//! Inside the gateway, a server's request for input is a result (`InputRequiredResult`), and the
//! answers are another call. A Legacy client supports neither: it receives requests on its call's
//! stream, with ids of its session, and answers them with messages of their own. This module sends
//! the requests, gathers the responses and decides when to make the call again.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::call::{Event, Failure, Input, InternalFault, MAX_QUESTIONS, Notice, ResultBody};
use crate::clock;
use crate::era::lower;
use crate::jsonrpc::{self, Id, Response};
use crate::mcp::{code, notification};
use crate::pipeline::ActiveCall;
use crate::upstream::parking::ParkingSlot;

use super::session::ClientSession;

/// Server requests to a session's client in one call, round after round.
pub(super) struct Inquiry {
    session: Arc<ClientSession>,
    /// True if there is a stream for the requests.
    streams: bool,
    /// Requests that are sent and not answered: the server's key, and the session's id.
    awaited: Vec<(String, u64)>,
    said: mpsc::Receiver<(u64, Response)>,
    says: mpsc::Sender<(u64, Response)>,
    /// Answers of this round.
    answered: Vec<(String, Response)>,
    state: Option<String>,
    /// Events not sent to the client yet.
    untold: VecDeque<Event>,
    rounds: usize,
    until: Instant,
    lasting: Duration,
    place: Option<ParkingSlot>,
}

impl Inquiry {
    pub(super) fn new(session: &Arc<ClientSession>, streams: bool) -> Self {
        let (says, said) = mpsc::channel(MAX_QUESTIONS);
        Self {
            session: Arc::clone(session),
            streams,
            awaited: Vec::new(),
            said,
            says,
            answered: Vec::new(),
            state: None,
            untold: VecDeque::new(),
            rounds: 0,
            until: clock::now(),
            lasting: Duration::ZERO,
            place: None,
        }
    }

    /// Returns the next event for the client.
    pub(super) fn untold(&mut self) -> Option<Event> {
        self.untold.pop_front()
    }

    /// Sends the questions of `result` to the client. Skips questions that are pending, and
    /// withdraws those that `result` no longer contains.
    pub(super) fn ask(
        &mut self,
        result: &ResultBody,
        exchange: &ActiveCall,
    ) -> Result<(), Failure> {
        self.rounds += 1;
        if self.rounds > MAX_QUESTION_ROUNDS {
            return Err(exchange.too_many_rounds(MAX_QUESTION_ROUNDS));
        }
        let asked = result.asked().map_err(InternalFault::Result)?;
        let asked = asked.ok_or(InternalFault::NoQuestions)?;
        self.place = exchange.reserve_place()?;
        self.lasting = exchange.input_timeout();
        self.until = clock::now() + self.lasting;
        self.state = asked.state.map(|(state, _)| state);
        let gone: Vec<_> = {
            let still = |key: &String| asked.questions.iter().any(|(asked, _)| asked == key);
            self.awaited.extract_if(.., |(key, _)| !still(key)).collect()
        };
        for (_, number) in gone {
            self.withdraw(number);
        }
        for (key, question) in asked.questions {
            if self.awaited.iter().any(|(awaited, _)| *awaited == key) {
                continue;
            }
            if !self.streams || !question.is_known() {
                let text = if self.streams {
                    format!("the client does not support {}", question.method)
                } else {
                    "the client accepts no event stream, which server requests need".to_owned()
                };
                let error = jsonrpc::error_object(code::METHOD_NOT_FOUND, &text);
                self.answered.push((key, Response::Error(error.into())));
                continue;
            }
            let number = self.session.expect(self.says.clone());
            let version = self.session.client().version;
            let question = lower::question(&question, version, &self.session.page(number));
            self.untold.push_back(Event::Asks(Id::number(number), question));
            self.awaited.push((key, number));
        }
        if self.awaited.is_empty() && self.answered.is_empty() {
            // The server requests no input, only another call after a pause.
            self.until =
                clock::now() + FIRST_REPEAT_PAUSE * u32::try_from(self.rounds).unwrap_or(u32::MAX);
        }
        Ok(())
    }

    /// Waits until the call is to be made again, and returns the client's answers.
    ///
    /// # Errors
    /// [`Failure::InputTimeout`] if an answer does not arrive in time.
    ///
    /// # Cancel safety
    /// Safe.
    pub(super) async fn answers(&mut self, exchange: &mut ActiveCall) -> Result<Input, Failure> {
        let nothing_asked = self.awaited.is_empty() && self.answered.is_empty();
        let late = Failure::InputTimeout { after: self.lasting };
        while !self.awaited.is_empty() || nothing_asked {
            tokio::select! {
                said = self.said.recv() => {
                    let Some((number, response)) = said else { break };
                    if let Some(at) = self.awaited.iter().position(|(_, own)| *own == number) {
                        let (key, _) = self.awaited.swap_remove(at);
                        self.answered.push((key, response));
                    }
                }
                // The server has answered after all, or has changed its questions: the call
                // continues with the answers so far.
                disturbed = exchange.server_intervened() => if disturbed { break } else { return Err(late) },
                () = sleep_until(self.until) => if nothing_asked { break } else { return Err(late) },
            }
        }
        self.place = None;
        Ok(Input { state: self.state.take(), responses: std::mem::take(&mut self.answered) })
    }

    /// Ends the call and withdraws pending questions. Returns false if there are none.
    pub(super) fn end(&mut self) -> bool {
        let awaited = std::mem::take(&mut self.awaited);
        let some = !awaited.is_empty();
        for (_, number) in awaited {
            self.withdraw(number);
        }
        some
    }

    fn withdraw(&mut self, number: u64) {
        self.session.unexpect(number);
        let params = json!({ "requestId": number, "reason": "the server withdrew the request" });
        self.untold.push_back(Event::Notice(Notice {
            method: notification::CANCELLED.into(),
            params: params.to_string().into(),
            token: None,
        }));
    }
}

impl Drop for Inquiry {
    fn drop(&mut self) {
        for (_, number) in &self.awaited {
            self.session.unexpect(*number);
        }
    }
}

/// Limit of a call's rounds of questions.
const MAX_QUESTION_ROUNDS: usize = 64;
/// Pause before the first repetition of a call that requested no input.
const FIRST_REPEAT_PAUSE: Duration = Duration::from_millis(100);
