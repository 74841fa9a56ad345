//! Tasks for clients without task support: the gateway waits for the result.
//!
//! Some tools only run as tasks. A Legacy server declares this in its list; a Modern server reports
//! it when called without the extension. A client without support for that form of tasks makes one
//! call, as does code: the gateway creates the task, waits for its result and answers the call with
//! it. Input that the task requests is passed to the client as in any call, and cancelling the call
//! cancels the task.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use async_stream::stream;
use bytes::Bytes;
use futures_util::Stream;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::call::{
    Answer, Call, Event, Failure, MAX_QUESTIONS, Question, Reply, ResultBody, ResultType,
    ServerFault, TaskFault,
};
use crate::clock;
use crate::era::tasks::form::{Task, TaskStatus};
use crate::jsonrpc::{Id, MAX_SERVER_DEPTH, Members, Response, parse_strict};
use crate::mcp::{Method, code, meta};
use crate::pipeline::input::task_at::TaskAt;
use crate::pipeline::input::{input_refused_with, replace_client};
use crate::policy::{CallTarget, Permitted};
use crate::snapshot::Snapshot;

/// Sends a call of a tool that only runs as a task (Legacy), with params that request one.
pub(crate) async fn await_legacy_task(
    snapshot: &Arc<Snapshot>,
    permitted: Permitted<Call>,
) -> Result<Reply, Failure> {
    start_task(snapshot, permitted, TaskStage::Creating).await
}

/// Sends a call to a server that may require task support (Modern): if it does,
/// the call is made again with the capability declared.
pub(crate) async fn await_modern_task(
    snapshot: &Arc<Snapshot>,
    permitted: Permitted<Call>,
) -> Result<Reply, Failure> {
    let again = Box::new((permitted.get().clone(), permitted.target().clone()));
    start_task(snapshot, permitted, TaskStage::Calling(again)).await
}

async fn start_task(
    snapshot: &Arc<Snapshot>,
    mut permitted: Permitted<Call>,
    stage: TaskStage,
) -> Result<Reply, Failure> {
    // The task keeps its call's slot, however many requests it takes.
    let slot = permitted.take_slot();
    let at = TaskAt::for_new_task(snapshot, &permitted).await?;
    let reply = at.create_task(permitted).await?;
    let (says, answers) = mpsc::channel(MAX_QUESTIONS);
    let driven =
        DrivenTask { snapshot: Arc::clone(snapshot), at, reply, answers, stage, task: None };
    Ok(Reply::stream(driven.events()).with_answers(Some(says)).with_slot(slot))
}

/// A call that runs as a task.
struct DrivenTask {
    snapshot: Arc<Snapshot>,
    at: TaskAt,
    /// The reply being awaited.
    reply: Reply,
    /// The client's answers to input requests.
    answers: mpsc::Receiver<(Id, Response)>,
    stage: TaskStage,
    /// The task, once there is one.
    task: Option<AwaitedTask>,
}

/// Stages of a call that runs as a task.
enum TaskStage {
    /// Sent without task support; holds the call for another attempt.
    Calling(Box<(Call, CallTarget)>),
    /// Sent with task support.
    Creating,
    /// Waiting for `tasks/result` (Legacy).
    Waiting,
    /// Polling `tasks/get` (Modern).
    Polling(Polling),
}

/// A task that is awaited. Dropping it before the task has ended cancels the task.
struct AwaitedTask(Option<TaskAt>);

impl Drop for AwaitedTask {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.cancel_task();
        }
    }
}

impl DrivenTask {
    fn events(mut self) -> impl Stream<Item = Event> + Send {
        stream! {
            let last = loop {
                let event = if let TaskStage::Polling(polling) = &mut self.stage {
                    match polling.next(&self.at, &mut self.answers).await {
                        ControlFlow::Continue(event) => {
                            if let Some(event) = event {
                                yield event;
                            }
                            continue;
                        }
                        ControlFlow::Break(ended) => break Event::Answer(ended),
                    }
                } else {
                    tokio::select! {
                        Some((id, response)) = self.answers.recv() => {
                            self.reply.answer_question(id, response);
                            continue;
                        }
                        event = self.reply.next() => event,
                    }
                };
                match event {
                    Some(Event::Answer(Ok(answer))) => match self.handle_answer(answer).await {
                        Ok(None) => {}
                        Ok(Some(answer)) => break Event::Answer(Ok(answer)),
                        Err(failure) => break Event::Answer(Err(failure)),
                    },
                    Some(event) if event.is_last() => break event,
                    Some(event) => yield event,
                    None => return,
                }
            };
            if !matches!(last, Event::Answer(Err(_))) {
                self.mark_ended();
            }
            drop(self);
            yield last;
        }
    }

    /// Marks the task as ended, so that dropping it does not cancel it.
    fn mark_ended(&mut self) {
        if let Some(AwaitedTask(task)) = &mut self.task {
            task.take();
        }
    }

