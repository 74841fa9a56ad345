//! Transports: [`http`] for Streamable HTTP and the older HTTP+SSE of 2024-11-05, [`stdio`] for
//! child processes, [`openapi`] for plain HTTP APIs.
//!
//! The first two speak both eras. All appear as a [`connection`] to the modules above: a permitted
//! call in, a reply out. [`request_ids`] issues the ids of requests to a server. The supervisor decides
//! when a connection is opened and how its loss is handled.

pub(super) mod caller_headers;
pub(super) mod connection;
pub(super) mod http;
mod large_message;
pub(super) mod openapi;
pub(super) mod request_ids;
pub(super) mod stdio;
