//! Logins: the link, the browser that follows it, and the response of the authorization server.

mod browsers;
pub(crate) mod connection;
pub(crate) mod discovery;
mod operations;
pub(crate) mod overview;
pub(crate) mod preparation;
mod shared_links;
pub(crate) mod terminal;
pub(crate) mod ticket;
