//! Calls made by code, each from its start to its answer, including the server's input requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use serde::Deserialize;
use tokio::time::sleep;

use crate::call::{
    Answer, Asked, Call, Client, Failure, Input, InternalFault, ParseFault, Question, ResultBody,
};
use crate::code_mode::ScriptCall;
use crate::codec::large_message::work_on;
use crate::era::lower;
use crate::jsonrpc::{Id, Response, object_of, string, within_depth};
use crate::mcp::Era;
use crate::pipeline::calls::{InnerCallFault, InnerCallRequest, await_answer, make_inner_call};
use crate::pipeline::client_view::ClientView;
use crate::pipeline::input::{input_refused_with, parse_params};
use crate::pipeline::meta_tools::explain_violations;
use crate::pipeline::own_tools::value_of;
use crate::pipeline::{ActiveCall, CallAwaitingClient, Gateway, StartingCall};
use crate::snapshot::{Snapshot, View};

/// Makes the calls of one run of code.
pub(super) struct InnerCalls {
    gateway: Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    view: Arc<View>,
    /// The client's call of `run_code`.
    outer: Box<Call>,
    /// The client as declared in inner calls: code takes results, not tasks.
    client: Arc<Client>,
    /// Limit of a result's bytes.
    largest: usize,
}

/// A call under way, until it is answered or requests input.
pub(super) type RunningTurn = BoxFuture<'static, InnerStep>;

/// The state that a call has reached.
pub(super) struct InnerStep {
    /// The call's id in the code.
    pub(super) id: u64,
    pub(super) turn: InnerTurn,
}

/// A call that was answered, or requests input.
pub(super) enum InnerTurn {
    /// The result as JSON, or an error text.
    Ended(Result<Bytes, String>),
    Asks(Box<AskingCall>),
}

/// A server's answer to a call of the code.
enum InnerAnswer {
    /// It requests input.
    Asks(Asked),
    /// The result as JSON.
    Value(Bytes),
}

/// A call that waits for its client. Dropping it cancels the call.
pub(super) struct AskingCall {
    course: InnerCourse,
    active: CallAwaitingClient,
    state: Option<String>,
    /// Questions not sent to the client yet, by the keys of the call.
    pub(super) questions: Vec<(String, Question)>,
    /// Questions sent to the client and not answered.
    pub(super) open: Vec<(Id, String)>,
    pub(super) responses: Vec<(String, Response)>,
}

/// A call through all its rounds of input.
struct InnerCourse {
    id: u64,
    /// The call as first made.
    call: Box<Call>,
    view: Arc<View>,
    /// Number of rounds of input so far.
    rounds: usize,
    /// Limit of the result's bytes.
    largest: usize,
}

impl AskingCall {
    /// Returns the call's id in the code.
    pub(super) fn id(&self) -> u64 {
        self.course.id
    }
}

impl InnerCalls {
    pub(super) fn new(
        gateway: &Arc<Gateway>,
        client_view: &ClientView,
        outer: Box<Call>,
        largest: usize,
    ) -> Self {
        let ClientView { snapshot, view, .. } = client_view;
        let (gateway, snapshot) = (Arc::clone(gateway), Arc::clone(snapshot));
        let client = Arc::new(outer.context.client.awaiting_tasks());
        Self { gateway, snapshot, view: Arc::clone(view), outer, client, largest }
    }

    /// Begins a call of the code.
    ///
    /// # Errors
    /// [`Failure::OverLimit`] if the client may make no more requests, [`Failure::Parse`] if the
    /// arguments are nested deeper than those of a client may be.
    pub(super) async fn begin(&self, asked: &ScriptCall) -> Result<RunningTurn, Failure> {
        let depth = self.snapshot.config.gateway.limits.depth.saturating_sub(LEVELS_ABOVE);
        within_depth(&asked.arguments, depth)
            .map_err(|fault| Failure::Parse(ParseFault::Depth(fault)))?;
        self.gateway.admit_inner_call(&self.snapshot, &self.outer.context).await?;
        let arguments = std::str::from_utf8(&asked.arguments).unwrap_or("{}");
        let request = InnerCallRequest { tool: &asked.tool, arguments };
        let client = Arc::clone(&self.client);
        let call = make_inner_call(&self.outer, client, request, &self.gateway.audit)?;
        let starting = self.gateway.call(Arc::clone(&self.snapshot), call.clone());
        let (view, largest) = (Arc::clone(&self.view), self.largest);
        let course = InnerCourse { id: asked.id, call, view, rounds: 0, largest };
        Ok(Box::pin(course.follow(Arc::clone(&self.gateway), starting)))
    }

    /// Makes a call again with the client's answers.
    ///
    /// # Errors
    /// The client's error, if it sent one in place of an answer.
    pub(super) fn resume(&self, asking: AskingCall) -> Result<RunningTurn, String> {
        let AskingCall { course, mut active, state, responses, .. } = asking;
        let again = course.add_input(Input { state, responses })?;
        let active = active.0.take().ok_or_else(|| Failure::Cancelled.to_string())?;
        let starting = self.gateway.call_again(active, again);
        Ok(Box::pin(course.follow(Arc::clone(&self.gateway), starting)))
    }
}

