//! Logins, definitions, lists, disabled servers and leases of servers that replicas share.

pub mod definitions;
pub mod disabled;
pub mod grants;
pub mod lists;
mod logins;
mod one_instance;
