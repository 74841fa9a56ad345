//! The parent's side of a script: the child process, its messages, and its end.

use std::collections::{HashSet, VecDeque};
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::process::Signal;
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStdin, ChildStdout};
use tokio::time::{Instant, sleep_until, timeout};

use trunkline_core::clock;
use trunkline_core::codec::lines::{LineError, LineReader};
use trunkline_core::text::clip;
use trunkline_protocol::call::ServerName;

use super::fault::ProtocolError;
use super::messages::{
    AnswerMessage, CallAnswer, CallMessage, EndMessage, MAX_PIECE, WorkerMessage,
    longest_from_worker, write_line,
};
use super::{ScriptError, ScriptFault, ScriptLimits, ScriptRequest};
use crate::child::{Child, Guardian};

/// A tool call of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptCall {
    /// Id for the answer.
    pub id: u64,
    /// The public name of the tool.
    pub tool: String,
    /// A JSON object of at most [`ScriptLimits::arguments`] bytes. It is as untrusted as the
    /// arguments of a client.
    pub arguments: Bytes,
}

/// Event of a running script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ScriptEvent {
    /// The script calls a tool, and waits for [`RunningScript::answer`].
    Call(ScriptCall),
    /// The script has ended.
    Ended(ScriptOutcome),
}

/// Outcome of a script.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ScriptOutcome {
    /// Text printed until the end, normal or not.
    pub printed: String,
    /// True if the script printed more than [`ScriptLimits::printed`].
    pub is_cut: bool,
    /// The returned value as JSON; `None` for `undefined`.
    pub returned: Option<Bytes>,
    /// Reason of an abnormal end.
    pub fault: Option<ScriptFault>,
    /// Tool calls that reached the parent.
    pub calls: usize,
}

/// A script that runs in a child process of its own.
///
/// Dropping it kills the child at once. Only the child makes progress unless [`next`](Self::next)
/// is polled.
#[derive(Debug)]
pub struct RunningScript {
    /// `None` after the end.
    child: Option<RunningChild>,
    limits: ScriptLimits,
    /// Public names, in the order of the script's tools.
    tools: Vec<String>,
    deadline: Instant,
    pending: HashSet<u64>,
    outcome: ScriptOutcome,
    /// Processor time of the child at its end.
    final_cpu_time: Duration,
}

struct RunningChild {
    process: Child,
    stdin: ChildStdin,
    lines: LineReader<ChildStdout>,
    /// Lines to write: the script, and at most one for each pending call.
    outgoing: VecDeque<Bytes>,
}

impl fmt::Debug for RunningChild {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.outgoing.len();
        f.debug_struct("RunningChild")
            .field("process", &self.process)
            .field("outgoing", &waiting)
            .finish_non_exhaustive()
    }
}

/// Next step of a child.
enum Step {
    Message(WorkerMessage),
    /// The child has closed its output.
    Ended,
    Violation(ProtocolError),
}

impl RunningScript {
    /// Starts a child, and sends it the script once it has confined itself.
    ///
    /// # Errors
    /// [`ScriptError`]: the code is too long, or the system cannot start or confine the child.
    ///
    /// # Cancel safety
    /// The child is killed.
    pub async fn start(
        script: ScriptRequest,
        limits: ScriptLimits,
        guardian: &Guardian,
    ) -> Result<Self, ScriptError> {
        if !cfg!(target_os = "linux") {
            return Err(ScriptError::System);
        }
        let (size, limit) = (script.code.len(), limits.code);
        if size > limit {
            return Err(ScriptError::TooLong { size, limit });
        }
        let deadline = clock::now() + limits.wall_time;
        let mut child = RunningChild::spawn(&limits, guardian)?;
        let Ok(ready) = timeout(CONFINEMENT_TIMEOUT, child.next()).await else {
            return Err(ScriptError::Late { limit: CONFINEMENT_TIMEOUT });
        };
        let Step::Message(WorkerMessage::Ready) = ready else {
            let _ended = timeout(EXIT_TIMEOUT, child.process.exited()).await;
            return Err(ScriptError::Refused { last_words: child.process.last_words().join("; ") });
        };
        child.outgoing.extend(write_line(&script));
        let tools = script.tools.into_iter().map(|tool| tool.name).collect();
        let (pending, outcome) = (HashSet::new(), ScriptOutcome::default());
        let final_cpu_time = Duration::ZERO;
        Ok(Self { child: Some(child), limits, tools, deadline, pending, outcome, final_cpu_time })
    }

