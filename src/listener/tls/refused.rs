//! Connections that a listener refuses before their first request, most of them in the handshake.

use std::sync::Arc;
use std::{fmt, io};

use rustls::{CertificateError, Error};

use crate::call::PeerAddress;

/// Reasons to refuse a connection before its first request.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectionFault {
    /// A certificate is required, and there is none.
    #[error("it presented no certificate")]
    NoCertificate,
    /// No accepted CA has issued its certificate.
    #[error("no accepted CA has issued its certificate")]
    UnknownIssuer,
    /// Its certificate has expired.
    #[error("its certificate has expired")]
    ExpiredCertificate,
    /// Its certificate is not valid yet.
    #[error("its certificate is not valid yet")]
    EarlyCertificate,
    /// Its certificate is not accepted for another reason.
    #[error("its certificate is not accepted: {0}")]
    WrongCertificate(String),
    /// Its first bytes are no TLS.
    #[error("it does not use TLS")]
    NoTls,
    /// The handshake failed for another reason.
    #[error("the TLS handshake failed: {0}")]
    Handshake(String),
    /// No whole request arrived within the time limit.
    #[error("it sent no request in time")]
    Silent,
    /// Its first bytes are no HTTP request.
    #[error("its first bytes are not an HTTP request within the limits")]
    Garbled,
}

/// Receives the connections that are refused before their first request.
#[derive(Clone)]
pub struct ConnectionRefusals(Arc<RefusalReceiver>);

type RefusalReceiver = dyn Fn(PeerAddress, &ConnectionFault) + Send + Sync;

impl ConnectionFault {
    /// Returns the reason as a sentence for a client with a wrong certificate, or without one; `None` for
    /// any other reason.
    pub fn certificate_reason(&self) -> Option<String> {
        Some(match self {
            Self::NoCertificate => NO_CERTIFICATE.to_owned(),
            Self::UnknownIssuer => UNKNOWN_ISSUER.to_owned(),
            Self::ExpiredCertificate => "the client's certificate has expired".to_owned(),
            Self::EarlyCertificate => "the client's certificate is not valid yet".to_owned(),
            Self::WrongCertificate(fault) => {
                format!("the client's certificate is not accepted: {fault}")
            }
            Self::NoTls | Self::Handshake(_) | Self::Silent | Self::Garbled => return None,
        })
    }
}

impl ConnectionRefusals {
    /// Calls `receive` with the address of each refused connection, and the reason.
    pub fn new(receive: impl Fn(PeerAddress, &ConnectionFault) + Send + Sync + 'static) -> Self {
        Self(Arc::new(receive))
    }

    pub(crate) fn report(&self, peer: PeerAddress, refused: &ConnectionFault) {
        (self.0)(peer, refused);
    }
}

impl Default for ConnectionRefusals {
    fn default() -> Self {
        Self::new(|_, _| {})
    }
}

impl fmt::Debug for ConnectionRefusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionRefusals").finish_non_exhaustive()
    }
}

/// Returns the reason that a handshake was refused; `None` if the connection broke.
pub(crate) fn refused_handshake(error: &io::Error) -> Option<ConnectionFault> {
    Some(match error.get_ref()?.downcast_ref()? {
        Error::NoCertificatesPresented => ConnectionFault::NoCertificate,
        // The name of a CA proves nothing: another key may have signed.
        Error::InvalidCertificate(
            CertificateError::UnknownIssuer | CertificateError::BadSignature,
        ) => ConnectionFault::UnknownIssuer,
        Error::InvalidCertificate(
            CertificateError::Expired | CertificateError::ExpiredContext { .. },
        ) => ConnectionFault::ExpiredCertificate,
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => ConnectionFault::EarlyCertificate,
        Error::InvalidCertificate(fault) => ConnectionFault::WrongCertificate(fault.to_string()),
        Error::InvalidMessage(_) => ConnectionFault::NoTls,
        fault => ConnectionFault::Handshake(fault.to_string()),
    })
}

const NO_CERTIFICATE: &str =
    "the client presented no certificate, and `gateway.tls.client_certificates` requires one";
const UNKNOWN_ISSUER: &str = "no CA of `gateway.tls.client_ca` has issued the client's certificate";
