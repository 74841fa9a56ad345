//! Quotes of a server's output in texts of faults and in lines of the log. Output may have secrets:
//! operators read it, and viewers read the texts without it.

use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Start of the quote of the first line on standard output that is no message.
pub(super) const FIRST_LINE_QUOTE: &str = "; it printed text instead of a message: ";
/// Start of the quote of the last line on standard error.
pub(super) const LAST_LINE_QUOTE: &str = "; its last line was: ";
/// The field of the log for a line on standard output that is no message.
const LINE_FIELD: &str = " line=";

/// The first line that a child printed in place of a message, since its last message.
#[derive(Debug, Default)]
pub(crate) struct FirstPrinted {
    /// Set while there is a line, so that a message costs no lock.
    is_kept: AtomicBool,
    line: Mutex<Option<String>>,
}

impl FirstPrinted {
    /// Returns the line, if there is one.
    pub(crate) fn line(&self) -> Option<String> {
        self.line.lock().clone()
    }

    /// Keeps the line unless there is one.
    pub(crate) fn keep(&self, line: impl FnOnce() -> String) {
        self.line.lock().get_or_insert_with(line);
        self.is_kept.store(true, Ordering::Relaxed);
    }

    /// Forgets the line: the child has sent a valid message, so its text explains no later fault.
    pub(crate) fn forget(&self) {
        if self.is_kept.load(Ordering::Relaxed) {
            *self.line.lock() = None;
            self.is_kept.store(false, Ordering::Relaxed);
        }
    }
}

/// Returns a text without the quotes of a server's output. A quote may contain anything, also the end
/// of a quote, so the rest of the text is left out from the first one on.
pub(crate) fn hide_output(text: &str) -> Cow<'_, str> {
    let starts = [FIRST_LINE_QUOTE, LAST_LINE_QUOTE, LINE_FIELD];
    let Some(start) = starts.iter().filter_map(|start| text.find(start)).min() else {
        return Cow::Borrowed(text);
    };
    let kept = text.get(..start).unwrap_or_default();
    let is_open = kept.matches('(').count() > kept.matches(')').count();
    Cow::Owned(format!("{kept}; operators can see its output{}", if is_open { ")" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_kept_up_to_the_first_quote() {
        for (text, shown) in [
            ("it exited (exit status: 3)", "it exited (exit status: 3)"),
            (
                "it exited (exit status: 3; its last line was: key 1)",
                "it exited (exit status: 3; operators can see its output)",
            ),
            (
                "it exited (exit status: 3; it printed text instead of a message: a; its last line was: b)",
                "it exited (exit status: 3; operators can see its output)",
            ),
            (
                "no response within 5s; it printed text instead of a message: hello",
                "no response within 5s; operators can see its output",
            ),
            (
                " fault=invalid JSON line=\"a (key\"",
                " fault=invalid JSON; operators can see its output",
            ),
            (
                "it exited (a; its last line was: x; it printed text instead of a message: y)",
                "it exited (a; operators can see its output)",
            ),
        ] {
            assert_eq!(hide_output(text), shown);
        }
    }
}
