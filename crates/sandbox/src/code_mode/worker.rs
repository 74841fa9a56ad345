//! The hidden command `trunkline run-code`: the child that runs one script.

use std::process::ExitCode;

use trunkline_core::text::error_chain;

use super::probe::Probe;

/// Task of the child after its confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorkerCommand {
    /// Reads a script from standard input and runs it.
    Run,
    /// Tries a forbidden operation, and reports the result.
    Probe {
        /// Operation to try.
        probe: Probe,
        /// Leaves out the filter of system calls.
        unfiltered: bool,
    },
}

/// Runs the child. `limits` are [`ScriptLimits`](super::ScriptLimits) as JSON.
#[cfg(target_os = "linux")]
pub fn run_worker(limits: &str, command: WorkerCommand) -> ExitCode {
    use super::ScriptLimits;
    use super::confinement::{Layers, confine_process};
    #[cfg(feature = "code-mode")]
    use super::interpreter::serve_script;
    #[cfg(not(feature = "code-mode"))]
    use super::unsupported_interpreter::serve_script;

    let limits: ScriptLimits = match serde_json::from_str(limits) {
        Ok(limits) => limits,
        Err(error) => return refuse(&error),
    };
    let (layers, probe) = match command {
        WorkerCommand::Run => (Layers::All, None),
        WorkerCommand::Probe { probe, unfiltered: false } => (Layers::All, Some(probe)),
        WorkerCommand::Probe { probe, unfiltered: true } => (Layers::WithoutFilter, Some(probe)),
    };
    let probe = probe.map(Probe::prepare);
    if let Err(error) = confine_process(&limits, layers) {
        return refuse(&error);
    }
    if let Some(probe) = probe {
        return match probe.attempt() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => refuse(&error),
        };
    }
    match serve_script(&limits, std::io::stdin().lock(), std::io::stdout()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => refuse(&error),
    }
}

/// Runs the child on a system that cannot confine it.
#[cfg(not(target_os = "linux"))]
pub fn run_worker(_: &str, _: WorkerCommand) -> ExitCode {
    refuse(&super::ScriptError::System)
}

fn refuse(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    #[expect(clippy::print_stderr, reason = "the gateway logs it as the child's last words")]
    {
        eprintln!("run-code: {}", error_chain(error));
    }
    ExitCode::from(REFUSED_EXIT_CODE)
}

/// Exit code of a child that did not run its script.
const REFUSED_EXIT_CODE: u8 = 126;
