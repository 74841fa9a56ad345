//! Edits of `gateway.toml` by commands, and their reversal.

pub(crate) mod gateway_file;
pub(crate) mod undo;
