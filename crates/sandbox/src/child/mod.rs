//! Child processes: spawn, run, stop, reap.
//!
//! This module knows processes only; the gateway's stdio transport speaks MCP over their pipes. It
//! guarantees:
//!
//! - *No orphans.* A child leads a process group of its own, and the group ends with it: when the
//!   child is stopped, when it exits by itself and leaves others behind, when its [`Child`] is
//!   dropped, and, through the [`Guardian`], when the gateway is killed. A process that leaves the
//!   group on purpose (`setsid`) escapes, unless the child has a sandbox: then a keeper between the
//!   gateway and the child ends all processes that the child has started.
//! - *No leaked secrets.* A child inherits a short list of variables that every program needs, and
//!   those that its configuration names.
//! - *No more rights than configured.* A child with a `sandbox` has only the rights in its policy,
//!   or does not run at all.
//! - *No log floods.* Its standard error is logged line by line, escaped, clipped and rate limited.
//!
//! A child is always stopped in the same way: the caller drops its standard input, which is MCP's
//! request to exit. Then the group receives `SIGTERM`, then `SIGKILL`, each after `stop_timeout`.

mod environment;
mod group;
mod guardian;
mod output_log;
mod sandbox;
mod stderr;

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::Signal;
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::time::{sleep, timeout};

use group::Group;
use sandbox::{
    TemporaryFolder, find_gap, finds_program, is_program_missing, prepare_sandbox, withheld_folders,
};
use stderr::StderrLog;

use trunkline_config::{CommandConfig, SandboxConfig, ServerConfig, ServerKind, ServerSecrets};
use trunkline_core::text::error_chain;
use trunkline_protocol::call::ServerName;

pub use guardian::{Guardian, run_guardian};
pub use output_log::{OutputLine, OutputLog};
pub use sandbox::{
    CallGroup, DENIED_SYSCALLS, InetSockets, ResourceBounds, SandboxCommand, SandboxError,
    SandboxPolicy, SocketPolicy, TemporaryBound, UserIds, enter_sandbox, run_launcher,
};
#[cfg(target_os = "linux")]
pub use sandbox::{can_restrict_ports, can_restrict_scopes};

/// Specification of a child: program, environment, limits and stop timeout.
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
    /// Time that each step of [`Child::stop`] waits before the next, harsher one.
    pub stop_timeout: Duration,
    /// Secrets that are hidden in its output to standard error.
    pub secrets: ServerSecrets,
    /// Restrictions of the child. None apply when `None`.
    pub sandbox: Option<SandboxConfig>,
}

impl ChildSpec {
    /// Specifies a program without arguments, with a stop timeout of five seconds.
    pub fn new(program: &str) -> Self {
        Self {
            program: program.into(),
            args: Vec::new(),
            env: Vec::new(),
            pass_env: Vec::new(),
            cwd: None,
            stop_timeout: Duration::from_secs(5),
            secrets: ServerSecrets::default(),
            sandbox: None,
        }
    }

    /// Specifies the child of a configured server.
    pub fn for_server(server: &ServerConfig, command: &CommandConfig) -> Self {
        let env = command.env.iter();
        Self {
            program: command.program.clone(),
            args: command.args.clone(),
            env: env.map(|(name, value)| (name.clone(), value.expose().to_owned())).collect(),
            pass_env: command.pass_env.clone(),
            cwd: command.cwd.clone(),
            stop_timeout: server.stop_timeout,
            secrets: server.secrets.clone(),
            sandbox: command.sandbox.clone(),
        }
    }

    /// Returns true if the program exists. Blocks while it looks for it.
    pub fn finds_program(&self) -> bool {
        finds_program(self, &environment::of(self, std::env::vars_os()))
    }
}

/// Error while starting a child.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The program, or its interpreter, does not exist.
    #[error("cannot find the program `{program}`")]
    NotFound {
        /// As configured.
        program: String,
    },
    /// The program is not executable for this user.
    #[error("no permission to run the program `{program}`")]
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
    /// Its sandbox cannot be made.
    #[error("cannot start the program `{program}` in its sandbox")]
    Sandbox {
        /// As configured.
        program: String,
        /// The reason.
        source: Box<SandboxError>,
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
/// Dropping it kills its process group at once. [`Child::stop`] stops it gracefully.
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
    /// Removed when the child is gone.
    _temporary: Option<TemporaryFolder>,
}

impl Child {
    /// Starts `spec` as a process group of its own, registered with `guardian`.
    ///
    /// Must be called within a tokio runtime, which reads standard error and reaps the child.
    /// Blocks until the program runs.
    ///
    /// # Errors
    /// [`SpawnError`] names the fault in the specification.
    pub fn spawn(
        server: &ServerName,
        spec: &ChildSpec,
        guardian: &Guardian,
    ) -> Result<(Self, ChildStdin, ChildStdout), SpawnError> {
        guardian.awake();
        let prepared = prepare(server, spec, || guardian.executable())?;
        Self::spawn_prepared(server, spec, prepared, guardian)
    }

