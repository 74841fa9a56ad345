//! Grants: the tokens of an owner at a server, their choice for a request, and their
//! storage; also the records of open logins, which end with the grants.

pub(crate) mod authorizer;
pub(crate) mod book;
pub(crate) mod browser;
pub(crate) mod endpoints;
pub(crate) mod exchange;
pub(crate) mod grant;
pub(crate) mod held_token;
pub(crate) mod keeping;
pub(crate) mod refusal;
pub(crate) mod revocation;
pub(crate) mod stored;
pub(crate) mod ticket_book;
