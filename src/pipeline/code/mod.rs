//! `run_code`: code of a model that calls tools.
//!
//! The code runs in a child process without any other access ([`crate::code_mode`]). Each of its
//! calls is a call of the same client, under the tool's own name, with its own record, rates,
//! checks and permit. Input requests of a server in such a call become questions of the client's
//! call of `run_code`; the inner call continues with the client's answers.

mod inner;

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use tokio::sync::mpsc;
use tokio::time::{Interval, interval_at};

use crate::call::{
    Answer, Call, Event, Failure, Input, InternalFault, MAX_QUESTIONS, MetaTool, ParamsFault,
    Reply, ResultBody, StateError, tool_error,
};
use crate::clock;
use crate::code_mode::{
    RunningScript, ScriptError, ScriptEvent, ScriptLimits, ScriptOutcome, ScriptRequest, ScriptTool,
};
use crate::config::CodeConfig;
use crate::era::state::RequestState;
use crate::jsonrpc::{Id, Response, object_of, string, text};
use crate::pipeline::Gateway;
use crate::pipeline::calls::ActiveCall;
use crate::pipeline::client_view::ClientView;
use crate::pipeline::input::{check_responses, read_input};
use crate::pipeline::meta_tools::checked_arguments;
use crate::pipeline::own_tools::{failed_tool_result, tool_result};
use crate::pipeline::stores::code_budgets::CodeBudget;
use crate::shares::{Holder, Share, ShareBoundError, ShareBounds};
use crate::snapshot::Snapshot;
use crate::telemetry::log::SharedFaultLog;
use crate::text::error_chain;

use inner::{AskingCall, InnerCalls, InnerStep, InnerTurn, RunningTurn};

/// Answers of a client to the questions of a run.
type Inbox = mpsc::Receiver<(Id, Response)>;

/// Starts a call of `run_code`, or resumes one with the client's answers.
pub(super) async fn begin_or_resume(
    gateway: Arc<Gateway>,
    client: ClientView,
    call: Box<Call>,
    mut active: Box<ActiveCall>,
) -> Box<ActiveCall> {
    let reply = match find_parked(&call, &active) {
        Ok(Some((id, input))) => active.resume_own(id, &input).await,
        Ok(None) => checked_arguments(MetaTool::RunCode, &call)
            .and_then(|arguments| reply_of_code(&gateway, &client, call, &arguments)),
        Err(failure) => Err(failure),
    };
    active.mark_sent();
    active.attach_reply(reply.unwrap_or_else(|failure| Reply::ready(Err(failure))));
    active
}

/// Returns the parked call that a retry belongs to, and the client's answers.
fn find_parked(call: &Call, active: &ActiveCall) -> Result<Option<(u64, Input)>, Failure> {
    let Some(input) = read_input(call)? else { return Ok(None) };
    check_responses(&input)?;
    let state = input.state.as_deref().ok_or(StateError::OtherRequest)?;
    match active.asker().open(state)?.state {
        RequestState::Parked(parked) => Ok(Some((parked.number, input))),
        _ => Err(StateError::OtherRequest.into()),
    }
}

/// Returns the reply to a call of `run_code`, with the checked arguments. Dropping it stops the
/// code and cancels its calls.
fn reply_of_code(
    gateway: &Arc<Gateway>,
    client: &ClientView,
    call: Box<Call>,
    arguments: &[u8],
) -> Result<Reply, Failure> {
    #[derive(Deserialize)]
    struct CodeArguments {
        code: String,
    }
    let ClientView { snapshot, view, .. } = client;
    let CodeArguments { code } = serde_json::from_slice(arguments).map_err(|_| NO_CODE)?;
    let holder = Holder::of_context(&call.context);
    let bound = snapshot.config.code.cpu_time_each;
    let budget = gateway.code_budgets.open(holder.clone(), bound, clock::now())?;
    let share = take_share(gateway, snapshot, &holder)?;
    let functions = view.catalog.code_functions().iter();
    let tools =
        functions.map(|it| ScriptTool { name: it.public.clone(), function: it.identifier.clone() });
    let script = ScriptRequest { code, tools: tools.collect() };
    let limits = limits_of(&snapshot.config.code);
    let calls = InnerCalls::new(gateway, client, call, limits.result);
    let gateway = Arc::clone(gateway);
    let (answers, inbox) = mpsc::channel(2 * MAX_QUESTIONS);
    let events = stream! {
        match RunningScript::start(script, limits, gateway.snapshots.guardian()).await {
            Err(error) => yield Event::Answer(explain_refusal(&error)),
            Ok(script) => {
                let mut run = CodeRun::new(script, calls, inbox, (share, budget));
                while let Some(event) = run.next().await {
                    yield event;
                }
            }
        }
    };
    Ok(Reply::stream(events).with_answers(Some(answers)))
}

