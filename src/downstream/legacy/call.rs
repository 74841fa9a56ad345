//! A call of a Legacy client, within its session.

use std::sync::Arc;

use crate::call::{Answer, Call, Event, Failure, Question, ResultType};
use crate::jsonrpc;
use crate::pipeline::{ActiveCall, CallAwaitingClient, Gateway, StartingCall};
use crate::snapshot::Snapshot;

use super::server_requests::Inquiry;
use super::session::RegisteredCall;
use crate::downstream::responses::event_stream::{Steps, StreamStep};

/// A call that ends when it is answered or cancelled, and continues when its client only
/// disconnects (2025-11-25, Streamable HTTP, "Sending Messages"): only then does it run in a task
/// of its own. It can be cancelled until it has ended.
pub(crate) struct LegacyCall {
    course: Course,
    withdrawal: Arc<RegisteredCall>,
}

/// The progress of a call, including the server requests to its client.
struct Course {
    stage: SessionStage,
    /// For a client with capabilities to answer server requests.
    again: Option<Box<Again>>,
    /// The last event, sent after all pending ones.
    last: Option<Event>,
}

/// State needed to make a call again with its client's answers.
struct Again {
    gateway: Arc<Gateway>,
    call: Box<Call>,
    inquiry: Inquiry,
}

/// Stages of a call.
enum SessionStage {
    /// Being sent to its server.
    Starting(StartingCall),
    /// Sent.
    Under(Box<ActiveCall>),
    /// The server waits for the client.
    Asking(CallAwaitingClient),
    /// Answered or cancelled.
    Ended,
}

/// The gateway that makes a call, and the snapshot for it.
#[derive(Clone, Copy)]
pub(super) struct CallBasis<'a> {
    pub(super) gateway: &'a Arc<Gateway>,
    pub(super) snapshot: &'a Arc<Snapshot>,
}

impl LegacyCall {
    /// Begins a call. It advances when its events are polled.
    pub(super) fn start(
        basis: CallBasis<'_>,
        call: Box<Call>,
        withdrawal: RegisteredCall,
        inquiry: Inquiry,
    ) -> Self {
        let CallBasis { gateway, snapshot } = basis;
        let can_be_asked = call.context.client.abilities().any();
        let again = can_be_asked.then(|| {
            let (gateway, call) = (Arc::clone(gateway), call.clone());
            Box::new(Again { gateway, call, inquiry })
        });
        let starting = gateway.call(Arc::clone(snapshot), call);
        let course = Course { stage: SessionStage::Starting(starting), again, last: None };
        Self { course, withdrawal: Arc::new(withdrawal) }
    }
}

impl Course {
    async fn step(&mut self) -> Option<Event> {
        loop {
            if let Some(untold) = self.again.as_mut().and_then(|again| again.inquiry.untold()) {
                return Some(untold);
            }
            if let Some(last) = self.last.take() {
                return Some(last);
            }
            match &mut self.stage {
                SessionStage::Starting(starting) => {
                    self.stage = SessionStage::Under(starting.await);
                }
                SessionStage::Under(exchange) => {
                    let event = exchange.next().await;
                    if let Some(event) = self.take(event) {
                        return Some(event);
                    }
                }
                SessionStage::Asking(CallAwaitingClient(asking)) => {
                    let (Some(exchange), Some(again)) = (&mut *asking, &mut self.again) else {
                        return None;
                    };
                    let answers = again.inquiry.answers(exchange).await;
                    let exchange = asking.take()?;
                    match answers {
                        Ok(input) => {
                            let gateway = Arc::clone(&again.gateway);
                            let call = Call { input: Some(input), ..Call::clone(&again.call) };
                            let call = Box::new(call);
                            let starting = gateway.call_again(exchange, call);
                            self.stage = SessionStage::Starting(starting);
                        }
                        Err(failure) => self.end(exchange.fail_parked(failure)),
                    }
                }
                SessionStage::Ended => return None,
            }
        }
    }

    /// Handles an event of the call. Returns it if it goes to the client unchanged.
    fn take(&mut self, event: Option<Event>) -> Option<Event> {
        let event = match event {
            Some(event) if event.is_last() => event,
            Some(event) => return Some(event),
            None => Event::Answer(Err(Failure::Cancelled)),
        };
        let SessionStage::Under(exchange) = std::mem::replace(&mut self.stage, SessionStage::Ended)
        else {
            return Some(event);
        };
        if let (Event::Answer(Ok(Answer::Result(result))), Some(again)) = (&event, &mut self.again)
            && *result.kind() == ResultType::InputRequired
        {
            match again.inquiry.ask(result, &exchange) {
                Ok(()) => self.stage = SessionStage::Asking(CallAwaitingClient(Some(exchange))),
                Err(failure) => self.end(exchange.fail_parked(failure)),
            }
            return None;
        }
        self.end(event);
        None
    }

    /// Ends the call: pending events are sent before the last one.
    fn end(&mut self, last: Event) {
        self.stage = SessionStage::Ended;
        if let Some(again) = &mut self.again {
            again.inquiry.end();
        }
        self.last = Some(last);
    }

    /// Runs the call to its end and discards its events.
    async fn run_to_end(mut self) {
        while let Some(event) = self.step().await {
            if let Event::Passing(mut passing) = event {
                while let Ok(Some(_)) = passing.next().await {}
            }
        }
    }

    fn is_over(&self) -> bool {
        matches!(self.stage, SessionStage::Ended)
    }
}

impl Steps for LegacyCall {
    async fn next(&mut self) -> Option<StreamStep> {
        let cancelled = self.withdrawal.token();
        tokio::select! {
            biased;
            () = cancelled.cancelled() => {
                // Dropping the call here cancels it at the server.
                self.course = Course { stage: SessionStage::Ended, again: None, last: None };
                None
            }
            event = self.course.step() => event.map(|event| match event {
                Event::Asks(id, Question { method, params }) => {
                    let params = params.as_deref().unwrap_or(b"{}");
                    StreamStep::Frame(jsonrpc::request(&id, &method, params))
                }
                event => StreamStep::Event(event),
            }),
        }
    }
}

impl Drop for LegacyCall {
    fn drop(&mut self) {
        let over = Course { stage: SessionStage::Ended, again: None, last: None };
        let course = std::mem::replace(&mut self.course, over);
        if course.is_over() {
            return;
        }
        let held = Arc::clone(&self.withdrawal);
        tokio::spawn(async move { held.or(course.run_to_end()).await });
    }
}
