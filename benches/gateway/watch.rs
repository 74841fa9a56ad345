//! The progress line of a long bench, on a terminal only.

use std::io::{IsTerminal as _, Write as _};

use trunkline::bench::{RunClock, RunWatcher};

/// The progress line on standard error.
pub struct Line {
    shown: bool,
    title: String,
    turn: usize,
    turns: usize,
}

impl Line {
    /// Progress of this many turns.
    pub fn new(title: &str, turns: usize) -> Self {
        let shown = std::io::stderr().is_terminal();
        Self { shown, title: title.to_owned(), turn: 0, turns }
    }
}

impl RunWatcher for Line {
    fn see(&mut self, _: &RunClock, done: u64, failed: u64) {
        if self.shown {
            let Self { title, turn, turns, .. } = self;
            // If the terminal is gone, there is nowhere to report it.
            let _ = write!(
                std::io::stderr(),
                "\r{title}: turn {} of {turns}, {done} answered, {failed} failed\x1b[K",
                *turn + 1
            );
        }
    }

    fn over(&mut self) {
        self.turn += 1;
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
