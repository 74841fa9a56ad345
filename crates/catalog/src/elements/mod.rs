//! One element of a server's list: its bytes, its definition, and the changes that the configuration
//! makes to it; also the server's capabilities, on which some bytes depend.

pub(crate) mod definition;
pub(crate) mod definition_texts;
pub(crate) mod held;
pub(crate) mod item;
pub(crate) mod offers;
pub(crate) mod tool;
pub(crate) mod tool_bytes;
pub(crate) mod tool_transform;
