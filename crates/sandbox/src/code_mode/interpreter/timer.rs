//! Processor time of a script.

use std::cell::Cell;
use std::time::Duration;

use trunkline_core::clock;

/// Counts the processor time of this thread from the start of a script.
pub(super) struct CpuTimer {
    /// End of the budget, on the thread's own clock.
    end: Duration,
    over: Cell<bool>,
}

impl CpuTimer {
    pub(super) fn start(limit: Duration) -> Self {
        Self { end: clock::thread_cpu_time().saturating_add(limit), over: Cell::new(false) }
    }

    /// Reads the clock, and returns true if the time is exhausted.
    pub(super) fn is_over(&self) -> bool {
        if clock::thread_cpu_time() > self.end {
            self.over.set(true);
        }
        self.over.get()
    }

    /// Returns the result of the last [`is_over`](Self::is_over). The interpreter calls that every
    /// few thousand steps.
    pub(super) fn was_over(&self) -> bool {
        self.over.get()
    }
}
