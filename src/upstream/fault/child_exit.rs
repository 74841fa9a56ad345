//! The end of a child process.

use std::fmt;
use std::io;
use std::process::ExitStatus;
use std::sync::Arc;

use super::UpstreamError;
use crate::upstream::quoted_output::{FIRST_LINE_QUOTE, LAST_LINE_QUOTE};

/// End of a child process.
#[derive(Debug, Clone)]
pub struct ChildExit {
    /// The sign by which the gateway noticed it.
    pub cause: ExitCause,
    /// The first line of its standard output that is no message, if there is one.
    pub first_line: Option<String>,
    /// The last line of its standard error, if there is one.
    pub last_line: Option<String>,
}

/// Sign by which the gateway noticed the end of a child process.
#[derive(Debug, Clone)]
pub enum ExitCause {
    /// It exited with this status.
    Status(ExitStatus),
    /// It closed its standard input.
    InputClosed,
    /// It closed its standard output.
    OutputClosed,
    /// Its standard output could not be read.
    Unreadable(Arc<io::Error>),
    /// The gateway has stopped reading its standard output.
    Unread,
}

impl From<ExitCause> for UpstreamError {
    fn from(cause: ExitCause) -> Self {
        Self::Exited(Box::new(ChildExit { cause, first_line: None, last_line: None }))
    }
}

impl fmt::Display for ChildExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cause.fmt(f)?;
        if let Some(line) = &self.first_line {
            write!(f, "{FIRST_LINE_QUOTE}{line}")?;
        }
        match &self.last_line {
            Some(line) => write!(f, "{LAST_LINE_QUOTE}{line}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ExitCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::InputClosed => f.write_str("its standard input is closed"),
            Self::OutputClosed => f.write_str("it closed its standard output"),
            Self::Unreadable(error) => write!(f, "its standard output cannot be read: {error}"),
            Self::Unread => f.write_str("its standard output is no longer read"),
        }
    }
}
