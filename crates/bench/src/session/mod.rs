//! The session with a server: the handshake, the chosen tool, and the prepared requests.

pub(crate) mod arguments;
pub(crate) mod handshake;
pub(crate) mod plan;
pub(crate) mod script;
pub(crate) mod tools;
