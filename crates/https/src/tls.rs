//! TLS settings: the platform's root certificates, and those of a file.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, ConfigBuilder, RootCertStore, WantsVerifier};
use rustls_native_certs::CertificateResult;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use url::Url;

use trunkline_core::codec::file::{MAX_PEM, read_file};

/// Error of setting up TLS.
#[derive(Debug, Clone, thiserror::Error)]
pub enum TlsSetupError {
    /// The platform has no root certificates that can be read.
    #[error(
        "the platform has no root certificates ({faults} could not be read): install the package \
         ca-certificates, or set SSL_CERT_FILE"
    )]
    Roots {
        /// Number of certificates and files that cannot be read.
        faults: usize,
    },
    /// The file of root certificates cannot be used.
    #[error("the CA file {} cannot be used", path.display())]
    Ca {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// A file for connections between replicas cannot be used.
    #[error("the file {} cannot be used", path.display())]
    PeerFile {
        /// The file.
        path: PathBuf,
        /// The fault in the file.
        source: Arc<dyn Error + Send + Sync>,
    },
    /// The library rejects the settings.
    #[error("TLS cannot be set up")]
    Tls(#[from] rustls::Error),
}

/// The platform's root certificates.
#[derive(Clone)]
struct PlatformRoots {
    store: Arc<RootCertStore>,
    /// Number of certificates and files that cannot be read.
    faults: usize,
}

/// Returns the TLS settings for servers: the platform's root certificates, and those of a file.
/// Blocks while it reads them.
///
/// # Errors
/// [`TlsSetupError`] if the file cannot be used. Platform certificates that cannot be read are
/// only logged: the file's may suffice.
pub fn client_tls(ca: Option<&Path>) -> Result<ClientConfig, TlsSetupError> {
    // Most servers use only the platform's roots and share this configuration.
    static USUAL_TLS: OnceLock<ClientConfig> = OnceLock::new();
    match (ca, USUAL_TLS.get()) {
        (None, Some(usual)) => Ok(usual.clone()),
        (None, None) => {
            let roots = platform_roots();
            let usual = trusting(Arc::clone(&roots.store))?;
            // Without certificates, the next caller looks for them again.
            let is_final = !roots.store.is_empty();
            Ok(if is_final { USUAL_TLS.get_or_init(|| usual).clone() } else { usual })
        }
        (Some(path), _) => trusting(Arc::new(with_roots_of(path)?)),
    }
}

/// Files for connections between replicas, as PEM.
#[derive(Debug, Clone, Copy)]
pub struct PeerFiles<'a> {
    /// The certificate chain of this replica.
    pub cert: &'a Path,
    /// Its private key.
    pub key: &'a Path,
    /// The CA certificates of all replicas.
    pub ca: &'a Path,
}

/// Returns the TLS settings for connections to other replicas, over HTTP/2: this replica shows its
/// certificate, and trusts only the CA of the replicas. Blocks while it reads the files.
///
/// # Errors
/// [`TlsSetupError`].
pub fn peer_tls(files: PeerFiles<'_>) -> Result<ClientConfig, TlsSetupError> {
    let read = |path: &Path| {
        read_file(path, MAX_PEM).map_err(|error| unusable_peer_file(path, Arc::new(error)))
    };
    let certificates = |path: &Path| {
        let parsed = CertificateDer::pem_slice_iter(&read(path)?).collect::<Result<Vec<_>, _>>();
        parsed.map_err(|error| unusable_peer_file(path, Arc::new(error)))
    };
    let mut roots = RootCertStore::empty();
    for authority in certificates(files.ca)? {
        let added = roots.add(authority);
        added.map_err(|error| unusable_peer_file(files.ca, Arc::new(error)))?;
    }
    let key = PrivateKeyDer::from_pem_slice(&read(files.key)?);
    let key = key.map_err(|error| unusable_peer_file(files.key, Arc::new(error)))?;
    let mut config = tls_builder()?
        .with_root_certificates(roots)
        .with_client_auth_cert(certificates(files.cert)?, key)?;
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(config)
}

fn unusable_peer_file(path: &Path, source: Arc<dyn Error + Send + Sync>) -> TlsSetupError {
    TlsSetupError::PeerFile { path: path.into(), source }
}

