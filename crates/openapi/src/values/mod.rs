//! The encoding of a call: parameters, bodies and credentials.

pub(crate) mod arguments;
pub(crate) mod body;
pub(crate) mod parameters;
pub(crate) mod security;
