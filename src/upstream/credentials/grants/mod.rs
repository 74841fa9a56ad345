//! Grants: the tokens of an owner at a server, their choice for a request, and their
//! storage; also the records of open logins, which end with the grants.

pub(super) mod authorizer;
pub(super) mod book;
pub(super) mod browser;
pub(super) mod endpoints;
pub(super) mod exchange;
pub(super) mod grant;
pub(super) mod held_token;
pub(super) mod keeping;
pub(super) mod refusal;
pub(super) mod revocation;
pub(super) mod stored;
pub(super) mod ticket_book;
