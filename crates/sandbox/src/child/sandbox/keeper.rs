//! Keeper: the parent of a child in a sandbox, which ends all processes that the child has started.
//!
//! A process that leaves its group and session (`setsid`) escapes signals to the group. As a
//! subreaper the keeper becomes the parent of every orphan below it, so none is out of its reach.
//! It runs outside the sandbox, so the child cannot signal it (Linux 6.12).
//!
//! It ends all of them when the child exits, when the gateway sends `SIGQUIT`, and when the gateway
//! is gone, however it ended. `SIGTERM` is forwarded to all of them. The keeper exits with the
//! child's status.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, pidfd_open,
    set_child_subreaper, wait,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal as SignalStream, SignalKind, signal};
use tokio::time::{Interval, interval_at, sleep};

use trunkline_core::clock;

use super::disk_usage::exceeds_size;
use super::policy::TemporaryBound;

/// Starts the launcher with these arguments as the child, and returns when the child exits.
pub(super) fn keep_child(
    arguments: &[OsString],
    temporary: Option<TemporaryBound>,
) -> io::Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut keeper = Keeper::start(arguments, temporary)?;
        let status = keeper.run().await;
        end_descendants().await;
        Ok(exit_as(status))
    })
}

struct Keeper {
    child: Pid,
    gateway: AsyncFd<OwnedFd>,
    children: SignalStream,
    terminate: SignalStream,
    quit: SignalStream,
    temporary: Option<TemporaryBound>,
    measure: Interval,
    /// Received and ignored: a terminal sends them to the gateway as well, which decides.
    _ignored: [SignalStream; 2],
}

impl Keeper {
    fn start(arguments: &[OsString], temporary: Option<TemporaryBound>) -> io::Result<Self> {
        set_child_subreaper(Some(getpid()))?;
        let gateway = getppid().ok_or(io::ErrorKind::NotFound)?;
        let gateway = watch_process(gateway)?;
        let streams = (signal(SignalKind::child())?, signal(SignalKind::terminate())?);
        let quit = signal(SignalKind::quit())?;
        let ignored = [signal(SignalKind::interrupt())?, signal(SignalKind::hangup())?];
        // The running program itself, even if another one has taken its place on disk.
        let mut launcher = Command::new("/proc/self/exe");
        let child = launcher.args(arguments).process_group(0).spawn()?;
        let child = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
        release_streams()?;
        let (children, terminate) = streams;
        let child = child.ok_or(io::ErrorKind::InvalidData)?;
        let measure = interval_at(clock::now() + MEASURE_INTERVAL, MEASURE_INTERVAL);
        Ok(Self {
            child,
            gateway,
            children,
            terminate,
            quit,
            temporary,
            measure,
            _ignored: ignored,
        })
    }

    /// Returns the status of the child, or `None` if all processes have to end first.
    async fn run(&mut self) -> Option<WaitStatus> {
        loop {
            if let Some(status) = self.reap() {
                return Some(status);
            }
            tokio::select! {
                _ = self.children.recv() => {}
                _ = self.terminate.recv() => signal_descendants(Signal::TERM),
                _ = self.quit.recv() => return None,
                _ = self.measure.tick(), if self.temporary.is_some() => {
                    if self.exceeds_temporary_files() {
                        return None;
                    }
                }
                _ = self.gateway.readable() => return self.outlive_gateway().await,
            }
        }
    }

    /// Returns true if the temporary files are too large, and reports it on standard error.
    fn exceeds_temporary_files(&self) -> bool {
        let Some(TemporaryBound { folder, size }) = &self.temporary else { return false };
        let exceeds = exceeds_size(folder, *size, find_descendants());
        if exceeds {
            #[expect(
                clippy::print_stderr,
                reason = "the gateway logs it as the child's last words"
            )]
            {
                eprintln!("sandbox: ended, its temporary files take more than {size} bytes");
            }
        }
        exceeds
    }

    /// Gives the child and its descendants the time to end by themselves.
    async fn outlive_gateway(&mut self) -> Option<WaitStatus> {
        signal_descendants(Signal::TERM);
        let deadline = sleep(ORPHAN_PATIENCE);
        tokio::pin!(deadline);
        loop {
            if let Some(status) = self.reap() {
                return Some(status);
            }
            tokio::select! {
                _ = self.children.recv() => {}
                () = &mut deadline => return None,
            }
        }
    }

    /// Reaps the processes that have exited. Returns the child's status if the child is among them.
    fn reap(&self) -> Option<WaitStatus> {
        let mut found = None;
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            if pid == self.child {
                found = Some(status);
            }
        }
        found
    }
}

