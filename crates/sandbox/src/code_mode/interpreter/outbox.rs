//! Messages to the parent.

use std::cell::{Cell, RefCell};
use std::io::{self, Write};

use serde::Serialize;

use trunkline_core::text::clip;

use crate::code_mode::messages::{MAX_PIECE, WorkerMessage, write_line};

/// Writes messages, and counts the printed bytes.
pub(super) struct Outbox {
    output: RefCell<Box<dyn Write>>,
    /// Bytes that the script may still print.
    left: Cell<usize>,
    is_cut: Cell<bool>,
}

impl Outbox {
    pub(super) fn new(output: impl Write + 'static, printed: usize) -> Self {
        let output = RefCell::new(Box::new(output) as Box<dyn Write>);
        Self { output, left: Cell::new(printed), is_cut: Cell::new(false) }
    }

    pub(super) fn send(&self, message: &impl Serialize) -> io::Result<()> {
        let mut output = self.output.borrow_mut();
        output.write_all(&write_line(message)?)?;
        output.flush()
    }

    /// Sends a text at once, cut to the bytes that are left.
    pub(super) fn print(&self, text: &str) -> io::Result<()> {
        if self.is_cut.get() {
            return Ok(());
        }
        let mut rest = clip(text, self.left.get());
        self.left.set(self.left.get() - rest.len());
        let is_cut = rest.len() < text.len();
        while !rest.is_empty() {
            let piece = clip(rest, MAX_PIECE);
            self.send(&WorkerMessage::Printed(piece.to_owned()))?;
            rest = rest.get(piece.len()..).unwrap_or_default();
        }
        if is_cut {
            self.is_cut.set(true);
            self.send(&WorkerMessage::Cut)?;
        }
        Ok(())
    }
}