    /// Advances to the next stage after an answer; returns the answer if it is
    /// the final one.
    async fn handle_answer(&mut self, answer: Answer) -> Result<Option<Answer>, Failure> {
        match (&self.stage, &answer) {
            (TaskStage::Calling(again), Answer::Error(error))
                if error.code() == code::MISSING_CAPABILITY && needs_tasks(error.raw()) =>
            {
                let (call, target) = (**again).clone();
                self.call_again(call, target).await?;
                Ok(None)
            }
            (TaskStage::Creating, Answer::Result(result)) if *result.kind() == ResultType::Task => {
                let task = Task::parse(result.raw());
                let task = task.ok_or_else(|| self.at.bad_task(TaskFault::Malformed))?;
                let polling = Polling::new(&task, self.at.patience()?);
                self.task_created(task.id);
                self.stage = TaskStage::Polling(polling);
                Ok(None)
            }
            (TaskStage::Creating, Answer::Result(result)) => {
                let Some(task) = Task::created(result.raw()) else { return Ok(Some(answer)) };
                self.task_created(task.id);
                self.reply = self.at.request_outcome().await?;
                self.stage = TaskStage::Waiting;
                Ok(None)
            }
            _ => Ok(Some(answer)),
        }
    }

    fn task_created(&mut self, id: String) {
        self.at.native = id;
        self.task = Some(AwaitedTask(Some(self.at.clone())));
    }

    /// Makes the call again with task support.
    async fn call_again(&mut self, mut call: Call, target: CallTarget) -> Result<(), Failure> {
        let client = Arc::new(call.context.client.with_tasks());
        replace_client(&mut call, client)?;
        let permitted = self.snapshot.policy.readmit(Box::new(call), target);
        self.at = TaskAt::for_new_task(&self.snapshot, &permitted).await?;
        self.reply = self.at.create_task(permitted).await?;
        self.stage = TaskStage::Creating;
        Ok(())
    }
}

/// Returns true if an error names task support as the only missing capability.
fn needs_tasks(error: &[u8]) -> bool {
    let error = parse_strict(error, MAX_SERVER_DEPTH).unwrap_or_default();
    let lone = |value: &Value| value.as_object().is_some_and(|all| all.len() == 1);
    let needed = error.pointer("/data/requiredCapabilities").filter(|needed| lone(needed));
    let extensions = needed.and_then(|needed| needed.get("extensions")).filter(|all| lone(all));
    extensions.is_some_and(|all| all.get(meta::TASKS).is_some())
}

/// A Modern task that is polled.
struct Polling {
    /// Time of the next poll.
    next: Instant,
    every: Duration,
    /// The deadline of the task. Time spent waiting for the client does not
    /// count.
    until: Instant,
    /// Pending input requests: number and key.
    open: Vec<(u64, String)>,
    /// Time at which the first pending input request was sent.
    asking: Option<Instant>,
    /// Every key that was sent to the client.
    asked: HashSet<String>,
    /// Input requests not sent to the client yet.
    untold: VecDeque<(u64, Question)>,
    patience: Duration,
}

type TaskEnd = Result<Answer, Failure>;

impl Polling {
    fn new(task: &Task<'_>, patience: Duration) -> Self {
        let every = poll_interval(task);
        let now = clock::now();
        Self {
            next: now + every,
            every,
            until: now + patience,
            open: Vec::new(),
            asking: None,
            asked: HashSet::new(),
            untold: VecDeque::new(),
            patience,
        }
    }

    /// Waits for the next answer of the client or the next poll; returns an
    /// event, if there is one.
    async fn next(
        &mut self,
        at: &TaskAt,
        answers: &mut mpsc::Receiver<(Id, Response)>,
    ) -> ControlFlow<TaskEnd, Option<Event>> {
        if let Some((number, question)) = self.untold.pop_front() {
            return ControlFlow::Continue(Some(Event::Asks(Id::number(number), question)));
        }
        if self.open.is_empty() && clock::now() >= self.until {
            let (server, after) = (at.server.clone(), self.patience);
            return ControlFlow::Break(Err(Failure::ServerTimeout { server, after }));
        }
        tokio::select! {
            Some((id, response)) = answers.recv() => {
                if let Err(failure) = self.answered(at, &id, response).await {
                    return ControlFlow::Break(Err(failure));
                }
            }
            () = sleep_until(self.next) => {
                let answer = at.request_answer(Method::TasksGet).await;
                self.next = clock::now() + self.every;
                match answer {
                    Ok(answer) => self.look(at, answer)?,
                    Err(failure) => return ControlFlow::Break(Err(failure)),
                }
            }
        }
        ControlFlow::Continue(None)
    }

    fn look(&mut self, at: &TaskAt, answer: Answer) -> ControlFlow<TaskEnd> {
        let Answer::Result(result) = answer else { return ControlFlow::Break(Ok(answer)) };
        let raw = result.raw();
        let Some(task) = Task::parse(raw) else {
            return ControlFlow::Break(Err(at.bad_task(TaskFault::Malformed)));
        };
        self.every = poll_interval(&task);
        match task.status {
            TaskStatus::Working => ControlFlow::Continue(()),
            TaskStatus::InputRequired => {
                self.ask(&task, raw);
                ControlFlow::Continue(())
            }
            TaskStatus::Completed | TaskStatus::Failed | TaskStatus::Cancelled => {
                ControlFlow::Break(came_of(at, &task, &result))
            }
        }
    }

