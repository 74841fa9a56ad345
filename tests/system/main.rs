//! The whole gateway, as the built program, with real and hostile peers.
//!
//! `real_peers` puts the official SDKs' clients in front of one gateway and real servers behind it;
//! `hostile_servers` uses misbehaving ones; `shapes` imports configurations of other systems and
//! calls like them; `apis` reads foreign OpenAPI documents and calls servers that parse the
//! gateway's requests; `reload` changes the configuration under load; `soak` does everything at
//! once for a configured time. `tests/peers/setup.sh` and `tests/apis/setup.sh` install their
//! requirements beyond the build; without those the tests fail with a message.

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
mod replica_restarts;
mod replicas;
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

use support::waiting;
