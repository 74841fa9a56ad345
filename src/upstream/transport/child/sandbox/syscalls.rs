//! Seccomp: system calls that fail from now on.

use std::collections::BTreeMap;

use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, apply_filter,
};

use super::policy::SandboxError;

/// Makes these system calls fail with `EPERM` in this process and all that it runs. A `clone` that
/// asks for a namespace fails as well; `clone3`, whose arguments a filter cannot see, fails as on a
/// kernel that does not know it, and programs use `clone` instead.
pub(super) fn deny_syscalls(denied: &[String]) -> Result<(), SandboxError> {
    if denied.is_empty() {
        return Ok(());
    }
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for name in denied {
        let number =
            number(name).ok_or_else(|| SandboxError::UnknownCall { name: name.clone() })?;
        for number in with_other_calling_conventions(name, number) {
            rules.insert(number, Vec::new());
        }
    }
    if denied.iter().any(|name| name == "unshare") {
        for clone in with_other_calling_conventions("clone", libc::SYS_clone) {
            rules.insert(clone, namespace_rules()?);
        }
        let clone3 = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
        install(clone3, libc::ENOSYS)?;
    }
    install(rules, libc::EPERM)
}

fn install(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> Result<(), SandboxError> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(unfiltered)?;
    let denial = SeccompAction::Errno(errno.unsigned_abs());
    let filter =
        SeccompFilter::new(rules, SeccompAction::Allow, denial, arch).map_err(unfiltered)?;
    let program: BpfProgram = filter.try_into().map_err(unfiltered)?;
    apply_filter(&program).map_err(unfiltered)
}

fn unfiltered(cause: impl std::error::Error + Send + Sync + 'static) -> SandboxError {
    SandboxError::Seccomp(Box::new(cause))
}

/// One rule for each kind of namespace: its flag among the first argument of `clone`.
fn namespace_rules() -> Result<Vec<SeccompRule>, SandboxError> {
    let flags = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    let rules = flags.into_iter().map(|flag| {
        let flag = u64::from(flag.unsigned_abs());
        let operator = SeccompCmpOp::MaskedEq(flag);
        let condition = SeccompCondition::new(0, SeccompCmpArgLen::Qword, operator, flag);
        SeccompRule::new(vec![condition.map_err(unfiltered)?]).map_err(unfiltered)
    });
    rules.collect()
}

/// The number of a system call and, on x86-64, those by which programs of the x32 calling convention
/// reach the same one.
fn with_other_calling_conventions(name: &str, number: c_long) -> Vec<c_long> {
    let mut numbers = vec![number];
    if cfg!(target_arch = "x86_64") {
        numbers.push(number | X32);
        // These have numbers of their own.
        let own = [
            ("ptrace", 521),
            ("kexec_load", 528),
            ("process_vm_readv", 539),
            ("process_vm_writev", 540),
        ];
        numbers.extend(own.iter().filter(|(own, _)| *own == name).map(|(_, number)| number | X32));
    }
    numbers
}

/// The bit of the x32 calling convention.
const X32: c_long = 0x4000_0000;

/// The number of a system call.
fn number(name: &str) -> Option<c_long> {
    let (_, number) = NUMBERS.iter().find(|(known, _)| *known == name)?;
    Some(*number)
}

/// The system calls that a policy can name.
const NUMBERS: [(&str, c_long); 45] = [
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("adjtimex", libc::SYS_adjtimex),
    ("bpf", libc::SYS_bpf),
    ("chroot", libc::SYS_chroot),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("clock_settime", libc::SYS_clock_settime),
    ("delete_module", libc::SYS_delete_module),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("finit_module", libc::SYS_finit_module),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fsopen", libc::SYS_fsopen),
    ("fspick", libc::SYS_fspick),
    ("init_module", libc::SYS_init_module),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("kcmp", libc::SYS_kcmp),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("landlock_create_ruleset", libc::SYS_landlock_create_ruleset),
    ("mount", libc::SYS_mount),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("move_mount", libc::SYS_move_mount),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("pivot_root", libc::SYS_pivot_root),
    ("process_madvise", libc::SYS_process_madvise),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("ptrace", libc::SYS_ptrace),
    ("quotactl", libc::SYS_quotactl),
    ("reboot", libc::SYS_reboot),
    ("request_key", libc::SYS_request_key),
    ("setns", libc::SYS_setns),
    ("settimeofday", libc::SYS_settimeofday),
    ("swapon", libc::SYS_swapon),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::child::DENIED_SYSCALLS;

    #[test]
    fn every_denied_call_has_a_number() {
        for name in DENIED_SYSCALLS {
            assert!(number(name).is_some(), "{name}");
        }
    }
}
