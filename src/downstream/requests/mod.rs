//! Requests of clients over HTTP: read within bounds, before they become calls.

pub(crate) mod budget;
pub(crate) mod dispatch;
pub(crate) mod era;
pub(crate) mod refused_requests;
pub(crate) mod request;
