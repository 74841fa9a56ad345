//! Confinement of the child before it reads any code.
//!
//! There are three layers, each sufficient by itself against most attempts of a script that takes
//! over the interpreter. Landlock allows no file, no TCP port, and no signal or abstract socket
//! outside the process. The filter of system calls allows only computation. Resource limits bound
//! the rest. Files and the filter are required: on a kernel without them no code runs. TCP ports
//! (Linux 6.7) and scopes (Linux 6.12) are restricted where the kernel supports it; the filter
//! allows no socket and no signal in the first place.

use std::io;

use super::ScriptLimits;
use crate::child::SandboxError;

/// Error of confining the child.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// Files or resources cannot be restricted.
    #[error("cannot confine the process")]
    Sandbox(#[from] SandboxError),
    /// System calls cannot be filtered.
    #[error("this kernel cannot filter system calls")]
    Filter(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The size of the process is unknown.
    #[error("cannot read the size of the process from /proc/self/status")]
    Size(#[source] io::Error),
    /// A resource limit cannot be set.
    #[error("cannot limit processor time")]
    CpuTime(#[source] io::Error),
    /// The priority of the process cannot be lowered.
    #[error("cannot lower the priority of the process")]
    Priority(#[source] io::Error),
}

/// Layers that apply to a process. Only probes leave one out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layers {
    All,
    /// All but the filter of system calls and the limit of open files, so that a probe sees the
    /// effect of the others.
    WithoutFilter,
}

#[cfg(target_os = "linux")]
pub(super) fn confine_process(
    limits: &ScriptLimits,
    layers: Layers,
) -> Result<(), ConfinementError> {
    use std::collections::BTreeSet;

    use crate::child::{
        ResourceBounds, SandboxPolicy, can_restrict_ports, can_restrict_scopes, enter_sandbox,
    };

    let no_ports = can_restrict_ports().then(BTreeSet::new);
    let policy = SandboxPolicy {
        connect: no_ports.clone(),
        bind: no_ports,
        scopes: can_restrict_scopes(),
        bounds: ResourceBounds {
            memory: Some(address_space(limits)?),
            processes: Some(0),
            // The standard streams. A probe opens more, so that it sees the effect of Landlock.
            open_files: (layers == Layers::All).then_some(3),
            file_size: Some(0),
            // Set below, so that the first signal identifies the cause.
            cpu_time: None,
        },
        ..SandboxPolicy::default()
    };
    // The first read of a clock asks the kernel for its clock data, which the filter forbids.
    let _found = trunkline_core::clock::thread_cpu_time();
    limit_cpu_time(limits)?;
    // The gateway and its servers come first.
    rustix::process::setpriority_process(None, LOWEST_PRIORITY)
        .map_err(|errno| ConfinementError::Priority(errno.into()))?;
    enter_sandbox(&policy)?;
    match layers {
        Layers::All => super::filter::allow_computing_only(),
        Layers::WithoutFilter => Ok(()),
    }
}

/// Limits the processor time in case the interpreter does not interrupt the code: `SIGXCPU` arrives
/// a second after the script's own limit, `SIGKILL` another second later.
#[cfg(target_os = "linux")]
fn limit_cpu_time(limits: &ScriptLimits) -> Result<(), ConfinementError> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let seconds = limits.cpu_time.as_secs().saturating_add(2);
    let limit = Rlimit { current: Some(seconds), maximum: Some(seconds.saturating_add(1)) };
    setrlimit(Resource::Cpu, limit).map_err(|errno| ConfinementError::CpuTime(errno.into()))
}

/// Returns the bytes of address space: the current size of the process, which includes its
/// allocator's reservations, the heap with room for its gaps, the stack, and the messages.
#[cfg(target_os = "linux")]
fn address_space(limits: &ScriptLimits) -> Result<u64, ConfinementError> {
    let status = std::fs::read_to_string("/proc/self/status").map_err(ConfinementError::Size)?;
    let size = status
        .lines()
        .find_map(|line| {
            line.strip_prefix("VmSize:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok()
        })
        .ok_or_else(|| ConfinementError::Size(io::ErrorKind::InvalidData.into()))?;
    let messages = [limits.code, limits.printed, limits.returned, limits.arguments, limits.result];
    let messages = messages.into_iter().fold(0, usize::saturating_add).saturating_mul(2);
    let heap = limits.memory.saturating_add(limits.memory / 2);
    let further = heap
        .saturating_add(messages)
        .saturating_add(limits.stack)
        .saturating_add(INTERPRETER_MEMORY);
    let further = u64::try_from(further).unwrap_or(u64::MAX);
    Ok(size.saturating_mul(1024).saturating_add(further))
}

/// A `nice` value: a seventieth of the usual share of a processor.
#[cfg(target_os = "linux")]
const LOWEST_PRIORITY: i32 = 19;
/// Memory for the interpreter and its host.
#[cfg(target_os = "linux")]
const INTERPRETER_MEMORY: usize = 16 << 20;
