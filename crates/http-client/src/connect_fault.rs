//! A connection that could not be opened, explained for operators.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use http::Uri;
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use rustls::CertificateError;

use trunkline_core::text::{clip, escape_controls};

use crate::error::origin_of;

/// A connection that could not be opened. `Display` has the URL up to the port, since the path may
/// hold a secret, and the reason with its remedy.
#[derive(Debug)]
pub(crate) struct ConnectFault {
    origin: String,
    reason: ConnectReason,
    source: Box<dyn Error + Send + Sync>,
}

/// The reason that a connection could not be opened.
#[derive(Debug, PartialEq, Eq)]
enum ConnectReason {
    /// Nothing listens at the address.
    Refused,
    /// No CA certificate fits: none of the system, and none of the `ca`, if there is one.
    UnknownIssuer { ca: CaSetting },
    /// The server's certificate has expired.
    Expired { on: Option<Date> },
    /// The server's certificate is not valid yet.
    NotYetValid,
    /// The server's certificate is for other names.
    OtherNames { names: String },
    /// The server does not speak TLS.
    NoTls,
    /// Any other reason, which the source describes.
    Other,
}

/// The setting `ca` of a connector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CaSetting {
    /// There is no such setting: the system's certificates count.
    Unknown,
    /// It is not set.
    Unset,
    /// The file with further certificates.
    File(PathBuf),
}

impl CaSetting {
    pub(crate) fn new(ca: Option<&Path>) -> Self {
        ca.map_or(Self::Unset, |ca| Self::File(ca.to_owned()))
    }
}

impl ConnectFault {
    /// Explains the error of a connector that trusts the certificates of `ca`, too.
    pub(crate) fn new(uri: &Uri, ca: &CaSetting, source: Box<dyn Error + Send + Sync>) -> Self {
        let reason = find_reason(&*source, ca);
        Self { origin: origin_of(uri), reason, source }
    }
}

impl fmt::Display for ConnectFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.origin)?;
        match &self.reason {
            ConnectReason::Refused => f.write_str(": connection refused: nothing listens there"),
            ConnectReason::UnknownIssuer { ca: CaSetting::Unknown } => f.write_str(
                ": its certificate is issued by an unknown CA: install the CA in the system",
            ),
            ConnectReason::UnknownIssuer { ca: CaSetting::Unset } => f.write_str(
                ": its certificate is issued by an unknown CA: name the file of the CA in `ca`, or \
                 install the CA in the system",
            ),
            ConnectReason::UnknownIssuer { ca: CaSetting::File(ca) } => write!(
                f,
                ": its certificate is issued by a CA that is neither in {} (`ca`) nor in the system",
                ca.display()
            ),
            ConnectReason::Expired { on: Some(on) } => {
                write!(f, ": its certificate has expired on {on}")
            }
            ConnectReason::Expired { on: None } => f.write_str(": its certificate has expired"),
            ConnectReason::NotYetValid => {
                f.write_str(": its certificate is not valid yet: check the clocks")
            }
            ConnectReason::OtherNames { names } => {
                write!(
                    f,
                    ": its certificate is for other names ({names}): use one of them in the URL"
                )
            }
            ConnectReason::NoTls => {
                f.write_str(": the port does not speak TLS: write http:// if that is intended")
            }
            ConnectReason::Other => Ok(()),
        }
    }
}

