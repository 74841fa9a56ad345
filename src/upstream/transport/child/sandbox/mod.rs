//! Sandboxes of child processes: what one is, and the launcher that enters it.
//!
//! A restriction of a process is inherited by what it runs, and can be taken back by nobody. So the
//! gateway starts its own program as a launcher, which restricts itself
//! ([`run_launcher`]) and then becomes the child by `exec`: the process
//! id, the group, the pipes and the environment are the child's from the beginning.
//!
//! What the system cannot enforce ends the launcher with the reason, before the child runs. Nothing
//! is skipped.

#[cfg(target_os = "linux")]
mod filesystem;
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
    CallGroup, DENIED_SYSCALLS, ResourceBounds, SandboxError, SandboxPolicy, SocketPolicy, UserIds,
};
pub(super) use policy::{find_gap, prepare_sandbox};
pub(super) use system::withheld_folders;
pub(super) use temporary::TemporaryFolder;
