//! Attacks on a gateway from outside, by a client or a server: one file for each kind of attack.
//! `docs/security.md` lists the test for each protection.

#![allow(
    clippy::disallowed_methods,
    reason = "the crate's clock is its own: this measures from outside"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::pedantic,
    clippy::type_complexity,
    reason = "a test that cannot go on fails; scripts and fixtures are held to the common lints"
)]

#[path = "../system/process.rs"]
mod process;
#[path = "../support/mod.rs"]
mod support;

mod ambiguous_requests;
mod chattering_servers;
mod climbing_uris;
mod compiled_patterns;
mod confused_deputies;
mod costly_templates;
mod doubled_parameters;
mod duplicate_keys;
mod fair_shares;
mod flooded_logins;
mod guessed_ids;
mod half_written_files;
mod hidden_calls;
mod held_names;
mod inventive_clients;
mod large_arguments;
mod large_results;
mod large_sessions;
mod leaked_secrets;
mod long_calls;
#[cfg(feature = "code-mode")]
mod mistyped_arguments;
mod mixed_up_logins;
mod open_posts;
mod oversized_messages;
mod profile_paths;
mod refused_calls;
mod renamed_elements;
mod shown_keys;
mod spelled_uris;
mod strangers;
mod surplus_responses;
mod unfinished_bodies;
mod unread_answers;
mod watched_files;

use std::net::IpAddr;
use std::sync::Arc;

use trunkline::call::{self, Context, Principal};
use trunkline::mcp::ProtocolVersion;

use support::client_table;
use support::gateway::Builder;
use support::waiting;

const ATTACKER: &str = "key-of-the-attacker";
const BYSTANDER: &str = "key-of-the-bystander";

/// Adds two clients: one attacks, and the other must not be affected.
fn two_clients(builder: Builder) -> Builder {
    let attacker = client_table("attacker", ATTACKER, "");
    builder.toml(&attacker).toml(&client_table("bystander", BYSTANDER, ""))
}

/// Returns the context of calls by a Modern client that can list roots.
fn context(principal: Principal, address: IpAddr) -> Context {
    let client = call::Client::new(ProtocolVersion::LATEST_MODERN, None, r#"{"roots":{}}"#.into());
    let assumed = Context::assumed(principal, None, call::Endpoint::default());
    Context { address, client: Arc::new(client), ..assumed }
}
