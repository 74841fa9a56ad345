//! A running gateway from the user's view: one crate, one file for each feature.

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

#[path = "../support/mod.rs"]
mod support;

mod admin_api;
mod arguments;
mod audit;
mod authorization;
mod both_eras;
mod breaker;
mod bounds;
mod caching;
mod caller_headers;
mod calls;
mod certificates;
mod children;
mod cluster;
#[cfg(feature = "code-mode")]
mod code;
mod confirm;
mod connections;
mod consents;
mod definition_tags;
mod departed_tools;
mod discovery;
mod embeddings;
mod encodings;
mod era_probes;
mod events;
mod expiries;
mod explanations;
mod failed_logins;
mod flawed_lists;
mod given_up;
mod held;
mod http_servers;
mod input;
mod interceptors;
mod interoperability;
mod introductions;
mod kept_lists;
mod kubernetes;
mod large;
mod legacy;
mod legacy_sessions;
mod limits;
mod list_changes;
mod logging;
mod meta_calls;
mod modern;
mod oauth;
mod openapi;
mod operators;
mod permanent_faults;
mod pins;
mod plans;
mod profiles;
mod prompts;
mod quotas;
mod rates_together;
mod refresh;
mod refused_logins;
mod repeated_results;
mod resources;
mod sandbox;
mod scans;
mod server_life;
mod server_words;
mod session_errors;
mod skills;
mod sse_clients;
mod sse_servers;
mod starts;
mod stdio;
mod streams;
mod subscriptions;
mod tasks;
mod tokens;
mod tolerance;
mod tools;
mod traces;
mod transforms;
mod unseen_messages;
mod user_quotas;
mod who;
