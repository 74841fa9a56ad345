//! The certificate the gateway shows, and showing another one without a restart.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use rustls::{
    ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use rustls_pki_types::{
    CertificateDer, PrivateKeyDer,
    pem::{self, PemObject as _},
};

/// Where the certificate chain and its private key lie, both PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The chain, the server's own certificate first.
    pub cert: PathBuf,
    /// The private key: PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
}

/// What is wrong with the files.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It is not there, or may not be read.
    #[error("{} cannot be read", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is not PEM.
    #[error("{} is not valid PEM", file.display())]
    Malformed {
        /// The file.
        file: PathBuf,
        /// Where it breaks.
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
        /// What rustls said: `KeyMismatch` for a foreign key.
        source: rustls::Error,
    },
    /// The provider offers no protocol version: a fault of the build, not of the files.
    #[error("TLS cannot be set up")]
    Unsupported(#[source] rustls::Error),
}

/// A certificate in use. Shared by every connection; [`reload`](Self::reload) swaps it.
#[derive(Debug)]
pub struct Certificates {
    files: TlsFiles,
    shown: Arc<Shown>,
    config: Arc<ServerConfig>,
}

impl Certificates {
    /// Reads the files and checks that they fit each other.
    ///
    /// # Errors
    /// [`TlsError`], naming the file. Reads from disk: a few kilobytes, blocking.
    pub fn load(files: TlsFiles) -> Result<Self, TlsError> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let shown = Arc::new(Shown(ArcSwap::from_pointee(read(&files, &provider)?)));
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(TlsError::Unsupported)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(&shown) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = vec![ALPN_H2.to_vec(), ALPN_H1.to_vec()];
        Ok(Self { files, shown, config: Arc::new(config) })
    }

    /// Reads the files again. New handshakes show the new certificate; open connections stay.
    ///
    /// # Errors
    /// [`TlsError`]; what was shown before is still shown. A renewal that is caught between its
    /// two files is such a fault (`Unfit`): reload again once the second one is there.
    pub fn reload(&self) -> Result<(), TlsError> {
        let key = read(&self.files, self.config.crypto_provider())?;
        self.shown.0.store(Arc::new(key));
        Ok(())
    }

    /// The files this was read from, to be watched for changes.
    pub fn files(&self) -> &TlsFiles {
        &self.files
    }

    /// What a handshake needs.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

/// The key that the next handshake shows.
#[derive(Debug)]
struct Shown(ArcSwap<CertifiedKey>);

impl ResolvesServerCert for Shown {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}

fn read(files: &TlsFiles, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let chain = read_chain(&files.cert)?;
    let key = read_key(&files.key)?;
    CertifiedKey::from_der(chain, key, provider).map_err(|source| TlsError::Unfit {
        cert: files.cert.clone(),
        key: files.key.clone(),
        source,
    })
}

fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read_file(file)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|source| TlsError::Malformed { file: file.to_owned(), source })?;
    if chain.is_empty() {
        return Err(TlsError::NoCertificate { file: file.to_owned() });
    }
    Ok(chain)
}

fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read_file(file)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|source| match source {
        pem::Error::NoItemsFound => TlsError::NoKey { file: file.to_owned() },
        source => TlsError::Malformed { file: file.to_owned(), source },
    })
}

fn read_file(file: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(file).map_err(|source| TlsError::Unreadable { file: file.to_owned(), source })
}

/// RFC 7301 names of the two protocols, in order of preference.
pub(super) const ALPN_H2: &[u8] = b"h2";
const ALPN_H1: &[u8] = b"http/1.1";

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    #[test]
    fn a_reload_shows_the_new_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let files = write_pair(dir.path());
        let certificates = Certificates::load(files).unwrap();
        let before = certificates.shown.0.load().cert.clone();

        write_pair(dir.path());
        certificates.reload().unwrap();

        assert_ne!(certificates.shown.0.load().cert, before);
    }

    #[test]
    fn a_reload_that_fails_keeps_the_old_certificate_and_names_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let files = write_pair(dir.path());
        let certificates = Certificates::load(files.clone()).unwrap();
        let before = certificates.shown.0.load().cert.clone();
        let own_key = fs::read(&files.key).unwrap();
        let foreign_key = KeyPair::generate().unwrap().serialize_pem();
        let broken = "-----BEGIN PRIVATE KEY-----\n!\n-----END PRIVATE KEY-----\n";
        let fault = || certificates.reload().unwrap_err();

        fs::write(&files.key, foreign_key).unwrap();
        assert!(matches!(fault(), TlsError::Unfit { .. }), "{:?}", fault());
        fs::write(&files.key, "nothing here").unwrap();
        assert!(matches!(fault(), TlsError::NoKey { file } if file == files.key));
        fs::write(&files.key, broken).unwrap();
        assert!(matches!(fault(), TlsError::Malformed { file, .. } if file == files.key));
        fs::remove_file(&files.key).unwrap();
        assert!(matches!(fault(), TlsError::Unreadable { file, .. } if file == files.key));
        fs::write(&files.key, own_key).unwrap();
        fs::write(&files.cert, "").unwrap();
        assert!(matches!(fault(), TlsError::NoCertificate { file } if file == files.cert));

        assert_eq!(certificates.shown.0.load().cert, before);
    }

    fn write_pair(dir: &Path) -> TlsFiles {
        let key = KeyPair::generate().unwrap();
        let names = vec!["localhost".to_owned()];
        let cert = CertificateParams::new(names).unwrap().self_signed(&key).unwrap();
        let files = TlsFiles { cert: dir.join("server.pem"), key: dir.join("server.key") };
        fs::write(&files.cert, cert.pem()).unwrap();
        fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }
}
