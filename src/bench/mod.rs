//! The load tester: `trunkline bench`, for any MCP server or gateway.
//!
//! It stands outside of the gateway and looks at it, and at everything else
//! that speaks MCP over HTTP, as a client does. That is why its connections
//! ([`connection`]) are hyper's own and not those of [`crate::upstream`]: a
//! yardstick must cost little, must not share the mistakes of what it measures,
//! and has to time each answer from the right moment. What it shares with the gateway is the protocol's vocabulary,
//! the reading of JSON-RPC, and the schemas.
//!
//! A run: [`hello`] finds out whom it talks to, [`tools`] chooses what to call,
//! [`script`] writes every request down as bytes, [`crew`] opens the connections,
//! [`worker`] sends and receives on each of them by the [`clock`], [`judge`]
//! judges every answer, [`tally`] counts, [`report`] tells. [`contest`] has
//! several servers take turns.
//!
//! It knows nothing of configurations, snapshots or policy, and never will: what
//! only works with this gateway is no yardstick.

mod answer;
mod arguments;
mod caller;
mod clock;
mod connection;
mod contest;
mod crew;
mod fault;
mod hello;
mod judge;
mod plan;
mod process;
mod request;
mod run;
mod script;
mod tally;
mod target;
mod tools;
mod worker;

pub mod report;

use tokio::sync::watch;

pub use answer::Trouble;
pub use caller::Caller;
pub use clock::Clock;
pub use contest::{Contender, Contest, Leg, Rules, Spread};
pub use fault::BenchFault;
pub use judge::{Expect, Right};
pub use plan::{Load, Mix, Op, Pace};
pub use process::{Meter, Usage};
pub use run::{Outcome, Watch, run};
pub use script::Script;
pub use tally::Tally;
pub use target::Target;

/// Ends runs before their time.
#[derive(Debug, Clone)]
pub struct Interrupt(watch::Sender<bool>);

impl Interrupt {
    /// One that nobody has asked for yet.
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Asks for the end.
    pub fn ask(&self) {
        self.0.send_replace(true);
    }

    /// Whether somebody has asked for it.
    pub fn is_asked(&self) -> bool {
        *self.0.borrow()
    }

    /// Completes when somebody has.
    pub async fn asked(&self) {
        let mut asked = self.0.subscribe();
        // The sender lives as long as this borrow of it.
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
