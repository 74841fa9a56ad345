//! Tests of a server for an operator: a second start apart from the running one, a list of its
//! elements and, if requested, a call of one tool. Nothing of it reaches clients.
//!
//! It differs from a restart, whose server takes over, and from `explain`, which makes no call.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use tokio::time::{Instant, timeout};

use crate::call::{
    Answer, Call, Context, Endpoint, Event, Failure, Params, Principal, Reply, ServerName,
};
use crate::catalog::{Kind, ServerList};
use crate::clock;
use crate::config::{Config, ServerConfig, StartChoice};
use crate::jsonrpc::{WrittenObject, string};
use crate::mcp::Method;
use crate::policy::{CallTarget, LimitRegistry, Policy};
use crate::text::{clip, escape_controls, one_line};
use crate::upstream::{LifeState, Server, ServerOverview};

use super::operations::find_config;
use super::{ServerActionError, Snapshots};

/// The tool that a test calls.
#[derive(Debug, Clone)]
pub struct TestedCall {
    /// Its native name.
    pub tool: String,
    /// Its arguments.
    pub arguments: WrittenObject,
}

/// The outcome of a test.
#[derive(Debug, Clone, Serialize, JsonSchema)]
pub struct TrialReport {
    /// The server.
    pub server: String,
    /// The instance that was tested.
    pub instance: TrialInstance,
    /// The reason that it is the running one; `None` for one of its own.
    pub note: Option<&'static str>,
    /// True if every step has passed.
    pub has_passed: bool,
    /// The steps, up to the first that has failed.
    pub steps: Vec<TrialStep>,
    /// The result of the tool as JSON, at most 64 KiB of it.
    pub result: Option<String>,
    /// The last lines that its process wrote to standard error.
    pub output: Vec<String>,
}

/// Instances that are tested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum TrialInstance {
    /// One of its own, which has ended since.
    Apart,
    /// The running one.
    Running,
}

/// A step of a test.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct TrialStep {
    /// `start`, `list` or `call`.
    pub step: &'static str,
    /// True if it has passed.
    pub has_passed: bool,
    /// Its time, in milliseconds.
    pub millis: u64,
    /// The outcome in a sentence.
    pub text: String,
}

/// A test in progress.
struct Trial<'a> {
    config: &'a Arc<ServerConfig>,
    /// The configuration with this server only, for the limits of a call.
    limits: Config,
    server: &'a Arc<Server>,
    report: TrialReport,
}

impl Snapshots {
    /// Tests a server: starts it apart from the running one, lists it, and calls a tool if requested.
    /// A server with OAuth is tested as it runs. Takes at most about two minutes.
    ///
    /// # Errors
    /// [`ServerActionError`].
    pub async fn test_server(
        &self,
        name: &ServerName,
        call: Option<&TestedCall>,
    ) -> Result<TrialReport, ServerActionError> {
        // One at a time: each may start a process.
        let _turn = self.testing.lock().await;
        let snapshot = self.load_full();
        let config = Arc::clone(find_config(&snapshot, name)?);
        // Nothing starts a disabled server.
        if snapshot.disabled.find(name).is_some() {
            return Err(ServerActionError::Disabled);
        }
        let running = Arc::clone(&snapshot.config);
        let server = snapshot.server(name).map(|member| Arc::clone(&member.server));
        // Holding the snapshot would keep servers that are removed meanwhile from being stopped.
        drop(snapshot);
        if config.oauth().is_some() {
            let server = server.ok_or(ServerActionError::Disabled)?;
            let mut trial = Trial::new(&config, &server, TrialInstance::Running, &running);
            trial.use_running(call).await;
            return Ok(trial.report);
        }
        let surroundings = self.surroundings.for_trial();
        // Its processes end with the test, also if that breaks off.
        let _end = surroundings.stop.clone().drop_guard();
        let eager = ServerConfig { start: StartChoice::Eager, ..ServerConfig::clone(&config) };
        let begun = clock::now();
        let server = Server::start(Arc::new(eager), &surroundings);
        let mut trial = Trial::new(&config, &server, TrialInstance::Apart, &running);
        trial.use_own(begun, call).await;
        let (lines, _) = surroundings.journals.of(name).output().lines();
        trial.report.output =
            lines.into_iter().rev().take(MAX_TRIAL_LINES).map(|it| it.text).collect();
        trial.report.output.reverse();
        Ok(trial.report)
    }
}

