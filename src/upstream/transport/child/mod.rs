//! Child processes: spawn, run, stop, reap.
//!
//! This module knows processes only; the stdio transport speaks MCP over their
//! pipes. It guarantees:
//!
//! - *No orphans.* A child leads a process group of its own, and the group ends
//!   with it: when the child is stopped, when it exits by itself and leaves
//!   others behind, when its [`Child`] is dropped, and, through the
//!   [`Guardian`], when the gateway is killed. A process that leaves the group
//!   on purpose (`setsid`) escapes: only control groups could hold it.
//! - *No leaked secrets.* A child inherits a short list of variables that every
//!   program needs, and those that its configuration names.
//! - *No log floods.* Its standard error is logged line by line, escaped,
//!   clipped and rate limited.
//!
//! A child is always stopped in the same way: the caller drops its standard
//! input, which is how MCP asks a server to exit, then `SIGTERM` is sent to the
//! group, then `SIGKILL`, each after `stop_timeout`.

mod environment;
mod group;
mod guardian;
mod stderr;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use crate::call::ServerName;
use crate::config::ServerSecrets;
use group::Group;
use stderr::StderrLog;

pub use guardian::{Guardian, run_guardian};

/// How to start a child, and how long it may take to end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildSpec {
    /// The program: a path, or a name looked up in the child's `PATH`. A
    /// relative path with a slash starts at `cwd`.
    pub program: String,
    /// Its arguments, without the program's own name.
    pub args: Vec<String>,
    /// Variables to set, over those inherited.
    pub env: Vec<(String, String)>,
    /// Variables to inherit besides the safe ones: names, or `PREFIX*`; `*` for
    /// all.
    pub pass_env: Vec<String>,
    /// Its working directory; the gateway's own when `None`.
    pub cwd: Option<PathBuf>,
    /// How long each step of [`Child::stop`] waits before the next, harsher one.
    pub stop_timeout: Duration,
    /// What is hidden in its output to standard error.
    pub secrets: ServerSecrets,
}

impl ChildSpec {
    /// A program without arguments, with a stop timeout of five seconds.
    pub fn new(program: &str) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            pass_env: Vec::new(),
            cwd: None,
            stop_timeout: Duration::from_secs(5),
            secrets: ServerSecrets::default(),
        }
    }
}

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program, or its interpreter, does not exist.
    #[error("cannot find the program `{program}`")]
    NotFound {
        /// As configured.
        program: String,
    },
    /// The program is not executable for this user.
    #[error("may not run the program `{program}`")]
    Denied {
        /// As configured.
        program: String,
    },
    /// The working directory is missing or not a directory.
    #[error("the working directory `{}` is not a directory", cwd.display())]
    Cwd {
        /// As configured.
        cwd: PathBuf,
    },
    /// Another error of the system, such as too many processes or open files.
    #[error("cannot start the program `{program}`")]
    Io {
        /// As configured.
        program: String,
        /// The system's error.
        source: io::Error,
    },
}

/// A running child, or one that has exited and was reaped.
///
/// Dropping it kills its process group at once; [`Child::stop`] stops it
/// gracefully.
#[derive(Debug)]
pub struct Child {
    /// Declared before the process, so that a drop kills the group before it
    /// releases the leader: until the leader is reaped, the id denotes this
    /// group.
    lease: Lease,
    process: tokio::process::Child,
    stderr: StderrLog,
    stop_timeout: Duration,
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts `spec` as a process group of its own, registered with `guardian`.
    ///
    /// Must be called within a tokio runtime, in which standard error is read
    /// and the child is reaped. Blocks until the program runs.
    ///
    /// # Errors
    /// [`SpawnError`] says what is wrong with the specification.
    pub fn spawn(
        server: &ServerName,
        spec: &ChildSpec,
        guardian: &Guardian,
    ) -> Result<(Self, ChildStdin, ChildStdout), SpawnError> {
        guardian.awake();
        let mut process = command(spec)?.spawn().map_err(|source| spawn_error(spec, source))?;
        let unusable = || SpawnError::Io {
            program: spec.program.clone(),
            source: io::Error::other("the child has no process id or pipes"),
        };
        let id = process.id().and_then(|id| i32::try_from(id).ok());
        let group = id.and_then(Group::led_by).ok_or_else(unusable)?;
        let lease = Lease::new(group, guardian.clone());
        let stdin = process.stdin.take().ok_or_else(unusable)?;
        let stdout = process.stdout.take().ok_or_else(unusable)?;
        let stderr = process.stderr.take().ok_or_else(unusable)?;
        let stderr = StderrLog::start(server.clone(), spec.secrets.clone(), stderr);
        let stop_timeout = spec.stop_timeout;
        Ok((Self { lease, process, stderr, stop_timeout, status: None }, stdin, stdout))
    }

