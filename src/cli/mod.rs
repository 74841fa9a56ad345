//! What a human types.

/// The example servers that the binary carries.
pub mod example;