    /// Starts the gateway's own program with these arguments, as a child like any other, but
    /// without any environment and in the root folder. The log of its standard error names `label`.
    ///
    /// # Errors
    /// [`SpawnError`], like [`spawn`](Self::spawn).
    pub fn spawn_own(
        label: &ServerName,
        args: &[&str],
        guardian: &Guardian,
    ) -> Result<(Self, ChildStdin, ChildStdout), SpawnError> {
        guardian.awake();
        let program = guardian.executable();
        let mut command = Command::new(&program);
        command.args(args).env_clear();
        let program = program.to_string_lossy();
        let spec = ChildSpec { cwd: Some(PathBuf::from("/")), ..ChildSpec::new(&program) };
        let prepared = Prepared::unrestricted(with_pipes(command, &spec)?);
        Self::spawn_prepared(label, &spec, prepared, guardian)
    }

    fn spawn_prepared(
        server: &ServerName,
        spec: &ChildSpec,
        prepared: Prepared,
        guardian: &Guardian,
    ) -> Result<(Self, ChildStdin, ChildStdout), SpawnError> {
        let Prepared { mut command, temporary, has_keeper } = prepared;
        let mut process = command.spawn().map_err(|source| spawn_error(spec, source))?;
        let unusable = || SpawnError::Io {
            program: spec.program.clone(),
            source: io::Error::other("the child has no process id or pipes"),
        };
        let id = process.id().and_then(|id| i32::try_from(id).ok());
        let group = id.and_then(Group::led_by).ok_or_else(unusable)?;
        let lease =
            if has_keeper { Lease::of_keeper(group) } else { Lease::new(group, guardian.clone()) };
        let stdin = process.stdin.take().ok_or_else(unusable)?;
        let stdout = process.stdout.take().ok_or_else(unusable)?;
        let stderr = process.stderr.take().ok_or_else(unusable)?;
        let stderr = StderrLog::start(server.clone(), spec.secrets.clone(), stderr);
        let stop_timeout = spec.stop_timeout;
        let child =
            Self { lease, process, stderr, stop_timeout, status: None, _temporary: temporary };
        Ok((child, stdin, stdout))
    }

    /// Returns the process id, which is also the id of its group.
    pub fn id(&self) -> i32 {
        self.lease.group.id()
    }

    /// Returns the last few lines of standard error, oldest first: usually the reason for an exit.
    /// Complete once [`exited`](Self::exited) has returned.
    pub fn last_words(&self) -> Vec<String> {
        self.stderr.last_lines()
    }

    /// Keeps the lines of standard error in this log, too, from the first one on.
    pub fn keep_output(&self, log: &OutputLog) {
        self.stderr.keep_in(log);
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

    /// Like [`exited`](Self::exited), except for a wrapper: a child that reports success and leaves
    /// another process in its group, which may hold its pipes. In that case this waits forever, and
    /// the end of the pipes shows when the other process is gone.
    ///
    /// # Cancel safety
    /// Safe.
    pub async fn failed(&mut self) -> ExitStatus {
        let status = self.leader_exited().await;
        if status.success() && !self.lease.group.is_gone() {
            tracing::debug!(
                target: "trunkline::upstream::child",
                pid = self.lease.group.id(),
                "a child has exited, and another process may hold its pipes"
            );
            return std::future::pending().await;
        }
        self.exited().await
    }

    /// Stops the child in three steps. The first one is the end of its standard input, which the
    /// caller has dropped or drops now. After `stop_timeout` follows `SIGTERM`, and after the same
    /// time again `SIGKILL`, both to the whole group. If the leader exits earlier, the rest of its
    /// group receives the same two signals.
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
            tracing::warn!(
                target: "trunkline::upstream::child",
                pid = self.lease.group.id(),
                %error,
                "a child's exit status is lost"
            );
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
            // No event reports the end of a process that is not a child of this one.
            sleep(GROUP_POLL).await;
        }
    }
}

/// The right and duty to kill a group. It ends with the group's leader or when this value is
/// dropped, whichever comes first.
#[derive(Debug)]
struct Lease {
    group: Group,
    guardian: Guardian,
    /// Signal that ends all members.
    last_signal: Signal,
    ended: bool,
    /// True if the group was killed and the members that this process has inherited are not yet
    /// reaped.
    killed: bool,
}

impl Lease {
    fn new(group: Group, guardian: Guardian) -> Self {
        guardian.watch(group);
        Self { group, guardian, last_signal: Signal::KILL, ended: false, killed: false }
    }