    /// The process id, which is also the id of its group.
    pub fn id(&self) -> i32 {
        self.lease.group.id()
    }

    /// The last few lines of standard error, oldest first: usually the reason
    /// for an exit. Complete once [`exited`](Self::exited) has returned.
    pub fn last_words(&self) -> Vec<String> {
        self.stderr.last_lines()
    }

    /// Waits until the child has exited by itself, then kills the rest of its
    /// group.
    ///
    /// # Cancel safety
    /// Safe. Called again after an exit, it returns the same status at once.
    pub async fn exited(&mut self) -> ExitStatus {
        let status = self.leader_exited().await;
        self.lease.kill();
        self.stderr.finish().await;
        if std::mem::take(&mut self.lease.killed) {
            self.lease.group.reap_inherited();
        }
        status
    }

    /// Stops the child. The caller has dropped its standard input, or does so
    /// now: this is the first of three steps. After `stop_timeout` follows
    /// `SIGTERM`, and after another one `SIGKILL`, both to the whole group. If
    /// the leader exits earlier, the rest of its group receives the same two
    /// signals.
    pub async fn stop(mut self) -> ExitStatus {
        let patience = self.stop_timeout;
        let _obeyed = timeout(patience, self.leader_exited()).await;
        if !self.lease.group.is_gone() {
            self.lease.group.signal(Signal::TERM);
            let _obeyed = timeout(patience, self.group_gone()).await;
        }
        if self.status.is_some() && self.lease.group.is_gone() {
            self.lease.release();
        } else {
            self.lease.kill();
        }
        self.exited().await
    }

    async fn leader_exited(&mut self) -> ExitStatus {
        if let Some(status) = self.status {
            return status;
        }
        let status = self.process.wait().await.unwrap_or_else(|error| {
            // Happens only if other code reaps this process's children.
            tracing::warn!(pid = self.lease.group.id(), %error, "a child's exit status is lost");
            ExitStatus::from_raw(Signal::KILL.as_raw())
        });
        self.status = Some(status);
        status
    }

    async fn group_gone(&mut self) {
        self.leader_exited().await;
        loop {
            self.lease.group.reap_inherited();
            if self.lease.group.is_gone() {
                return;
            }
            // No event reports the end of a process that is not a child of this
            // one.
            sleep(GROUP_POLL).await;
        }
    }
}

/// The right and duty to kill a group, which ends with its leader or when this
/// value is dropped, whichever comes first.
#[derive(Debug)]
struct Lease {
    group: Group,
    guardian: Guardian,
    ended: bool,
    /// The group was killed, and members that this process has inherited have
    /// not been reaped.
    killed: bool,
}

impl Lease {
    fn new(group: Group, guardian: Guardian) -> Self {
        guardian.watch(group);
        Self { group, guardian, ended: false, killed: false }
    }

    /// Kills the rest of the group. If its leader has been reaped, that was an
    /// instant ago, and the id has not been reused: the kernel assigns ids in
    /// turn.
    fn kill(&mut self) {
        if !self.ended {
            self.group.signal(Signal::KILL);
            self.killed = true;
            self.release();
        }
    }

    /// Releases the group, which is gone: its id may be reused from now on.
    fn release(&mut self) {
        if !std::mem::replace(&mut self.ended, true) {
            self.guardian.forget(self.group);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.kill();
    }
}

fn command(spec: &ChildSpec) -> Result<Command, SpawnError> {
    let mut command = Command::new(&spec.program);
    command
        .args(&spec.args)
        .env_clear()
        .envs(environment::of(spec, std::env::vars_os()))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    if let Some(cwd) = &spec.cwd {
        // Checked here, because a failed spawn does not tell which of the two
        // is missing.
        if !cwd.is_dir() {
            return Err(SpawnError::Cwd { cwd: cwd.clone() });
        }
        command.current_dir(cwd);
    }
    Ok(command)
}

fn spawn_error(spec: &ChildSpec, source: io::Error) -> SpawnError {
    let program = spec.program.clone();
    match source.kind() {
        io::ErrorKind::NotFound => SpawnError::NotFound { program },
        io::ErrorKind::PermissionDenied => SpawnError::Denied { program },
        _ => SpawnError::Io { program, source },
    }
}

const GROUP_POLL: Duration = Duration::from_millis(10);