    /// Returns the next call, or the end. After the end it returns the same outcome again.
    ///
    /// # Cancel safety
    /// Safe: no event is lost.
    pub async fn next(&mut self) -> ScriptEvent {
        while let Some(child) = &mut self.child {
            let step = tokio::select! {
                biased;
                () = sleep_until(self.deadline) => {
                    self.end_with(ScriptFault::WallTime { limit: self.limits.wall_time });
                    break;
                }
                step = child.next() => step,
            };
            match self.take_step(step).await {
                Ok(Some(call)) => return ScriptEvent::Call(call),
                Ok(None) => {}
                Err(violation) => self.end_with(ScriptFault::Violation(violation)),
            }
        }
        ScriptEvent::Ended(self.outcome.clone())
    }

    /// Answers a call with a JSON value or an error message. Ignores an answer without a pending
    /// call.
    ///
    /// The call is rejected if the answer is larger than [`ScriptLimits::result`] or not JSON.
    pub fn answer(&mut self, id: u64, answer: Result<Bytes, String>) {
        let Some(child) = &mut self.child else { return };
        if !self.pending.remove(&id) {
            return;
        }
        let answer = answer.and_then(|value| read_value(&value, self.limits.result));
        let answer = match answer {
            Ok(value) => CallAnswer::Value(value),
            Err(text) => CallAnswer::Error(clip(&text, MAX_PIECE).to_owned()),
        };
        child.outgoing.extend(write_line(&AnswerMessage { id, answer }));
    }

    /// Returns the child's processor time, including its start. It is accurate to a few
    /// milliseconds while the child runs.
    pub fn cpu_time(&self) -> Duration {
        self.child.as_ref().map_or(self.final_cpu_time, |child| read_cpu_time(child.process.id()))
    }

    /// Ends the script, because the runs of its client have exhausted their time budget.
    pub fn end_over_budget(&mut self, limit: Duration) {
        if self.child.is_some() {
            self.end_with(ScriptFault::CpuBudget { limit });
        }
    }

    /// Returns the process id of the child; `None` after its end.
    pub fn process_id(&self) -> Option<i32> {
        self.child.as_ref().map(|child| child.process.id())
    }

    async fn take_step(&mut self, step: Step) -> Result<Option<ScriptCall>, ProtocolError> {
        match step {
            Step::Message(WorkerMessage::Ready) => return Err(ProtocolError::Malformed),
            Step::Message(WorkerMessage::Call(call)) => return self.take_call(call).map(Some),
            Step::Message(WorkerMessage::Printed(text)) => {
                self.outcome.printed.push_str(&text);
                if self.outcome.printed.len() > self.limits.printed {
                    let kept = clip(&self.outcome.printed, self.limits.printed).len();
                    self.outcome.printed.truncate(kept);
                    self.outcome.is_cut = true;
                    return Err(ProtocolError::Printed);
                }
            }
            Step::Message(WorkerMessage::Cut) => self.outcome.is_cut = true,
            Step::Message(WorkerMessage::Ended(EndMessage { returned, fault })) => {
                let returned =
                    returned.map(|value| Bytes::from(String::from(Box::<str>::from(value))));
                if returned.as_ref().is_some_and(|value| value.len() > self.limits.returned) {
                    return Err(ProtocolError::Length);
                }
                self.outcome.returned = returned;
                self.outcome.fault = fault;
                self.release_child();
            }
            Step::Ended => {
                let fault = self.find_cause().await;
                self.end_with(fault);
            }
            Step::Violation(violation) => return Err(violation),
        }
        Ok(None)
    }

    fn take_call(&mut self, call: CallMessage) -> Result<ScriptCall, ProtocolError> {
        let CallMessage { id, tool, arguments } = call;
        let arguments = Bytes::from(String::from(Box::<str>::from(arguments)));
        let tool = self.tools.get(tool).ok_or(ProtocolError::Call)?.clone();
        if !arguments.starts_with(b"{") {
            return Err(ProtocolError::Malformed);
        }
        if arguments.len() > self.limits.arguments {
            return Err(ProtocolError::Length);
        }
        if self.outcome.calls >= self.limits.calls
            || self.pending.len() >= self.limits.parallel.max(1)
        {
            return Err(ProtocolError::Calls);
        }
        if !self.pending.insert(id) {
            return Err(ProtocolError::Call);
        }
        self.outcome.calls += 1;
        Ok(ScriptCall { id, tool, arguments })
    }

    /// Kills the child.
    fn end_with(&mut self, fault: ScriptFault) {
        self.outcome.fault = Some(fault);
        self.release_child();
    }

    /// Kills the child, if it still runs.
    fn release_child(&mut self) {
        self.final_cpu_time = self.cpu_time().max(self.final_cpu_time);
        self.child = None;
    }

