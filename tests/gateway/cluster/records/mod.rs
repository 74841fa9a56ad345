//! Logins, definitions, lists and disabled servers that replicas share.

mod definitions;
mod disabled;
pub mod grants;
mod lists;
mod logins;