    /// Queues the input requests of a task that the client has not received yet. Requests beyond
    /// the limits are queued after a later poll.
    fn ask(&mut self, task: &Task<'_>, raw: &Bytes) {
        let requests = task.find("inputRequests").map(|raw| raw.get().as_bytes());
        let requests = requests.and_then(|raw| Members::parse(raw).ok());
        for (key, request) in requests.map(|requests| requests.0).unwrap_or_default() {
            let room = self.open.len() < MAX_QUESTIONS && self.asked.len() < MAX_TASK_INPUTS;
            let Ok(question) = Question::read(raw, request) else { continue };
            let waiting: usize = self.untold.iter().map(|(_, question)| question.size()).sum();
            let fits = waiting == 0 || waiting + question.size() <= MAX_WAITING_INPUT_BYTES;
            if room && fits && self.asked.insert(key.to_string()) {
                let number = u64::try_from(self.asked.len()).unwrap_or(u64::MAX);
                self.open.push((number, key.into_owned()));
                self.untold.push_back((number, question.detach()));
                self.asking.get_or_insert_with(clock::now);
            }
        }
    }

    /// Passes the client's answer to the server.
    async fn answered(&mut self, at: &TaskAt, id: &Id, said: Response) -> Result<(), Failure> {
        let number = id.as_number();
        let found = self.open.iter().position(|(open, _)| Some(*open) == number);
        let Some(place) = found else { return Ok(()) };
        let (_, key) = self.open.swap_remove(place);
        let Response::Result(raw) = &said else { return Err(input_refused_with(&said)) };
        let value: Value = serde_json::from_slice(raw).unwrap_or_default();
        let responses = Map::from_iter([("inputResponses".to_owned(), json!({ key: value }))]);
        at.ask_with(Method::TasksUpdate, responses).await?;
        if self.open.is_empty()
            && let Some(asking) = self.asking.take()
        {
            self.until += asking.elapsed();
        }
        Ok(())
    }
}

/// Returns the outcome of a task that has ended.
fn came_of(at: &TaskAt, task: &Task<'_>, told: &ResultBody) -> TaskEnd {
    let raw = told.raw();
    let member = |key: &str| task.find(key).map(|part| raw.slice_ref(part.get().as_bytes()));
    let ended = match task.status {
        TaskStatus::Failed => member("error").map(|raw| Response::Error(raw.into())),
        TaskStatus::Cancelled => return Err(at.bad_task(TaskFault::Cancelled)),
        _ => member("result").map(|raw| Response::Result(raw.into())),
    };
    let ended = ended.ok_or_else(|| at.bad_task(TaskFault::NoOutcome))?;
    let answer = Answer::parse(ended).map_err(|fault| at.bad_answer(ServerFault::Answer(fault)))?;
    Ok(match told.sender() {
        Some(info) => answer.sent_by(info),
        None => answer,
    })
}

/// Returns the polling interval: the server's choice, within bounds.
fn poll_interval(task: &Task<'_>) -> Duration {
    task.poll.unwrap_or(DEFAULT_POLL_INTERVAL).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

const DEFAULT_POLL_INTERVAL: Duration = Duration::from_millis(500);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Limit of the input requests of one task.
const MAX_TASK_INPUTS: usize = 256;
/// Limit of the bytes of input requests that wait for the client.
const MAX_WAITING_INPUT_BYTES: usize = 8 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_made_again_only_if_nothing_but_task_support_is_missing() {
        let tasks = r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#;
        for (needed, is_so) in [
            (tasks.to_owned(), true),
            (format!(r#"{tasks},"roots":{{}}"#), false),
            (format!(r#""extensions":{{"a/b":{{}}}},{tasks}"#), false),
            (String::new(), false),
        ] {
            let error = format!(r#"{{"data":{{"requiredCapabilities":{{{needed}}}}}}}"#);
            assert_eq!(needs_tasks(error.as_bytes()), is_so, "{error}");
        }
    }

    #[test]
    fn large_input_requests_wait_up_to_a_sum_of_bytes() {
        let message = "x".repeat(3 << 20);
        let request = json!({ "method": "elicitation/create", "params": { "message": message } });
        let task = json!({
            "taskId": "t", "status": "input_required",
            "inputRequests": { "a": request, "b": request, "c": request },
        });
        let raw = Bytes::from(task.to_string());
        let task = Task::parse(&raw).unwrap();
        let mut polling = Polling::new(&task, DEFAULT_POLL_INTERVAL);
        polling.ask(&task, &raw);
        assert_eq!(polling.untold.len(), 2, "9 MiB do not fit");
        polling.untold.clear();
        polling.ask(&task, &raw);
        assert_eq!(polling.untold.len(), 1, "the third is asked after the others");
    }
}
