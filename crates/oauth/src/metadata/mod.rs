//! The documents and headers by which servers and authorization servers describe themselves.

pub(crate) mod challenge;
pub(crate) mod documents;
pub(crate) mod members;
pub(crate) mod parameters;
pub(crate) mod provider_error;
pub(crate) mod registration;
pub(crate) mod scopes;
pub(crate) mod token_use;
