//! The internal language: what a call is between the front that took it and
//! the link that sends it. Always Modern in shape, whatever spoke at the edges.

mod names;

pub use names::{NativeName, PublicName, ServerName, ServerNameError};
