//! The policy of a sandbox, as the gateway hands it to the launcher.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use trunkline_config::SandboxConfig;

use super::super::ChildSpec;
use super::system::add_system;
use super::temporary::TemporaryFolder;
use super::user::{find_user, own_user};

/// Rights of a child. The launcher enforces all of it or fails.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxPolicy {
    /// Files and folders that it may read.
    pub read: BTreeSet<PathBuf>,
    /// Those that it may read and write.
    pub write: BTreeSet<PathBuf>,
    /// Those that it may read and run.
    pub execute: BTreeSet<PathBuf>,
    /// TCP ports that it may connect to; all if `None`.
    pub connect: Option<BTreeSet<u16>>,
    /// TCP ports that it may listen on; all if `None`.
    pub bind: Option<BTreeSet<u16>>,
    /// Blocks signals to processes outside, and access to their abstract sockets.
    pub scopes: bool,
    /// System calls that fail.
    pub denied: Vec<String>,
    /// Sockets that it may make; all if `None`.
    pub sockets: Option<SocketPolicy>,
    /// Further system calls that fail, most of them by their arguments.
    pub groups: BTreeSet<CallGroup>,
    /// Resource limits.
    pub bounds: ResourceBounds,
    /// The user that it runs as; the gateway's own if `None`.
    pub user: Option<UserIds>,
    /// Its folder for temporary files, if it has one: the keeper watches the size.
    pub temporary: Option<TemporaryBound>,
}

/// Limit in bytes for all files in a folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TemporaryBound {
    /// The folder.
    pub folder: PathBuf,
    /// In bytes.
    pub size: u64,
}

/// The sockets that a child may make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SocketPolicy {
    /// Over IPv4 and IPv6.
    pub inet: InetSockets,
    /// Sockets of paths.
    pub unix: bool,
    /// To be connected to.
    pub listen: bool,
}

/// The protocols over IPv4 and IPv6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InetSockets {
    /// None.
    None,
    /// TCP only.
    Tcp,
    /// TCP and UDP.
    TcpAndUdp,
}

impl SocketPolicy {
    fn from_config(config: &SandboxConfig) -> Self {
        let has_port = |ports: &Option<Vec<usize>>| ports.as_ref().is_none_or(|it| !it.is_empty());
        let (connect, bind) = (has_port(&config.connect), has_port(&config.bind));
        let inet = match (connect, bind) {
            (true, _) if config.udp => InetSockets::TcpAndUdp,
            (false, false) => InetSockets::None,
            _ => InetSockets::Tcp,
        };
        Self { inet, unix: config.unix, listen: bind || inet == InetSockets::None }
    }
}

/// System calls that are refused together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallGroup {
    /// Priorities, limits and processors of other processes.
    OtherProcesses,
    /// Owners, extended attributes and flags of files.
    Owners,
    /// Modes and times of files.
    Modes,
    /// Files in memory that can be run.
    ExecutableMemory,
}

/// Resource limits; those that are `None` stay as they are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceBounds {
    /// Bytes of address space of each process.
    pub memory: Option<u64>,
    /// Processes and threads of the user.
    pub processes: Option<u64>,
    /// Open files of each process.
    pub open_files: Option<u64>,
    /// Bytes of each written file.
    pub file_size: Option<u64>,
    /// Seconds of processor time of each process.
    pub cpu_time: Option<u64>,
}

/// A user and its group, by number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIds {
    /// The user.
    pub user: u32,
    /// The group.
    pub group: u32,
}