impl<'a> Trial<'a> {
    fn new(
        config: &'a Arc<ServerConfig>,
        server: &'a Arc<Server>,
        instance: TrialInstance,
        running: &Config,
    ) -> Self {
        let note = match instance {
            TrialInstance::Apart => None,
            TrialInstance::Running => Some(RUNNING_NOTE),
        };
        let report = TrialReport {
            server: config.name.to_string(),
            instance,
            note,
            has_passed: true,
            steps: Vec::new(),
            result: None,
            output: Vec::new(),
        };
        let servers = vec![Arc::clone(config)];
        let limits = Config { servers, ..Config::clone(running) };
        Self { config, limits, server, report }
    }

    /// Adds a step. Returns true if it has passed.
    fn add(&mut self, step: &'static str, took: Duration, outcome: Result<String, String>) -> bool {
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        let has_passed = outcome.is_ok();
        let (Ok(text) | Err(text)) = outcome;
        let text = one_line(&self.config.secrets.hide_in(&text), MAX_TRIAL_TEXT_CHARS);
        let text = escape_controls(&text);
        self.report.has_passed &= has_passed;
        self.report.steps.push(TrialStep { step, has_passed, millis, text });
        has_passed
    }

    /// Tests a server that was started for the test.
    async fn use_own(&mut self, begun: Instant, call: Option<&TestedCall>) {
        let _ = timeout(MAX_TRIAL_START, self.server.settled()).await;
        let (view, now) = (self.server.view(), clock::now());
        let Some(opened) = view.opened_at else {
            self.add("start", now - begun, Err(describe_fault(&view)));
            return;
        };
        self.add("start", opened.saturating_duration_since(begun), Ok(describe_peer(&view)));
        let listed = view.listed_at.unwrap_or(now).saturating_duration_since(opened);
        let outcome = match view.state {
            LifeState::Ready => Ok(describe_list(self.server)),
            _ => Err(describe_fault(&view)),
        };
        if self.add("list", listed, outcome) {
            self.call_tool(call).await;
        }
    }

    /// Tests the running server.
    async fn use_running(&mut self, call: Option<&TestedCall>) {
        let view = self.server.view();
        let outcome = match view.state {
            LifeState::Ready => Ok(describe_peer(&view)),
            LifeState::Idle => Ok("it is idle, and started by the list".to_owned()),
            _ => Err(describe_fault(&view)),
        };
        if !self.add("start", Duration::ZERO, outcome) {
            return;
        }
        let begun = clock::now();
        let listed = timeout(MAX_TRIAL_START, self.server.refresh(None)).await;
        let outcome = match listed {
            Ok(Ok(_)) => Ok(describe_list(self.server)),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("it did not list within {MAX_TRIAL_START:?}")),
        };
        if self.add("list", clock::now() - begun, outcome) {
            self.call_tool(call).await;
        }
    }

    async fn call_tool(&mut self, call: Option<&TestedCall>) {
        let Some(call) = call else { return };
        let begun = clock::now();
        let limit = self.config.timeout.min(MAX_TRIAL_CALL);
        let called = timeout(limit, self.answer_of(call)).await;
        let late = |_| Err(format!("the tool did not answer within {limit:?}"));
        let outcome = match called.unwrap_or_else(late) {
            Ok(answer) => self.note_answer(&answer),
            Err(fault) => Err(fault),
        };
        self.add("call", clock::now() - begun, outcome);
    }

    /// Calls a tool with the gateway's own account. Its limits and the schema of its arguments apply,
    /// but no profile and no rule: there is no client.
    async fn answer_of(&self, call: &TestedCall) -> Result<Answer, String> {
        let name = &call.tool;
        if !self.config.tools.admits_tool(name) {
            return Err(format!("the configuration hides the tool {name:?}"));
        }
        let list = self.server.list();
        let found = list.iter().flat_map(|list| &list.tools).find(|it| it.native.as_str() == name);
        let tool = found.ok_or_else(|| format!("the server has no tool {name:?}"))?;
        let arguments = call.arguments.get();
        let params = format!("{{\"name\":{},\"arguments\":{arguments}}}", string(name));
        let params = Params::parse(Some(Bytes::from(params))).map_err(|fault| fault.to_string())?;
        let context = Context::assumed(Principal::Anonymous, None, Endpoint::default());
        let sent = Box::new(Call { method: Method::ToolsCall, params, context, input: None });
        let policy = Policy::new(LimitRegistry::default().limits(&self.limits));
        let target = CallTarget::tool(&self.config.name, tool, Box::default());
        let told = |failure: Failure| failure.to_string();
        let permitted = policy.admit(sent, target).await.map_err(told)?;
        let reply = self.server.call(permitted, self.config).await.map_err(told)?;
        read_answer(reply).await
    }

    /// Keeps the answer in the report.
    fn note_answer(&mut self, answer: &Answer) -> Result<String, String> {
        let raw = answer.raw();
        let text = String::from_utf8_lossy(raw);
        let text = self.config.secrets.hide_in(&text).into_owned();
        self.report.result = Some(clip(&text, MAX_TRIAL_RESULT_BYTES).to_owned());
        let is_error = serde_json::from_slice::<serde_json::Value>(raw)
            .is_ok_and(|result| result.get("isError") == Some(&serde_json::Value::Bool(true)));
        match answer {
            Answer::Error(_) => Err("the server refused the call: see the result".to_owned()),
            Answer::Result(_) if is_error => {
                Err("the tool has failed (isError): see the result".to_owned())
            }
            Answer::Result(_) => Ok(format!("the tool answered with {} bytes", raw.len())),
        }
    }
}

