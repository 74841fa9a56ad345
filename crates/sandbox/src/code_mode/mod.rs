//! Code mode: runs JavaScript that a model has sent, in a child process that can only compute and
//! call tools.
//!
//! The gateway starts its own program as a child for each script ([`RunningScript`]). The child
//! confines itself ([`confinement`]) before it receives the code, interprets the code with QuickJS,
//! and sends its parent a request for each tool call, one line of JSON a message ([`messages`]).
//! The caller of this module decides about each call and makes it. This module knows neither policy
//! nor catalog.
//!
//! Every quantity has a bound ([`ScriptLimits`]). The child enforces it so that the script gets an
//! error; the parent enforces it once more where it can, because the child runs foreign code and is
//! not trusted.

mod confinement;
mod fault;
#[cfg(target_os = "linux")]
mod filter;
#[cfg(all(target_os = "linux", feature = "code-mode"))]
mod interpreter;
mod limits;
mod messages;
mod probe;
mod runner;
#[cfg(all(target_os = "linux", not(feature = "code-mode")))]
mod unsupported_interpreter;
mod worker;

pub use confinement::ConfinementError;
pub use fault::{CodePosition, ProtocolError, ScriptError, ScriptFault};
pub use limits::ScriptLimits;
pub use probe::Probe;
pub use runner::{RunningScript, ScriptCall, ScriptEvent, ScriptOutcome};
pub use worker::{WorkerCommand, run_worker};

use serde::{Deserialize, Serialize};

/// Code to run, and the tools that it can call.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptRequest {
    /// JavaScript: the body of an async function, or one expression.
    pub code: String,
    /// The tools, each a function of the object `tools`.
    pub tools: Vec<ScriptTool>,
}

/// A tool as a script sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptTool {
    /// The public name; `tools["NAME"]` is the function.
    pub name: String,
    /// A JavaScript identifier; `tools.IDENTIFIER` is the same function.
    pub function: String,
}
