//! What is to be done: which operations in which mixture, how fast, for how
//! long.

use std::fmt;
use std::time::Duration;

use super::judge::Expect;
use crate::mcp::Era;

/// A run, as the command line asks for it.
#[derive(Debug, Clone)]
pub struct Load {
    /// The era to speak; the server's own where none is given.
    pub era: Option<Era>,
    /// What is done.
    pub mix: Mix,
    /// The tool to call.
    pub tool: Option<String>,
    /// Raw arguments; generated from the schema where there are none.
    pub arguments: Option<String>,
    /// Sends arguments that break the schema.
    pub unchecked: bool,
    /// Decides what is left to chance.
    pub seed: u64,
    /// What every answer to a call has to contain.
    pub expect: Option<Expect>,
    /// How fast.
    pub pace: LoadPace,
    /// Over how many connections.
    pub connections: usize,
    /// On how many threads.
    pub threads: usize,
    /// How long calls are made before they count.
    pub warmup: Duration,
    /// How long they count.
    pub duration: Option<Duration>,
    /// How many count.
    pub requests: Option<u64>,
    /// How long an answer may take.
    pub timeout: Duration,
}

/// How fast calls follow one another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum LoadPace {
    /// Each connection calls again when it has its answer.
    Closed,
    /// So many a second, whatever the answers do.
    Open {
        /// How many.
        per_second: f64,
    },
}

/// Something that is done, and timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Op {
    /// A `tools/call`.
    Call,
    /// The first page of `tools/list`.
    List,
    /// A whole session: `initialize`, a call, `DELETE`.
    Session,
    /// The `initialize` of such a session, and its notification.
    Initialize,
    /// The call in it.
    SessionCall,
    /// Its `DELETE`.
    Delete,
}

impl Op {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Call, Self::List, Self::Session, Self::Initialize, Self::SessionCall, Self::Delete];

    /// Its name in tables.
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

    /// Whether it is a part of another, and counted there.
    pub fn is_part(self) -> bool {
        self > Self::Session
    }
}

/// Operations and their weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mix(Vec<(Op, u32)>);

impl Mix {
    /// One operation alone.
    pub fn only(op: Op) -> Self {
        Self(vec![(op, 1)])
    }

    /// Reads `call=8,list=1,session=1`.
    ///
    /// # Errors
    /// A sentence that says what is wrong.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut all: Vec<(Op, u32)> = Vec::new();
        for part in text.split(',') {
            let (name, weight) = part.split_once('=').unwrap_or((part, "1"));
            let op = match name.trim() {
                "call" => Op::Call,
                "list" => Op::List,
                "session" => Op::Session,
                other => return Err(format!("{other:?} is none of call, list, session")),
            };
            let weight = weight.trim().parse().ok().filter(|weight| (1..=1000).contains(weight));
            let weight =
                weight.ok_or_else(|| format!("{name}: a weight is a number from 1 to 1000"))?;
            if all.iter().any(|(known, _)| *known == op) {
                return Err(format!("{name} stands there twice"));
            }
            all.push((op, weight));
        }
        Ok(Self(all))
    }

    /// Whether an operation is in it.
    pub fn has(&self, op: Op) -> bool {
        self.0.iter().any(|(known, _)| *known == op)
    }

    /// Every operation as often as its weight says, in an order that a seed decides.
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
