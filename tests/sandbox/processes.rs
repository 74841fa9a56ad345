//! Other processes, first of all the gateway: a child can neither slow them down nor stop them.

use crate::{attempt, sandbox};

#[tokio::test]
async fn priorities_and_limits_of_the_gateway_cannot_be_changed() {
    let ioprio_set = if cfg!(target_arch = "x86_64") { 251 } else { 30 };
    for code in [
        "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CORE, (0, 0))",
        "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_CORE)",
        "os.setpriority(os.PRIO_PROCESS, os.getppid(), 1)",
        "os.setpriority(os.PRIO_PGRP, os.getpgid(os.getppid()), 1)",
        "os.setpriority(os.PRIO_USER, 0, 1)",
        // Within the gateway's own group.
        "os.setpgid(0, os.getpgid(os.getppid())); os.setpriority(os.PRIO_PGRP, 0, 1)",
        "os.sched_setaffinity(os.getppid(), os.sched_getaffinity(0))",
        "os.sched_setscheduler(os.getppid(), os.SCHED_OTHER, os.sched_param(0))",
        "os.sched_setparam(os.getppid(), os.sched_param(0))",
        &format!("libc({ioprio_set}, 1, os.getppid(), 3 << 13)"),
        &format!("libc({ioprio_set}, 2, 0, 3 << 13)"),
        "libc(256 if os.uname().machine == 'x86_64' else 238, os.getppid(), 0, None, None)",
        "libc(279 if os.uname().machine == 'x86_64' else 239, os.getppid(), 0, None, None, None, 0)",
    ] {
        assert_eq!(attempt(code, sandbox("true")).await, "PermissionError", "{code}");
    }
}

#[tokio::test]
async fn a_child_changes_its_own_priority_only_downwards() {
    let ioprio_set = if cfg!(target_arch = "x86_64") { 251 } else { 30 };
    let sched_setattr = if cfg!(target_arch = "x86_64") { 314 } else { 274 };
    for (code, expected) in [
        ("os.setpriority(os.PRIO_PROCESS, 0, 5)", "done"),
        ("os.sched_setaffinity(0, os.sched_getaffinity(0))", "done"),
        ("import resource; resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", "done"),
        ("os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))", "done"),
        // As root the kernel would allow these.
        ("os.setpriority(os.PRIO_PROCESS, 0, -5)", "PermissionError"),
        ("os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))", "PermissionError"),
        ("os.sched_setscheduler(0, os.SCHED_RR | 1 << 30, os.sched_param(1))", "PermissionError"),
        (&format!("libc({ioprio_set}, 1, 0, 1 << 13)"), "PermissionError"),
        (&format!("libc({sched_setattr}, 0, bytes(48), 0)"), "PermissionError"),
    ] {
        assert_eq!(attempt(code, sandbox("true")).await, expected, "{code}");
    }
}
