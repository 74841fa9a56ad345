//! HTTP as a client speaks it, with as little between a call and its socket
//! as can be.
//!
//! A request is written by whoever makes it and its answer read there, too: no
//! task of the connection's own stands between, through which requests and
//! answers would have to be handed. [`Pool`] keeps the connections of one
//! server, [`Connection`] is one of them, [`Response`] has a [`Body`] that
//! gives the connection back when it has been read. HTTP/2, which servers
//! behind TLS may choose, is hyper's.
//!
//! What a server sends is bounded: heads in bytes and fields, lines between
//! chunks, trailers. Bodies are bounded by who reads them.

mod body;
mod connection;
mod framing;
mod head;
mod headers;
mod idle;
mod pool;
mod received;
mod request;
mod stream;

use std::io;

pub use body::{Body, Response};
pub use connection::Connection;
pub use framing::{Framed, Piece};
pub use head::{Fields, Framing, digits};
pub use headers::{Headers, Repeated, is_visible, visible};
pub use pool::{Pool, PoolFault};
pub use received::Received;
pub use request::{Fixed, OwnHeaders, Request};
pub use stream::Stream;

/// Why a connection is of no use any more.
#[derive(Debug, thiserror::Error)]
pub enum WireFault {
    /// It broke.
    #[error("the connection broke")]
    Io(#[source] io::Error),
    /// It broke before anything of the request was taken.
    #[error("the connection took no request")]
    Unsent(#[source] io::Error),
    /// The server closed it before its answer was whole.
    #[error("the server closed the connection")]
    Closed,
    /// What came is no HTTP/1.1.
    #[error("the answer is not HTTP/1.1")]
    Http(#[source] httparse::Error),
    /// The head is contradictory about where the body ends.
    #[error("the answer's head does not say how long its body is")]
    Framing,
    /// The head is too large.
    #[error("the answer's head is larger than {limit} bytes")]
    Head {
        /// The most bytes that it may have.
        limit: usize,
    },
    /// A chunked body breaks the rules of such.
    #[error("the answer's chunks are broken")]
    Chunk,
    /// HTTP/2 went wrong.
    #[error("the HTTP/2 stream failed")]
    H2(#[source] hyper::Error),
}

#[cfg(test)]
mod tests;
