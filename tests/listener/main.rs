//! The listener on real sockets: admission of clients, time limits, and drain.

#![allow(
    clippy::disallowed_methods,
    reason = "the crate's clock is its own: this measures from outside"
)]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test that cannot go on fails"
)]

mod door;
mod frames;
#[path = "../support/nginx.rs"]
mod nginx;
#[path = "../support/waiting.rs"]
mod waiting;

mod disconnect;
mod draining;
mod floods;
mod guard;
mod http1;
mod limits;
mod protocols;
mod slow_reads;
mod smuggling;
