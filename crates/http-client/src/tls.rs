//! TLS settings for servers: the platform's root certificates and those of the configuration.

use std::error::Error;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

use trunkline_core::codec::file::{MAX_PEM, read_file};

use crate::error::{HttpError, HttpSetupFault};

/// Returns the TLS configuration for servers: the platform's root certificates, and those of a
/// file.
///
/// # Errors
/// [`HttpError::Setup`] if the file cannot be used.
pub(crate) fn client_tls(ca: Option<&Path>) -> Result<ClientConfig, HttpError> {
    // Most servers use only the platform's roots and share this configuration.
    static USUAL_TLS_CONFIG: OnceLock<ClientConfig> = OnceLock::new();
    match (ca, USUAL_TLS_CONFIG.get()) {
        (None, Some(usual)) => Ok(usual.clone()),
        (None, None) => {
            let usual = trusting(platform_roots().clone())?;
            Ok(USUAL_TLS_CONFIG.get_or_init(|| usual).clone())
        }
        (Some(path), _) => trusting(with_roots_of(path)?),
    }
}

fn with_roots_of(path: &Path) -> Result<RootCertStore, HttpError> {
    let unusable =
        |source: Arc<dyn Error + Send + Sync>| HttpSetupFault::Ca { path: path.into(), source };
    let text = read_file(path, MAX_PEM).map_err(|error| unusable(Arc::new(error)))?;
    let mut roots = platform_roots().clone();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| unusable(Arc::new(error)))?;
        roots.add(certificate).map_err(|error| unusable(Arc::new(error)))?;
    }
    Ok(roots)
}

fn trusting(roots: RootCertStore) -> Result<ClientConfig, HttpError> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(HttpSetupFault::Tls)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

/// Returns the platform's root certificates, read once.
fn platform_roots() -> &'static RootCertStore {
    static PLATFORM_ROOTS: OnceLock<RootCertStore> = OnceLock::new();
    PLATFORM_ROOTS.get_or_init(|| {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            tracing::warn!(target: "trunkline::upstream::transport::http::client", %error, "some of the platform's root certificates cannot be read");
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(found.certs);
        roots
    })
}
