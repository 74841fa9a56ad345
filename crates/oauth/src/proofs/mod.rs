//! Requests for authorization and for tokens, and the proofs of identity and possession that they
//! carry.

pub(crate) mod assertion;
pub(crate) mod authorization;
pub(crate) mod client_keys;
pub(crate) mod dpop;
pub(crate) mod form_post;
pub(crate) mod pkce;
pub(crate) mod token;