    /// Returns the fault of a child that ended without reporting its end.
    async fn find_cause(&mut self) -> ScriptFault {
        // Read now: later the id may belong to another process.
        self.final_cpu_time = self.cpu_time();
        let Some(child) = &mut self.child else { return ScriptFault::Died };
        let Ok(status) = timeout(EXIT_TIMEOUT, child.process.exited()).await else {
            return ScriptFault::Died;
        };
        let words = child.process.last_words();
        tracing::debug!(
            target: "trunkline::code_mode::runner",
            ?status,
            ?words,
            "a process that runs code has died"
        );
        cause_of_death(status, &words, &self.limits)
    }
}

fn cause_of_death(status: ExitStatus, words: &[String], limits: &ScriptLimits) -> ScriptFault {
    let Some(signal) = status.signal() else { return ScriptFault::Died };
    match signal {
        signal if signal == Signal::XCPU.as_raw() => {
            ScriptFault::CpuTime { limit: limits.cpu_time }
        }
        signal if signal == Signal::SYS.as_raw() => ScriptFault::ForbiddenCall,
        // Text of the standard library before it aborts.
        _ if words.iter().any(|line| line.starts_with("memory allocation of")) => {
            ScriptFault::Memory { limit: limits.memory }
        }
        signal => ScriptFault::Signal { signal },
    }
}

/// Returns the processor time of a single-threaded process that has not been reaped. Zero where the
/// system does not provide it.
fn read_cpu_time(process: i32) -> Duration {
    let read = std::fs::read_to_string(format!("/proc/{process}/schedstat")).unwrap_or_default();
    let spent = read.split_whitespace().next().and_then(|nanoseconds| nanoseconds.parse().ok());
    spent.map_or(Duration::ZERO, Duration::from_nanos)
}

/// Returns a value in the child's format: JSON on one line.
fn read_value(value: &Bytes, limit: usize) -> Result<Box<serde_json::value::RawValue>, String> {
    if value.len() > limit {
        let size = value.len();
        return Err(format!(
            "the result of the tool has {size} bytes, at most {limit} are allowed"
        ));
    }
    // In JSON, a line end is never within a string.
    let is_line_end = |byte: &u8| matches!(byte, b'\n' | b'\r');
    let parsed = if value.iter().any(is_line_end) {
        let line: Vec<u8> =
            value.iter().map(|byte| if is_line_end(byte) { b' ' } else { *byte }).collect();
        serde_json::from_slice(&line)
    } else {
        serde_json::from_slice(value)
    };
    parsed.map_err(|_| "the result of the tool is not JSON".to_owned())
}

impl RunningChild {
    fn spawn(limits: &ScriptLimits, guardian: &Guardian) -> Result<Self, ScriptError> {
        let unusable = |cause: String| ScriptError::Refused { last_words: cause };
        let label = ServerName::new(CHILD_LABEL).map_err(|error| unusable(error.to_string()))?;
        let json = serde_json::to_string(limits).map_err(|error| unusable(error.to_string()))?;
        let args = ["run-code", "--limits", &json];
        let (process, stdin, stdout) = Child::spawn_own(&label, &args, guardian)?;
        let lines = LineReader::new(stdout, longest_from_worker(limits));
        Ok(Self { process, stdin, lines, outgoing: VecDeque::new() })
    }

    /// Returns the next message, and meanwhile writes the pending lines.
    ///
    /// Both run at once, because a child that cannot write does not read.
    ///
    /// # Cancel safety
    /// Safe.
    async fn next(&mut self) -> Step {
        loop {
            let line = tokio::select! {
                biased;
                line = self.lines.next() => line,
                written = write_first(&mut self.stdin, &mut self.outgoing),
                    if !self.outgoing.is_empty() =>
                {
                    if written.is_err() {
                        // The child has exited; the reason comes from the other pipe.
                        self.outgoing.clear();
                    }
                    continue;
                }
            };
            return match line {
                Ok(Some(line)) => match serde_json::from_slice(&line) {
                    Ok(message) => Step::Message(message),
                    Err(_) => Step::Violation(ProtocolError::Malformed),
                },
                Ok(None) | Err(LineError::Io(_)) => Step::Ended,
                Err(LineError::TooLong { .. }) => Step::Violation(ProtocolError::Length),
            };
        }
    }
}

/// Writes a part of the first line, and removes the line once it is complete. Cancel safe.
async fn write_first(stdin: &mut ChildStdin, lines: &mut VecDeque<Bytes>) -> std::io::Result<()> {
    let Some(line) = lines.front_mut() else { return Ok(()) };
    stdin.write_buf(line).await?;
    if !line.has_remaining() {
        lines.pop_front();
    }
    Ok(())
}

/// Name of the children in the log.
const CHILD_LABEL: &str = "run-code";
/// Time limit for the child's confinement.
const CONFINEMENT_TIMEOUT: Duration = Duration::from_secs(20);
/// Time limit for the child's exit, once it has closed its output.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
