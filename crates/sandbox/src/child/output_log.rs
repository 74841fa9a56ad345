//! The last lines that the children of one server wrote to standard error, for operators. Bounded in
//! lines and bytes; it outlives each child.
//!
//! The tail of the log has such lines as well, in the order of all lines. It has them only as far as
//! `log.level` admits them, and one bound for the lines of all servers: there, a server that writes
//! much displaces the lines of others.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;

use trunkline_core::clock;

/// The last lines of a server.
#[derive(Debug, Clone, Default)]
pub struct OutputLog(Arc<Mutex<KeptOutput>>);

#[derive(Debug, Default)]
struct KeptOutput {
    lines: VecDeque<OutputLine>,
    bytes: usize,
    written: u64,
}

/// A line of output, without secrets and control characters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputLine {
    /// Time of its arrival.
    pub at: SystemTime,
    /// Its text.
    pub text: String,
}

impl OutputLog {
    /// Adds a line, and drops the oldest ones over the limits.
    pub(super) fn note(&self, text: &str) {
        let mut kept = self.0.lock();
        kept.written += 1;
        kept.bytes += text.len();
        kept.lines.push_back(OutputLine { at: clock::wall_now(), text: text.to_owned() });
        while kept.lines.len() > MAX_OUTPUT_LINES || kept.bytes > MAX_OUTPUT_BYTES {
            let Some(oldest) = kept.lines.pop_front() else { return };
            kept.bytes -= oldest.text.len();
        }
    }

    /// Returns the lines, oldest first, and the number of all lines that were written.
    pub fn lines(&self) -> (Vec<OutputLine>, u64) {
        let kept = self.0.lock();
        (kept.lines.iter().cloned().collect(), kept.written)
    }
}

/// Limit of the lines.
const MAX_OUTPUT_LINES: usize = 200;
/// Limit of the bytes of all lines. A single line has fewer.
const MAX_OUTPUT_BYTES: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_lines_are_dropped_over_both_limits() {
        let log = OutputLog::default();
        for number in 0..1000 {
            log.note(&number.to_string());
        }
        let (lines, written) = log.lines();
        assert_eq!((lines.len(), written), (MAX_OUTPUT_LINES, 1000));
        assert_eq!((&*lines[0].text, &*lines[199].text), ("800", "999"));
        for _ in 0..100 {
            log.note(&"x".repeat(4096));
        }
        let (lines, written) = log.lines();
        assert_eq!((lines.len(), written), (MAX_OUTPUT_BYTES / 4096, 1100));
    }
}