/// Error while setting up a child's sandbox.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// A configured path does not exist, or cannot be opened.
    #[error("cannot open {}", path.display())]
    Path {
        /// As configured.
        path: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The user does not exist.
    #[error("there is no user {name:?} in /etc/passwd")]
    NoUser {
        /// As configured.
        name: String,
    },
    /// `/etc/passwd` cannot be read.
    #[error("cannot read /etc/passwd")]
    Users(#[source] io::Error),
    /// Only root can give a child another user.
    #[error("gateway.sandbox_uids needs a gateway that runs as root")]
    NotRoot,
    /// All user numbers of the range belong to other servers.
    #[error("gateway.sandbox_uids has no user id left for another server")]
    NoUserLeft,
    /// The home of a child belongs to a user outside of the range.
    #[error(
        "{} belongs to user {owner}, which is not in gateway.sandbox_uids: remove the folder, or extend the range",
        folder.display()
    )]
    HomeOwner {
        /// The home.
        folder: PathBuf,
        /// Its owner.
        owner: u32,
    },
    /// The home of a child cannot be made.
    #[error("cannot make the home {} of the child", folder.display())]
    Home {
        /// The home.
        folder: PathBuf,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The folder for temporary files cannot be made.
    #[error("cannot make a folder for temporary files")]
    Temporary(#[source] io::Error),
    /// The system has no Landlock, or an older one than the configuration needs.
    #[error("this kernel cannot restrict {what}: Landlock is off or too old")]
    Landlock {
        /// Files, network ports, or signals and abstract sockets.
        what: &'static str,
        /// The reason.
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// System calls cannot be filtered.
    #[error("this kernel cannot filter system calls")]
    Seccomp(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The name of a system call.
    #[error("unknown system call {name:?}")]
    UnknownCall {
        /// As in the policy.
        name: String,
    },
    /// A resource limit cannot be set.
    #[error("cannot limit {what}")]
    Bound {
        /// The setting.
        what: &'static str,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
    /// The keeper, which ends all processes of the child, cannot start.
    #[error("cannot start the keeper of the child")]
    Keeper(#[source] io::Error),
    /// The system is not Linux.
    #[error("children have a sandbox on Linux only")]
    System,
    /// The launcher cannot read its policy.
    #[error("the policy of the sandbox is invalid")]
    Policy(#[source] serde_json::Error),
    /// The program cannot be run, or not as this user.
    #[error("cannot run {program:?}{}", of_user(*user))]
    Run {
        /// The program.
        program: OsString,
        /// The user, if one is configured.
        user: Option<UserIds>,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

fn of_user(user: Option<UserIds>) -> String {
    user.map(|UserIds { user, group }| format!(" as user {user}:{group}")).unwrap_or_default()
}

impl SandboxPolicy {
    /// Returns the policy as the launcher reads it.
    ///
    /// # Errors
    /// [`SandboxError::Policy`], for a path that is not UTF-8.
    pub fn to_json(&self) -> Result<String, SandboxError> {
        serde_json::to_string(self).map_err(SandboxError::Policy)
    }

    /// Returns the policy for the log. Of the denied system calls it contains only the number.
    pub(crate) fn describe(&self) -> String {
        let Self { read, write, execute, connect, bind, scopes, denied, bounds, user, .. } = self;
        let (denied, sockets, groups) = (denied.len(), self.sockets, &self.groups);
        format!(
            "read {read:?}, write {write:?}, execute {execute:?}, connect {connect:?}, \
             bind {bind:?}, {sockets:?}, scopes {scopes}, {denied} system calls and {groups:?} denied, {bounds:?}, user {user:?}"
        )
    }
}

/// A child's policy and its own folders.
pub(crate) struct SandboxedChild {
    pub(crate) policy: SandboxPolicy,
    /// Its folder for temporary files, if it has one.
    pub(crate) temporary: Option<TemporaryFolder>,
    /// Its home, if it has a user of its own.
    pub(super) home: Option<PathBuf>,
}

impl SandboxedChild {
    /// Returns the variables that name its own folders.
    pub(crate) fn folders(&self) -> Vec<(&'static str, PathBuf)> {
        let temporary = self.temporary.iter().map(|it| ("TMPDIR", it.path().to_owned()));
        let homes = self.home.iter().flat_map(|home| {
            HOME_VARIABLES.map(|(name, below)| {
                (name, if below.is_empty() { home.clone() } else { home.join(below) })
            })
        });
        temporary.chain(homes).collect()
    }
}

/// Variables of a home, which the gateway's own environment may set to folders of its own user.
const HOME_VARIABLES: [(&str, &str); 5] = [
    ("HOME", ""),
    ("XDG_CACHE_HOME", ".cache"),
    ("XDG_CONFIG_HOME", ".config"),
    ("XDG_DATA_HOME", ".local/share"),
    ("XDG_STATE_HOME", ".local/state"),
];

/// Builds the policy of a child with this environment.
pub(crate) fn prepare_sandbox(
    config: &SandboxConfig,
    spec: &ChildSpec,
    environment: &[(OsString, OsString)],
) -> Result<SandboxedChild, SandboxError> {
    let set = |paths: &[PathBuf]| paths.iter().cloned().collect::<BTreeSet<_>>();
    let ports = |ports: &Option<Vec<usize>>| {
        let ports = ports.as_ref()?.iter();
        Some(ports.filter_map(|port| u16::try_from(*port).ok()).collect())
    };
    let (user, home) = match (&config.user, &config.own_user) {
        (Some(user), _) => (Some(find_user(user)?), None),
        (None, Some(own)) => own_user(own).map(|(ids, home)| (Some(ids), Some(home)))?,
        (None, None) => (None, None),
    };
    let bytes = |count: Option<usize>| count.and_then(|count| u64::try_from(count).ok());
    let mut policy = SandboxPolicy {
        read: set(&config.read),
        write: set(&config.write),
        execute: set(&config.execute),
        connect: ports(&config.connect),
        bind: ports(&config.bind),
        scopes: config.scopes.unwrap_or_else(can_restrict_scopes),
        denied: Vec::new(),
        sockets: Some(SocketPolicy::from_config(config)),
        groups: call_groups(config, home.as_deref()),
        bounds: ResourceBounds {
            memory: config.memory,
            processes: bytes(config.processes),
            open_files: bytes(config.open_files),
            file_size: config.file_size,
            cpu_time: config.cpu_time.map(|time| time.as_secs().max(1)),
        },
        user,
        temporary: None,
    };
    // Only these paths must exist. The other lists contain paths that may be absent.
    for path in policy.read.iter().chain(&policy.write).chain(&policy.execute) {
        path.metadata().map_err(|cause| SandboxError::Path { path: path.clone(), cause })?;
    }
    if config.syscalls {
        policy.denied = DENIED_SYSCALLS.map(str::to_owned).to_vec();
    }
    if config.system {
        add_system(&mut policy, config, spec, environment);
    }
    policy.write.extend(home.clone());
    policy.execute.extend(home.clone());
    let temporary = config.private_tmp.then(|| TemporaryFolder::create(policy.user)).transpose();
    let temporary = temporary.map_err(SandboxError::Temporary)?;
    policy.write.extend(temporary.iter().map(|folder| folder.path().to_owned()));
    policy.temporary = temporary
        .as_ref()
        .map(|folder| TemporaryBound { folder: folder.path().to_owned(), size: config.tmp_size });
    Ok(SandboxedChild { policy, temporary, home })
}

/// Returns the groups of system calls to refuse. Modes and times can be changed where files can be
/// written: npm, uv and git need that.
fn call_groups(config: &SandboxConfig, home: Option<&Path>) -> BTreeSet<CallGroup> {
    let modes = config.metadata.unwrap_or(!config.write.is_empty() || home.is_some());
    [
        (CallGroup::OtherProcesses, config.syscalls),
        (CallGroup::Owners, config.metadata != Some(true)),
        (CallGroup::Modes, !modes),
        (CallGroup::ExecutableMemory, !config.memfd),
    ]
    .into_iter()
    .filter_map(|(group, is_refused)| is_refused.then_some(group))
    .collect()
}

/// Returns a description of the restriction that this system does not enforce, if the sandbox does
/// not insist on it.
pub(crate) fn find_gap(config: &SandboxConfig) -> Option<&'static str> {
    (config.scopes.is_none() && !can_restrict_scopes()).then_some(SCOPES_MISSING)
}

/// Returns true if the kernel can block a process's signals to others and its access to their
/// abstract sockets.
fn can_restrict_scopes() -> bool {
    #[cfg(target_os = "linux")]
    {
        super::filesystem::can_restrict_scopes()
    }
    #[cfg(not(target_os = "linux"))]
    {
        false
    }
}

/// Description of a sandbox without these restrictions.
const SCOPES_MISSING: &str = "the sandbox cannot block signals to other processes and access to \
                              their abstract sockets, which needs Linux 6.12: set sandbox.scopes \
                              = true to refuse the start without it, or false to turn off this \
                              warning";

/// System calls that fail in a sandbox. They inspect or change other processes, change the system's
/// mounts, programs and trust, or leave the sandbox through a namespace. A `clone` that requests a
/// namespace fails like `unshare`.
pub const DENIED_SYSCALLS: [&str; 50] = [
    "acct",
    "add_key",
    "adjtimex",
    "bpf",
    "chroot",
    "clock_adjtime",
    "clock_settime",
    "delete_module",
    "fanotify_init",
    "finit_module",
    "fsconfig",
    "fsmount",
    "fsopen",
    "fspick",
    "init_module",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "kcmp",
    "kexec_file_load",
    "kexec_load",
    "keyctl",
    "mount",
    "mount_setattr",
    "move_mount",
    "name_to_handle_at",
    "open_by_handle_at",
    "open_tree",
    "open_tree_attr",
    "perf_event_open",
    "pidfd_getfd",
    "pivot_root",
    "process_madvise",
    "process_vm_readv",
    "process_vm_writev",
    "ptrace",
    "quotactl",
    "quotactl_fd",
    "reboot",
    "request_key",
    "setdomainname",
    "sethostname",
    "setns",
    "settimeofday",
    "swapoff",
    "swapon",
    "umount2",
    "unshare",
    "userfaultfd",
    "vhangup",
];
