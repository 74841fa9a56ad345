//! Settings that all outgoing requests of the process share.
//!
//! The client of servers, the exports of telemetry and the load tester connect with the same root
//! certificates, which are read once ([`client_tls`]), and introduce themselves with the same
//! headers. Telemetry is below the HTTP client, so these settings are below both.
//!
//! Nothing here opens a connection or sends a request.

#![warn(unreachable_pub)]

mod tls;

use http::HeaderValue;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::ClientConfig;

pub use tls::{PeerFiles, TlsSetupError, client_tls, is_platform_root, peer_tls, tls_for};

/// Builds a connector for HTTP/1.1 and HTTP/2.
pub fn https_connector(tls: ClientConfig) -> HttpsConnector<HttpConnector> {
    let connector = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    connector.enable_http1().enable_http2().build()
}

/// `User-Agent` of every request of the gateway: some firewalls refuse requests without one.
pub const OWN_USER_AGENT: HeaderValue =
    HeaderValue::from_static(concat!("trunkline/", env!("CARGO_PKG_VERSION")));
/// The value of `Accept-Encoding`: without one, a server may choose any coding (RFC 9110, 12.5.3).
pub const NO_ENCODING: HeaderValue = HeaderValue::from_static("identity");
