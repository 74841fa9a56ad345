//! The whole gateway, as the built program, among real and hostile peers.
//!
//! `real_peers` puts the official SDKs' clients in front of one gateway and
//! real servers behind it; `hostile_servers` puts misbehaving ones there;
//! `shapes` imports what other systems have configured and calls as they do;
//! `apis` reads OpenAPI documents of others and calls servers that parse what the gateway sends;
//! `reload` changes the configuration under load; `soak` does everything at once,
//! for as long as it is told. What they need beyond the build is installed by `tests/peers/setup.sh` and
//! `tests/apis/setup.sh`; without it they fail and say so.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    clippy::large_futures,
    clippy::similar_names,
    missing_docs,
    clippy::pedantic,
    deprecated,
    clippy::type_complexity,
    reason = "a test that cannot go on fails; scripts and fixtures are held to the common lints"
)]

mod access_log;
mod apis;
mod climbing_reads;
mod connect;
mod flawed_lists;
mod hostile_servers;
mod login;
mod old_transport;
mod matrix;
mod peers;
mod process;
mod real_peers;
mod reload;
mod rmcp_client;
mod rmcp_server;
mod shapes;
mod skills;
mod soak;
mod spelled_reads;
mod stdio_hosts;
mod tasks;
#[path = "../support/mod.rs"]
mod support;
