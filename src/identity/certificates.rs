//! Clients that are identified by a TLS certificate.
//!
//! The handshake has verified that a CA of `gateway.tls.client_ca` has issued the certificate, that
//! it is for clients, and that it is valid at this time (`listener`). Here its names lead to a
//! client of `[clients]`.

use std::collections::HashMap;
use std::iter;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::objects::{oid_registry, oid2abbrev};
use x509_parser::parse_x509_certificate;
use x509_parser::x509::X509Name;

use super::api_keys::grants_of;
use super::tokens::ScopeRanks;
use crate::call::Grants;
use crate::config::{CertificateName, ClientConfig, KeyHash, SubjectName};
use crate::crypto::sha256;

/// The verified certificate of a connection's client.
#[derive(Debug, PartialEq, Eq)]
pub struct ClientCertificate {
    names: Vec<CertificateName>,
    /// Its expiry, as time since 1970.
    expires: Duration,
    digest: KeyHash,
    der: Box<[u8]>,
    /// The intermediate certificates that the client has shown.
    intermediates: Vec<CertificateDer<'static>>,
}

/// The certificate is not a valid X.509 certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the client certificate cannot be read")]
pub struct CertificateError;

impl ClientCertificate {
    /// Reads the names of a certificate in DER.
    ///
    /// # Errors
    /// [`CertificateError`].
    pub fn parse(der: &[u8]) -> Result<Self, CertificateError> {
        let (_, certificate) = parse_x509_certificate(der).map_err(|_| CertificateError)?;
        let common = certificate.subject().iter_common_name();
        let common = common.filter_map(|name| name.as_str().ok());
        let common = common.map(|name| CertificateName::Common(name.to_owned()));
        let subject = read_subject(certificate.subject()).map(CertificateName::Subject);
        let alternatives = certificate.extensions().iter();
        let alternatives =
            alternatives.filter_map(|extension| match extension.parsed_extension() {
                ParsedExtension::SubjectAlternativeName(names) => Some(&names.general_names),
                _ => None,
            });
        let alternatives = alternatives.flatten().filter_map(|name| match name {
            GeneralName::DNSName(name) => Some(CertificateName::Dns(name.to_ascii_lowercase())),
            GeneralName::RFC822Name(name) => Some(CertificateName::Email((*name).to_owned())),
            GeneralName::URI(name) => Some(CertificateName::Uri((*name).to_owned())),
            GeneralName::IPAddress(bytes) => ip_address(bytes).map(CertificateName::Ip),
            _ => None,
        });
        let names = subject
            .into_iter()
            .chain(common)
            .chain(alternatives)
            .take(MAX_CERTIFICATE_NAMES)
            .collect();
        let expires = u64::try_from(certificate.validity().not_after.timestamp()).unwrap_or(0);
        let digest = KeyHash::new(sha256(der));
        Ok(Self {
            names,
            expires: Duration::from_secs(expires),
            digest,
            der: der.into(),
            intermediates: Vec::new(),
        })
    }

    /// Adds the intermediate certificates that the client has shown. Too many are left out: another
    /// replica then has to know them.
    #[must_use]
    pub fn with_intermediates(mut self, shown: &[CertificateDer<'_>]) -> Self {
        let bytes: usize = shown.iter().map(|der| der.len()).sum();
        if bytes <= MAX_INTERMEDIATE_BYTES {
            self.intermediates = shown.iter().map(|der| der.clone().into_owned()).collect();
        }
        self
    }

    /// Returns the certificate and the intermediate ones, in DER.
    pub fn chain(&self) -> impl Iterator<Item = &[u8]> {
        let intermediates = self.intermediates.iter().map(AsRef::as_ref);
        iter::once(&*self.der).chain(intermediates)
    }

    /// Returns its expiry, as time since 1970.
    pub(super) fn expires(&self) -> Duration {
        self.expires
    }

    /// Returns a short fingerprint.
    pub(super) fn abbreviation(&self) -> String {
        self.digest.abbreviation()
    }
}

/// Clients of a configuration by the names in their certificates.
#[derive(Debug, Default)]
pub(super) struct CertificateNames(HashMap<CertificateName, Arc<CertifiedClient>>);

/// A client that certificates identify.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CertifiedClient {
    pub(super) name: Arc<str>,
    /// Grants of the client, if there are any.
    pub(super) grants: Option<Arc<Grants>>,
}

impl CertificateNames {
    pub(super) fn new(clients: &[ClientConfig], ranks: &ScopeRanks) -> Self {
        let names = clients.iter().flat_map(|client| {
            let grants = grants_of(client, ranks).map(Arc::new);
            let certified = Arc::new(CertifiedClient { name: Arc::clone(&client.name), grants });
            client.certificates.iter().map(move |name| (name.clone(), Arc::clone(&certified)))
        });
        Self(names.collect())
    }

