//! The plan of a run: the mix of operations, the pace and the duration.

use std::fmt;
use std::time::Duration;

use trunkline_protocol::mcp::Era;

use crate::exchange::answer_check::Expect;

/// The parameters of a run, from the command line.
#[derive(Debug, Clone)]
pub struct Load {
    /// Protocol era; `None` for the server's own.
    pub era: Option<Era>,
    /// The operations to perform.
    pub mix: Mix,
    /// The tool to call.
    pub tool: Option<String>,
    /// Raw arguments; `None` to generate them from the schema.
    pub arguments: Option<String>,
    /// True to send arguments that violate the schema.
    pub unchecked: bool,
    /// The seed of all random choices.
    pub seed: u64,
    /// The text that every answer to a call must contain.
    pub expect: Option<Expect>,
    /// The pace of the operations.
    pub pace: LoadPace,
    /// The number of connections.
    pub connections: usize,
    /// The number of threads.
    pub threads: usize,
    /// Duration of the warm-up, which is not counted.
    pub warmup: Duration,
    /// The duration of the counted part.
    pub duration: Option<Duration>,
    /// The number of counted operations.
    pub requests: Option<u64>,
    /// Time limit for an answer.
    pub timeout: Duration,
}

/// The pace at which operations begin.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoadPace {
    /// Closed loop: each connection begins the next operation after the last answer.
    Closed,
    /// Open loop: operations begin at a fixed rate, independent of the answers.
    Open {
        /// Operations per second.
        per_second: f64,
    },
}

/// A timed operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// A `tools/call`.
    Call,
    /// The first page of `tools/list`.
    List,
    /// A whole session: `initialize`, a call, `DELETE`.
    Session,
    /// The `initialize` of such a session, with its notification.
    Initialize,
    /// The call in such a session.
    SessionCall,
    /// The `DELETE` of such a session.
    Delete,
}

impl Op {
    /// All operations.
    pub const ALL: [Self; 6] =
        [Self::Call, Self::List, Self::Session, Self::Initialize, Self::SessionCall, Self::Delete];

    /// The operation's name in tables.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::List => "list",
            Self::Session => "session",
            Self::Initialize => "session: initialize",
            Self::SessionCall => "session: call",
            Self::Delete => "session: delete",
        }
    }

    /// Returns true if the operation is part of another, which already counts it.
    pub fn is_part(self) -> bool {
        self > Self::Session
    }
}

/// Operations and their weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix(Vec<(Op, u32)>);

impl Mix {
    /// A mix of a single operation.
    pub fn only(op: Op) -> Self {
        Self(vec![(op, 1)])
    }

    /// Parses `call=8,list=1,session=1`.
    ///
    /// # Errors
    /// A sentence that describes the fault.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all: Vec<(Op, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
            let op = match name.trim() {
                "call" => Op::Call,
                "list" => Op::List,
                "session" => Op::Session,
                other => return Err(format!("{other:?}: expected call, list or session")),
            };
            let weight = weight.trim().parse().ok().filter(|weight| (1..=1000).contains(weight));
            let weight =
                weight.ok_or_else(|| format!("{name}: a weight is a number from 1 to 1000"))?;
            if all.iter().any(|(known, _)| *known == op) {
                return Err(format!("duplicate operation {name}"));
            }
            all.push((op, weight));
        }
        Ok(Self(all))
    }

    /// Returns true if the mix contains an operation.
    pub fn has(&self, op: Op) -> bool {
        self.0.iter().any(|(known, _)| *known == op)
    }

    /// Returns every operation as often as its weight, in an order determined by the seed.
    pub fn schedule(&self, seed: u64) -> Vec<Op> {
        let many = |(op, weight): &(Op, u32)| std::iter::repeat_n(*op, *weight as usize);
        let mut all: Vec<Op> = self.0.iter().flat_map(many).collect();
        fastrand::Rng::with_seed(seed).shuffle(&mut all);
        all
    }
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_slice() {
            [(op, _)] => f.write_str(op.as_str()),
            all => {
                let all = all.iter().map(|(op, weight)| format!("{}={weight}", op.as_str()));
                f.write_str(&all.collect::<Vec<_>>().join(","))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_done_by_its_weights() {
        let mix = Mix::parse("call=8, list=1,session=1").unwrap();
        let schedule = mix.schedule(7);
        let count = |op| schedule.iter().filter(|done| **done == op).count();
        assert_eq!((count(Op::Call), count(Op::List), count(Op::Session)), (8, 1, 1));
        assert_eq!(schedule, mix.schedule(7));
        assert_eq!(mix.to_string(), "call=8,list=1,session=1");
        for wrong in ["", "call=0", "call=x", "jump=1", "call=1,call=2"] {
            assert!(Mix::parse(wrong).is_err(), "{wrong}");
        }
    }
}