/// Returns a descriptor that becomes readable when the process is gone.
fn watch_process(process: Pid) -> io::Result<AsyncFd<OwnedFd>> {
    let descriptor = pidfd_open(process, PidfdFlags::NONBLOCK)?;
    #[expect(deprecated, reason = "an OwnedFd keeps the promise that the new name asks for")]
    AsyncFd::with_interest(descriptor, Interest::READABLE)
}

/// Closes the keeper's copies of the child's input and output, so that the gateway sees them end
/// with the child. Standard error stays open.
fn release_streams() -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    Ok(())
}

/// Ends every process below this one. Each orphan becomes a child of this process and is then
/// killed. Some keep forking to get away, so there is no pause while new children appear.
async fn end_descendants() {
    let deadline = clock::now() + END_PATIENCE;
    let mut killed = HashSet::new();
    while clock::now() < deadline {
        let children = find_children(getpid());
        let fresh = children.iter().filter(|pid| killed.insert(**pid)).count();
        for pid in children {
            let _gone = kill_process(pid, Signal::KILL);
        }
        while let Ok(Some((pid, _))) = wait(WaitOptions::NOHANG) {
            killed.remove(&pid);
        }
        if wait(WaitOptions::NOHANG).is_err() {
            return;
        }
        if fresh == 0 {
            // Killed processes need a moment to exit.
            sleep(END_POLL).await;
        }
    }
}

fn signal_descendants(signal: Signal) {
    for pid in find_descendants() {
        let _gone = kill_process(pid, signal);
    }
}

/// Returns the processes below this one.
fn find_descendants() -> Vec<Pid> {
    let mut found = vec![getpid()];
    let mut next = 0;
    while let Some(parent) = found.get(next).copied() {
        found.extend(find_children(parent));
        next += 1;
    }
    found.split_off(1)
}

/// Returns the children of all threads of a process.
fn find_children(parent: Pid) -> Vec<Pid> {
    if !Path::new("/proc/thread-self/children").exists() {
        return search_children(parent);
    }
    let threads = fs::read_dir(format!("/proc/{}/task", parent.as_raw_nonzero()));
    let lists = threads
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let parse = |list: String| -> Vec<Pid> {
        list.split_whitespace().filter_map(|id| Pid::from_raw(id.parse().ok()?)).collect()
    };
    lists.flat_map(parse).collect()
}

/// Searches all processes, on a kernel that does not list children.
fn search_children(parent: Pid) -> Vec<Pid> {
    let parent = parent.as_raw_nonzero().get();
    let folders = fs::read_dir("/proc").into_iter().flatten().flatten();
    let children = folders.filter_map(|folder| {
        let pid = folder.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let stat = fs::read_to_string(folder.path().join("stat")).ok()?;
        // The program's name may contain anything, so it ends at the last parenthesis.
        let of: i32 = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?;
        (of == parent).then_some(pid)
    });
    children.collect()
}

/// Ends this process as the child ended. A signal that this process catches becomes the exit code
/// that shells use for it.
fn exit_as(status: Option<WaitStatus>) -> ExitCode {
    let Some(status) = status else { return ExitCode::from(KILLED_EXIT_CODE) };
    if let Some(code) = status.exit_status() {
        return u8::try_from(code).map_or(ExitCode::FAILURE, ExitCode::from);
    }
    let number = status.terminating_signal().unwrap_or_default();
    if let Some(signal) = Signal::from_named_raw(number) {
        let _gone = kill_process(getpid(), signal);
    }
    ExitCode::from(
        u8::try_from(number).map_or(KILLED_EXIT_CODE, |number| number.saturating_add(128)),
    )
}

/// Time that a child has to end once the gateway is gone.
const ORPHAN_PATIENCE: Duration = Duration::from_secs(2);
/// Time after which processes that cannot be killed are abandoned: they wait for a device.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Interval at which temporary files are measured.
const MEASURE_INTERVAL: Duration = Duration::from_secs(1);
const END_POLL: Duration = Duration::from_millis(1);
/// Exit code of a child that was killed.
const KILLED_EXIT_CODE: u8 = 137;
