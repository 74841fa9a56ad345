//! Sandboxes of child processes.

use crate::config::SandboxConfig;

/// Returns true if `after` provably confines at least as much as `before`.
///
/// A setting that is not compared here has to be equal.
pub(super) fn is_as_strict(before: &SandboxConfig, after: &SandboxConfig) -> bool {
    let (b, a) = (before, after);
    // `before`, with those settings of `after` that are as strict.
    #[allow(clippy::needless_update, reason = "a setting that is added later has to be equal")]
    let tightened = SandboxConfig {
        system: b.system && a.system,
        read: keep_subset(&b.read, &a.read),
        write: keep_subset(&b.write, &a.write),
        execute: keep_subset(&b.execute, &a.execute),
        private_tmp: b.private_tmp || a.private_tmp,
        connect: keep_ports(b.connect.as_ref(), a.connect.as_ref()),
        bind: keep_ports(b.bind.as_ref(), a.bind.as_ref()),
        // Without a value, the sandbox has scopes if the kernel supports them.
        scopes: if scope_rank(a.scopes) >= scope_rank(b.scopes) { a.scopes } else { b.scopes },
        syscalls: b.syscalls || a.syscalls,
        memory: lower_limit(b.memory, a.memory),
        processes: lower_limit(b.processes, a.processes),
        open_files: lower_limit(b.open_files, a.open_files),
        file_size: lower_limit(b.file_size, a.file_size),
        cpu_time: lower_limit(b.cpu_time, a.cpu_time),
        user: b.user.clone().or_else(|| a.user.clone()),
        ..before.clone()
    };
    tightened == *after
}

/// Returns `after` if it is a subset of `before`, otherwise `before`.
fn keep_subset<T: Clone + PartialEq>(before: &[T], after: &[T]) -> Vec<T> {
    let is_part = after.iter().all(|one| before.contains(one));
    if is_part { after.to_vec() } else { before.to_vec() }
}

/// The same for ports; `None` means all.
fn keep_ports(before: Option<&Vec<usize>>, after: Option<&Vec<usize>>) -> Option<Vec<usize>> {
    match (before, after) {
        (None, after) => after.cloned(),
        (Some(before), None) => Some(before.clone()),
        (Some(before), Some(after)) => Some(keep_subset(before, after)),
    }
}

/// Returns the lower of two limits; `None` means no limit.
fn lower_limit<T: Ord + Copy>(before: Option<T>, after: Option<T>) -> Option<T> {
    match (before, after) {
        (Some(before), Some(after)) => Some(before.min(after)),
        (before, after) => before.or(after),
    }
}

fn scope_rank(scopes: Option<bool>) -> u8 {
    match scopes {
        Some(false) => 0,
        None => 1,
        Some(true) => 2,
    }
}
