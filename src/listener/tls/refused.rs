//! Reasons that a handshake failed for the client's certificate.

use std::io;

use rustls::{CertificateError, Error};

/// Returns the reason, as a sentence; `None` if the handshake failed for anything else.
pub(crate) fn refused_certificate(error: &io::Error) -> Option<String> {
    let fault = match error.get_ref()?.downcast_ref()? {
        Error::NoCertificatesPresented => return Some(NO_CERTIFICATE.to_owned()),
        Error::InvalidCertificate(fault) => fault,
        _ => return None,
    };
    Some(match fault {
        // The name of a CA proves nothing: another key may have signed.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            UNKNOWN_ISSUER.to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            "the client's certificate has expired".to_owned()
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            "the client's certificate is not valid yet".to_owned()
        }
        fault => format!("the client's certificate is not accepted: {fault}"),
    })
}

const NO_CERTIFICATE: &str =
    "the client presented no certificate, and `gateway.tls.client_certificates` requires one";
const UNKNOWN_ISSUER: &str = "no CA of `gateway.tls.client_ca` has issued the client's certificate";
