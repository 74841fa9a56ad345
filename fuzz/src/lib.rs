//! What has to hold for any bytes at all. Each function takes what a fuzzer
//! made up and panics where something does not hold.

mod eras;
mod framing;

pub use eras::{lift, lower};
pub use framing::{frames, sse};

/// A law: takes any bytes and panics where it does not hold.
pub type Law = fn(&[u8]);

/// Every target by its name; `tests/fuzz_seeds.rs` runs them over their seeds.
pub const TARGETS: [(&str, Law); 4] =
    [("frames", frames), ("sse", sse), ("lift", lift), ("lower", lower)];
