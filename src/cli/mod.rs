//! What a human types.

pub mod cert;
