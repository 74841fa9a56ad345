//! Logins: the link, the browser that follows it, and the response of the authorization server.

pub(super) mod connection;
pub(super) mod discovery;
pub(super) mod preparation;
pub(super) mod terminal;
pub(super) mod ticket;
