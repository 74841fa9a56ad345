//! Process group of a child: the child and the processes that it has started.

use rustix::process::{Pid, Signal, WaitOptions};

/// A process group, identified by its leader's id.
///
/// The id denotes this group while a member exists, zombies included. Once the last one is reaped,
/// the kernel may reuse the id. So no signal is sent to a group that was seen to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Group(Pid);

impl Group {
    /// Returns the group led by process `id`, or `None` for ids with another meaning: 0 is the
    /// caller's own group, -1 and 1 are all processes.
    pub(super) fn led_by(id: i32) -> Option<Self> {
        if id > 1 { Pid::from_raw(id).map(Self) } else { None }
    }

    pub(super) fn id(self) -> i32 {
        self.0.as_raw_nonzero().get()
    }

    /// Sends a signal to all members. An empty group is not an error.
    pub(super) fn signal(self, signal: Signal) {
        let _gone = rustix::process::kill_process_group(self.0, signal);
    }

    pub(super) fn is_gone(self) -> bool {
        rustix::process::test_kill_process_group(self.0) == Err(rustix::io::Errno::SRCH)
    }

    /// Reaps members that this process has inherited: as process 1 of a container it becomes the
    /// parent of orphans. Must be called only after the leader has been reaped.
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
