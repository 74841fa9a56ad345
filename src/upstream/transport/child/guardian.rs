//! The guardian: a helper process that outlives the gateway by two seconds at
//! most and takes the children along.
//!
//! Even a gateway that is killed by `SIGKILL` must leave no orphan, and it
//! cannot see to that itself. The kernel's parent-death signal belongs to the
//! thread that forked, which in this runtime comes and goes, and reaches no
//! grandchildren. A pipe knows better: the gateway holds the writing end and
//! nobody else does, so that the reading end comes to its end exactly when the
//! gateway is gone, however it went.
//!
//! The protocol is one line a change: `+PGID` when a group is born, `-PGID`
//! when it is gone.

use std::collections::HashSet;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

use super::group::Group;

/// The gateway's end of the guardian. Clones share one helper process, which
/// ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct Guardian(Option<Arc<Mutex<Helper>>>);

#[derive(Debug)]
struct Helper {
    executable: PathBuf,
    /// None before it is needed, or where it could not be started.
    process: Option<Child>,
    groups: HashSet<Group>,
}

impl Guardian {
    /// Starts `executable guardian`. When that fails there is a warning in the
    /// log and no guardian: a gateway without one still serves.
    pub fn start(executable: &Path) -> Self {
        let guardian = Self::when_needed(executable);
        guardian.awake();
        guardian
    }

    /// The same before the first child: a gateway without children needs none.
    pub fn when_needed(executable: &Path) -> Self {
        let executable = executable.to_path_buf();
        let helper = Helper { executable, process: None, groups: HashSet::new() };
        Self(Some(Arc::new(Mutex::new(helper))))
    }

    /// Has it run before a child is started: there is no moment in which nobody
    /// would end that.
    pub(super) fn awake(&self) {
        self.change(|helper| match helper.process {
            Some(_) => Ok(()),
            None => helper.replace(),
        });
    }

    /// No guardian: what a killed gateway leaves behind is left alone.
    pub fn none() -> Self {
        Self(None)
    }

    /// The process id of the helper, where there is one.
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

    /// A helper that has died shows in the first write after: another takes
    /// over what it guarded.
    fn change(&self, change: impl FnOnce(&mut Helper) -> io::Result<()>) {
        let Some(helper) = &self.0 else { return };
        let mut helper = helper.lock();
        if let Err(error) = change(&mut helper).or_else(|_died| helper.replace()) {
            tracing::warn!(%error, "no guardian: children outlive a gateway that is killed");
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
        // Whoever reads the gateway's output sees its end when the gateway ends.
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // Not the terminal's group: Ctrl-C is the gateway's to answer.
        .process_group(0)
        .spawn()
}

/// The body of the hidden command `trunkline guardian`: follows `stdin` to its
/// end, then ends every group that is still registered.
pub fn run_guardian(mut stdin: impl BufRead) -> ExitCode {
    // Better a guardian that a signal can end than none.
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

/// A line without its end is no line: half a number is another number.
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
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
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

/// Who signals the gateway often signals all around it, as a service manager
/// or a closing terminal does. The guardian must be the last to go, so it
/// listens to these signals and never looks. (Ignoring them outright takes
/// `unsafe`, and would be inherited.)
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

/// Between `SIGTERM` and `SIGKILL`.
const PATIENCE: Duration = Duration::from_secs(2);

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
