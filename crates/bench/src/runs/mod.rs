//! Runs: one against a server, and contests of several servers.

pub(crate) mod contest;
pub(crate) mod process;
pub(crate) mod run;
