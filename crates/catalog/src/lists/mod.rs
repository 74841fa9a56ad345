//! Lists: those of one server, and those of the catalog with the public names that the merge assigns.

pub(crate) mod cursor;
pub(crate) mod list;
pub(crate) mod merge;
pub(crate) mod naming;
pub(crate) mod rules;
pub(crate) mod server_list;