/// Reads a reply up to its answer. Notifications are dropped.
async fn read_answer(mut reply: Reply) -> Result<Answer, String> {
    loop {
        match reply.next().await {
            Some(Event::Answer(answer)) => return answer.map_err(|failure| failure.to_string()),
            Some(Event::Passing(passing)) => {
                let read = AtomicUsize::new(0);
                let hold = |bytes: usize| {
                    let before = read.fetch_add(bytes, Ordering::Relaxed);
                    if before + bytes <= MAX_TRIAL_ANSWER_BYTES {
                        return Ok(());
                    }
                    let limit = MAX_TRIAL_ANSWER_BYTES;
                    Err(UnreadAnswer(format!("the answer has more than {limit} bytes")))
                };
                let whole = passing.whole_within(hold).await;
                return whole.map(Answer::Result).map_err(|UnreadAnswer(reason)| reason);
            }
            Some(Event::Asks(..)) => {
                return Err("the tool asks for input, which a test does not give".to_owned());
            }
            Some(_) => {}
            None => return Err("the call has no answer".to_owned()),
        }
    }
}

/// Reason that a large answer was not read to its end.
struct UnreadAnswer(String);

impl From<Failure> for UnreadAnswer {
    fn from(failure: Failure) -> Self {
        Self(failure.to_string())
    }
}

/// Describes the identity of a server.
fn describe_peer(view: &ServerOverview) -> String {
    let Some(peer) = &view.peer else { return "connected".to_owned() };
    let (name, version) = peer.name_and_version();
    format!("{name} {version}, {} ({})", peer.era().as_str(), peer.version)
}

fn describe_fault(view: &ServerOverview) -> String {
    match &view.last_error {
        Some((_, error)) => error.clone(),
        None => format!("it did not start in time ({})", view.state.as_str()),
    }
}

fn describe_list(server: &Server) -> String {
    let list: Option<Arc<ServerList>> = server.list();
    let Some(list) = list else { return "nothing is listed".to_owned() };
    let count = |kind| list.items(kind).len();
    format!(
        "{} tools, {} prompts, {} resources, {} resource templates",
        list.tools.len(),
        count(Kind::Prompts),
        count(Kind::Resources),
        count(Kind::Templates)
    )
}

/// Reason to use the running server.
const RUNNING_NOTE: &str =
    "a second session could invalidate the login of the gateway, so the running one is used";
/// Time limit for the start and the list.
const MAX_TRIAL_START: Duration = Duration::from_secs(45);
/// Time limit for the call, besides the server's own.
const MAX_TRIAL_CALL: Duration = Duration::from_mins(1);
/// Limit of the bytes of an answer that is read.
const MAX_TRIAL_ANSWER_BYTES: usize = 4 << 20;
/// Limit of the bytes of a result in the report.
const MAX_TRIAL_RESULT_BYTES: usize = 64 << 10;
/// Limit of the characters of a step's text.
const MAX_TRIAL_TEXT_CHARS: usize = 1000;
/// Limit of the lines of output in the report.
const MAX_TRIAL_LINES: usize = 20;
