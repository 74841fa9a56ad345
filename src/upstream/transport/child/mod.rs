//! A child process as a thing with a life: spawn, run, stop, reap.
//!
//! What speaks MCP over its pipes is the stdio transport's matter; this room
//! knows processes only. Three promises:
//!
//! - *No orphan.* A child leads a process group of its own, and the group dies
//!   with it: when it is stopped, when it exits by itself and leaves others
//!   behind, when its [`Child`] is dropped, and, through the [`Guardian`], when
//!   the gateway is killed. What leaves the group on purpose (`setsid`) is lost
//!   to it: only the kernel's control groups could hold that.
//! - *No secrets by accident.* A child inherits a short list of variables that
//!   every program needs, and what its configuration names; no more.
//! - *No flood.* Its standard error goes to the log by the line, escaped, cut
//!   and rate limited.
//!
//! The end is always the same: the caller drops the child's standard input,
//! which is how MCP asks a server to leave, then `SIGTERM` to the group, then
//! `SIGKILL`, each after `stop_timeout`.

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
    /// Variables to inherit besides the safe few: names, or `PREFIX*`; `*` is all.
    pub pass_env: Vec<String>,
    /// Its working directory; the gateway's own when `None`.
    pub cwd: Option<PathBuf>,
    /// How long each step of [`Child::stop`] waits before the next, harsher one.
    pub stop_timeout: Duration,
}

impl ChildSpec {
    /// A program without arguments, to be stopped within five seconds a step.
    pub fn new(program: &str) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            pass_env: Vec::new(),
            cwd: None,
            stop_timeout: Duration::from_secs(5),
        }
    }
}

/// Why a child could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// There is no such program, or it has no such interpreter.
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
    /// The working directory is missing or is none.
    #[error("the working directory `{}` is not a directory", cwd.display())]
    Cwd {
        /// As configured.
        cwd: PathBuf,
    },
    /// The system refused: too many processes or open files, say.
    #[error("cannot start the program `{program}`")]
    Io {
        /// As configured.
        program: String,
        /// What the system said.
        source: io::Error,
    },
}

/// A running child, or one that has exited and was reaped.
///
/// Dropping it kills its process group at once; [`Child::stop`] is the kind way.
#[derive(Debug)]
pub struct Child {
    /// Before the process, so that a drop kills the group before it lets go of
    /// the leader: until that is reaped, the group's id means this group.
    lease: Lease,
    process: tokio::process::Child,
    stderr: StderrLog,
    stop_timeout: Duration,
    status: Option<ExitStatus>,
}

impl Child {
    /// Starts `spec` as a process group of its own, registered with `guardian`.
    ///
    /// Must be called within a tokio runtime: reading standard error and
    /// reaping go on in it. Blocks until the program runs.
    ///
    /// # Errors
    /// [`SpawnError`] says what about the specification is wrong.
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
        let stderr = StderrLog::start(server.clone(), process.stderr.take().ok_or_else(unusable)?);
        let stop_timeout = spec.stop_timeout;
        Ok((Self { lease, process, stderr, stop_timeout, status: None }, stdin, stdout))
    }

    /// The process id, which is also that of its group.
    pub fn id(&self) -> i32 {
        self.lease.group.id()
    }

    /// The last few lines it wrote to standard error, oldest first: most often
    /// the reason why it went. Complete once [`exited`](Self::exited) has returned.
    pub fn last_words(&self) -> Vec<String> {
        self.stderr.last_lines()
    }

    /// Waits until it has exited by itself, then kills what it left behind.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing; called again after an exit it
    /// returns the same status at once.
    pub async fn exited(&mut self) -> ExitStatus {
        let status = self.leader_exited().await;
        self.lease.kill();
        self.stderr.finish().await;
        if std::mem::take(&mut self.lease.killed) {
            self.lease.group.reap_inherited();
        }
        status
    }

    /// Ends it. The caller has dropped its standard input, or does so now:
    /// that is the first of three ways to ask, each with `stop_timeout` to
    /// comply, then `SIGTERM`, then `SIGKILL`, both to the whole group. What
    /// outlives a leader that did comply gets the same two signals.
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
            // Only somebody else who reaps this process's children can do this.
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
            // Nothing tells when a process that is nobody's child here ends.
            sleep(GROUP_POLL).await;
        }
    }
}

/// The right and duty to kill a group, used up by the end of its leader or of
/// this value, whichever comes first.
#[derive(Debug)]
struct Lease {
    group: Group,
    guardian: Guardian,
    ended: bool,
    /// The group was killed, and nobody has looked yet for members whose
    /// reaping has fallen to this process.
    killed: bool,
}

impl Lease {
    fn new(group: Group, guardian: Guardian) -> Self {
        guardian.watch(group);
        Self { group, guardian, ended: false, killed: false }
    }

    /// Kills what is left of the group. If its leader has been reaped, that was
    /// an instant ago, and the id has not gone to another group yet: the kernel
    /// hands ids out in turn.
    fn kill(&mut self) {
        if !self.ended {
            self.group.signal(Signal::KILL);
            self.killed = true;
            self.release();
        }
    }

    /// The group is gone: its id may be anybody's from now on.
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
        // Asked here, because a spawn that fails does not say which of the two it missed.
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
