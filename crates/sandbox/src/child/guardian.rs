//! Guardian: a helper process that outlives the gateway by at most two seconds and ends its
//! children.
//!
//! A gateway killed by `SIGKILL` must leave no orphans either, which it cannot ensure itself. The
//! kernel's parent-death signal is tied to the forking thread, which does not last in this runtime,
//! and does not reach grandchildren. So the guardian reads from a pipe with the gateway as its only
//! writer: end of file means that the gateway is gone, however it ended.
//!
//! The protocol is one line per change: `+PGID` when a group is started, `-PGID` when it is gone.

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use trunkline_core::clock;

use super::group::Group;

/// Handle of the guardian. Clones share one helper process, which ends when the last clone is
/// dropped.
#[derive(Debug, Clone)]
pub struct Guardian(Option<Arc<Mutex<Helper>>>);

#[derive(Debug)]
struct Helper {
    executable: PathBuf,
    /// `None` until it is needed, or if it could not be started.
    process: Option<Child>,
    groups: HashSet<Group>,
}

impl Guardian {
    /// Starts `executable guardian`. If this fails, logs a warning, and the gateway runs without a
    /// guardian.
    pub fn start(executable: &Path) -> Self {
        let guardian = Self::when_needed(executable);
        guardian.awake();
        guardian
    }

    /// Creates a handle that starts the guardian with the first child. A gateway without children
    /// needs none.
    pub fn when_needed(executable: &Path) -> Self {
        let executable = executable.to_path_buf();
        let helper = Helper { executable, process: None, groups: HashSet::new() };
        Self(Some(Arc::new(Mutex::new(helper))))
    }

    /// Starts the helper if it is not running. Called before a child is started, so that the child
    /// is guarded from the beginning.
    pub(super) fn awake(&self) {
        self.change(|helper| match helper.process {
            Some(_) => Ok(()),
            None => helper.replace(),
        });
    }

    /// Creates a handle without a guardian: children outlive a killed gateway.
    pub fn none() -> Self {
        Self(None)
    }

    /// Returns the path of the gateway's own program, which also launches children in sandboxes.
    pub(super) fn executable(&self) -> PathBuf {
        let own = || std::env::current_exe().unwrap_or_else(|_| PathBuf::from("trunkline"));
        self.0.as_ref().map_or_else(own, |helper| helper.lock().executable.clone())
    }

    /// Returns the process id of the helper, if it is running.
    pub fn id(&self) -> Option<u32> {
        let helper = self.0.as_ref()?.lock();
        helper.process.as_ref().map(Child::id)
    }

    pub(super) fn watch(&self, group: Group) {
        self.change(|helper| {
            helper.groups.insert(group);
            helper.tell(&format!("+{}\n", group.id()))
        });
    }

    pub(super) fn forget(&self, group: Group) {
        self.change(|helper| {
            helper.groups.remove(&group);
            helper.tell(&format!("-{}\n", group.id()))
        });
    }

    /// Applies a change. If the write shows that the helper has died, starts another one with the
    /// same groups.
    fn change(&self, change: impl FnOnce(&mut Helper) -> io::Result<()>) {
        let Some(helper) = &self.0 else { return };
        let mut helper = helper.lock();
        if let Err(error) = change(&mut helper).or_else(|_died| helper.replace()) {
            tracing::warn!(
                target: "trunkline::upstream::child::guardian",
                %error,
                "no guardian: children outlive a gateway that is killed"
            );
        }
    }
}

impl Helper {
    fn tell(&mut self, line: &str) -> io::Result<()> {
        let pipe = self.process.as_mut().and_then(|process| process.stdin.as_mut());
        let pipe = pipe.ok_or(io::ErrorKind::BrokenPipe)?;
        pipe.write_all(line.as_bytes())
    }

    fn replace(&mut self) -> io::Result<()> {
        if let Some(mut gone) = self.process.take() {
            let _reaped = gone.try_wait();
        }
        self.process = Some(spawn(&self.executable)?);
        for id in self.groups.iter().map(|group| group.id()).collect::<Vec<_>>() {
            self.tell(&format!("+{id}\n"))?;
        }
        Ok(())
    }
}

fn spawn(executable: &Path) -> io::Result<Child> {
    Command::new(executable)
        .arg("guardian")
        .env_clear()
        .stdin(Stdio::piped())
        // Readers of the gateway's output must see its end when the gateway ends.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A process group of its own, so that Ctrl-C reaches only the gateway.
        .process_group(0)
        .spawn()
}

/// Runs the hidden command `trunkline guardian`: reads `stdin` to its end, then ends every group
/// that is still registered.
pub fn run_guardian(mut stdin: impl BufRead) -> ExitCode {
    // A guardian that a signal can end is better than none.
    let _heard = ignore_signals();
    let mut groups = HashSet::new();
    let mut line = String::new();
    while stdin.read_line(&mut line).is_ok_and(|read| read > 0) {
        match parse(&line) {
            Some(Change::Born(group)) => _ = groups.insert(group),
            Some(Change::Gone(group)) => _ = groups.remove(&group),
            None => {}
        }
        line.clear();
    }
    end(groups);
    ExitCode::SUCCESS
}

#[derive(Debug, PartialEq, Eq)]
enum Change {
    Born(Group),
    Gone(Group),
}

/// Parses a line. An incomplete line is ignored, because a part of a number is
/// another number.
fn parse(line: &str) -> Option<Change> {
    let line = line.strip_suffix('\n')?;
    let (sign, id) = line.split_at_checked(1)?;
    let group = Group::led_by(id.parse().ok()?)?;
    match sign {
        "+" => Some(Change::Born(group)),
        "-" => Some(Change::Gone(group)),
        _ => None,
    }
}

fn end(mut groups: HashSet<Group>) {
    for group in &groups {
        group.signal(Signal::TERM);
    }
    let deadline = clock::real_now() + TERM_GRACE;
    while clock::real_now() < deadline {
        groups.retain(|group| !group.is_gone());
        if groups.is_empty() {
            return;
        }
        #[expect(clippy::disallowed_methods, reason = "a process of its own: nothing else waits")]
        std::thread::sleep(Duration::from_millis(20));
    }
    for group in groups {
        group.signal(Signal::KILL);
    }
}

/// Catches and ignores termination signals. A service manager or a closing
/// terminal often signals all processes around the gateway, and the guardian
/// must be the last to end. (`SIG_IGN` would take `unsafe`, and would be
/// inherited.)
fn ignore_signals() -> io::Result<impl Sized> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    let heard = {
        let _entered = runtime.enter();
        [
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
            signal(SignalKind::hangup())?,
            signal(SignalKind::quit())?,
        ]
    };
    Ok((runtime, heard))
}

/// Time between `SIGTERM` and `SIGKILL`.
const TERM_GRACE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_lines_about_one_group_are_taken() {
        let group = Group::led_by(42).unwrap();
        for (line, expected) in [
            ("+42\n", Some(Change::Born(group))),
            ("-42\n", Some(Change::Gone(group))),
            ("+42", None),
            ("+1\n", None),
            ("+0\n", None),
            ("--1\n", None),
            ("+-42\n", None),
            ("42\n", None),
            ("ä42\n", None),
            ("\n", None),
        ] {
            assert_eq!(parse(line), expected, "{line:?}");
        }
    }
}
