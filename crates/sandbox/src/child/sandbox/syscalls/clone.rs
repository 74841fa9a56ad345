//! Namespaces through the creation of processes.

use super::{ArgumentTest, RefusedCalls};
use crate::child::sandbox::policy::SandboxError;

/// Refuses a `clone` that requests a namespace. A filter cannot see the arguments of `clone3`, so
/// `clone3` fails as on a kernel without it, and programs use `clone` instead.
pub(super) fn refuse_namespaces(refused: &mut RefusedCalls) -> Result<(), SandboxError> {
    refused.refuse(libc::ENOSYS, libc::SYS_clone3);
    for flag in [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ] {
        let asks = ArgumentTest::masked(0, flag, flag);
        refused.refuse_if(libc::EPERM, libc::SYS_clone, &[asks])?;
    }
    Ok(())
}