/// Takes a share of the runs of all clients, and of this one.
fn take_share(gateway: &Gateway, snapshot: &Snapshot, holder: &Holder) -> Result<Share, Failure> {
    let all = snapshot.config.code.runs;
    let bounds = ShareBounds { all, each: snapshot.config.share_of(all) };
    gateway.code_runs.take(holder, 1, bounds).map_err(|reached| Failure::OverLimit {
        limit: match reached {
            ShareBoundError::All => "code_runs".into(),
            ShareBoundError::Each => "code_runs_each".into(),
        },
        retry_after: CODE_RETRY_AFTER,
    })
}

fn limits_of(config: &CodeConfig) -> ScriptLimits {
    ScriptLimits {
        cpu_time: config.cpu_time,
        wall_time: config.time,
        memory: config.memory,
        calls: config.calls,
        parallel: config.parallel,
        printed: config.output,
        returned: config.output,
        ..ScriptLimits::default()
    }
}

/// Reasons that code cannot be run, in the log.
static CODE_FAULTS: SharedFaultLog = SharedFaultLog::new();

/// Returns the answer if the code was not run.
fn explain_refusal(error: &ScriptError) -> Result<Answer, Failure> {
    let text = if let ScriptError::TooLong { .. } = error {
        error.to_string()
    } else {
        let text = format!("code cannot be run: {}", error_chain(error));
        if let Some(line) = CODE_FAULTS.note_about(&text, &text) {
            tracing::warn!("{line}");
        }
        "Code cannot be run at the moment; the log of the gateway has the reason".to_owned()
    };
    let result = ResultBody::parse(tool_error(&text).into()).map_err(InternalFault::Result)?;
    Ok(Answer::Result(result))
}

/// Running code and its calls.
struct CodeRun {
    script: RunningScript,
    calls: InnerCalls,
    /// Calls under way, each until it is answered or requests input.
    turns: FuturesUnordered<RunningTurn>,
    questions: OpenInquiries,
    inbox: Inbox,
    has_ended: bool,
    budget: CodeBudget,
    meter: Interval,
    _share: Share,
}

impl CodeRun {
    fn new(
        script: RunningScript,
        calls: InnerCalls,
        inbox: Inbox,
        allowance: (Share, CodeBudget),
    ) -> Self {
        let (turns, questions) = (FuturesUnordered::new(), OpenInquiries::default());
        let (share, budget) = allowance;
        let meter = interval_at(clock::now() + METER_INTERVAL, METER_INTERVAL);
        let has_ended = false;
        Self { script, calls, turns, questions, inbox, has_ended, budget, meter, _share: share }
    }

    /// Returns the next question to the client, or the answer.
    async fn next(&mut self) -> Option<Event> {
        while !self.has_ended {
            if let Some(question) = self.questions.untold.pop_front() {
                return Some(question);
            }
            tokio::select! {
                _ = self.meter.tick() => {
                    if !self.charge() {
                        self.script.end_over_budget(self.budget.bound());
                    }
                }
                event = self.script.next() => match event {
                    ScriptEvent::Call(call) => match self.calls.begin(&call).await {
                        Ok(turn) => self.turns.push(turn),
                        Err(failure) => self.script.answer(call.id, Err(failure.to_string())),
                    },
                    ScriptEvent::Ended(outcome) => {
                        self.has_ended = true;
                        self.charge();
                        return Some(Event::Answer(result_of(&outcome)));
                    }
                },
                Some(step) = self.turns.next(), if !self.turns.is_empty() => {
                    self.take_step(step);
                }
                Some((id, response)) = self.inbox.recv() => {
                    if let Some(asking) = self.questions.take_response(&id, response) {
                        self.go_on(asking);
                    }
                }
            }
        }
        None
    }

    /// Charges the client for the time so far. Returns false if it has none left.
    fn charge(&mut self) -> bool {
        self.budget.charge(self.script.cpu_time(), clock::now())
    }

    fn take_step(&mut self, step: InnerStep) {
        let InnerStep { id, turn } = step;
        match turn {
            InnerTurn::Ended(answer) => self.script.answer(id, answer),
            InnerTurn::Asks(asking) => self.questions.ask(*asking),
        }
    }

    /// Makes a call again with the client's answers.
    fn go_on(&mut self, asking: AskingCall) {
        let id = asking.id();
        match self.calls.resume(asking) {
            Ok(turn) => self.turns.push(turn),
            Err(text) => self.script.answer(id, Err(text)),
        }
    }
}

