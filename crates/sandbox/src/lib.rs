//! Child processes of the gateway, and their confinement.
//!
//! [`child`] starts a process, confines it if its configuration asks for a sandbox, logs its
//! standard error and ends it with everything that it has started. [`code_mode`] runs JavaScript in
//! such a process, which has no rights at all.
//!
//! Helpers that have to run in a process of their own (the guardian, the launcher of a sandbox, the
//! process that runs a script) are hidden commands of the gateway's program. This crate starts that
//! program ([`child::Guardian`] has its path) and contains the code of the commands
//! ([`child::run_guardian`], [`child::run_launcher`], [`code_mode::run_worker`]); the program only
//! parses their arguments.
//!
//! It knows bytes and lines, no message of MCP: neither servers' answers nor decisions about calls.

#![warn(unreachable_pub)]

pub mod code_mode;
pub mod child;
#[cfg(test)]
#[path = "../../../tests/support/captured_log.rs"]
mod captured_log;
