//! Laws that hold for any bytes. Each function takes the bytes of a fuzzer and panics if its law
//! does not hold.

mod config;
mod eras;
mod framing;
mod sealed;
mod servers;
mod templates;

pub use config::config;
pub use eras::{lift, lower};
pub use framing::{frames, sse};
pub use sealed::sealed;
pub use servers::{server_events, stdio_lines};
pub use templates::templates;

/// A law: takes any bytes and panics if it does not hold.
pub type Law = fn(&[u8]);

/// Every target by its name; `tests/fuzz_seeds.rs` runs them over their seeds.
pub const TARGETS: [(&str, Law); 9] = [
    ("frames", frames),
    ("sse", sse),
    ("lift", lift),
    ("lower", lower),
    ("config", config),
    ("sealed", sealed),
    ("templates", templates),
    ("server_events", server_events),
    ("stdio_lines", stdio_lines),
];
