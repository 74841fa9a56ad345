//! Accept, TLS, connection limits, the layers of the edge (Origin and Host guard, CORS,
//! authentication), and drain.
//!
//! This module accepts connections, has hyper read requests from them, and passes each request
//! through the tower stack of its listener ([`edge`]). It differs from `downstream`, which answers
//! MCP requests: nothing here interprets a body. Only the unread rest of a small HTTP/2 body is
//! drained. It refuses connections over the limit, heads that are
//! too large or ambiguous, and hosts and pages that the [`Guard`] does not admit.
//!
//! Every connection has an end:
//!
//! | the client | it is closed |
//! |---|---|
//! | sends nothing, one byte, half a head, or nothing after the TLS handshake | [`ConnectionLimits::handshake`] after it was accepted |
//! | sends half a head later on, or nothing more | [`ConnectionLimits::idle`] after the last response |
//! | disappears without closing, or stops reading its response | [`ConnectionLimits::stall`] later; over HTTP/2 also when a ping stays unanswered |
//! | leaves a response over HTTP/2 unread | its stream is reset [`ConnectionLimits::stall`] later, or when all of them hold more than [`ConnectionLimits::unread`] |
//! | connects when all connections are taken, or its address has used up its share | at once, with a 503 if it does not use TLS |
//! | is refused, and sends no request that is served | after the third refusal, or [`ConnectionLimits::handshake`] after any of them |
//! | closes its side, or resets its stream | at once; the service's future and body are dropped |
//! | is connected when a [`Drain`] starts | after the responses in flight and the head that it is sending or begins within a moment, or when the drain's time is up |
//!
//! A client's cancellation reaches the service as a dropped future, so a service spawns work that
//! it must finish.
//!
//! hyper-util's `auto::Builder` is not used: it leaves a connection that has sent one byte open
//! forever, and its timers start after protocol detection. Here detection is a bounded look at the
//! first three bytes of a plaintext connection, and ALPN under TLS.

mod activity;
mod connection;
mod cors;
pub mod edge;
mod guard;
mod port_holder;
mod private_socket;
mod request_body;
mod socket;
mod tls;
mod tune;
mod unread;
mod woken;
mod workers;

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;

use crate::call::Drain;
use crate::call::PeerAddress;

pub use self::{
    guard::{Admission, AdmissionError, Guard, GuardError, LocalPages, QuotedExcerpt},
    port_holder::PortHolder,
    private_socket::{LocalUser, PrivateSocket, PrivateSocketError, is_trusted_user},
    request_body::RequestBody,
    socket::{Counts, Drained, ListenError, Listener},
    tls::{
        AuthorityReport, CertificateFault, Certificates, ChainJudgement, ChainSurroundings,
        ConnectionFault, ConnectionRefusals, PemCertificate, TlsError, TlsFiles, are_swapped,
        inspect_authorities, inspect_chain, read_certificates, utc_date,
    },
    workers::Workers,
};

/// The error of a response body that broke off.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Settings of a listener that a reload may change. The address is not one of them: that takes
/// another [`Listener`].
#[derive(Debug, Default)]
pub struct Settings {
    /// In force for connections accepted from now on; `header` for every request.
    pub limits: ConnectionLimits,
    /// In force for every request from now on.
    pub guard: Guard,
    /// The certificates for TLS; `None` disables TLS. In force for connections accepted from now
    /// on.
    pub tls: Option<Certificates>,
}

/// Limits of one listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Connections at a time. Further ones are accepted only to send a 503, and closed.
    pub connections: usize,
    /// Connections of one IP address at a time.
    pub connections_each: usize,
    /// Bytes of a request's target and headers together; beyond it the answer is 431.
    pub header: usize,
    /// Header lines of a request; beyond it the answer is 431.
    pub header_lines: usize,
    /// Time limit of a connection without a request in flight.
    pub idle: Duration,
    /// Time limit from accept to the first whole request head, the TLS handshake included.
    pub handshake: Duration,
    /// Time limit for a client to read the bytes sent to it. Over HTTP/2 it also limits the time
    /// without a window for a response that waits for one. Zero leaves it to the kernel.
    pub stall: Duration,
    /// Bytes of all responses over HTTP/2 that wait for a window.
    pub unread: usize,
    /// Bytes of these for one IP address.
    pub unread_each: usize,
    /// Requests at a time on one HTTP/2 connection.
    pub h2_streams: u32,
    /// Bytes of the bodies on one HTTP/2 connection that arrive before they are read.
    pub h2_window: u32,
    /// Requests that may be reset before they are accepted, on an HTTP/2 connection that many clients
    /// of another replica share; its streams may have any number of faults. `None` for connections
    /// of clients: hyper's limits.
    pub h2_resets: Option<usize>,
    /// Interval of pings to a silent HTTP/2 client, and the time limit of its answer.
    pub ping: Duration,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_each: 1024,
            header: 32 * 1024,
            header_lines: 100,
            idle: Duration::from_mins(1),
            handshake: Duration::from_secs(10),
            stall: Duration::from_mins(1),
            unread: 256 << 20,
            unread_each: 64 << 20,
            h2_streams: 128,
            h2_window: 256 * 1024,
            h2_resets: None,
            ping: Duration::from_secs(20),
        }
    }
}

/// The settings in force, shared with the code that reloads them.
#[derive(Debug, Clone)]
pub struct LiveSettings(Arc<ArcSwap<Settings>>);

impl LiveSettings {
    /// Starts with these settings.
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(settings)))
    }

    /// Puts new settings in force. Nothing is interrupted.
    pub fn publish(&self, settings: Settings) {
        self.0.store(Arc::new(settings));
    }

    /// Returns the current settings, for a short use.
    pub(crate) fn current(&self) -> arc_swap::Guard<Arc<Settings>> {
        self.0.load()
    }

    /// Returns the current settings.
    pub fn load(&self) -> Arc<Settings> {
        self.0.load_full()
    }
}
