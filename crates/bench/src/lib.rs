//! The load tester: `trunkline bench`, for any MCP server or gateway.
//!
//! It measures the gateway, or any other endpoint that speaks MCP over HTTP, from outside, as a
//! client. Its connections ([`exchange::connection`]) are hyper's own and not those of the gateway:
//! a load tester must cost little, must not share bugs with the measured server, and has to time
//! each answer from the right moment. It shares the protocol's vocabulary with the gateway, the
//! JSON-RPC parser and the schemas.
//!
//! A run: [`session::handshake`] finds the server's era and version, [`session::tools`] chooses the
//! tool, [`session::script`] prepares every request, [`load::threads`] opens the connections,
//! [`load::worker`] sends and receives on each of them on the schedule of the [`load::clock`],
//! [`exchange::answer_check`] checks every answer, [`load::tally`] counts, [`report`] prints. A
//! [`runs::contest`] has several servers take turns.
//!
//! It must not use configurations, snapshots or policy: it works with any server.

#![warn(unreachable_pub)]

pub mod report;
mod runs;
mod load;
mod session;
mod exchange;

use tokio::sync::watch;

pub use exchange::answer::AnswerError;
pub use exchange::answer_check::{CorrectAnswer, Expect};
pub use exchange::fault::BenchFault;
pub use exchange::target::{BenchTarget, mask_url};
pub use load::caller::BenchCaller;
pub use load::clock::RunClock;
pub use load::tally::Tally;
pub use runs::contest::{Contender, Contest, ContestRules, Leg, Spread};
pub use runs::process::{Meter, Usage};
pub use runs::run::{RunOutcome, RunWatcher, run};
pub use session::plan::{Load, LoadPace, Mix, Op};
pub use session::script::Script;

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
