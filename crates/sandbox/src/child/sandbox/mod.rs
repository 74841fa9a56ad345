//! Sandboxes of child processes: their policies, and the launcher that enters them.
//!
//! The programs that a process runs inherit its restrictions, and no process can undo them. So the
//! gateway starts its own program as a launcher, which restricts itself ([`run_launcher`]) and then
//! becomes the child by `exec`: the group, the pipes and the environment are the child's from the
//! beginning. Its parent is a keeper (`keeper`), which ends all processes that the child starts.
//!
//! If the system cannot enforce a restriction, the launcher exits with the reason before the child
//! runs. No restriction is skipped.

#[cfg(target_os = "linux")]
mod filesystem;
#[cfg(target_os = "linux")]
mod keeper;
#[cfg(target_os = "linux")]
mod disk_usage;
mod launcher;
mod policy;
#[cfg(target_os = "linux")]
mod syscalls;
mod system;
mod temporary;
mod user;

#[cfg(target_os = "linux")]
pub use filesystem::{can_restrict_ports, can_restrict_scopes};
pub use launcher::{SandboxCommand, enter_sandbox, run_launcher};
pub use policy::{
    CallGroup, DENIED_SYSCALLS, InetSockets, ResourceBounds, SandboxError, SandboxPolicy,
    SocketPolicy, TemporaryBound, UserIds,
};
pub(super) use policy::{find_gap, prepare_sandbox};
pub(super) use system::{finds_program, is_program_missing, withheld_folders};
pub(super) use temporary::TemporaryFolder;
