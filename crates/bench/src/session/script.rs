//! The prepared requests of a run.

use std::time::Duration;

use trunkline_protocol::mcp::Era;

use super::handshake::Handshake;
use super::plan::{Load, Op};
use super::tools::ChosenTool;
use crate::BenchFault;
use crate::exchange::answer::AnswerError;
use crate::exchange::answer_check::Expect;
use crate::exchange::request::{RequestTemplate, RequestWriter};
use crate::exchange::target::BenchTarget;

/// State shared by the connections of a run.
pub struct Script {
    /// The target and version of the requests.
    pub writer: RequestWriter,
    /// The server's name.
    pub server: String,
    /// The tool to call; `None` for lists only.
    pub tool: Option<String>,
    calls: Vec<RequestTemplate>,
    /// `tools/list`.
    pub list: RequestTemplate,
    /// Legacy: `initialize`.
    pub initialize: RequestTemplate,
    /// Legacy: the notification that follows.
    pub initialized: RequestTemplate,
    /// Legacy: ends the session.
    pub delete: RequestTemplate,
    schedule: Vec<Op>,
    /// The text that every answer to a call must contain.
    pub expect: Option<Expect>,
    /// Time limit for an answer.
    pub timeout: Duration,
}

impl Script {
    /// Completes a handshake, finds the tool, and prepares all requests.
    ///
    /// # Errors
    /// [`BenchFault`].
    pub async fn prepare(target: BenchTarget, load: &Load) -> Result<Self, BenchFault> {
        let sessions = load.mix.has(Op::Session);
        if sessions && load.era == Some(Era::Modern) {
            let text = "--era modern: Modern servers have no sessions to open and end";
            return Err(BenchFault::Options(text.into()));
        }
        // With a server of both eras, sessions require the Legacy era.
        let era = if sessions { Some(Era::Legacy) } else { load.era };
        let mut hello = Handshake::say(target, era, load.timeout.min(HANDSHAKE_TIMEOUT)).await?;
        let calls = load.mix.has(Op::Call) || sessions;
        let chosen = if calls {
            let tools = hello.tools().await?;
            Some(ChosenTool::new(&tools, &hello.writer.target.shown, load)?)
        } else {
            None
        };
        let writer = hello.writer.clone();
        let server = hello.server.clone();
        hello.close().await;
        let requests = |chosen: &ChosenTool| -> Vec<RequestTemplate> {
            let call = |arguments: &String| writer.call(&chosen.name, arguments, &chosen.mirrored);
            chosen.arguments.iter().map(call).collect()
        };
        Ok(Self {
            server,
            calls: chosen.as_ref().map(requests).unwrap_or_default(),
            tool: chosen.map(|chosen| chosen.name),
            list: writer.list(None),
            initialize: writer.initialize(),
            initialized: writer.initialized(),
            delete: writer.delete(),
            schedule: load.mix.schedule(load.seed),
            expect: load.expect.clone(),
            timeout: load.timeout,
            writer,
        })
    }

    /// The operation of a step.
    pub fn step(&self, step: usize) -> Op {
        self.schedule.get(step % self.schedule.len().max(1)).copied().unwrap_or(Op::Call)
    }

    /// The call with one variant of the arguments.
    ///
    /// # Errors
    /// [`AnswerError::Message`] if no call was prepared.
    pub fn call(&self, variant: usize) -> Result<&RequestTemplate, AnswerError> {
        let request = self.calls.get(variant % self.calls.len().max(1));
        request.ok_or_else(|| AnswerError::Message { text: "no call was prepared".into() })
    }

    /// The average length of a call's body in bytes.
    pub fn call_bytes(&self) -> usize {
        self.calls.iter().map(RequestTemplate::body_len).sum::<usize>() / self.calls.len().max(1)
    }
}

/// Time limit for each answer of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
