//! Judges certificates before clients do: validity, order and completeness of a chain, and the
//! validity of CA certificates.
//!
//! Everything here is pure: files, time and the system's roots are arguments. A chain is called
//! incomplete only where that is certain. A certificate directly below a private CA needs no further
//! certificate, and looks like one below a private intermediate CA that is missing.

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rustls_pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::parse_x509_certificate;

use super::PemCertificate;
use crate::text::{clip, escape_controls};

/// The surroundings of a chain that decide about its faults.
pub struct ChainSurroundings<'a> {
    /// The current time.
    pub now: Timestamp,
    /// Returns true if the system has a root with this subject, in DER.
    pub is_root: &'a dyn Fn(&[u8]) -> bool,
    /// Returns the other certificates in the folder of the chain.
    pub nearby: &'a dyn Fn() -> Vec<CertificateDer<'static>>,
}

/// The judgement of a chain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainJudgement {
    /// The end of the validity of the first certificate to expire.
    pub expires: Timestamp,
    /// The faults that clients may refuse the chain for.
    pub faults: Vec<CertificateFault>,
    /// An issuer that is not in the chain, and may be an intermediate CA.
    pub unknown_issuer: Option<String>,
}

/// A fault that clients may refuse a certificate for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CertificateFault {
    /// The validity of a certificate has ended.
    Expired {
        /// The line of the certificate in its file.
        line: u32,
        /// The last day of the validity.
        on: Date,
        /// The subject.
        subject: String,
    },
    /// The validity of a certificate has not begun.
    NotYetValid {
        /// The line of the certificate in its file.
        line: u32,
        /// The begin of the validity.
        from: Timestamp,
        /// The subject.
        subject: String,
    },
    /// A certificate does not issue the one before it.
    Misplaced {
        /// The line of the certificate in its file.
        line: u32,
        /// The subject.
        subject: String,
        /// The subject that is expected at this place.
        expected: String,
    },
    /// The certificate of an intermediate CA is missing.
    Incomplete {
        /// The subject of the missing certificate.
        issuer: String,
    },
    /// A section is no X.509 certificate.
    Unreadable {
        /// The line of the certificate in its file.
        line: u32,
    },
}

impl CertificateFault {
    /// Returns the begin of the validity, if that is the fault.
    pub fn begin(&self) -> Option<Timestamp> {
        match self {
            Self::NotYetValid { from, .. } => Some(*from),
            _ => None,
        }
    }
}

/// Judges a chain, which begins with the server's own certificate.
pub fn inspect_chain(chain: &[PemCertificate], around: &ChainSurroundings<'_>) -> ChainJudgement {
    let mut report =
        ChainJudgement { expires: Timestamp::MAX, faults: Vec::new(), unknown_issuer: None };
    let mut before: Option<X509Certificate<'_>> = None;
    for pem in chain {
        let Ok((_, certificate)) = parse_x509_certificate(&pem.der) else {
            report.faults.push(CertificateFault::Unreadable { line: pem.line });
            return report;
        };
        // Clients have their own copy of a root, and ignore the one of the chain.
        if before.is_none() || !is_self_issued(&certificate) {
            report.expires = report.expires.min(end_of(&certificate));
            report.faults.extend(validity_fault(&certificate, pem.line, around.now));
        }
        if let Some(issued) = &before
            && !is_issuer_of(&certificate, issued)
        {
            report.faults.push(CertificateFault::Misplaced {
                line: pem.line,
                subject: subject_of(&certificate),
                expected: issuer_of(issued),
            });
            return report;
        }
        before = Some(certificate);
    }
    if let Some(last) = before {
        judge_completeness(&last, around, &mut report);
    }
    report
}

fn judge_completeness(
    last: &X509Certificate<'_>,
    around: &ChainSurroundings<'_>,
    report: &mut ChainJudgement,
) {
    if is_self_issued(last) || (around.is_root)(last.issuer().as_raw()) {
        return;
    }
    let is_intermediate = |der: &CertificateDer<'_>| {
        let parsed = parse_x509_certificate(der);
        parsed.is_ok_and(|(_, ca)| !is_self_issued(&ca) && is_issuer_of(&ca, last))
    };
    // Public CAs issue certificates of servers from intermediate CAs only. The issuer of a CA may be
    // a root that is in the stores of clients and not in this system's.
    if (is_public(last) && !last.is_ca()) || (around.nearby)().iter().any(is_intermediate) {
        report.faults.push(CertificateFault::Incomplete { issuer: issuer_of(last) });
    } else if names_issuer_url(last) {
        report.unknown_issuer = Some(issuer_of(last));
    }
}

/// The judgement of a file with CA certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuthorityReport {
    /// The end of the validity of the first certificate to expire, or of the last one if all have
    /// expired.
    pub expires: Timestamp,
    /// The subject of this certificate.
    pub subject: String,
    /// The fault of that certificate if no certificate of the file is valid.
    pub fault: Option<CertificateFault>,
}

