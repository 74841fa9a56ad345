//! A child's process group: the child and what it has started.

use rustix::process::{Pid, Signal, WaitOptions};

/// A process group that is known by the id of its leader.
///
/// The id means this group as long as a member is left, zombies included. Once
/// the last is reaped the kernel may give it to somebody else, so nothing is
/// sent to a group after it was seen gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Group(Pid);

impl Group {
    /// The group led by process `id`; `None` for ids that would mean other
    /// than one group: 0 is the own one, -1 and 1 are everybody.
    pub(super) fn led_by(id: i32) -> Option<Self> {
        if id > 1 { Pid::from_raw(id).map(Self) } else { None }
    }

    pub(super) fn id(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// Sends a signal to all members. That there are none is no fault.
    pub(super) fn signal(self, signal: Signal) {
        let _gone = rustix::process::kill_process_group(self.0, signal);
    }

    pub(super) fn is_gone(self) -> bool {
        rustix::process::test_kill_process_group(self.0) == Err(rustix::io::Errno::SRCH)
    }

    /// Reaps members that were handed down to this process: as process 1 of a
    /// container it inherits what its children leave behind. Only to be called
    /// when the leader has been reaped by whoever waits for it.
    pub(super) fn reap_inherited(self) {
        while let Ok(Some(_)) = rustix::process::waitpgid(self.0, WaitOptions::NOHANG) {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_that_mean_more_than_one_group_are_refused() {
        for id in [0, 1, -1, -7, i32::MIN] {
            assert_eq!(Group::led_by(id), None, "{id}");
        }
        assert_eq!(Group::led_by(7).map(Group::id), Some(7));
    }
}
