//! The documents and headers by which servers and authorization servers describe themselves.

pub(super) mod challenge;
pub(super) mod documents;
pub(super) mod members;
pub(super) mod parameters;
pub(super) mod provider_error;
pub(super) mod registration;
pub(super) mod scopes;
pub(super) mod token_use;
