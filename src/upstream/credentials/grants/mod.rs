//! Grants: the tokens of an owner at a server, their choice for a request, and their storage.

pub(super) mod authorizer;
pub(super) mod book;
pub(super) mod exchange;
pub(super) mod grant;
pub(super) mod held_token;
pub(super) mod keeping;
pub(super) mod refusal;
pub(super) mod revocation;
pub(super) mod stored;