impl Error for ConnectFault {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // An explained reason replaces the library's text.
        (self.reason == ConnectReason::Other).then_some(&*self.source as &(dyn Error + 'static))
    }
}

fn find_reason(error: &(dyn Error + 'static), ca: &CaSetting) -> ConnectReason {
    let mut next = Some(error);
    for _ in 0..MAX_CAUSES {
        let Some(cause) = next else { break };
        if let Some(reason) = cause.downcast_ref().and_then(|fault| reason_of_tls(fault, ca)) {
            return reason;
        }
        let io = cause.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused) {
            return ConnectReason::Refused;
        }
        // The source of an error within an `io::Error` is the source of the inner one.
        let inner = io.and_then(io::Error::get_ref).map(|inner| inner as &(dyn Error + 'static));
        next = inner.or_else(|| cause.source());
    }
    ConnectReason::Other
}

fn reason_of_tls(fault: &rustls::Error, ca: &CaSetting) -> Option<ConnectReason> {
    let fault = match fault {
        rustls::Error::InvalidCertificate(fault) => fault,
        rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType) => {
            return Some(ConnectReason::NoTls);
        }
        _ => return None,
    };
    Some(match fault {
        CertificateError::UnknownIssuer => ConnectReason::UnknownIssuer { ca: ca.clone() },
        CertificateError::Expired => ConnectReason::Expired { on: None },
        CertificateError::ExpiredContext { not_after, .. } => {
            let seconds = i64::try_from(not_after.as_secs()).ok();
            let at = seconds.and_then(|seconds| Timestamp::from_second(seconds).ok());
            ConnectReason::Expired { on: at.map(|at| TimeZone::UTC.to_datetime(at).date()) }
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            ConnectReason::NotYetValid
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<_> = presented.iter().map(|name| plain_name(name)).collect();
            ConnectReason::OtherNames { names: escape_controls(clip(&names.join(", "), MAX_NAMES)) }
        }
        _ => return None,
    })
}

/// Returns a name without the library's notation: `DnsName("a.test")`.
fn plain_name(name: &str) -> &str {
    name.split_once('(').map_or(name, |(_, rest)| rest.trim_end_matches(')')).trim_matches('"')
}

/// The longest list of names in a message, in bytes.
const MAX_NAMES: usize = 200;
/// The most causes of an error that are looked at.
const MAX_CAUSES: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(error: impl Into<Box<dyn Error + Send + Sync>>, ca: Option<&str>) -> String {
        let uri: Uri = "https://user:pass@a.test:8443/secret?token=1".parse().unwrap();
        let fault = ConnectFault::new(&uri, &CaSetting::new(ca.map(Path::new)), error.into());
        trunkline_core::text::error_chain(&fault)
    }

    fn tls(fault: CertificateError) -> io::Error {
        // As the connector wraps it.
        let fault = rustls::Error::InvalidCertificate(fault);
        io::Error::other(io::Error::new(io::ErrorKind::InvalidData, fault))
    }

    #[test]
    fn reasons_name_the_remedy_and_the_url_without_secrets() {
        let unknown = || tls(CertificateError::UnknownIssuer);
        let found = explain(unknown(), None);
        assert!(found.starts_with("https://a.test:8443: its certificate is issued by"), "{found}");
        assert!(found.contains("in `ca`"), "{found}");
        let found = explain(unknown(), Some("c/ca.pem"));
        assert!(found.contains("neither in c/ca.pem (`ca`) nor in the system"), "{found}");
        let expired = CertificateError::ExpiredContext {
            time: rustls::pki_types::UnixTime::since_unix_epoch(std::time::Duration::ZERO),
            not_after: rustls::pki_types::UnixTime::since_unix_epoch(
                std::time::Duration::from_hours(474_096),
            ),
        };
        assert_eq!(
            explain(tls(expired), None),
            "https://a.test:8443: its certificate has expired on 2024-02-01"
        );
        let names = CertificateError::NotValidForNameContext {
            expected: "a.test".try_into().unwrap(),
            presented: vec!["DnsName(\"b.test\")".to_owned(), "IpAddress(127.0.0.1)".to_owned()],
        };
        assert!(explain(tls(names), None).contains("other names (b.test, 127.0.0.1)"));
        let plain = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
        assert!(explain(io::Error::other(plain), None).contains("write http://"));
        let refused = io::Error::from(io::ErrorKind::ConnectionRefused);
        assert!(explain(refused, None).ends_with("nothing listens there"));
        // Any other error keeps its own text.
        assert_eq!(explain("no such host", None), "https://a.test:8443: no such host");
    }
}
