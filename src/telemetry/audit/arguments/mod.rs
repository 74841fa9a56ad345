//! The arguments of a call as a text for people: in the question before a call, and in the audit log.
//!
//! The text is JSON without secrets. It has a bound, and nothing disappears in it: a long value shows its
//! beginning and end, its size and its SHA-256; filler is folded, and invisible characters have names.
//! Marks are in `⟨` and `⟩`, which a value cannot contain: there they have names, too.

mod layout;
mod texts;
mod tree;

use std::fmt;

use data_encoding::HEXLOWER;

use crate::crypto::sha256;

use super::RedactionRules;
use layout::Layout;

pub(super) use tree::ArgumentTree;

/// The length of a text that shows arguments, in bytes. Escapes and marks may add to it.
#[derive(Debug, Clone, Copy)]
pub struct ArgumentBounds {
    /// The usual one.
    pub usual: usize,
    /// The longest one, if the names of all arguments need it.
    pub most: usize,
}

/// Arguments as a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShownArguments {
    /// JSON.
    pub json: String,
    /// Every argument is there, if only by its name and a part of its value.
    pub has_all: bool,
}

/// Arguments that cannot be shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RenderFault {
    /// They are no JSON, have a duplicate key or a number that is out of range, or are nested too deeply.
    #[error("a duplicate key, a number that is out of range, or nested too deeply")]
    Unreadable,
    /// They consist of too many values.
    #[error("more than {} values", MAX_VALUES)]
    TooMany,
}

impl RedactionRules {
    /// Shows arguments.
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
        // The writer appends whole texts alone.
        Ok(ShownArguments { json: String::from_utf8_lossy(&json).into_owned(), has_all })
    }
}

/// The mark of bytes that are left out.
fn describe_bytes(bytes: &[u8]) -> String {
    format!("{} bytes, SHA-256 {}", bytes.len(), HEXLOWER.encode(&sha256(bytes)))
}

/// A mark in place of arguments that are not read.
pub(super) fn mark_unread(raw: &[u8], reason: impl fmt::Display) -> String {
    format!("⟨left out: {reason}: {}⟩", describe_bytes(raw))
}

/// The most values of arguments that are shown.
const MAX_VALUES: usize = 100_000;

#[cfg(test)]
mod tests;
