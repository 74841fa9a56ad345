//! What has to hold for any bytes at all. Each function takes what a fuzzer
//! made up and panics where something does not hold.

mod eras;
mod framing;

pub use eras::{lift, lower};
pub use framing::{frames, sse};
