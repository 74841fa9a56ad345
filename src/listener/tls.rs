//! The certificate that the gateway presents, and the certificates that it requires of clients.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::{self, PemObject as _};
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::codec::file::{FileError, MAX_PEM, read_file};
use crate::config::ClientCertificates;

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
    /// The key belongs to another certificate, or its kind is not supported.
    #[error("the key in {} cannot be used with the certificate in {}", key.display(), cert.display())]
    Unfit {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// rustls's error: `KeyMismatch` for a foreign key.
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
}

impl Certificates {
    /// Reads the files, at most [`MAX_PEM`] bytes each, and checks that they fit each other.
    ///
    /// # Errors
    /// [`TlsError`], naming the file. If one of the two files is read before its renewal and the
    /// other one after, that is such an error ([`TlsError::Unfit`]).
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let key = read_certified_key(files, &provider)?;
        let verifier = match &files.client_ca {
            Some(file) => client_verifier(file, files.client_certificates, &provider)?,
            None => WebPkiClientVerifier::no_client_auth(),
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unsupported)?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        config.alpn_protocols = vec![ALPN_H2.to_vec(), ALPN_H1.to_vec()];
        Ok(Self { config: Arc::new(config) })
    }

    /// Returns the configuration for handshakes.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// Builds the verifier of client certificates.
fn client_verifier(
    file: &Path,
    choice: ClientCertificates,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in read_chain(file)? {
        let bad = |source| TlsError::BadCa { file: file.to_owned(), source };
        roots.add(certificate).map_err(bad)?;
    }
    let builder =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    let builder = match choice {
        ClientCertificates::Optional => builder.allow_unauthenticated(),
        ClientCertificates::Required => builder,
    };
    builder.build().map_err(|source| TlsError::ClientCa { file: file.to_owned(), source })
}

fn read_certified_key(
    files: &TlsFiles,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, TlsError> {
    let chain = read_chain(&files.cert)?;
    let key = read_key(&files.key)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Unfit {
        cert: files.cert.clone(),
        key: files.key.clone(),
        source,
    })
}

fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read_pem(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|source| TlsError::Malformed { file: file.to_owned(), source })?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { file: file.to_owned() });
    }
    Ok(chain)
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

#[cfg(test)]
mod tests {
    use std::fs;

    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_pair_that_cannot_be_used_is_refused_and_the_error_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let files = write_pair(dir.path());
        Certificates::load(&files).unwrap();
        let own_key = fs::read(&files.key).unwrap();
        let foreign_key = KeyPair::generate().unwrap().serialize_pem();
        let broken = "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n";
        let fault = || Certificates::load(&files).unwrap_err();

        fs::write(&files.key, foreign_key).unwrap();
        assert!(matches!(fault(), TlsError::Unfit { .. }), "{:?}", fault());
        fs::write(&files.key, "nothing here").unwrap();
        assert!(matches!(fault(), TlsError::NoKey { file } if file == files.key));
        fs::write(&files.key, broken).unwrap();
        assert!(matches!(fault(), TlsError::Malformed { file, .. } if file == files.key));
        fs::remove_file(&files.key).unwrap();
        assert!(matches!(fault(), TlsError::Unreadable { file, .. } if file == files.key));
        fs::write(&files.key, own_key).unwrap();
        let client_ca = Some(dir.path().join("ca.pem"));
        let with_ca = TlsFiles { client_ca: client_ca.clone(), ..files.clone() };
        fs::write(client_ca.as_ref().unwrap(), "").unwrap();
        let fault_of_ca = Certificates::load(&with_ca).unwrap_err();
        assert!(
            matches!(fault_of_ca, TlsError::NoCertificate { file } if Some(&file) == client_ca.as_ref())
        );
        fs::copy(&files.cert, client_ca.as_ref().unwrap()).unwrap();
        Certificates::load(&with_ca).unwrap();
        fs::write(&files.cert, "").unwrap();
        assert!(matches!(fault(), TlsError::NoCertificate { file } if file == files.cert));
    }

    fn write_pair(dir: &Path) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned()];
        let cert = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let files = TlsFiles {
            cert: dir.join("server.pem"),
            key: dir.join("server.key"),
            client_ca: None,
            client_certificates: ClientCertificates::Optional,
        };
        fs::write(&files.cert, cert.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}
