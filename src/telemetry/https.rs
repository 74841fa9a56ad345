//! The HTTPS connector of telemetry's own requests: to a collector, or to the receiver of events.

use std::sync::Arc;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::{ClientConfig, RootCertStore};
use url::Url;

/// Why TLS cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TlsSetupError {
    /// The platform's root certificates cannot be read.
    #[error("no root of trust of the platform could be read ({} faults)", .0.len())]
    Roots(Vec<rustls_native_certs::Error>),
    /// The library rejects the settings.
    #[error("TLS could not be set up")]
    Tls(#[from] rustls::Error),
}

/// A connector for this URL, by HTTP/1.1 or HTTP/2.
pub fn https_connector(tls: ClientConfig) -> HttpsConnector<HttpConnector> {
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    connector.enable_http1().enable_http2().build()
}

/// The settings of TLS towards a URL, with the platform's roots of trust. Blocks for as long as
/// reading them takes.
///
/// # Errors
/// [`TlsSetupError`].
pub fn platform_tls_config(url: &Url) -> Result<ClientConfig, TlsSetupError> {
    let mut roots = RootCertStore::empty();
    // Plain `http` does not need the root certificates, and reading them takes
    // milliseconds.
    if url.scheme() == "https" {
        let found = rustls_native_certs::load_native_certs();
        roots.add_parsable_certificates(found.certs);
        if roots.is_empty() {
            return Err(TlsSetupError::Roots(found.errors));
        }
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config =
        ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    Ok(config?.with_root_certificates(roots).with_no_client_auth())
}
