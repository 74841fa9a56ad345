//! Filter of the child's system calls: a list of the calls that the interpreter needs, with their
//! permitted arguments. Every other call kills the process.
//!
//! It is killed instead of getting an error, because the interpreter has no reason to make another
//! call; a process that makes one is under an attacker's control. The exceptions are calls by which
//! the C library looks for optional files (such as the time zone): they fail with `EPERM`.
//!
//! Descriptors other than the three standard streams, which a supervisor may have left open, can be
//! neither read nor written.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::confinement::ConfinementError;

type Rules = BTreeMap<i64, Vec<SeccompRule>>;

/// Restricts this single-threaded process to the system calls for computing and for the messages to
/// its parent.
pub(super) fn allow_computing_only() -> Result<(), ConfinementError> {
    let probing = || PROBING_CALLS.iter().map(|call| (*call, Vec::new()));
    let mut allowed: Rules = PLAIN_CALLS.iter().map(|call| (*call, Vec::new())).collect();
    allowed.extend(probing());
    allowed.extend([
        (libc::SYS_read, vec![argument(0, SeccompCmpOp::Eq, 0)?]),
        (libc::SYS_write, output_rules()?),
        (libc::SYS_writev, output_rules()?),
        (libc::SYS_mmap, vec![private_memory()?]),
        (libc::SYS_mprotect, vec![not_executable()?]),
        // For `abort`, which ends the process.
        (libc::SYS_tgkill, vec![argument(0, SeccompCmpOp::Eq, std::process::id().into())?]),
    ]);
    // This filter goes first, because the second one forbids to install another.
    install(probing().collect(), SeccompAction::Allow, SeccompAction::Errno(EPERM_ERRNO))?;
    install(allowed, SeccompAction::KillProcess, SeccompAction::Allow)
}

fn install(
    rules: Rules,
    others: SeccompAction,
    these: SeccompAction,
) -> Result<(), ConfinementError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(unfiltered)?;
    let filter = SeccompFilter::new(rules, others, these, arch).map_err(unfiltered)?;
    let program: BpfProgram = filter.try_into().map_err(unfiltered)?;
    apply_filter(&program).map_err(unfiltered)
}

fn output_rules() -> Result<Vec<SeccompRule>, ConfinementError> {
    [1, 2].into_iter().map(|descriptor| argument(0, SeccompCmpOp::Eq, descriptor)).collect()
}

/// Memory of the process itself that is not executable.
fn private_memory() -> Result<SeccompRule, ConfinementError> {
    let anonymous = u64::from(libc::MAP_ANONYMOUS.unsigned_abs());
    let (protection, flags) = (
        condition(2, SeccompCmpOp::MaskedEq(EXECUTABLE_MAPPING), 0)?,
        condition(3, SeccompCmpOp::MaskedEq(anonymous), anonymous)?,
    );
    SeccompRule::new(vec![protection, flags]).map_err(unfiltered)
}

fn not_executable() -> Result<SeccompRule, ConfinementError> {
    argument(2, SeccompCmpOp::MaskedEq(EXECUTABLE_MAPPING), 0)
}

fn argument(
    index: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompRule, ConfinementError> {
    SeccompRule::new(vec![condition(index, operator, value)?]).map_err(unfiltered)
}

fn condition(
    index: u8,
    operator: SeccompCmpOp,
    value: u64,
) -> Result<SeccompCondition, ConfinementError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value).map_err(unfiltered)
}

fn unfiltered(cause: impl std::error::Error + Send + Sync + 'static) -> ConfinementError {
    ConfinementError::Filter(Box::new(cause))
}

const EXECUTABLE_MAPPING: u64 = libc::PROT_EXEC.unsigned_abs() as u64;
const EPERM_ERRNO: u32 = libc::EPERM.unsigned_abs();

/// Memory, time, random numbers, locks, and the end of the process.
const PLAIN_CALLS: [c_long; 16] = [
    libc::SYS_brk,
    libc::SYS_clock_gettime,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_futex,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_madvise,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_yield,
    libc::SYS_sigaltstack,
];

/// Calls by which the C library and the allocator look for optional files.
#[cfg(target_arch = "x86_64")]
const PROBING_CALLS: [c_long; 7] = [
    libc::SYS_access,
    libc::SYS_newfstatat,
    libc::SYS_open,
    libc::SYS_openat,
    libc::SYS_readlink,
    libc::SYS_stat,
    libc::SYS_statx,
];
#[cfg(not(target_arch = "x86_64"))]
const PROBING_CALLS: [c_long; 5] = [
    libc::SYS_faccessat,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_readlinkat,
    libc::SYS_statx,
];
