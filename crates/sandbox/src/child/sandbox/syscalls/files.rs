//! File metadata, which Landlock does not restrict, and programs in memory, which it does not see.

use libc::c_long;

use super::numbers::{FILE_SETATTR, SYS_REMOVEXATTRAT, SYS_SETXATTRAT};
use super::{ArgumentTest, RefusedCalls};
use crate::child::sandbox::policy::SandboxError;

/// Refuses changes of owners, extended attributes and flags.
pub(super) fn refuse_owners(refused: &mut RefusedCalls) -> Result<(), SandboxError> {
    for call in OWNER_CALLS.iter().chain(PATH_OWNERS) {
        refused.refuse(libc::EPERM, *call);
    }
    for request in FLAG_REQUESTS {
        let sets_flags = ArgumentTest::is(1, request);
        refused.refuse_if(libc::EPERM, libc::SYS_ioctl, &[sets_flags])?;
    }
    Ok(())
}

/// Refuses changes of modes and times.
pub(super) fn refuse_modes(refused: &mut RefusedCalls) {
    for call in MODE_CALLS.iter().chain(PATH_MODES) {
        refused.refuse(libc::EPERM, *call);
    }
}

/// Refuses files in memory unless they are sealed against execution. The error is that of a kernel
/// without such files, for which programs have a fallback.
pub(super) fn refuse_executable_memory(refused: &mut RefusedCalls) -> Result<(), SandboxError> {
    let executable = ArgumentTest::masked(1, MFD_NOEXEC_SEAL, 0);
    refused.refuse_if(libc::ENOSYS, libc::SYS_memfd_create, &[executable])
}

const OWNER_CALLS: [c_long; 11] = [
    libc::SYS_fchown,
    libc::SYS_fchownat,
    libc::SYS_setxattr,
    libc::SYS_lsetxattr,
    libc::SYS_fsetxattr,
    SYS_SETXATTRAT,
    libc::SYS_removexattr,
    libc::SYS_lremovexattr,
    libc::SYS_fremovexattr,
    SYS_REMOVEXATTRAT,
    FILE_SETATTR,
];
const MODE_CALLS: [c_long; 4] =
    [libc::SYS_fchmod, libc::SYS_fchmodat, SYS_FCHMODAT2, libc::SYS_utimensat];
/// Older calls, which newer architectures lack.
#[cfg(target_arch = "x86_64")]
const PATH_OWNERS: &[c_long] = &[libc::SYS_chown, libc::SYS_lchown];
#[cfg(target_arch = "x86_64")]
const PATH_MODES: &[c_long] =
    &[libc::SYS_chmod, libc::SYS_utime, libc::SYS_utimes, libc::SYS_futimesat];
#[cfg(not(target_arch = "x86_64"))]
const PATH_OWNERS: &[c_long] = &[];
#[cfg(not(target_arch = "x86_64"))]
const PATH_MODES: &[c_long] = &[];
/// Linux 6.6.
const SYS_FCHMODAT2: c_long = 452;
/// Requests of `ioctl` for an open file: `FS_IOC_SETFLAGS` in both widths, `FS_IOC_SETVERSION` in
/// both, and `FS_IOC_FSSETXATTR`.
const FLAG_REQUESTS: [i32; 5] = [0x4008_6602, 0x4004_6602, 0x4008_7602, 0x4004_7602, 0x401c_5820];
/// The file is not executable and cannot become so (Linux 6.3).
const MFD_NOEXEC_SEAL: i32 = 8;