    /// Returns a client by its name, if certificates identify it.
    pub(super) fn find_client(&self, name: &str) -> Option<&CertifiedClient> {
        self.0.values().find(|client| *client.name == *name).map(|client| &**client)
    }

    /// Returns true if there are no clients.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the client of a certificate; `None` if its names belong to no client, or to several.
    pub(super) fn find(&self, certificate: &ClientCertificate) -> Option<&CertifiedClient> {
        let mut found = certificate.names.iter().filter_map(|name| self.0.get(name));
        let first = found.next()?;
        found.all(|other| other.name == first.name).then_some(&**first)
    }
}

/// Returns the whole subject, the most specific part first; `None` if it is empty or has values
/// that are not text.
fn read_subject(name: &X509Name<'_>) -> Option<SubjectName> {
    let mut parts = Vec::new();
    for part in name.iter_rdn() {
        let mut attributes = Vec::new();
        for attribute in part.iter() {
            let kind = attribute.attr_type();
            let short = oid2abbrev(kind, oid_registry()).map(str::to_owned);
            let value = attribute.as_str().ok()?.to_owned();
            attributes.push((short.unwrap_or_else(|_| kind.to_id_string()), value));
        }
        parts.push(attributes);
    }
    parts.reverse();
    (!parts.is_empty()).then(|| SubjectName::from_parts(parts))
}

/// Parses an address in a certificate: four bytes, or sixteen (RFC 5280, 4.2.1.6).
fn ip_address(bytes: &[u8]) -> Option<IpAddr> {
    let v4 = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from)).ok()
}

/// Bytes of the intermediate certificates of one client that are kept.
const MAX_INTERMEDIATE_BYTES: usize = 16 << 10;
/// Limit of one certificate's names that are looked up.
const MAX_CERTIFICATE_NAMES: usize = 100;

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair, SanType};

    use super::*;

    fn certificate(common: &str, alternatives: Vec<SanType>) -> ClientCertificate {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = alternatives;
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        ClientCertificate::parse(der.der()).unwrap()
    }

    fn names(pairs: &[(CertificateName, &str)]) -> CertificateNames {
        let pairs = pairs.iter().map(|(name, client)| {
            let client = CertifiedClient { name: Arc::from(*client), grants: None };
            (name.clone(), Arc::new(client))
        });
        CertificateNames(pairs.collect())
    }

    #[test]
    fn each_kind_of_name_leads_to_its_client_and_an_ambiguous_certificate_to_none() {
        let text = |text: &str| text.try_into().unwrap();
        let known = names(&[
            (CertificateName::Common("ci".into()), "ci"),
            (CertificateName::Dns("desk.example.com".into()), "desk"),
            (CertificateName::Email("ann@example.com".into()), "ann"),
            (CertificateName::Uri("spiffe://example.com/bot".into()), "bot"),
            (CertificateName::Ip("2001:db8::7".parse().unwrap()), "v6"),
        ]);
        for (certificate, expected) in [
            (certificate("ci", vec![]), Some("ci")),
            (certificate("x", vec![SanType::DnsName(text("DESK.example.com"))]), Some("desk")),
            (certificate("x", vec![SanType::Rfc822Name(text("ann@example.com"))]), Some("ann")),
            (certificate("x", vec![SanType::URI(text("spiffe://example.com/bot"))]), Some("bot")),
            (
                certificate("x", vec![SanType::IpAddress("2001:db8:0::7".parse().unwrap())]),
                Some("v6"),
            ),
            (certificate("x", vec![SanType::IpAddress("2001:db8::8".parse().unwrap())]), None),
            // The type belongs to a name.
            (certificate("desk.example.com", vec![SanType::DnsName(text("ci"))]), None),
            (certificate("ci", vec![SanType::DnsName(text("desk.example.com"))]), None),
            (certificate("x", vec![]), None),
        ] {
            let found = known.find(&certificate).map(|client| &*client.name);
            assert_eq!(found, expected, "{certificate:?}");
        }
        let subject = |text: &str| CertificateName::Subject(SubjectName::parse(text).unwrap());
        let known = names(&[(subject("CN=ci, OU=Build, O=Example"), "build")]);
        let unit = |common: &str, unit: &str| {
            let mut params = CertificateParams::new(Vec::new()).unwrap();
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::OrganizationName, "Example");
            params.distinguished_name.push(DnType::OrganizationalUnitName, unit);
            params.distinguished_name.push(DnType::CommonName, common);
            let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
            ClientCertificate::parse(der.der()).unwrap()
        };
        for (certificate, expected) in [
            (unit("ci", "Build"), Some("build")),
            (unit("ci", "Test"), None),
            (unit("ci,OU=Build", "Build"), None),
            (certificate("ci", vec![]), None),
        ] {
            assert_eq!(known.find(&certificate).map(|client| &*client.name), expected);
        }
        assert_eq!(ClientCertificate::parse(b"no certificate"), Err(CertificateError));
    }
}
