//! Everything that is sent in a run, prepared.

use std::time::Duration;

use super::BenchFault;
use super::answer::AnswerError;
use super::hello::Handshake;
use super::judge::Expect;
use super::plan::{Load, Op};
use super::request::{RequestTemplate, RequestWriter};
use super::target::BenchTarget;
use super::tools::ChosenTool;
use crate::mcp::Era;

/// What the connections of a run share.
pub struct Script {
    /// Where it goes, in which version.
    pub writer: RequestWriter,
    /// How the server calls itself.
    pub server: String,
    /// The tool that is called; none where only lists are asked for.
    pub tool: Option<String>,
    calls: Vec<RequestTemplate>,
    /// `tools/list`.
    pub list: RequestTemplate,
    /// Legacy: `initialize`.
    pub initialize: RequestTemplate,
    /// Legacy: its notification.
    pub initialized: RequestTemplate,
    /// Legacy: the session's end.
    pub delete: RequestTemplate,
    schedule: Vec<Op>,
    /// What every answer to a call has to contain.
    pub expect: Option<Expect>,
    /// How long an answer may take.
    pub timeout: Duration,
}

impl Script {
    /// Asks a server who it is and what tools it has, and prepares what to send.
    ///
    /// # Errors
    /// [`BenchFault`].
    pub async fn prepare(target: BenchTarget, load: &Load) -> Result<Self, BenchFault> {
        let sessions = load.mix.has(Op::Session);
        if sessions && load.era == Some(Era::Modern) {
            let text = "--era modern: Modern servers have no sessions to open and end";
            return Err(BenchFault::Options(text.into()));
        }
        // A server of both eras is spoken to in the one that has sessions.
        let era = if sessions { Some(Era::Legacy) } else { load.era };
        let mut hello = Handshake::say(target, era, load.timeout.min(PATIENCE)).await?;
        let calls = load.mix.has(Op::Call) || sessions;
        let chosen = if calls {
            let tools = hello.tools().await?;
            Some(ChosenTool::new(&tools, hello.writer.target.url.as_str(), load)?)
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

    /// What is done at a step.
    pub fn step(&self, step: usize) -> Op {
        self.schedule.get(step % self.schedule.len().max(1)).copied().unwrap_or(Op::Call)
    }

    /// The call with a variant of the arguments.
    ///
    /// # Errors
    /// [`AnswerError::Message`] where none was prepared.
    pub fn call(&self, variant: usize) -> Result<&RequestTemplate, AnswerError> {
        let request = self.calls.get(variant % self.calls.len().max(1));
        request.ok_or_else(|| AnswerError::Message { text: "no call was prepared".into() })
    }

    /// Bytes of a call's body, on average.
    pub fn call_bytes(&self) -> usize {
        self.calls.iter().map(RequestTemplate::body_len).sum::<usize>() / self.calls.len().max(1)
    }
}

/// How long the first answers may take.
const PATIENCE: Duration = Duration::from_secs(10);
