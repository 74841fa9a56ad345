//! How the child confines itself before it reads any code.
//!
//! Three layers, each enough by itself against most of what a script could try if it took over the
//! interpreter: Landlock allows no file, no TCP port, and no signal or abstract socket outside; the
//! filter of system calls allows nothing but computing; resource limits bound what is left. Files and
//! the filter are required: a kernel without them runs no code. TCP ports (Linux 6.7) and scopes (Linux
//! 6.12) are restricted where the kernel can do it, because the filter allows no socket and no signal
//! in the first place.

use std::io;

use super::ScriptLimits;
use crate::upstream::child::SandboxError;

/// Why the child cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfinementError {
    /// Files or resources cannot be restricted.
    #[error("cannot confine the process")]
    Sandbox(#[from] SandboxError),
    /// System calls cannot be filtered.
    #[error("this kernel cannot filter system calls")]
    Filter(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The size of the process is not known.
    #[error("cannot read the size of the process from /proc/self/status")]
    Size(#[source] io::Error),
    /// A resource limit cannot be set.
    #[error("cannot limit processor time")]
    CpuTime(#[source] io::Error),
    /// The process cannot give way to others.
    #[error("cannot lower the priority of the process")]
    Priority(#[source] io::Error),
}

/// Which layers a process is given. Only probes leave one out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layers {
    All,
    /// All but the filter of system calls and the limit of open files, so that the effect of the
    /// others can be seen.
    WithoutFilter,
}

#[cfg(target_os = "linux")]
pub(super) fn confine_process(
    limits: &ScriptLimits,
    layers: Layers,
) -> Result<(), ConfinementError> {
    use std::collections::BTreeSet;

    use crate::upstream::child::{
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
            // The standard streams. A probe opens more, so that it sees what Landlock does.
            open_files: (layers == Layers::All).then_some(3),
            file_size: Some(0),
            // Set below, so that the first signal tells the cause.
            cpu_time: None,
        },
        ..SandboxPolicy::default()
    };
    // The first look at a clock asks the kernel where its clocks are, which the filter forbids.
    let _found = crate::clock::thread_cpu_time();
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

/// The last stop, for what the interpreter does not interrupt: `SIGXCPU` a second late, and `SIGKILL`
/// after another one.
#[cfg(target_os = "linux")]
fn limit_cpu_time(limits: &ScriptLimits) -> Result<(), ConfinementError> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    let seconds = limits.cpu_time.as_secs().saturating_add(2);
    let limit = Rlimit { current: Some(seconds), maximum: Some(seconds.saturating_add(1)) };
    setrlimit(Resource::Cpu, limit).map_err(|errno| ConfinementError::CpuTime(errno.into()))
}

/// Bytes of address space: what the process has now, which includes what its allocator has reserved,
/// the heap with room for its gaps, the stack, and the messages.
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
    let further = heap.saturating_add(messages).saturating_add(limits.stack).saturating_add(SLACK);
    let further = u64::try_from(further).unwrap_or(u64::MAX);
    Ok(size.saturating_mul(1024).saturating_add(further))
}

/// A `nice` value: the share of a processor is a seventieth of the usual one.
#[cfg(target_os = "linux")]
const LOWEST_PRIORITY: i32 = 19;
/// What the interpreter and its host need besides.
#[cfg(target_os = "linux")]
const SLACK: usize = 16 << 20;