    /// Creates the lease of a keeper. The keeper ends all processes of its child on `SIGQUIT`, and
    /// by itself when the gateway is gone. A killed keeper could not.
    fn of_keeper(group: Group) -> Self {
        let guardian = Guardian::none();
        Self { group, guardian, last_signal: Signal::QUIT, ended: false, killed: false }
    }

    /// Kills the rest of the group. If its leader has been reaped, that was an instant ago, and the
    /// id has not been reused: the kernel assigns ids in sequence.
    fn kill(&mut self) {
        if !self.ended {
            self.group.signal(self.last_signal);
            self.killed = true;
            self.release();
        }
    }

    /// Releases a group that is gone. Its id may be reused from now on.
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

/// A child that is ready to be started.
struct Prepared {
    command: Command,
    temporary: Option<TemporaryFolder>,
    /// True if the command is a keeper, which starts the child.
    has_keeper: bool,
}

impl Prepared {
    fn unrestricted(command: Command) -> Self {
        Self { command, temporary: None, has_keeper: false }
    }
}

fn prepare(
    server: &ServerName,
    spec: &ChildSpec,
    launcher: impl FnOnce() -> PathBuf,
) -> Result<Prepared, SpawnError> {
    let environment = environment::of(spec, std::env::vars_os());
    let Some(config) = &spec.sandbox else {
        let mut command = Command::new(&spec.program);
        command.args(&spec.args).env_clear().envs(environment);
        return Ok(Prepared::unrestricted(with_pipes(command, spec)?));
    };
    if is_program_missing(spec, &environment) {
        return Err(SpawnError::NotFound { program: spec.program.clone() });
    }
    let unusable =
        |error| SpawnError::Sandbox { program: spec.program.clone(), source: Box::new(error) };
    let sandboxed = prepare_sandbox(config, spec, &environment).map_err(unusable)?;
    let policy = sandboxed.policy.to_json().map_err(unusable)?;
    let allowed = sandboxed.policy.describe();
    tracing::info!(
        target: "trunkline::upstream::child",
        %server,
        program = spec.program,
        allowed,
        "starts in a sandbox"
    );
    if let Some(gap) = find_gap(config) {
        tracing::warn!(target: "trunkline::upstream::child", %server, "{gap}");
    }
    let mut command = Command::new(launcher());
    command.args(["sandbox", "--keep", "--policy", &policy, "--", &spec.program]);
    command.args(&spec.args);
    command.env_clear().envs(environment);
    for (name, folder) in sandboxed.folders() {
        if spec.env.iter().all(|(set, _)| set != name) {
            command.env(name, folder);
        }
    }
    let command = with_pipes(command, spec)?;
    Ok(Prepared { command, temporary: sandboxed.temporary, has_keeper: true })
}

/// Returns a description of the restriction that this system cannot enforce for a server's sandbox.
/// Returns `None` if everything is enforced, or without a sandbox.
pub fn sandbox_gap(server: &ServerConfig) -> Option<&'static str> {
    let ServerKind::Command(command) = &server.target else { return None };
    find_gap(command.sandbox.as_ref()?)
}

/// Returns a sentence for each folder that a sandbox hides from its child although programs usually
/// need it.
pub fn sandbox_remarks(spec: &ChildSpec) -> Vec<String> {
    let Some(config) = &spec.sandbox else { return Vec::new() };
    let environment = environment::of(spec, std::env::vars_os());
    withheld_folders(config, spec, &environment).iter().map(ToString::to_string).collect()
}

/// Checks that this system can enforce the sandbox of a child, without running its program. Does
/// nothing for a child without one.
///
/// # Errors
/// The reason, as a sentence.
pub fn probe_sandbox(spec: &ChildSpec, launcher: &Path) -> Result<(), String> {
    let Some(config) = &spec.sandbox else { return Ok(()) };
    let environment = environment::of(spec, std::env::vars_os());
    let policy = prepare_sandbox(config, spec, &environment)
        .and_then(|sandboxed| Ok((sandboxed.policy.to_json()?, sandboxed)));
    let (policy, _sandboxed) = policy.map_err(|error| error_chain(&error))?;
    let mut probe = std::process::Command::new(launcher);
    probe.args(["sandbox", "--policy", &policy]).env_clear().stdin(Stdio::null());
    let output = probe.output().map_err(|error| format!("sandbox: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(String::from_utf8_lossy(&output.stderr).trim().to_owned())
}

fn with_pipes(mut command: Command, spec: &ChildSpec) -> Result<Command, SpawnError> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    if let Some(cwd) = &spec.cwd {
        // Checked here, because a failed spawn does not show which of the two is missing.
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