impl InnerCourse {
    /// Waits until the call is answered or requests input.
    async fn follow(mut self, gateway: Arc<Gateway>, mut starting: StartingCall) -> InnerStep {
        let id = self.id;
        let ended = |answer| InnerStep { id, turn: InnerTurn::Ended(answer) };
        loop {
            let mut active = starting.await;
            let asked = match self.await_turn(&mut active).await {
                Ok(InnerAnswer::Asks(asked)) => asked,
                Ok(InnerAnswer::Value(value)) => return ended(Ok(value)),
                Err(text) => return ended(Err(text)),
            };
            self.rounds += 1;
            let mut active = CallAwaitingClient(Some(active));
            if self.rounds > MAX_INPUT_ROUNDS {
                return ended(Err(format!("it has requested input {MAX_INPUT_ROUNDS} times")));
            }
            let state = asked.state.map(|(state, _)| state);
            if !asked.questions.is_empty() {
                let (questions, open, responses) = (asked.questions, Vec::new(), Vec::new());
                let asking = AskingCall { course: self, active, state, questions, open, responses };
                return InnerStep { id, turn: InnerTurn::Asks(Box::new(asking)) };
            }
            // The server requests no input, only another call after a pause.
            sleep(ROUND_PAUSE * u32::try_from(self.rounds).unwrap_or(u32::MAX)).await;
            let again = self.add_input(Input { state, responses: Vec::new() });
            match (again, active.0.take()) {
                (Ok(again), Some(active)) => starting = gateway.call_again(active, again),
                (Err(text), _) => return ended(Err(text)),
                (_, None) => return ended(Err(Failure::Cancelled.to_string())),
            }
        }
    }

    /// Returns the call's questions, or its result.
    async fn await_turn(&self, active: &mut ActiveCall) -> Result<InnerAnswer, String> {
        let total = AtomicUsize::new(0);
        let limit = self.largest;
        let hold = |bytes| match total.fetch_add(bytes, Ordering::Relaxed) + bytes {
            all if all > limit => Err(InnerCallFault::TooLarge { limit }),
            _ => Ok(()),
        };
        let answer = await_answer(active, hold).await;
        match answer.map_err(|fault| self.explain_fault(fault))? {
            Answer::Error(error) => Err(error.message().to_owned()),
            Answer::Result(result) => {
                let read = work_on(result.raw().len(), move || match result.asked() {
                    Ok(Some(asked)) => Ok(InnerAnswer::Asks(asked)),
                    Ok(None) => {
                        value_for_code(&result).map(|value| InnerAnswer::Value(value.into()))
                    }
                    Err(fault) => Err(fault.to_string()),
                });
                let failed = |_| Failure::from(InternalFault::LargeWork).to_string();
                read.await.map_err(failed)?
            }
        }
    }

    /// Builds the error text that the code receives for a failed call. For invalid arguments it
    /// names the tool and includes its schema.
    fn explain_fault(&self, fault: InnerCallFault) -> String {
        let InnerCallFault::Failed(Failure::InvalidArguments(violations)) = fault else {
            return fault.to_string();
        };
        let name = self.call.params.name().unwrap_or_default();
        let raw = self.view.catalog.listed_tool(name);
        let failure = explain_violations(violations, raw.as_deref().unwrap_or_default());
        format!("{name}: {failure}")
    }

    /// Builds the call with the client's answers.
    fn add_input(&self, input: Input) -> Result<Box<Call>, String> {
        let call = Call::clone(&self.call);
        if call.context.client.version.era() == Era::Legacy {
            return Ok(Box::new(Call { input: Some(input), ..call }));
        }
        let mut responses = Vec::with_capacity(input.responses.len());
        for (key, response) in &input.responses {
            match response {
                Response::Result(raw) => {
                    responses.push((key.as_str(), String::from_utf8_lossy(raw)));
                }
                Response::Error(_) => return Err(input_refused_with(response).to_string()),
            }
        }
        let (responses, state) = (object_of(responses), input.state.as_deref().map(string));
        let raw = lower::with_input(call.params.raw(), &responses, state.as_deref());
        let params = parse_params(raw).map_err(|failure| failure.to_string())?;
        Ok(Box::new(Call { params, ..call }))
    }
}

/// Returns a result's raw value for code. Its text names the content that was left out.
fn value_for_code(result: &ResultBody) -> Result<String, String> {
    let value = value_of(result)?;
    let kinds = left_out_kinds(result);
    let written = serde_json::from_str::<String>(&value).ok().filter(|_| !kinds.is_empty());
    Ok(match written {
        Some(text) if text.is_empty() => string(&format!("(left out: {})", kinds.join(", "))),
        Some(text) => string(&format!("{text}\n(left out: {})", kinds.join(", "))),
        None => value,
    })
}

/// Returns the kinds of a result's content that code does not receive, in order.
fn left_out_kinds(result: &ResultBody) -> Vec<String> {
    #[derive(Deserialize)]
    struct ContentKinds {
        #[serde(default)]
        content: Vec<ContentKind>,
    }
    #[derive(Deserialize)]
    struct ContentKind {
        r#type: String,
    }
    let read = serde_json::from_slice::<ContentKinds>(result.raw());
    let kinds = read.map(|read| read.content).unwrap_or_default().into_iter();
    kinds.map(|kind| kind.r#type).filter(|kind| kind != "text").take(MAX_OMITTED_KINDS).collect()
}

/// Levels of a client's request above the arguments of its tool.
const LEVELS_ABOVE: usize = 2;
/// Limit of the kinds of content that are named as left out.
const MAX_OMITTED_KINDS: usize = 8;
/// Limit of a call's rounds of input.
const MAX_INPUT_ROUNDS: usize = 64;
/// Pause before a call is repeated that requested no input, multiplied by the number of rounds.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
