//! Arguments of a call as readable text: for confirmations by the user, and for the audit log.
//!
//! The text is JSON without secrets. Its length is bounded, and every omission is visible: a long
//! value shows its beginning and end, its size and its SHA-256; filler is folded, and invisible
//! characters are written as names. Marks are in `⟨` and `⟩`. A value cannot contain these
//! brackets, because there they are written as names, too.

mod layout;
mod texts;
mod tree;

use std::fmt;

use data_encoding::HEXLOWER;

use trunkline_core::crypto::sha256;

use super::RedactionRules;
use layout::Layout;

pub(super) use tree::ArgumentTree;

/// Length of the text for arguments, in bytes. Escapes and marks may exceed it.
#[derive(Debug, Clone, Copy)]
pub struct ArgumentBounds {
    /// The usual length.
    pub usual: usize,
    /// Maximum length, if the names of all arguments need it.
    pub most: usize,
}

/// Arguments as a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownArguments {
    /// JSON.
    pub json: String,
    /// True if every argument is present, at least by its name and a part of its value.
    pub has_all: bool,
}

/// Arguments that cannot be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RenderFault {
    /// They are not JSON, have a duplicate key or a number that is out of range, or are nested too
    /// deeply.
    #[error("a duplicate key, a number that is out of range, or nested too deeply")]
    Unreadable,
    /// They consist of too many values.
    #[error("more than {} values", MAX_VALUES)]
    TooMany,
}

impl RedactionRules {
    /// Renders arguments.
    ///
    /// # Errors
    /// [`RenderFault`].
    pub fn show_arguments(
        &self,
        raw: &[u8],
        bounds: ArgumentBounds,
    ) -> Result<ShownArguments, RenderFault> {
        let mut tree = ArgumentTree::parse_tree(raw)?;
        self.redact_tree(&mut tree);
        let layout = Layout::new(&tree);
        let most = layout.least_size().clamp(bounds.usual, bounds.most.max(bounds.usual));
        let mut json = Vec::new();
        let has_all = layout.write_value(most, &mut json);
        // The writer appends only complete texts.
        Ok(ShownArguments { json: String::from_utf8_lossy(&json).into_owned(), has_all })
    }
}

/// Describes omitted bytes.
fn describe_bytes(bytes: &[u8]) -> String {
    format!("{} bytes, SHA-256 {}", bytes.len(), HEXLOWER.encode(&sha256(bytes)))
}

/// Returns a mark in place of unread arguments.
pub(super) fn mark_unread(raw: &[u8], reason: impl fmt::Display) -> String {
    format!("⟨left out: {reason}: {}⟩", describe_bytes(raw))
}

/// Maximum number of values in the arguments.
const MAX_VALUES: usize = 100_000;

#[cfg(test)]
mod tests;
