//! From an HTTP request to the principal who sent it.
//!
//! Until credentials are configured there is one principal, whoever reaches
//! the gateway on loopback. What is kept for a principal (sessions, later
//! parked calls and private caches) already asks here, so that the day there
//! are several, nothing has to be told apart after the fact.

use std::net::SocketAddr;

use http::HeaderMap;

use crate::call::Principal;

/// Whom a request came from, as far as the socket knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The client's address.
    pub addr: SocketAddr,
    /// The address that the client reached us at.
    pub local: SocketAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// Whether it is the process that started this one, over standard streams.
    /// Both addresses then stand for this machine.
    pub stdio: bool,
}

impl Peer {
    /// The process that started this one.
    pub fn parent() -> Self {
        let here = SocketAddr::from(([127, 0, 0, 1], 0));
        Self { addr: here, local: here, tls: false, stdio: true }
    }

    /// The address with its port, where there is a socket.
    pub fn socket(&self) -> Option<SocketAddr> {
        (!self.stdio).then_some(self.addr)
    }
}

/// Who sent a request with these headers.
pub fn identify(_headers: &HeaderMap) -> Principal {
    Principal::Anonymous
}
