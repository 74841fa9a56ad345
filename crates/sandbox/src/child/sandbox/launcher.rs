//! The hidden command `trunkline sandbox`: enters a sandbox and becomes the child.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use trunkline_core::text::error_chain;

use super::policy::{SandboxError, SandboxPolicy};

/// Action of the launcher.
#[derive(Debug)]
pub enum SandboxCommand {
    /// Becomes this program.
    Run {
        /// The program.
        program: OsString,
        /// Its arguments.
        args: Vec<OsString>,
    },
    /// Starts this program as its child, and ends all processes that the child has started.
    Keep {
        /// The program.
        program: OsString,
        /// Its arguments.
        args: Vec<OsString>,
    },
    /// Only checks that the sandbox can be entered.
    Probe,
}

/// Runs the launcher or the keeper. The launcher returns only if it runs no program.
pub fn run_launcher(policy: &str, command: SandboxCommand) -> ExitCode {
    let outcome = match command {
        SandboxCommand::Keep { program, args } => keep_program(policy, program, args),
        command => enter_and_run(policy, command).map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            #[expect(
                clippy::print_stderr,
                reason = "the gateway logs it as the child's last words"
            )]
            {
                eprintln!("sandbox: {}", error_chain(&error));
            }
            ExitCode::from(NOT_ENTERED)
        }
    }
}

#[cfg(target_os = "linux")]
fn keep_program(
    policy: &str,
    program: OsString,
    args: Vec<OsString>,
) -> Result<ExitCode, SandboxError> {
    let mut launcher = ["sandbox", "--policy", policy, "--"].map(OsString::from).to_vec();
    launcher.push(program);
    launcher.extend(args);
    let policy: SandboxPolicy = serde_json::from_str(policy).map_err(SandboxError::Policy)?;
    super::keeper::keep_child(&launcher, policy.temporary).map_err(SandboxError::Keeper)
}

#[cfg(not(target_os = "linux"))]
fn keep_program(_: &str, _: OsString, _: Vec<OsString>) -> Result<ExitCode, SandboxError> {
    Err(SandboxError::System)
}

fn enter_and_run(policy: &str, command: SandboxCommand) -> Result<(), SandboxError> {
    let policy: SandboxPolicy = serde_json::from_str(policy).map_err(SandboxError::Policy)?;
    enter_sandbox(&policy)?;
    let SandboxCommand::Run { program, args } = command else { return Ok(()) };
    let mut child = Command::new(&program);
    child.args(args);
    if let Some(ids) = policy.user {
        // Drops the supplementary groups, too.
        child.gid(ids.group).uid(ids.user);
    }
    let cause = child.exec();
    Err(SandboxError::Run { program, user: policy.user, cause })
}

/// Restricts this process, and all that it runs, to a policy. Its user stays the same.
///
/// # Errors
/// [`SandboxError`] names the restriction that the system cannot enforce. The process may be
/// restricted in part.
#[cfg(target_os = "linux")]
pub fn enter_sandbox(policy: &SandboxPolicy) -> Result<(), SandboxError> {
    super::filesystem::restrict_access(policy)?;
    super::syscalls::refuse_syscalls(policy)?;
    // Last, because the launcher itself needs memory.
    set_bounds(policy)
}

/// Fails: restricting this process is possible on Linux only.
///
/// # Errors
/// [`SandboxError::System`].
#[cfg(not(target_os = "linux"))]
pub fn enter_sandbox(_: &SandboxPolicy) -> Result<(), SandboxError> {
    Err(SandboxError::System)
}

#[cfg(target_os = "linux")]
fn set_bounds(policy: &SandboxPolicy) -> Result<(), SandboxError> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let bounds = &policy.bounds;
    for (what, resource, most) in [
        ("processes", Resource::Nproc, bounds.processes),
        ("open_files", Resource::Nofile, bounds.open_files),
        ("file_size", Resource::Fsize, bounds.file_size),
        ("cpu_time", Resource::Cpu, bounds.cpu_time),
        // The memory of a child may hold secrets.
        ("core dumps", Resource::Core, Some(0)),
        ("memory", Resource::As, bounds.memory),
    ] {
        if most.is_some() {
            setrlimit(resource, Rlimit { current: most, maximum: most })
                .map_err(|errno| SandboxError::Bound { what, cause: errno.into() })?;
        }
    }
    Ok(())
}

/// Exit code of a launcher that could not enter the sandbox or run the program.
const NOT_ENTERED: u8 = 126;
