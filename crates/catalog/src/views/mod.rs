//! The part of the catalog that one client sees: the selection of its endpoint, its rights, and the
//! forms of the lists that it reads.

pub(crate) mod hidden_names;
pub(crate) mod hidden_tools;
pub(crate) mod meta_tools;
pub(crate) mod own_tools;
pub(crate) mod searched;
pub(crate) mod selection;
pub(crate) mod slim;
pub(crate) mod visibility;
