//! Header lines and the framing of bodies, as HTTP/1.1 towards clients
//! (`listener`) uses them. Requests to servers are hyper's (`upstream`). This
//! module knows no message.

mod framing;
mod head;
mod headers;
mod received;

pub use framing::{Framed, Piece};
pub use head::{Framing, digits};
pub use headers::{Headers, Repeated, is_visible, visible};
pub use received::Received;

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum WireFault {
    /// A chunked body breaks the rules of such.
    #[error("the answer's chunks are broken")]
    Chunk,
}