/// Charges the client for the run, however it ends.
impl Drop for CodeRun {
    fn drop(&mut self) {
        self.charge();
    }
}

/// Questions of inner calls to the client, pending or queued.
#[derive(Default)]
struct OpenInquiries {
    /// Calls with questions that the client has received.
    asking: Vec<AskingCall>,
    /// Calls with questions that wait until the client has answered others.
    waiting: VecDeque<AskingCall>,
    /// Questions not sent to the client yet.
    untold: VecDeque<Event>,
    /// Number of questions so far.
    asked: u64,
}

impl OpenInquiries {
    fn open_count(&self) -> usize {
        self.asking.iter().map(|call| call.open.len()).sum()
    }

    /// Sends a call's questions to the client as soon as it has room for them.
    fn ask(&mut self, asking: AskingCall) {
        self.waiting.push_back(asking);
        self.fill();
    }

    fn fill(&mut self) {
        while let Some(next) = self.waiting.front() {
            if self.open_count() + next.questions.len() > MAX_QUESTIONS {
                return;
            }
            let Some(mut next) = self.waiting.pop_front() else { return };
            for (key, question) in std::mem::take(&mut next.questions) {
                self.asked += 1;
                let id = Id::number(self.asked);
                next.open.push((id.clone(), key));
                self.untold.push_back(Event::Asks(id, question));
            }
            self.asking.push(next);
        }
    }

    /// Takes an answer. Returns the call if this was its last question.
    fn take_response(&mut self, id: &Id, response: Response) -> Option<AskingCall> {
        let is_open = |call: &AskingCall| call.open.iter().any(|(open, _)| open == id);
        let place = self.asking.iter().position(is_open)?;
        let call = self.asking.get_mut(place)?;
        let at = call.open.iter().position(|(open, _)| open == id)?;
        let (_, key) = call.open.swap_remove(at);
        call.responses.push((key, response));
        let done = call.open.is_empty().then(|| self.asking.swap_remove(place));
        self.fill();
        done
    }
}

/// Returns the result of code that has ended: its output, its return value, and the reason if it
/// ended early.
fn result_of(outcome: &ScriptOutcome) -> Result<Answer, Failure> {
    let mut message = outcome.printed.clone();
    let separate = |message: &mut String| {
        if !message.is_empty() && !message.ends_with('\n') {
            message.push('\n');
        }
    };
    if outcome.is_cut {
        separate(&mut message);
        message.push_str("… (further output was dropped)\n");
    }
    let returned = outcome.returned.as_ref().and_then(|raw| std::str::from_utf8(raw).ok());
    if let Some(returned) = returned {
        separate(&mut message);
        message.push_str(&plain_text(returned));
    }
    let fault = outcome.fault.as_ref().map(ToString::to_string);
    if let Some(fault) = &fault {
        separate(&mut message);
        // A thrown value's text usually begins with the name of its type.
        let is_named = fault.split_once(": ").is_some_and(|(kind, _)| kind.ends_with("Error"));
        let _ = write!(message, "{}{fault}", if is_named { "" } else { "Error: " });
    }
    if message.is_empty() {
        message.push_str(EMPTY_OUTPUT_TEXT);
    }
    let printed = (!outcome.printed.is_empty()).then(|| string(&outcome.printed));
    let members = [
        ("returned", returned.map(str::to_owned)),
        ("printed", printed),
        ("error", fault.as_deref().map(string)),
    ];
    let members = members.into_iter().filter_map(|(name, value)| Some((name, value?.into())));
    let structured = String::from_utf8(object_of(members)).unwrap_or_default();
    let write = if fault.is_some() { failed_tool_result } else { tool_result };
    let result = write(&message, Some(&structured));
    Ok(Answer::Result(ResultBody::parse(result.into()).map_err(InternalFault::Result)?))
}

/// Returns text as it is, and any other value as JSON.
fn plain_text(returned: &str) -> String {
    let raw: Option<&serde_json::value::RawValue> = serde_json::from_str(returned).ok();
    raw.and_then(text).map_or_else(|| returned.to_owned(), std::borrow::Cow::into_owned)
}

/// Fault of arguments that fit their schema but cannot be read.
const NO_CODE: ParamsFault = ParamsFault::Missing { member: "code" };
/// Text for code without output and return value.
const EMPTY_OUTPUT_TEXT: &str = "The code returned and printed nothing: `return` what you need";
/// Interval at which a client is charged for a run. Each run exceeds the bound by this at most.
const METER_INTERVAL: Duration = Duration::from_millis(250);
/// Time after which a run may be tried again.
const CODE_RETRY_AFTER: Duration = Duration::from_secs(1);
