//! Marks of credentials that were refused, for the log. They are unverified: they may help an
//! operator to find a client, and prove nothing.

use std::sync::Arc;

use data_encoding::HEXLOWER;
use http::{HeaderMap, header};

use crate::crypto::sha256;
use crate::text::one_line;

use super::tokens::claimed_subject;
use super::{ClientCertificate, Identity};

/// A part of a refused credential that may be logged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CredentialMark {
    /// There is no credential, or several, or it is too long for one.
    Absent,
    /// The first eight hexadecimal digits of the SHA-256 of a key, or of a token without a subject.
    Digest(String),
    /// The subject that a token claims, on one line and clipped.
    Subject(String),
    /// The first eight hexadecimal digits of the SHA-256 of the connection's certificate. There is
    /// no other credential, and the certificate identifies no client.
    Certificate(String),
}

impl Identity {
    /// Returns the mark of a request's credential, or else that of its connection's certificate.
    /// Unlike [`identify`](Self::identify) it removes no header.
    pub fn mark_credential(
        &self,
        headers: &HeaderMap,
        certificate: Option<&Arc<ClientCertificate>>,
    ) -> CredentialMark {
        let Ok(shown) = self.shown_credential(headers) else {
            let digits = certificate.map(|certificate| certificate.abbreviation());
            return digits.map_or(CredentialMark::Absent, CredentialMark::Certificate);
        };
        let may_be_token = self.tokens.is_some() && shown.name == header::AUTHORIZATION;
        let subject = may_be_token.then(|| claimed_subject(shown.text)).flatten();
        match subject.map(|subject| one_line(&subject, MAX_SUBJECT_CHARS)) {
            Some(subject) if !subject.is_empty() => CredentialMark::Subject(subject),
            _ => {
                let digest = sha256(shown.text);
                let digits = digest.first_chunk::<MARK_BYTES>().unwrap_or(&[0; MARK_BYTES]);
                CredentialMark::Digest(HEXLOWER.encode(digits))
            }
        }
    }
}

/// Number of bytes of a digest in a mark: enough to compare with a known key, too few to find one.
const MARK_BYTES: usize = 4;
/// Limit of a subject's characters in a mark.
const MAX_SUBJECT_CHARS: usize = 64;
