//! Logins, definitions, lists and disabled servers that replicas share.

pub mod definitions;
pub mod disabled;
pub mod grants;
pub mod lists;
mod logins;
