//! The access of clients: identity, challenges, and the metadata of the protected resource.

pub(crate) mod caller;
pub(crate) mod challenge;
pub(crate) mod metadata;
