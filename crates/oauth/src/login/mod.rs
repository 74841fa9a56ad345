//! Logins: the link, the browser that follows it, and the response of the authorization server.

pub(crate) mod connection;
pub(crate) mod discovery;
mod operations;
pub(crate) mod overview;
pub(crate) mod preparation;
pub(crate) mod terminal;
pub(crate) mod ticket;
