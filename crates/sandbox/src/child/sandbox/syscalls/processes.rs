//! Priorities, limits and processors: a child may change its own, but not to the disadvantage of
//! others.

use super::{ArgumentTest, RefusedCalls};
use crate::child::sandbox::policy::SandboxError;

/// Refuses calls that name a process other than the caller as 0, those that name groups and users,
/// and those that request precedence over others, which root could have.
pub(super) fn refuse_other_processes(refused: &mut RefusedCalls) -> Result<(), SandboxError> {
    let mut refuse = |call, test| refused.refuse_if(libc::EPERM, call, &[test]);
    for call in [
        libc::SYS_prlimit64,
        libc::SYS_sched_setaffinity,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setscheduler,
        libc::SYS_migrate_pages,
        libc::SYS_move_pages,
    ] {
        refuse(call, ArgumentTest::is_not(0, 0))?;
    }
    for (call, own_process) in
        [(libc::SYS_setpriority, PRIO_PROCESS), (libc::SYS_ioprio_set, IOPRIO_PROCESS)]
    {
        refuse(call, ArgumentTest::is_not(0, own_process))?;
        refuse(call, ArgumentTest::is_not(1, 0))?;
    }
    refuse(libc::SYS_setpriority, ArgumentTest::masked(2, i32::MIN, i32::MIN))?;
    refuse(libc::SYS_ioprio_set, ArgumentTest::masked(2, IOPRIO_CLASS, IOPRIO_REAL_TIME))?;
    for policy in [libc::SCHED_FIFO, libc::SCHED_RR, SCHED_DEADLINE] {
        let policy = ArgumentTest::masked(1, !SCHED_RESET_ON_FORK, policy);
        refuse(libc::SYS_sched_setscheduler, policy)?;
    }
    // The policy argument is in memory, which a filter cannot see.
    refused.refuse(libc::EPERM, libc::SYS_sched_setattr);
    Ok(())
}

const PRIO_PROCESS: i32 = 0;
const IOPRIO_PROCESS: i32 = 1;
/// Mask of the class within a priority of `ioprio_set`, and the class that starves all others.
const IOPRIO_CLASS: i32 = 0b111 << 13;
const IOPRIO_REAL_TIME: i32 = 1 << 13;
const SCHED_DEADLINE: i32 = 6;
const SCHED_RESET_ON_FORK: i32 = 0x4000_0000;