/// Returns the TLS settings for a URL, with the platform's root certificates. Blocks while it reads
/// them; plain `http` does not need them.
///
/// # Errors
/// [`TlsSetupError`], also if the platform has no root certificates.
pub fn tls_for(url: &Url) -> Result<ClientConfig, TlsSetupError> {
    if url.scheme() != "https" {
        return trusting(Arc::new(RootCertStore::empty()));
    }
    let roots = platform_roots();
    if roots.store.is_empty() {
        return Err(TlsSetupError::Roots { faults: roots.faults });
    }
    client_tls(None)
}

/// Returns true if the platform has a root certificate with this subject, in DER. Blocks while it
/// reads the roots for the first time.
pub fn is_platform_root(subject: &[u8]) -> bool {
    platform_roots().store.subjects().iter().any(|root| root.as_ref() == subject)
}

fn with_roots_of(path: &Path) -> Result<RootCertStore, TlsSetupError> {
    let unusable =
        |source: Arc<dyn Error + Send + Sync>| TlsSetupError::Ca { path: path.into(), source };
    let text = read_file(path, MAX_PEM).map_err(|error| unusable(Arc::new(error)))?;
    let mut roots = RootCertStore::clone(&platform_roots().store);
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unusable(Arc::new(error)))?;
        roots.add(certificate).map_err(|error| unusable(Arc::new(error)))?;
    }
    Ok(roots)
}

fn trusting(roots: Arc<RootCertStore>) -> Result<ClientConfig, TlsSetupError> {
    Ok(tls_builder()?.with_root_certificates(roots).with_no_client_auth())
}

fn tls_builder() -> Result<ConfigBuilder<ClientConfig, WantsVerifier>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}

/// Returns the platform's root certificates, read once: reading them takes milliseconds.
fn platform_roots() -> PlatformRoots {
    static PLATFORM_ROOTS: OnceLock<PlatformRoots> = OnceLock::new();
    find_roots(&PLATFORM_ROOTS, rustls_native_certs::load_native_certs)
}

/// Returns the known roots, or reads them. They are read again by the next caller if there are none:
/// a volume with them may be mounted later.
fn find_roots(
    known: &OnceLock<PlatformRoots>,
    read: impl FnOnce() -> CertificateResult,
) -> PlatformRoots {
    if let Some(known) = known.get() {
        return known.clone();
    }
    let found = read();
    for error in &found.errors {
        tracing::warn!(target: "trunkline::upstream::transport::http::client", %error, "some of the platform's root certificates cannot be read");
    }
    let mut store = RootCertStore::empty();
    store.add_parsable_certificates(found.certs);
    let roots = PlatformRoots { store: Arc::new(store), faults: found.errors.len() };
    if roots.store.is_empty() {
        tracing::warn!(
            target: "trunkline::upstream::transport::http::client",
            "the platform has no root certificates: install the package ca-certificates, set \
             SSL_CERT_FILE, or set `ca` of each server"
        );
        return roots;
    }
    known.get_or_init(|| roots).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_platforms_roots_are_read_once() {
        let roots = platform_roots().store;
        let before = Arc::strong_count(&roots);
        assert!(Arc::ptr_eq(&roots, &platform_roots().store));
        client_tls(None).unwrap();
        assert!(Arc::strong_count(&roots) > before, "the settings share them");
    }

    #[test]
    fn roots_are_looked_for_again_until_there_are_some() {
        let known = OnceLock::new();
        assert!(find_roots(&known, CertificateResult::default).store.is_empty());
        let found = find_roots(&known, rustls_native_certs::load_native_certs);
        assert!(!found.store.is_empty(), "the package ca-certificates is installed");
        let unread = || unreachable!("the roots are known");
        assert!(Arc::ptr_eq(&found.store, &find_roots(&known, unread).store));
    }

    #[test]
    fn plain_http_needs_no_roots_and_a_bad_file_is_named() {
        assert!(tls_for(&"http://a.test/".parse().unwrap()).is_ok());
        let fault = client_tls(Some(Path::new("/nowhere/ca.pem"))).unwrap_err();
        assert_eq!(fault.to_string(), "the CA file /nowhere/ca.pem cannot be used");
        assert!(fault.source().is_some(), "{fault:?}");
    }
}
