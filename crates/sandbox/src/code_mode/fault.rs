//! Errors of scripts that did not start, and faults of scripts that did not return.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::child::SpawnError;

/// Reason that a script was not started.
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
    /// The child refused to run, or exited before it was ready.
    #[error("the process that runs code did not start: {}", if last_words.is_empty() { "no reason given" } else { last_words })]
    Refused {
        /// Its last lines on standard error.
        last_words: String,
    },
    /// The child was not ready in time.
    #[error("the process that runs code was not ready within {limit:?}")]
    Late {
        /// Time limit of the start.
        limit: Duration,
    },
}

/// Abnormal end of a script.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ScriptFault {
    /// The code is not JavaScript.
    #[error("syntax error: {message}{}: JavaScript is expected, without types", at(*position))]
    Syntax {
        /// Message of the interpreter.
        message: String,
        /// Position of the error.
        position: Option<CodePosition>,
    },
    /// The code threw an error, or another value, and did not catch it.
    #[error("{message}{}", at(*position))]
    Thrown {
        /// Name and message of the error, or the value as text.
        message: String,
        /// Position at which the error was created.
        position: Option<CodePosition>,
    },
    /// A promise was rejected, and no code awaited it.
    #[error("a promise was rejected and never awaited: {message}{}", at(*position))]
    Unhandled {
        /// Name and message of the error, or the value as text.
        message: String,
        /// Position at which the error was created.
        position: Option<CodePosition>,
    },
    /// The code waits, and no pending call could make it continue.
    #[error("the code awaits a promise that is never settled")]
    NeverSettles,
    /// The processor time is exhausted.
    #[error("the code used more than {limit:?} of processor time")]
    CpuTime {
        /// The bound.
        limit: Duration,
    },
    /// The processor time of all runs of the client is exhausted.
    #[error("the runs of this client used more than {limit:?} of processor time within a minute")]
    CpuBudget {
        /// The bound.
        limit: Duration,
    },
    /// The wall time is exhausted.
    #[error("the code did not finish within {limit:?}")]
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
    /// The returned value has no JSON form.
    #[error("the returned value cannot be written as JSON: {message}")]
    NotJson {
        /// Message of the interpreter.
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
    /// The child made a forbidden system call, and was killed for it.
    #[error("the process that ran the code made a forbidden system call and was killed")]
    ForbiddenCall,
    /// The child sent a forbidden message, and was killed for it.
    #[error("the process that ran the code violated the protocol and was killed: {0}")]
    Violation(ProtocolError),
    /// A signal ended the child, such as the one sent by a system without free memory.
    #[error("the process that ran the code was killed by signal {signal}{}", cause_of(*signal))]
    Signal {
        /// Number of the signal.
        signal: i32,
    },
    /// The child exited without a final message.
    #[error("the process that ran the code ended early")]
    Died,
}

/// Forbidden message of the child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ProtocolError {
    /// A line that is too long.
    #[error("a message that is too long")]
    Length,
    /// A line that is no message.
    #[error("a malformed message")]
    Malformed,
    /// A call of a tool that does not exist, or with an id that is in use.
    #[error("a call that does not exist")]
    Call,
    /// More calls than allowed, in total or at once.
    #[error("too many calls")]
    Calls,
    /// More printed text than allowed.
    #[error("too much printed text")]
    Printed,
}

/// A position in the code of a script.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodePosition {
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1.
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
