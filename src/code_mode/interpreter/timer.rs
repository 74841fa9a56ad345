//! The processor time of a script.

use std::cell::Cell;
use std::time::Duration;

use crate::clock;

/// Counts the processor time of this thread from the start of a script.
pub(super) struct CpuTimer {
    /// In the thread's own time.
    end: Duration,
    over: Cell<bool>,
}

impl CpuTimer {
    pub(super) fn start(limit: Duration) -> Self {
        Self { end: clock::thread_cpu_time().saturating_add(limit), over: Cell::new(false) }
    }

    /// Asks the clock.
    pub(super) fn is_over(&self) -> bool {
        if clock::thread_cpu_time() > self.end {
            self.over.set(true);
        }
        self.over.get()
    }

    /// Whether it was over when it was asked last: the interpreter asks every few thousand steps.
    pub(super) fn was_over(&self) -> bool {
        self.over.get()
    }
}