/// Judges CA certificates; `None` if there is none that can be read. One that has expired beside a
/// valid one is usual: a CA is replaced by adding its successor.
pub fn inspect_authorities(file: &[PemCertificate], now: Timestamp) -> Option<AuthorityReport> {
    let report = |pem: &PemCertificate| {
        let (_, certificate) = parse_x509_certificate(&pem.der).ok()?;
        Some(AuthorityReport {
            expires: end_of(&certificate),
            subject: subject_of(&certificate),
            fault: validity_fault(&certificate, pem.line, now),
        })
    };
    let all: Vec<_> = file.iter().filter_map(report).collect();
    let valid = all.iter().filter(|report| report.fault.is_none());
    let first = valid.min_by_key(|report| report.expires);
    first.or_else(|| all.iter().max_by_key(|report| report.expires)).cloned()
}

fn validity_fault(
    certificate: &X509Certificate<'_>,
    line: u32,
    now: Timestamp,
) -> Option<CertificateFault> {
    let subject = || subject_of(certificate);
    let from = time_of(certificate.validity().not_before.timestamp());
    let end = end_of(certificate);
    if end < now {
        return Some(CertificateFault::Expired { line, on: utc_date(end), subject: subject() });
    }
    (now < from).then(|| CertificateFault::NotYetValid { line, from, subject: subject() })
}

/// Returns true if the system of public CAs has issued it: it is logged for Certificate
/// Transparency (RFC 6962), or names a policy of the CA/Browser Forum.
fn is_public(certificate: &X509Certificate<'_>) -> bool {
    certificate.extensions().iter().any(|extension| match extension.parsed_extension() {
        ParsedExtension::SCT(_) => true,
        ParsedExtension::CertificatePolicies(policies) => policies
            .iter()
            .any(|policy| policy.policy_id.to_id_string().starts_with(FORUM_POLICIES)),
        _ => false,
    })
}

/// Returns true if it names a URL of its issuer's certificate (RFC 5280, 4.2.2.1).
fn names_issuer_url(certificate: &X509Certificate<'_>) -> bool {
    certificate.extensions().iter().any(|extension| match extension.parsed_extension() {
        ParsedExtension::AuthorityInfoAccess(access) => {
            access.iter().any(|entry| entry.access_method.to_id_string() == ISSUER_URLS)
        }
        _ => false,
    })
}

/// Returns true if names and key ids allow that one certificate has issued the other (RFC 5280,
/// 4.2.1.1 and 6.1.3). Signatures are not verified.
fn is_issuer_of(issuer: &X509Certificate<'_>, certificate: &X509Certificate<'_>) -> bool {
    let own_id =
        issuer.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::SubjectKeyIdentifier(id) => Some(id.0),
            _ => None,
        });
    let wanted_id =
        certificate.extensions().iter().find_map(|extension| match extension.parsed_extension() {
            ParsedExtension::AuthorityKeyIdentifier(ids) => {
                ids.key_identifier.as_ref().map(|id| id.0)
            }
            _ => None,
        });
    let is_same_key = own_id.zip(wanted_id).is_none_or(|(own, wanted)| own == wanted);
    issuer.subject().as_raw() == certificate.issuer().as_raw() && is_same_key
}

fn is_self_issued(certificate: &X509Certificate<'_>) -> bool {
    certificate.subject().as_raw() == certificate.issuer().as_raw()
}

fn end_of(certificate: &X509Certificate<'_>) -> Timestamp {
    time_of(certificate.validity().not_after.timestamp())
}

/// The end of a certificate without an end is the year 9999 (RFC 5280, 4.1.2.5).
fn time_of(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX)
}

/// Returns the date of a time, in UTC.
pub fn utc_date(at: Timestamp) -> Date {
    TimeZone::UTC.to_datetime(at).date()
}

/// Returns the subject or, without one, an alternative name.
fn subject_of(certificate: &X509Certificate<'_>) -> String {
    let subject = certificate.subject().to_string();
    if !subject.is_empty() {
        return shown_name(&subject);
    }
    let names = certificate.subject_alternative_name().ok().flatten();
    let mut names = names.iter().flat_map(|names| &names.value.general_names);
    let name = names.find_map(|name| match name {
        GeneralName::DNSName(name) => Some(shown_name(name)),
        _ => None,
    });
    name.unwrap_or_else(|| "without a subject".to_owned())
}

fn issuer_of(certificate: &X509Certificate<'_>) -> String {
    shown_name(&certificate.issuer().to_string())
}

fn shown_name(name: &str) -> String {
    escape_controls(clip(name, MAX_SHOWN_NAME))
}

/// The policies of the CA/Browser Forum for certificates of servers.
const FORUM_POLICIES: &str = "2.23.140.1.";
/// The access method `caIssuers`.
const ISSUER_URLS: &str = "1.3.6.1.5.5.7.48.2";
/// The longest part of a name in a message, in bytes.
const MAX_SHOWN_NAME: usize = 200;
