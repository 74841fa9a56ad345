//! The certificate that the gateway presents, and the certificates that it requires of clients.

mod inspect;
mod refused;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime};

use x509_parser::parse_x509_certificate;
use x509_parser::x509::X509Version;

use crate::clock;
use crate::codec::file::{FileError, MAX_PEM, read_file};
use crate::config::ClientCertificates;

pub use inspect::{
    AuthorityReport, CertificateFault, ChainJudgement, ChainSurroundings, inspect_authorities,
    inspect_chain, utc_date,
};
pub(super) use refused::refused_handshake;
pub use refused::{ConnectionFault, ConnectionRefusals};

/// Paths of the certificate chain and its private key, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub cert: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
    /// CA certificates to verify client certificates, if these are requested.
    pub client_ca: Option<PathBuf>,
    /// Requirement of client certificates.
    pub client_certificates: ClientCertificates,
}

/// Faults of the files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It does not exist, cannot be read, or is not a regular file.
    #[error("{} cannot be read", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        source: FileError,
    },
    /// It is not PEM.
    #[error("{} is not valid PEM", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// The position and the reason.
        source: pem::Error,
    },
    /// PEM, but no `CERTIFICATE` section.
    #[error("{} has no certificate in it", file.display())]
    NoCertificate {
        /// The file.
        file: PathBuf,
    },
    /// PEM, but no private key section that can be used.
    #[error("{} has no private key in it (an encrypted one cannot be used)", file.display())]
    NoKey {
        /// The file.
        file: PathBuf,
    },
    /// The key belongs to another certificate.
    #[error("the key in {} belongs to another certificate than the one in {}", key.display(), cert.display())]
    ForeignKey {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate has no extensions, so no names of the server.
    #[error("the certificate in {} is X.509 v1, which TLS clients refuse", cert.display())]
    OldVersion {
        /// The certificate's file.
        cert: PathBuf,
    },
    /// The kind of the key is not supported.
    #[error("the key in {} cannot be used with the certificate in {}", key.display(), cert.display())]
    Unfit {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// rustls's error.
        source: rustls::Error,
    },
    /// The certificates cannot be those of a CA.
    #[error("the certificates in {} cannot be those of a CA", file.display())]
    ClientCa {
        /// The file.
        file: PathBuf,
        /// rustls's error.
        source: VerifierBuilderError,
    },
    /// A certificate cannot be parsed.
    #[error("a certificate in {} cannot be read", file.display())]
    BadCa {
        /// The file.
        file: PathBuf,
        /// rustls's error.
        source: rustls::Error,
    },
    /// The provider offers no protocol version: a fault of the build, not of the files.
    #[error("TLS cannot be set up")]
    Unsupported(#[source] rustls::Error),
}

/// Certificates in use, shared by the connections. A reload loads new ones: new handshakes use
/// them, and open connections stay.
#[derive(Debug, Clone)]
pub struct Certificates {
    config: Arc<ServerConfig>,
    chain: Arc<[PemCertificate]>,
    client_ca: Arc<[PemCertificate]>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// A certificate, and its position in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PemCertificate {
    /// The certificate.
    pub der: CertificateDer<'static>,
    /// The line where it begins, counted from 1.
    pub line: u32,
}

impl Certificates {
    /// Reads the files, at most [`MAX_PEM`] bytes each, and checks that they fit each other.
    ///
    /// # Errors
    /// [`TlsError`], naming the file. If one of the two files is read before its renewal and the
    /// other one after, that is such an error ([`TlsError::ForeignKey`]).
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let chain = read_certificates(&files.cert)?;
        let key = certify_key(&chain, files, &provider)?;
        let client_ca = files.client_ca.as_deref().map(read_certificates).transpose()?;
        let client_ca = client_ca.unwrap_or_default();
        let verifier = match &files.client_ca {
            Some(file) => client_verifier(&client_ca, file, files.client_certificates, &provider)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unsupported)?
            .with_client_cert_verifier(Arc::clone(&verifier))
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![ALPN_H2.to_vec(), ALPN_H1.to_vec()];
        let (config, chain) = (Arc::new(config), chain.into());
        Ok(Self { config, chain, client_ca: client_ca.into(), verifier })
    }

    /// Returns the chain, the server's own certificate first.
    pub fn chain(&self) -> &[PemCertificate] {
        &self.chain
    }

    /// Returns the CA certificates for clients' certificates; none if these are not requested.
    pub fn client_ca(&self) -> &[PemCertificate] {
        &self.client_ca
    }

    /// Returns true if a handshake would accept this chain of a client, its own certificate first;
    /// empty if it shows none. The client's possession of the key is not verified.
    pub fn accepts_client(&self, chain: &[CertificateDer<'_>]) -> bool {
        let Some((own, intermediates)) = chain.split_first() else {
            return !self.verifier.client_auth_mandatory();
        };
        let now = UnixTime::since_unix_epoch(clock::unix_now());
        !self.client_ca.is_empty()
            && self.verifier.verify_client_cert(own, intermediates, now).is_ok()
    }

    /// Returns true if both come from one reading of the files.
    pub(super) fn is_same_load(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config)
    }

    /// Returns true if both have the same certificates.
    pub fn has_certificates_of(&self, other: &Self) -> bool {
        let ders =
            |all: &[PemCertificate]| all.iter().map(|one| one.der.clone()).collect::<Vec<_>>();
        ders(&self.chain) == ders(&other.chain) && ders(&self.client_ca) == ders(&other.client_ca)
    }

    /// Returns the configuration for handshakes.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// Builds the verifier of client certificates.
fn client_verifier(
    certificates: &[PemCertificate],
    file: &Path,
    choice: ClientCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let bad = |source| TlsError::BadCa { file: file.to_owned(), source };
        roots.add(certificate.der.clone()).map_err(bad)?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = match choice {
        ClientCertificates::Optional => builder.allow_unauthenticated(),
        ClientCertificates::Required => builder,
    };
    builder.build().map_err(|source| TlsError::ClientCa { file: file.to_owned(), source })
}

fn certify_key(
    chain: &[PemCertificate],
    files: &TlsFiles,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let key = read_key(&files.key)?;
    let (cert, key_file) = (files.cert.clone(), files.key.clone());
    let is_old = chain.first().is_some_and(|first| {
        let parsed = parse_x509_certificate(&first.der);
        parsed.is_ok_and(|(_, certificate)| certificate.version() != X509Version::V3)
    });
    let ders = chain.iter().map(|certificate| certificate.der.clone()).collect();
    CertifiedKey::from_der(ders, key, provider).map_err(|source| match source {
        rustls::Error::InconsistentKeys(_) => TlsError::ForeignKey { cert, key: key_file },
        _ if is_old => TlsError::OldVersion { cert },
        source => TlsError::Unfit { cert, key: key_file, source },
    })
}

/// Reads the certificates of a PEM file, at most [`MAX_PEM`] bytes.
///
/// # Errors
/// [`TlsError`] if the file cannot be read, is not PEM or has no certificate.
pub fn read_certificates(file: &Path) -> Result<Vec<PemCertificate>, TlsError> {
    let text = read_pem(file)?;
    let ders: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let ders = ders.map_err(|source| TlsError::Malformed { file: file.to_owned(), source })?;
    if ders.is_empty() {
        return Err(TlsError::NoCertificate { file: file.to_owned() });
    }
    let mut lines = certificate_lines(&text);
    let with_line = |der| PemCertificate { der, line: lines.next().unwrap_or(1) };
    Ok(ders.into_iter().map(with_line).collect())
}

/// Returns true if the file for the certificate has the key, and the other one the certificate.
pub fn are_swapped(files: &TlsFiles) -> bool {
    read_key(&files.cert).is_ok()
        && read_certificates(&files.cert).is_err()
        && read_certificates(&files.key).is_ok()
}

/// The lines where certificates begin. The parser does not have them.
fn certificate_lines(text: &[u8]) -> impl Iterator<Item = u32> {
    let lines = (1..).zip(text.split(|byte| *byte == b'\n'));
    lines.filter(|(_, line)| line.starts_with(b"-----BEGIN CERTIFICATE")).map(|(line, _)| line)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read_pem(file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::NoKey { file: file.to_owned() },
        source => TlsError::Malformed { file: file.to_owned(), source },
    })
}

fn read_pem(file: &Path) -> Result<Vec<u8>, TlsError> {
    read_file(file, MAX_PEM)
        .map_err(|source| TlsError::Unreadable { file: file.to_owned(), source })
}

/// RFC 7301 names of the two protocols, in order of preference.
pub(super) const ALPN_H2: &[u8] = b"h2";
const ALPN_H1: &[u8] = b"http/1.1";
