//! The load tester: `trunkline bench`, for any MCP server or gateway.
//!
//! It measures the gateway, or any other endpoint that speaks MCP over HTTP, from outside, as a
//! client. Its connections ([`connection`]) are hyper's own and not those of the gateway: a
//! load tester must cost little, must not share bugs with the measured server, and has to time each
//! answer from the right moment. It shares the protocol's vocabulary with the gateway, the JSON-RPC
//! parser and the schemas.
//!
//! A run: [`handshake`] finds the server's era and version, [`tools`] chooses the tool, [`script`]
//! prepares every request, [`threads`] opens the connections,
//! [`worker`] sends and receives on each of them on the schedule of the [`clock`],
//! [`answer_check`] checks every answer, [`tally`] counts, [`report`] prints. A
//! [`contest`] has several servers take turns.
//!
//! It must not use configurations, snapshots or policy: it works with any server.

#![warn(unreachable_pub)]

pub mod report;
mod contest;
mod run;
mod threads;
mod process;
mod caller;
mod worker;
mod tally;
mod script;
mod tools;
mod handshake;
mod clock;
mod plan;
mod answer_check;
mod request;
mod target;
mod arguments;
mod fault;
mod answer;
mod connection;

use tokio::sync::watch;

pub use answer::AnswerError;
pub use answer_check::{CorrectAnswer, Expect};
pub use caller::BenchCaller;
pub use clock::RunClock;
pub use contest::{Contender, Contest, ContestRules, Leg, Spread};
pub use fault::BenchFault;
pub use plan::{Load, LoadPace, Mix, Op};
pub use process::{Meter, Usage};
pub use run::{RunOutcome, RunWatcher, run};
pub use script::Script;
pub use tally::Tally;
pub use target::BenchTarget;

/// Ends runs early.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Sender<bool>);

impl Interrupt {
    /// Creates an interrupt that is not requested yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Requests the end of the run.
    pub fn ask(&self) {
        self.0.send_replace(true);
    }

    /// Returns true if the end was requested.
    pub fn is_asked(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when the end is requested.
    pub async fn asked(&self) {
        let mut asked = self.0.subscribe();
        // The sender lives as long as this borrow.
        let _ = asked.wait_for(|asked| *asked).await;
    }
}

impl Default for Interrupt {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
