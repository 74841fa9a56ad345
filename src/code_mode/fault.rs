//! Why a script did not run, and how it ended other than by returning.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::upstream::child::SpawnError;

/// Why a script was not started.
#[derive(Debug, thiserror::Error)]
pub enum ScriptError {
    /// The code is longer than allowed.
    #[error("the code has {size} bytes, at most {limit} are allowed")]
    TooLong {
        /// Bytes of the code.
        size: usize,
        /// The bound.
        limit: usize,
    },
    /// Only Linux can confine the child.
    #[error("code mode is available on Linux only")]
    System,
    /// The child could not be started.
    #[error("cannot start the process that runs code")]
    Spawn(#[from] SpawnError),
    /// The child refused to run, or ended before it was ready.
    #[error("the process that runs code did not start: {}", if last_words.is_empty() { "it did not say why" } else { last_words })]
    Refused {
        /// Its last lines on standard error.
        last_words: String,
    },
    /// The child was not ready in time.
    #[error("the process that runs code was not ready within {limit:?}")]
    Late {
        /// The time it had.
        limit: Duration,
    },
}

/// How a script ended, if it did not end by itself and without an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ScriptFault {
    /// The code is not JavaScript.
    #[error("syntax error: {message}{}: JavaScript is expected, without types", at(*position))]
    Syntax {
        /// What the interpreter says.
        message: String,
        /// Where.
        position: Option<CodePosition>,
    },
    /// An error, or another value, was thrown and not caught.
    #[error("{message}{}", at(*position))]
    Thrown {
        /// Name and message of the error, or the value in words.
        message: String,
        /// Where the error was made.
        position: Option<CodePosition>,
    },
    /// A promise was rejected, and nothing waited for it.
    #[error("a promise was rejected and never awaited: {message}{}", at(*position))]
    Unhandled {
        /// Name and message of the error, or the value in words.
        message: String,
        /// Where the error was made.
        position: Option<CodePosition>,
    },
    /// The code waits, and no call is pending that could make it continue.
    #[error("the code awaits a promise that nothing will ever settle")]
    NeverSettles,
    /// The processor time is used up.
    #[error("the code used more than {limit:?} of processor time")]
    CpuTime {
        /// The bound.
        limit: Duration,
    },
    /// The processor time of all runs of the client is used up.
    #[error("the runs of this client used more than {limit:?} of processor time within a minute")]
    CpuBudget {
        /// The bound.
        limit: Duration,
    },
    /// The time is used up.
    #[error("the code was not done after {limit:?}")]
    WallTime {
        /// The bound.
        limit: Duration,
    },
    /// The heap is full.
    #[error("the code used more than {limit} bytes of memory")]
    Memory {
        /// The bound.
        limit: usize,
    },
    /// The returned value has no JSON.
    #[error("the returned value cannot be written as JSON: {message}")]
    NotJson {
        /// What the interpreter says.
        message: String,
    },
    /// The returned value is too large.
    #[error(
        "the returned value has {size} bytes as JSON, at most {limit} are allowed: return less, or print a part"
    )]
    ReturnedSize {
        /// Bytes of the value.
        size: usize,
        /// The bound.
        limit: usize,
    },
    /// The child made a system call that it may not make, and was killed for it.
    #[error("the process that ran the code made a forbidden system call and was killed")]
    ForbiddenCall,
    /// The child sent what it may not send, and was killed for it.
    #[error("the process that ran the code broke a rule and was killed: {0}")]
    Violation(ProtocolViolation),
    /// The child ended by a signal, such as that of a system that has no memory left.
    #[error("the process that ran the code was killed by signal {signal}{}", cause_of(*signal))]
    Signal {
        /// Its number.
        signal: i32,
    },
    /// The child ended without a word.
    #[error("the process that ran the code ended early")]
    Died,
}

/// What the child may not send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ProtocolViolation {
    /// A line that is too long.
    #[error("a message that is too long")]
    Length,
    /// A line that is no message.
    #[error("a malformed message")]
    Malformed,
    /// A call of a tool that does not exist, or whose id is in use.
    #[error("a call that does not exist")]
    Call,
    /// More calls than allowed, in all or at once.
    #[error("too many calls")]
    Calls,
    /// More printed text than allowed.
    #[error("too much printed text")]
    Printed,
}

/// A place in the code of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodePosition {
    /// From 1 on.
    pub line: u32,
    /// From 1 on.
    pub column: u32,
}

impl fmt::Display for CodePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

fn at(position: Option<CodePosition>) -> String {
    position.map(|position| format!(" ({position})")).unwrap_or_default()
}

fn cause_of(signal: i32) -> &'static str {
    // SIGKILL
    if signal == 9 {
        ": it used too much processor time, or the system has no memory left"
    } else {
        ""
    }
}
