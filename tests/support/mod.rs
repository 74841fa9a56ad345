//! A gateway in this process on real sockets, servers with scripted behaviour, and clients of both
//! eras that send exactly the messages of a test.
//!
//! ```text
//! let files = Upstream::legacy().await;
//! let gateway = Gateway::with("files", files.stdio()).start().await;
//! let client = gateway.modern();
//! assert_eq!(client.call("files__echo", json!({ "a": 1 })).await.text(), r#"{"a":1}"#);
//! ```
#![allow(
    dead_code,
    unused_imports,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    clippy::disallowed_methods,
    clippy::needless_pass_by_value,
    missing_docs,
    reason = "a test that cannot go on fails; not every test crate uses all of it"
)]

pub mod agent;
pub mod api;
pub mod browser;
pub mod client;
pub mod collector;
pub mod dialogue;
pub mod embeddings;
pub mod gateway;
pub mod host;
pub mod issuer;
pub mod oauth;
pub mod nginx;
pub mod old;
pub mod redis;
pub mod redis_command;
pub mod relay;
pub mod upstream;
pub mod waiting;
pub mod webhook;

pub use agent::{AGENTS, Agent};
pub use browser::Browser;
pub use client::{Client, Reply, Said};
pub use gateway::{Gateway, client_table};
pub use host::{Host, WAYS, Way};
pub use issuer::Issuer;
pub use oauth::OauthServer;
pub use old::Old;
pub use upstream::{Kind, Step, Upstream, every_kind};
pub use waiting::{poll_for, until, until_async, within};

use std::path::Path;

use serde_json::Value;

/// Returns the JSON lines of a file that is being written: the last one may be partial.
pub fn json_lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.map(|line| serde_json::from_str(line).unwrap()).collect()
}
