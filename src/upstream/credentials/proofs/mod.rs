//! Requests for authorization and for tokens, and the proofs of identity and possession that they carry.

pub(super) mod assertion;
pub(super) mod authorization;
pub(super) mod client_keys;
pub(super) mod dpop;
pub(super) mod form_post;
pub(super) mod pkce;
pub(super) mod token;
